//! Session ticket keys, so that resumed connections need no signature.
//!
//! The secrets are read from a file that all terminators for the same names share, or are generated in memory. Each set of names
//! derives its own key from each secret: a session for one name cannot be resumed under another.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER_PERMISSIVE;
use s2n_tls::config::Builder;
use s2n_tls::error::Error;
use zeroize::Zeroizing;

/// Maximum secrets in a file. The first secret encrypts new tickets; all secrets decrypt.
pub const TICKET_KEYS_MAX: usize = 3;
/// Length of a secret in bytes.
const SECRET: usize = 32;
/// Length of a key's name in bytes.
const NAME: usize = 16;
/// Maximum size of a file of secrets, in bytes.
const FILE_MAX: u64 = 4_096;
/// Validity of a key for the TLS library: practically unlimited, because this module decides when a key expires.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Reason why the ticket keys cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum BadTicketKeys {
    /// The file cannot be read.
    #[error("cannot read the ticket keys in {path}: {source}", path = .path.display())]
    Io {
        /// Path of the file with ticket keys.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file does not have the format of ticket keys.
    #[error(
        "{path} has no ticket keys: write one to {TICKET_KEYS_MAX} lines of 64 hexadecimal digits (openssl rand -hex 32), \
         the newest first",
        path = .0.display()
    )]
    Malformed(PathBuf),
    /// The system's random number generator failed.
    #[error("the operating system returned no random bytes")]
    NoRandom,
}

type Secret = Zeroizing<[u8; SECRET]>;

/// Secrets of ticket keys, newest first.
#[derive(Clone, PartialEq)]
pub(super) struct TicketSecrets(Vec<Secret>);

impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketSecrets({})", self.0.len())
    }
}

impl TicketSecrets {
    fn read(path: &Path) -> Result<Self, BadTicketKeys> {
        use io::Read;
        let failed = |source| BadTicketKeys::Io { path: path.to_owned(), source };
        let mut text = Zeroizing::new(String::new());
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let secrets: Option<Vec<Secret>> = lines.map(secret).collect();
        let secrets = secrets.filter(|secrets| {
            let distinct: BTreeSet<&[u8]> = secrets.iter().map(|secret| &secret[..]).collect();
            (1..=TICKET_KEYS_MAX).contains(&secrets.len()) && distinct.len() == secrets.len()
        });
        secrets.map(Self).ok_or_else(|| BadTicketKeys::Malformed(path.to_owned()))
    }

    /// Generates a new secret. The newest of `before` stays for decryption; older secrets are dropped.
    fn after(before: Option<&Self>) -> Result<Self, BadTicketKeys> {
        let mut new = Secret::default();
        aws_lc_rs::rand::fill(&mut new[..]).map_err(|_| BadTicketKeys::NoRandom)?;
        let previous = before.and_then(|before| before.0.first().cloned());
        Ok(Self([Some(new), previous].into_iter().flatten().collect()))
    }

    /// Configures tickets for these names: the first secret encrypts, all decrypt.
    pub(super) fn add_to(
        &self,
        builder: &mut Builder,
        names: &BTreeSet<&str>,
        now: SystemTime,
    ) -> Result<(), Error> {
        builder.set_ticket_key_encrypt_decrypt_lifetime(FOREVER)?;
        builder.set_ticket_key_decrypt_lifetime(FOREVER)?;
        for (at, secret) in self.0.iter().enumerate() {
            let derived =
                Zeroizing::new([derive(secret, b"key", names), derive(secret, b"name", names)].concat());
            // A key dated in the past only decrypts.
            let since = if at == 0 { now } else { now - FOREVER - Duration::from_secs(1) };
            builder.add_session_ticket_key(&derived[SECRET..SECRET + NAME], &derived[..SECRET], since)?;
        }
        Ok(())
    }
}

fn derive(secret: &Secret, what: &[u8], names: &BTreeSet<&str>) -> Vec<u8> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &secret[..]));
    context.update(what);
    for name in names {
        context.update(b"\n");
        context.update(name.as_bytes());
    }
    context.sign().as_ref().to_vec()
}

fn secret(line: &str) -> Option<Secret> {
    let digits = line.as_bytes();
    if digits.len() != 2 * SECRET {
        return None;
    }
    let mut secret = Secret::default();
    HEXLOWER_PERMISSIVE.decode_mut(digits, &mut secret[..]).ok()?;
    Some(secret)
}

/// The source of ticket keys, and the current keys.
#[derive(Debug)]
pub(super) struct TicketKeys {
    file: Option<PathBuf>,
    life: Duration,
    made: Instant,
    pub(super) secrets: TicketSecrets,
}

impl TicketKeys {
    /// Loads the secrets from the file, or generates them if there is none.
    pub(super) fn new(file: Option<PathBuf>, life: Duration, now: Instant) -> Result<Self, BadTicketKeys> {
        let secrets = match &file {
            Some(path) => TicketSecrets::read(path)?,
            None => TicketSecrets::after(None)?,
        };
        Ok(Self { file, life, made: now, secrets })
    }

    /// Reads the file again, or generates a new secret when it is due. Returns whether the keys have changed.
    ///
    /// # Errors
    /// [`BadTicketKeys`]; the current keys stay in use.
    pub(super) fn reload(&mut self, now: Instant) -> Result<bool, BadTicketKeys> {
        let new = match &self.file {
            Some(path) => TicketSecrets::read(path)?,
            None if now.saturating_duration_since(self.made) < self.life => return Ok(false),
            None => TicketSecrets::after(Some(&self.secrets))?,
        };
        if new == self.secrets {
            return Ok(false);
        }
        (self.secrets, self.made) = (new, now);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ticket_keys_rotate_and_keep_the_previous_key() {
        let (hour, began) = (Duration::from_secs(3_600), Instant::now());
        let mut keys = TicketKeys::new(None, hour, began).unwrap();
        let first = keys.secrets.clone();
        assert!(!keys.reload(began + hour - Duration::from_secs(1)).unwrap());
        assert!(keys.reload(began + hour).unwrap());
        assert_eq!(keys.secrets.0.len(), 2);
        assert!(keys.secrets.0[1] == first.0[0] && keys.secrets.0[0] != first.0[0]);
        assert!(!keys.reload(began + hour).unwrap());
        assert!(keys.reload(began + hour * 2).unwrap());
        assert!(!keys.secrets.0.contains(&first.0[0]), "two open");
    }

    #[test]
    fn ticket_key_file_contains_one_to_three_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let (a, b) = ("0123456789abcdef".repeat(4), "fedcba9876543210".repeat(4));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            TicketSecrets::read(&path).map(|secrets| secrets.0.len()).ok()
        };
        assert_eq!(read(&format!("{a}\n")), Some(1));
        assert_eq!(read(&format!("{a}\n\n  {b}  \n")), Some(2));
        let (c, d) = ("11".repeat(32), "22".repeat(32));
        assert_eq!(read(&format!("{a}\n{b}\n{c}")), Some(3));
        assert_eq!(read(&format!("{a}\n{b}\n{c}\n{d}")), None, "more than three");
        for wrong in ["", "abc", &a[1..], &format!("{a}0"), &a.replace('0', "g"), &format!("{a}\n{a}")] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert!(matches!(TicketSecrets::read(&folder.path().join("no")), Err(BadTicketKeys::Io { .. })));
    }

    #[test]
    fn ticket_keys_differ_per_set_of_names() {
        let secret = secret(&"ab".repeat(32)).unwrap();
        let one = BTreeSet::from(["a.example"]);
        let other = BTreeSet::from(["a.example", "b.example"]);
        assert_eq!(derive(&secret, b"key", &one), derive(&secret, b"key", &one));
        assert_ne!(derive(&secret, b"key", &one), derive(&secret, b"key", &other));
        assert_ne!(derive(&secret, b"key", &one), derive(&secret, b"name", &one));
    }
}
