//! The verdict on a chain, and the reasons not to trust one.

use std::fmt;
use std::sync::Arc;

use crate::{Certificate, Fingerprint, UnixTime};

/// What clients would say of a chain.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// A path to a trusted root keeps all rules.
    Trusted {
        /// From the leaf to the root.
        path: Vec<Arc<Certificate>>,
    },
    /// The leaf is signed by its own key and not itself trusted.
    SelfSigned,
    /// The leaf was sent without its issuer, and that issuer is not trusted.
    Incomplete {
        /// The name of the missing issuer.
        missing: String,
        /// URL of the issuer's certificate, from the certificate below it.
        issuer_url: Option<String>,
    },
    /// There is a path, and it must not be trusted.
    Untrusted {
        /// Why not.
        reason: Distrust,
    },
}

/// Why a path must not be trusted. `which` names the certificate at fault.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Distrust {
    /// The path ends at a self-signed certificate that is not in the store.
    SelfSignedRootNotTrusted {
        /// That certificate.
        root: Fingerprint,
        /// Its name.
        name: String,
    },
    /// The path ends at an intermediate whose issuer was neither sent nor is in the store. Servers leave their root out
    /// (RFC 8446 section 4.4.2), so that issuer is a root of a private PKI.
    RootNotTrusted {
        /// The certificate at the end of the path.
        which: Fingerprint,
        /// The name of its issuer.
        name: String,
    },
    /// A certificate above the leaf has expired.
    Expired {
        /// Which.
        which: Fingerprint,
        /// Its name.
        name: String,
        /// Its last second.
        not_after: UnixTime,
    },
    /// A certificate above the leaf is not valid yet.
    NotYetValid {
        /// Which.
        which: Fingerprint,
        /// Its name.
        name: String,
        /// Its first second.
        not_before: UnixTime,
    },
    /// The signature is not by the key of the certificate's issuer.
    BadSignature {
        /// Which.
        which: Fingerprint,
        /// Its name.
        name: String,
    },
    /// The signature cannot be checked here (MD5, DSA, tiny RSA …).
    UnsupportedSignature {
        /// Which.
        which: Fingerprint,
        /// Why it cannot be checked.
        why: &'static str,
    },
    /// The issuer is no certification authority (RFC 5280 section 4.2.1.9).
    NotCa {
        /// Which.
        which: Fingerprint,
        /// Its name.
        name: String,
    },
    /// The issuer's key usage has no keyCertSign (RFC 5280 section 4.2.1.3).
    NoCertSign {
        /// Which.
        which: Fingerprint,
        /// Its name.
        name: String,
    },
    /// More intermediates than pathLenConstraint allows (RFC 5280 section 4.2.1.9).
    PathLength {
        /// The certificate with the constraint.
        which: Fingerprint,
        /// Its name.
        name: String,
    },
    /// Extended key usage leaves out TLS servers (RFC 5280 section 4.2.1.12).
    NotForServers {
        /// Which.
        which: Fingerprint,
        /// Its name.
        name: String,
    },
    /// A name the issuer may not certify (RFC 5280 section 4.2.1.10).
    NameConstraint {
        /// The certificate with the constraint.
        which: Fingerprint,
        /// The name that breaks it.
        name: String,
    },
    /// A critical extension nobody here knows (RFC 5280 section 4.2).
    UnknownCritical {
        /// Which.
        which: Fingerprint,
        /// The extension, dotted.
        extension: String,
    },
    /// Finding out would take more work than a chain is worth: [`super::CHECKS_MAX`], [`super::PATH_MAX`].
    Budget,
}

impl Verdict {
    /// A word for filters: `trusted`, `self-signed`, `incomplete`, `untrusted` (a root that is
    /// not trusted), `expired-intermediate`, or `invalid` for every other broken rule.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Trusted { .. } => "trusted",
            Self::SelfSigned => "self-signed",
            Self::Incomplete { .. } => "incomplete",
            Self::Untrusted {
                reason: Distrust::SelfSignedRootNotTrusted { .. } | Distrust::RootNotTrusted { .. },
            } => "untrusted",
            Self::Untrusted { reason: Distrust::Expired { .. } } => "expired-intermediate",
            Self::Untrusted { .. } => "invalid",
        }
    }

    /// Whether the fault is `leaf`'s own and [`crate::lint::lint`] tells it already: a usage other
    /// than TLS servers, an unknown critical extension. Anyone who reports both would say it twice.
    #[must_use]
    pub fn is_told_by_lint(&self, leaf: &Certificate) -> bool {
        let Self::Untrusted { reason } = self else { return false };
        matches!(reason, Distrust::NotForServers { .. } | Distrust::UnknownCritical { .. })
            && reason.which() == Some(leaf.fingerprint)
    }

    /// Whether it is [`Verdict::Trusted`].
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        matches!(self, Self::Trusted { .. })
    }
}

impl Distrust {
    /// The certificate at fault, where one is.
    #[must_use]
    pub fn which(&self) -> Option<Fingerprint> {
        match self {
            Self::SelfSignedRootNotTrusted { root: which, .. }
            | Self::RootNotTrusted { which, .. }
            | Self::Expired { which, .. }
            | Self::NotYetValid { which, .. }
            | Self::BadSignature { which, .. }
            | Self::UnsupportedSignature { which, .. }
            | Self::NotCa { which, .. }
            | Self::NoCertSign { which, .. }
            | Self::PathLength { which, .. }
            | Self::NotForServers { which, .. }
            | Self::NameConstraint { which, .. }
            | Self::UnknownCritical { which, .. } => Some(*which),
            Self::Budget => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trusted { path } => match path.last() {
                Some(root) => write!(f, "trusted by {}", root.subject.text),
                None => f.write_str("trusted"),
            },
            Self::SelfSigned => f.write_str("signed by its own key"),
            Self::Incomplete { missing, issuer_url } => {
                write!(f, "the issuer {missing} was not sent and is not trusted")?;
                issuer_url.as_ref().map_or(Ok(()), |url| write!(f, "; it can be fetched at {url}"))
            }
            Self::Untrusted { reason } => reason.fmt(f),
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelfSignedRootNotTrusted { name, .. } => {
                write!(f, "the root {name} is not trusted")
            }
            Self::RootNotTrusted { name, .. } => {
                write!(f, "the chain ends below {name}, which is not a trusted root")
            }
            Self::Expired { name, not_after, .. } => write!(f, "{name} expired at {not_after}"),
            Self::NotYetValid { name, not_before, .. } => {
                write!(f, "{name} is not valid before {not_before}")
            }
            Self::BadSignature { name, .. } => {
                write!(f, "the signature on {name} is not by its issuer's key")
            }
            Self::UnsupportedSignature { why, .. } => {
                write!(f, "a signature cannot be checked: {why}")
            }
            Self::NotCa { name, .. } => write!(f, "{name} is no certification authority"),
            Self::NoCertSign { name, .. } => write!(f, "{name} may not sign certificates"),
            Self::PathLength { name, .. } => {
                write!(f, "{name} allows fewer intermediates than there are")
            }
            Self::NotForServers { name, .. } => write!(f, "{name} is not for TLS servers"),
            Self::NameConstraint { name, .. } => {
                write!(f, "the name {name} is outside what its issuer may certify")
            }
            Self::UnknownCritical { extension, .. } => {
                write!(f, "the critical extension {extension} is unknown")
            }
            Self::Budget => f.write_str("too many possible paths to check"),
        }
    }
}
