//! Verdict on a chain, and reasons for distrust.

use std::fmt;
use std::sync::Arc;

use crate::{Certificate, Fingerprint, UnixTime};

/// Verdict on a chain, as clients would reach it.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// A path to a trusted root satisfies all rules.
    Trusted {
        /// The path, from the leaf to the root.
        path: Vec<Arc<Certificate>>,
    },
    /// The leaf is signed by its own key and is not a trust anchor.
    SelfSigned,
    /// The leaf was sent without its issuer, and that issuer is not trusted.
    Incomplete {
        /// Name of the missing issuer.
        missing: String,
        /// URL of the issuer's certificate, from the certificate below it.
        issuer_url: Option<String>,
    },
    /// The path is not trusted.
    Untrusted {
        /// Reason for the distrust.
        reason: Distrust,
    },
}

/// Reason why a path is not trusted. `which` is the certificate at fault.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Distrust {
    /// The path ends at a self-signed certificate that is not in the store.
    SelfSignedRootNotTrusted {
        /// Fingerprint of the root.
        root: Fingerprint,
        /// Name of the root.
        name: String,
    },
    /// The path ends at an intermediate whose issuer was not sent and is not in the store. Servers leave out their root (RFC 8446
    /// section 4.4.2), so that issuer is probably a root of a private PKI.
    RootNotTrusted {
        /// Fingerprint of the last certificate of the path.
        which: Fingerprint,
        /// Name of that certificate's issuer.
        name: String,
    },
    /// A certificate above the leaf has expired.
    Expired {
        /// Fingerprint of the certificate.
        which: Fingerprint,
        /// Name of the certificate.
        name: String,
        /// Last second of the certificate's validity.
        not_after: UnixTime,
    },
    /// A certificate above the leaf is not valid yet.
    NotYetValid {
        /// Fingerprint of the certificate.
        which: Fingerprint,
        /// Name of the certificate.
        name: String,
        /// First second of the certificate's validity.
        not_before: UnixTime,
    },
    /// The certificate's signature was not made by its issuer's key.
    BadSignature {
        /// Fingerprint of the certificate.
        which: Fingerprint,
        /// Name of the certificate.
        name: String,
    },
    /// The signature cannot be verified here (MD5, DSA, short RSA keys …).
    UnsupportedSignature {
        /// Fingerprint of the certificate.
        which: Fingerprint,
        /// Reason why the signature cannot be verified.
        why: &'static str,
    },
    /// The issuer is not a CA (RFC 5280 section 4.2.1.9).
    NotCa {
        /// Fingerprint of the issuer.
        which: Fingerprint,
        /// Name of the issuer.
        name: String,
    },
    /// The issuer's key usage has no keyCertSign (RFC 5280 section 4.2.1.3).
    NoCertSign {
        /// Fingerprint of the issuer.
        which: Fingerprint,
        /// Name of the issuer.
        name: String,
    },
    /// The path has more intermediates than pathLenConstraint permits (RFC 5280 section 4.2.1.9).
    PathLength {
        /// Fingerprint of the certificate with the constraint.
        which: Fingerprint,
        /// Name of the certificate with the constraint.
        name: String,
    },
    /// Extended key usage does not permit TLS servers (RFC 5280 section 4.2.1.12).
    NotForServers {
        /// Fingerprint of the certificate.
        which: Fingerprint,
        /// Name of the certificate.
        name: String,
    },
    /// A name violates a name constraint of an issuer (RFC 5280 section 4.2.1.10).
    NameConstraint {
        /// Fingerprint of the certificate with the constraint.
        which: Fingerprint,
        /// The name that violates the constraint.
        name: String,
    },
    /// A certificate has an unknown critical extension (RFC 5280 section 4.2).
    UnknownCritical {
        /// Fingerprint of the certificate.
        which: Fingerprint,
        /// The extension as a dotted object identifier.
        extension: String,
    },
    /// The search reached a limit: [`super::CHECKS_MAX`] or [`super::PATH_MAX`].
    Budget,
}

impl Verdict {
    /// Returns a code for filters: `trusted`, `self-signed`, `incomplete`, `untrusted` (a root that is not trusted),
    /// `expired-intermediate`, or `invalid` for every other broken rule.
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

    /// Returns whether the fault concerns `leaf` itself and is also reported by [`crate::lint::lint`]: a usage other than TLS
    /// servers, or an unknown critical extension. Callers that report both can use this function to avoid duplicates.
    #[must_use]
    pub fn is_reported_by_lint(&self, leaf: &Certificate) -> bool {
        let Self::Untrusted { reason } = self else { return false };
        matches!(reason, Distrust::NotForServers { .. } | Distrust::UnknownCritical { .. })
            && reason.which() == Some(leaf.fingerprint)
    }

    /// Returns whether the verdict is [`Verdict::Trusted`].
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        matches!(self, Self::Trusted { .. })
    }
}

impl Distrust {
    /// Returns the fingerprint of the certificate at fault, if any.
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
                write!(f, "the issuer {missing} was not sent and is not a trust anchor")?;
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
                write!(f, "the chain ends below {name}, which is not a trust anchor")
            }
            Self::Expired { name, not_after, .. } => write!(f, "{name} expired at {not_after}"),
            Self::NotYetValid { name, not_before, .. } => {
                write!(f, "{name} is not valid before {not_before}")
            }
            Self::BadSignature { name, .. } => {
                write!(f, "the signature on {name} does not match its issuer's key")
            }
            Self::UnsupportedSignature { why, .. } => {
                write!(f, "cannot verify a signature: {why}")
            }
            Self::NotCa { name, .. } => write!(f, "{name} is not a CA"),
            Self::NoCertSign { name, .. } => write!(f, "{name} is not allowed to sign certificates"),
            Self::PathLength { name, .. } => {
                write!(f, "{name} allows fewer intermediates than there are")
            }
            Self::NotForServers { name, .. } => write!(f, "{name} is not for TLS servers"),
            Self::NameConstraint { name, .. } => {
                write!(f, "the name {name} is outside the name constraints of its issuer")
            }
            Self::UnknownCritical { extension, .. } => {
                write!(f, "the critical extension {extension} is unknown")
            }
            Self::Budget => f.write_str("too many possible paths to check"),
        }
    }
}
