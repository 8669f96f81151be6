//! Keys in age's text format: `age1…` for recipients, `AGE-SECRET-KEY-1…` for private keys.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use bech32::{Bech32, Hrp};
use secrecy::{ExposeSecret, SecretString};
use zeroize::{Zeroize, Zeroizing};

use super::error::AgeError;
use crate::random::random;

const KEY: usize = 32;
const PUBLIC: &str = "age";
const PRIVATE: &str = "age-secret-key-";

const NOT_RECIPIENT: AgeError = AgeError::BadKey("a recipient must begin with age1");
const NOT_IDENTITY: AgeError = AgeError::BadKey("a key must begin with AGE-SECRET-KEY-1");

/// Recipient of a file: an X25519 public key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Recipient(pub(super) [u8; KEY]);

/// Key that opens a file: an X25519 private key.
#[derive(Clone)]
pub struct Identity {
    private: Zeroizing<[u8; KEY]>,
    public: [u8; KEY],
}

impl Identity {
    /// Generates a new key.
    #[must_use]
    pub fn generate() -> Self {
        Self::of(random::<KEY>())
    }

    fn of(private: Zeroizing<[u8; KEY]>) -> Self {
        let key = PrivateKey::from_private_key(&X25519, &*private).expect("32 octets are an X25519 key");
        let public = key.compute_public_key().expect("an X25519 key has a public half");
        let mut bytes = [0; KEY];
        bytes.copy_from_slice(public.as_ref());
        Self { private, public: bytes }
    }

    /// Returns the recipient (public key) of this key.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient(self.public)
    }

    /// Returns the key in the text form of `age`.
    #[must_use]
    pub fn to_text(&self) -> SecretString {
        let hrp = Hrp::parse_unchecked(PRIVATE);
        let mut text = bech32::encode::<Bech32>(hrp, &*self.private).unwrap_or_default();
        text.make_ascii_uppercase();
        text.into()
    }

    /// Computes the shared secret of this key and the peer's public key. `None` for a public key of small order.
    pub(super) fn agree(&self, peer: &[u8]) -> Option<Zeroizing<[u8; KEY]>> {
        let key = PrivateKey::from_private_key(&X25519, &*self.private).ok()?;
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let take = |shared: &[u8]| <[u8; KEY]>::try_from(shared).map(Zeroizing::new).map_err(|_| ());
        agreement::agree(&key, peer, (), take).ok()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.recipient())
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = bech32::encode::<Bech32>(Hrp::parse_unchecked(PUBLIC), &self.0);
        f.write_str(&text.unwrap_or_default())
    }
}

impl FromStr for Recipient {
    type Err = AgeError;

    fn from_str(text: &str) -> Result<Self, AgeError> {
        let bytes = decoded(text, PUBLIC).ok_or(NOT_RECIPIENT)?;
        Ok(Self(*bytes))
    }
}

impl Identity {
    /// Parses a key file as `age-keygen` writes it: one key a line, comments after `#`.
    ///
    /// # Errors
    /// [`AgeError::BadKey`] for any other line, or if the file has no key.
    pub fn parse_file(text: &SecretString) -> Result<Vec<Self>, AgeError> {
        let lines = text.expose_secret().lines().map(str::trim);
        let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all: Vec<Self> = keys
            .map(|line| decoded(line, PRIVATE).map(Self::of).ok_or(NOT_IDENTITY))
            .collect::<Result<_, _>>()?;
        if all.is_empty() { Err(NOT_IDENTITY) } else { Ok(all) }
    }
}

/// Decodes 32 bytes in Bech32 (BIP 173) with this prefix.
fn decoded(text: &str, prefix: &str) -> Option<Zeroizing<[u8; KEY]>> {
    let checked = bech32::primitives::decode::CheckedHrpstring::new::<Bech32>(text.trim()).ok()?;
    if !checked.hrp().to_lowercase().eq(prefix) {
        return None;
    }
    let mut bytes: Vec<u8> = checked.byte_iter().collect();
    let key = <[u8; KEY]>::try_from(bytes.as_slice()).ok().map(Zeroizing::new);
    bytes.zeroize();
    key
}
