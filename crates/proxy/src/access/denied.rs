//! Reason why a client is denied access.

/// Reason why a client is denied access.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("proxy authentication is required")]
    Missing,
    #[error("wrong user name, password or token")]
    Wrong,
    #[error("too many failed authentication attempts from this address")]
    TooOften,
    #[error("too many concurrent password checks")]
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
