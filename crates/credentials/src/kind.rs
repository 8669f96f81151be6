//! Types of credentials.

use std::fmt;
use std::str::FromStr;

/// A type of credential.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// A text.
    Value,
    /// Any JSON.
    Json,
    /// A password.
    Password,
    /// A name with a password.
    User,
    /// A certificate with its key and its authority's certificate.
    Certificate,
    /// An RSA key pair.
    Rsa,
    /// An SSH key pair.
    Ssh,
}

impl Kind {
    /// Every type.
    pub const ALL: [Self; 7] =
        [Self::Value, Self::Json, Self::Password, Self::User, Self::Certificate, Self::Rsa, Self::Ssh];

    /// As it is written everywhere.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Json => "json",
            Self::Password => "password",
            Self::User => "user",
            Self::Certificate => "certificate",
            Self::Rsa => "rsa",
            Self::Ssh => "ssh",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no type.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no type of credential has that name")]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    /// In any case.
    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text)).ok_or(UnknownKind)
    }
}
