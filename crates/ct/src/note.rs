//! Signed notes (c2sp.org/signed-note) and checkpoints in them (c2sp.org/tlog-checkpoint), with the signatures of CT logs
//! (c2sp.org/static-ct-api, "Checkpoints").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509::{PublicKey, SignatureAlgorithm, verify_signature};

use super::merkle::{Hash, sha256};

/// Longest accepted note in bytes. Sixteen signatures of post-quantum witnesses have less than 80 kB.
pub const NOTE_BYTES_MAX: usize = 128 * 1024;
/// Maximum signatures read from one note; signed-note requires support for at least 16.
pub const SIGNATURES_MAX: usize = 64;
/// Note signature type of an RFC 6962 TreeHeadSignature (static-ct-api).
const RFC6962_TYPE: u8 = 0x05;

/// Origin, public key and IDs of a log, for the verification of its checkpoints.
#[derive(Clone, Debug)]
pub struct LogKey {
    origin: String,
    key: PublicKey,
    log_id: Hash,
    key_id: [u8; 4],
}

/// A signed statement of a log: its size, root and time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// Number of leaves.
    pub size: u64,
    /// Root of the Merkle tree.
    pub root: Hash,
    /// Time at which the log signed the checkpoint, milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: u64,
}

/// Error for an invalid key or name of a log.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the log's key cannot be read: {0}")]
pub struct BadLogKey(String);

/// Reason why a note is not a valid checkpoint of this log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// The input is not a signed note.
    #[error("not a signed note: {0}")]
    NotNote(&'static str),
    /// The input is a signed note, but not a checkpoint.
    #[error("not a checkpoint: {0}")]
    NotCheckpoint(&'static str),
    /// The checkpoint belongs to another log.
    #[error("the checkpoint belongs to another log: its origin differs")]
    OtherOrigin,
    /// The checkpoint has no signature by the log's key.
    #[error("the checkpoint is not signed by the log")]
    Unsigned,
    /// The signature under the log's key name is invalid.
    #[error("the log's signature is invalid")]
    BadSignature,
}

impl LogKey {
    /// Creates the key of a log from its submission prefix and its DER SubjectPublicKeyInfo. The origin is the prefix without
    /// scheme and trailing slashes.
    ///
    /// # Errors
    /// [`BadLogKey`].
    pub fn new(submission_url: &str, spki: &[u8]) -> Result<Self, BadLogKey> {
        let key = PublicKey::parse(spki).map_err(|error| BadLogKey(error.to_string()))?;
        let origin = submission_url.split_once("://").map_or(submission_url, |(_, rest)| rest);
        let origin = origin.trim_end_matches('/').to_owned();
        if origin.is_empty() || origin.chars().any(|c| c.is_whitespace() || c.is_control() || c == '+') {
            return Err(BadLogKey(format!("{origin:?} is not a valid log origin")));
        }
        let log_id = sha256(spki);
        let hashed = sha256(&[origin.as_bytes(), &[b'\n', RFC6962_TYPE], &log_id].concat());
        let key_id = [hashed[0], hashed[1], hashed[2], hashed[3]];
        Ok(Self { origin, key, log_id, key_id })
    }

    /// Returns the origin: the first line of the log's checkpoints.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the log ID: SHA-256 of the key (RFC 6962 section 3.2).
    #[must_use]
    pub fn log_id(&self) -> &Hash {
        &self.log_id
    }

    /// Parses and verifies a checkpoint of this log. Signatures of other keys are ignored; every signature under this key's name
    /// must be valid. The signature does not cover the origin line, so the origin identifies the log but is not proven.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn verify(&self, note: &[u8]) -> Result<Checkpoint, CheckpointError> {
        let note = Note::parse(note)?;
        let (origin, size, root) = read_body(note.text)?;
        if origin != self.origin {
            return Err(CheckpointError::OtherOrigin);
        }
        let mut newest = None;
        for signature in note.signatures.iter().filter(|one| self.is_signer_of(one)) {
            let timestamp = self.check(size, &root, &signature.bytes[4..])?;
            newest = newest.max(Some(timestamp));
        }
        let timestamp_ms = newest.ok_or(CheckpointError::Unsigned)?;
        Ok(Checkpoint { size, root, timestamp_ms })
    }

    fn is_signer_of(&self, signature: &NoteSignature<'_>) -> bool {
        signature.name == self.origin && signature.bytes.starts_with(&self.key_id)
    }

    /// Verifies an RFC6962NoteSignature of static-ct-api over the TreeHeadSignature of RFC 6962 section 3.5; returns the timestamp.
    fn check(&self, size: u64, root: &Hash, bytes: &[u8]) -> Result<u64, CheckpointError> {
        const SHA256_RSA: [u8; 2] = [4, 1];
        const SHA256_ECDSA: [u8; 2] = [4, 3];
        let bad = CheckpointError::BadSignature;
        let (timestamp, rest) = bytes.split_first_chunk::<8>().ok_or(bad)?;
        let (algorithm, rest) = rest.split_first_chunk::<2>().ok_or(bad)?;
        let (length, signature) = rest.split_first_chunk::<2>().ok_or(bad)?;
        if usize::from(u16::from_be_bytes(*length)) != signature.len() {
            return Err(bad);
        }
        let algorithm = match *algorithm {
            SHA256_ECDSA => SignatureAlgorithm::EcdsaSha256,
            SHA256_RSA => SignatureAlgorithm::RsaSha256,
            _ => return Err(bad),
        };
        // version v1, signature type tree_hash
        let mut signed = vec![0, 1];
        signed.extend_from_slice(timestamp);
        signed.extend_from_slice(&size.to_be_bytes());
        signed.extend_from_slice(root);
        verify_signature(&self.key, &algorithm, &signed, signature).map_err(|_| bad)?;
        Ok(u64::from_be_bytes(*timestamp))
    }
}

struct Note<'a> {
    /// Text of the note, with its last newline.
    text: &'a str,
    signatures: Vec<NoteSignature<'a>>,
}

struct NoteSignature<'a> {
    name: &'a str,
    /// Key ID and signature.
    bytes: Vec<u8>,
}

impl<'a> Note<'a> {
    fn parse(note: &'a [u8]) -> Result<Self, CheckpointError> {
        let wrong = |what| Err(CheckpointError::NotNote(what));
        if note.len() > NOTE_BYTES_MAX {
            return wrong("too long");
        }
        let Ok(note) = std::str::from_utf8(note) else { return wrong("not UTF-8") };
        if note.bytes().any(|b| b < 0x20 && b != b'\n') {
            return wrong("control characters");
        }
        let Some(middle) = note.rfind("\n\n") else { return wrong("no signatures") };
        let (text, lines) = (&note[..=middle], &note[middle + 2..]);
        let Some(lines) = lines.strip_suffix('\n') else { return wrong("no newline at the end") };
        if lines.split('\n').count() > SIGNATURES_MAX {
            return wrong("too many signatures");
        }
        let signatures: Option<Vec<_>> = lines.split('\n').map(NoteSignature::parse).collect();
        match signatures {
            Some(signatures) => Ok(Self { text, signatures }),
            None => wrong("a line is not a signature"),
        }
    }
}

impl<'a> NoteSignature<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, signature) = line.strip_prefix("— ")?.split_once(' ')?;
        if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c == '+') {
            return None;
        }
        let bytes = STANDARD.decode(signature).ok().filter(|bytes| bytes.len() > 4)?;
        Some(Self { name, bytes })
    }
}

/// Parses origin, size and root.
fn read_body(text: &str) -> Result<(&str, u64, Hash), CheckpointError> {
    let wrong = CheckpointError::NotCheckpoint;
    let mut lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let origin = lines.next().filter(|line| !line.is_empty()).ok_or(wrong("no origin"))?;
    let size = lines.next().ok_or(wrong("no size"))?;
    let plain = size.bytes().all(|b| b.is_ascii_digit()) && (size == "0" || !size.starts_with('0'));
    let size = size.parse().ok().filter(|_| plain).ok_or(wrong("the size is not a number"))?;
    let root = lines.next().and_then(|line| STANDARD.decode(line).ok());
    let root = root.and_then(|root| root.try_into().ok()).ok_or(wrong("the root is not a hash"))?;
    // The signature does not cover extension lines, so static-ct-api forbids them.
    if lines.next().is_some() {
        return Err(wrong("extension lines"));
    }
    Ok((origin, size, root))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
    use proptest::prelude::*;

    use super::*;

    struct Log {
        pair: EcdsaKeyPair,
        key: LogKey,
    }

    impl Log {
        fn new() -> Self {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
            let spki = x509::der::write(|w| {
                w.sequence(|w| {
                    w.sequence(|w| {
                        w.oid(&[1, 2, 840, 10_045, 2, 1]).oid(&[1, 2, 840, 10_045, 3, 1, 7]);
                    });
                    w.bits(pair.public_key().as_ref());
                });
            });
            let key = LogKey::new("https://log.example/2026h2/", &spki).unwrap();
            Self { pair, key }
        }

        fn line(&self, size: u64, root: &Hash, timestamp: u64) -> String {
            let mut signed = vec![0, 1];
            signed.extend(timestamp.to_be_bytes());
            signed.extend(size.to_be_bytes());
            signed.extend(root);
            let signature = self.pair.sign(&SystemRandom::new(), &signed).unwrap();
            let mut bytes = self.key.key_id.to_vec();
            bytes.extend(timestamp.to_be_bytes());
            bytes.extend([4, 3]);
            bytes.extend((signature.as_ref().len() as u16).to_be_bytes());
            bytes.extend(signature.as_ref());
            format!("— log.example/2026h2 {}\n", STANDARD.encode(bytes))
        }

        fn note(&self, size: u64, root: &Hash, timestamp: u64) -> String {
            let line = self.line(size, root, timestamp);
            format!("log.example/2026h2\n{size}\n{}\n\n{line}", STANDARD.encode(root))
        }
    }

    const ROOT: Hash = [9; 32];

    #[test]
    fn checkpoint_is_verified_and_parsed() {
        let log = Log::new();
        assert_eq!(log.key.origin(), "log.example/2026h2");
        let read = log.key.verify(log.note(1_234, &ROOT, 77).as_bytes());
        assert_eq!(read, Ok(Checkpoint { size: 1_234, root: ROOT, timestamp_ms: 77 }));
    }

    #[test]
    fn foreign_signatures_are_ignored_and_invalid_ones_rejected() {
        let log = Log::new();
        let note = log.note(5, &ROOT, 77);
        let witness = format!("— witness.example {}\n", STANDARD.encode([1; 80]));
        assert!(log.key.verify(format!("{note}{witness}").as_bytes()).is_ok());
        let body = &note[..note.find("\n\n").unwrap() + 2];
        let unsigned = format!("{body}{witness}");
        assert_eq!(log.key.verify(unsigned.as_bytes()), Err(CheckpointError::Unsigned));
        let of_another_size = format!("{note}{}", log.line(6, &ROOT, 77));
        assert_eq!(log.key.verify(of_another_size.as_bytes()), Err(CheckpointError::BadSignature));
        let cosigned = format!("{note}{}", log.line(5, &ROOT, 99));
        assert_eq!(log.key.verify(cosigned.as_bytes()).unwrap().timestamp_ms, 99);
    }

    #[test]
    fn malformed_or_foreign_checkpoints_are_rejected() {
        let log = Log::new();
        let note = log.note(5, &ROOT, 77);
        let table = [
            (note.replace("log.example", "lag.example"), CheckpointError::OtherOrigin),
            (note.replace("\n5\n", "\n6\n"), CheckpointError::BadSignature),
            (note.replace("\n5\n", "\n05\n"), CheckpointError::NotCheckpoint("the size is not a number")),
            (note.replace("\n5\n", "\n+5\n"), CheckpointError::NotCheckpoint("the size is not a number")),
            (note.replace("\n\n", "\nextension\n\n"), CheckpointError::NotCheckpoint("extension lines")),
            (note.replace("\n\n", "\n"), CheckpointError::NotNote("no signatures")),
            (note.replace('—', "-"), CheckpointError::NotNote("a line is not a signature")),
            (note.trim_end().to_owned(), CheckpointError::NotNote("no newline at the end")),
            (format!("\r{note}"), CheckpointError::NotNote("control characters")),
        ];
        for (text, error) in table {
            assert_eq!(log.key.verify(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(Log::new().key.verify(note.as_bytes()), Err(CheckpointError::Unsigned), "another key");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_and_text_are_rejected_as_checkpoint(bytes: Vec<u8>, text: String) {
            let log = Log::new();
            prop_assert!(log.key.verify(&bytes).is_err());
            prop_assert!(log.key.verify(text.as_bytes()).is_err());
        }

        #[test]
        fn any_changed_byte_invalidates_the_checkpoint(at: prop::sample::Index, with: u8) {
            let log = Log::new();
            let note = log.note(70_000, &ROOT, 77);
            let mut bytes = note.clone().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = with;
            let same = bytes == note.as_bytes();
            prop_assert_eq!(log.key.verify(&bytes).is_ok(), same, "octet {}", at);
        }
    }
}
