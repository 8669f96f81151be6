//! Why a client is denied access.

/// Why a client is denied access.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("who uses this proxy has to say who they are")]
    Missing,
    #[error("the user or the password, or the token, is wrong")]
    Wrong,
    #[error("too many tries have failed from there")]
    TooOften,
    #[error("too many passwords wait to be looked at")]
    Busy,
    #[error("the keys of the token's issuer cannot be fetched")]
    NoKeys,
}

impl Denied {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::TooOften => "too-often",
            Self::Busy => "busy",
            Self::NoKeys => "no-keys",
        }
    }
}
