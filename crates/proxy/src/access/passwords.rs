//! Users and their password hashes: a file in the format of `htpasswd -5` and `openssl passwd -6`.

use std::collections::HashMap;
use std::sync::Arc;

use argon2::{Argon2, Params, PasswordHash, PasswordVerifier as _};
use sha_crypt::{PasswordHasher as _, ShaCrypt};

use super::keyed_digest::DIGEST;

/// Maximum users of one file.
const USERS_MAX: usize = 100_000;
/// Maximum bytes of a name, and of a password, as in SOCKS (RFC 1929 section 2).
pub(super) const CREDENTIAL_BYTES_MAX: usize = 255;
/// Maximum rounds of SHA-crypt. This and the following limits bound the cost of a password check.
const ROUNDS_MAX: u32 = 1_000_000;
/// Maximum memory of Argon2 in KiB.
const MEMORY_KIB_MAX: u32 = 256 << 10;
/// Maximum passes (time cost) of an Argon2 hash.
const PASSES_MAX: u32 = 32;
/// Maximum lanes (parallelism) of an Argon2 hash.
const LANES_MAX: u32 = 16;
/// Minimum rounds of SHA-crypt. Hashes with fewer rounds are rejected.
const ROUNDS_MIN: u32 = 1_000;
/// Rounds of a SHA-crypt hash without `rounds=`.
const ROUNDS_USUAL: u32 = 5_000;
/// Maximum bytes of a SHA-crypt salt.
const SALT_BYTES_MAX: usize = 16;

/// Errors in a file of users.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadUsers {
    /// The line is neither empty, nor a comment, nor `NAME:HASH`. It is not shown, because it may contain a password.
    #[error("line {0} is not NAME:HASH, with a name of 1 to {CREDENTIAL_BYTES_MAX} bytes")]
    Line(usize),
    /// The hash has an unknown format or is too weak.
    #[error("line {0}: the hash is neither SHA-crypt ($6$, $5$) nor argon2 ($argon2id$)")]
    Hash(usize),
    /// The cost of the hash exceeds the limits, so any client could keep a processor busy with password checks.
    #[error(
        "line {0}: the cost of the hash exceeds {ROUNDS_MAX} rounds, or {MEMORY_KIB_MAX} KiB, {PASSES_MAX} passes and \
         {LANES_MAX} lanes"
    )]
    Dear(usize),
    /// A name occurs in two lines.
    #[error("line {0}: the name appears on an earlier line")]
    Twice(usize),
    /// There are more users than the maximum.
    #[error("there are more than {USERS_MAX} users")]
    TooMany,
}

/// User names with their password hashes.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// Index of each user's hash.
    names: HashMap<Arc<str>, usize>,
    hashes: Vec<Hash>,
}

/// A password hash. Debug output hides it, because a hash permits unlimited guesses.
#[derive(Clone, Eq, PartialEq)]
pub(super) enum Hash {
    ShaCrypt(Arc<str>),
    Argon2(Arc<PasswordHash>),
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash")
    }
}

impl Users {
    /// Parses lines `NAME:HASH`. Skips empty lines and comments (`#`).
    ///
    /// # Errors
    /// [`BadUsers`]
    pub fn parse(text: &str) -> Result<Self, BadUsers> {
        let mut users = Self::default();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.split_once(':').ok_or(BadUsers::Line(number))?;
            if !(1..=CREDENTIAL_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
                return Err(BadUsers::Line(number));
            }
            if users.hashes.len() >= USERS_MAX {
                return Err(BadUsers::TooMany);
            }
            let hash = Hash::parse(hash, number)?;
            if users.names.insert(Arc::from(name), users.hashes.len()).is_some() {
                return Err(BadUsers::Twice(number));
            }
            users.hashes.push(hash);
        }
        Ok(users)
    }

    /// Creates one user with a password, hashed with `salt`.
    ///
    /// # Errors
    /// [`BadUsers`]
    pub fn one(name: &str, password: &str, salt: [u8; 12]) -> Result<Self, BadUsers> {
        let hash = ShaCrypt::default().hash_password_with_salt(password.as_bytes(), &salt);
        let hash = hash.map_err(|_| BadUsers::Hash(1))?;
        Self::parse(&format!("{name}:{hash}"))
    }

    /// Iterates over all user names.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.keys()
    }

    /// Returns whether `name` has the same password hash here and in `other`.
    pub(super) fn has_same_hash(&self, name: &str, other: &Self) -> bool {
        let hash = |users: &Self| users.names.get(name).and_then(|at| users.hashes.get(*at)).cloned();
        hash(self).zip(hash(other)).is_some_and(|(one, other)| one == other)
    }

    /// Returns whether there are no users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the user's hash. For an unknown name, returns the hash of the user that `stand_in` selects, so that both cases take
    /// the same time.
    pub(super) fn hash_of(&self, name: &str, stand_in: &[u8; DIGEST]) -> Option<(Option<Arc<str>>, Hash)> {
        let (user, at) = match self.names.get_key_value(name) {
            Some((name, at)) => (Some(Arc::clone(name)), *at),
            None => {
                let drawn = stand_in.iter().fold(0_u64, |drawn, byte| (drawn << 8) ^ u64::from(*byte));
                (None, usize::try_from(drawn.checked_rem(self.hashes.len() as u64)?).ok()?)
            }
        };
        self.hashes.get(at).map(|hash| (user, hash.clone()))
    }
}

impl Hash {
    fn parse(text: &str, number: usize) -> Result<Self, BadUsers> {
        if text.starts_with("$6$") || text.starts_with("$5$") {
            let rounds = sha_crypt_rounds(text).ok_or(BadUsers::Hash(number))?;
            return match rounds > ROUNDS_MAX {
                true => Err(BadUsers::Dear(number)),
                false => Ok(Self::ShaCrypt(text.into())),
            };
        }
        let hash = PasswordHash::new(text).map_err(|_| BadUsers::Hash(number))?;
        let params = Params::try_from(&hash).map_err(|_| BadUsers::Hash(number))?;
        if hash.algorithm.as_str() != "argon2id" || hash.salt.is_none() || hash.hash.is_none() {
            return Err(BadUsers::Hash(number));
        }
        let dear =
            params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > LANES_MAX;
        if dear { Err(BadUsers::Dear(number)) } else { Ok(Self::Argon2(Arc::new(hash))) }
    }

    /// Returns whether `password` matches. Deliberately takes milliseconds or more.
    pub(super) fn fits(&self, password: &[u8]) -> bool {
        match self {
            Self::ShaCrypt(hash) => ShaCrypt::default().verify_password(password, &**hash).is_ok(),
            Self::Argon2(hash) => Argon2::default().verify_password(password, hash.as_ref()).is_ok(),
        }
    }
}

/// Returns the rounds of a valid hash `$6$SALT$HASH` or `$6$rounds=ROUNDS$SALT$HASH` (crypt(3)).
fn sha_crypt_rounds(text: &str) -> Option<u32> {
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/'));
    let fields: Vec<&str> = text.split('$').skip(2).collect();
    let (rounds, salt, hash) = match fields.as_slice() {
        [salt, hash] => (ROUNDS_USUAL, salt, hash),
        [rounds, salt, hash] => {
            let digits = rounds.strip_prefix("rounds=")?;
            // crypt(3) never writes a sign or a leading zero.
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
            (digits.parse().ok().filter(|_| is_number)?, salt, hash)
        }
        _ => return None,
    };
    let length = if text.starts_with("$6$") { 86 } else { 43 };
    let is_right = rounds >= ROUNDS_MIN
        && (1..=SALT_BYTES_MAX).contains(&salt.len())
        && is_plain(salt)
        && hash.len() == length
        && is_plain(hash);
    is_right.then_some(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `openssl passwd -6 -salt saltsalt secret`.
    const SHA512: &str =
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";

    /// Output of `openssl passwd -5 -salt saltsalt secret`.
    const SHA256: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
    /// Output of `openssl passwd -5 -salt 'rounds=1000$saltsalt' secret`.
    const ROUNDS: &str = "$5$rounds=1000$saltsalt$eKLZU9t9OoPWrqOQsoTIKG0aYkZ5rGOoOQhiIvoSWX2";

    #[test]
    fn sha_crypt_and_argon2_hashes_verify_only_their_password() {
        let argon2 = argon2::PasswordHasher::hash_password(&Argon2::default(), b"secret").unwrap();
        let users = Users::parse(&format!("a:{SHA512}\nb:{argon2}\nc:{SHA256}\nd:{ROUNDS}\n")).unwrap();
        for name in ["a", "b", "c", "d"] {
            let (user, hash) = users.hash_of(name, &[0; DIGEST]).unwrap();
            assert_eq!(user.as_deref(), Some(name));
            assert!(hash.fits(b"secret") && !hash.fits(b"Secret") && !hash.fits(b""), "{name}");
        }
        // An unknown name always gets the hash of the same user.
        let mut stood_in = [0; 4];
        for drawn in 0..=255 {
            let (user, hash) = users.hash_of("e", &[drawn; DIGEST]).unwrap();
            assert_eq!(user, None);
            let same = |other: &Hash| match (&hash, other) {
                (Hash::ShaCrypt(one), Hash::ShaCrypt(other)) => Arc::ptr_eq(one, other),
                (Hash::Argon2(one), Hash::Argon2(other)) => Arc::ptr_eq(one, other),
                _ => false,
            };
            stood_in[users.hashes.iter().position(same).unwrap()] += 1;
        }
        assert!(stood_in.iter().all(|times| *times > 0), "{stood_in:?}");
        assert!(Users::default().hash_of("e", &[1; DIGEST]).is_none());
    }

    #[test]
    fn invalid_user_lines_are_rejected_with_line_number() {
        let sha = format!("a:{SHA512}");
        for (text, wanted) in [
            ("\n# none\nalice", BadUsers::Line(3)),
            (":$6$a$b", BadUsers::Line(1)),
            ("a:secret", BadUsers::Hash(1)),
            ("a:$apr1$aaaaaaaa$bbbbbbbbbbbbbbbbbbbbbb", BadUsers::Hash(1)),
            ("a:$6$rounds=9999999$", BadUsers::Hash(1)),
            (&format!("a:$6$rounds=9999999$a${}", "x".repeat(86)), BadUsers::Dear(1)),
            (&format!("a:$6$rounds=999$salt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$rounds=+5000$salt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$rounds=05000$salt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$rounds=$salt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$5000$salt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$$salt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$sa-lt${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$6$seventeen17octets${}", "x".repeat(86)), BadUsers::Hash(1)),
            (&format!("a:$5$salt${}", "-".repeat(43)), BadUsers::Hash(1)),
            (&format!("{sha}\n{sha}"), BadUsers::Twice(2)),
            (
                "a:$argon2id$v=19$m=65536,t=1,p=1$c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                BadUsers::Hash(1),
            ),
            (
                "a:$argon2id$v=19$m=1048576,t=1,p=1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                BadUsers::Dear(1),
            ),
        ] {
            assert_eq!(Users::parse(text).unwrap_err(), wanted, "{text}");
        }
    }
}
