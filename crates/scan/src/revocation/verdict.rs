//! Revocation status of a certificate, or the reason why it is unknown.

use std::fmt;
use std::sync::Arc;

use x509::crl::Reason;
use x509::{Certificate, UnixTime};

/// Maximum lifetime in seconds of a certificate that needs no revocation information: seven days for certificates issued since
/// 2026-03-15 (CA/Browser Forum Baseline Requirements section 1.6.1, Short-lived Subscriber Certificate).
const SHORT_LIFE: i64 = 7 * x509::DAY;
/// Maximum lifetime in seconds for certificates issued before [`SEVEN_DAYS_FROM`]: ten days.
const SHORT_LIFE_BEFORE: i64 = 10 * x509::DAY;
/// Date from which the maximum is seven days: 2026-03-15T00:00:00Z.
const SEVEN_DAYS_FROM: UnixTime = UnixTime(1_773_532_800);

/// Revocation status of a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The certificate is not revoked.
    Good {
        /// Source of the status.
        source: Source,
        /// End of validity of the status.
        until: UnixTime,
    },
    /// The certificate is revoked.
    Revoked {
        /// Time of the revocation.
        at: UnixTime,
        /// The reason, if given.
        reason: Option<Reason>,
        /// Source of the status.
        source: Source,
    },
    /// No source has the status of the certificate.
    Unknown {
        /// The error of the most relevant source.
        cause: Cause,
    },
    /// The certificate needs no revocation check.
    NotApplicable {
        /// Reason why no check is needed.
        why: NoCheckReason,
    },
}

impl Verdict {
    /// Returns the verdict if the issuer's certificate is unknown.
    pub(super) fn for_unknown_issuer(certificate: &Certificate, now: UnixTime) -> Self {
        match NoCheckReason::of(certificate, now) {
            Some(why) => Self::NotApplicable { why },
            None => Self::Unknown { cause: Cause::NoIssuer },
        }
    }

    /// Returns the stable name: `good`, `revoked`, `unknown`, `not-applicable`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Good { .. } => "good",
            Self::Revoked { .. } => "revoked",
            Self::Unknown { .. } => "unknown",
            Self::NotApplicable { .. } => "not-applicable",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good { source, until } => write!(f, "good until {until}, says {source}"),
            Self::Revoked { at, reason: None, source } => write!(f, "revoked at {at}, says {source}"),
            Self::Revoked { at, reason: Some(reason), source } => {
                write!(f, "revoked at {at} ({reason}), says {source}")
            }
            Self::Unknown { cause } => write!(f, "unknown: {cause}"),
            Self::NotApplicable { why } => write!(f, "not applicable: {why}"),
        }
    }
}

/// Source of a revocation status: a stapled OCSP response, a CRL, or an OCSP responder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// The stapled OCSP response of the handshake.
    Staple,
    /// A CRL.
    Crl {
        /// URL as in the certificate.
        url: Arc<str>,
        /// Whether a delta CRL was used, too.
        delta: bool,
    },
    /// An OCSP responder.
    Ocsp {
        /// URL as in the certificate.
        url: Arc<str>,
    },
}

impl Source {
    /// Returns the stable name: `staple`, `crl`, `delta-crl`, `ocsp`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Staple => "staple",
            Self::Crl { delta: false, .. } => "crl",
            Self::Crl { delta: true, .. } => "delta-crl",
            Self::Ocsp { .. } => "ocsp",
        }
    }

    /// Returns the URL of the source; `None` for a stapled response.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Staple => None,
            Self::Crl { url, .. } | Self::Ocsp { url } => Some(url),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.url() {
            None => f.write_str("the staple"),
            Some(url) => write!(f, "{} {url}", self.code()),
        }
    }
}

/// Reason why a source has no status. Texts of servers are truncated and have no control characters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Cause {
    /// The certificate names neither a CRL nor an OCSP responder.
    #[error("the certificate names no CRL and no OCSP responder")]
    NoSource,
    /// The certificate names only an OCSP responder, and OCSP is disabled.
    #[error("the certificate names only an OCSP responder, and OCSP is disabled")]
    OcspOff,
    /// The issuer's certificate is unknown, so nothing can be verified.
    #[error("the issuer's certificate is unknown")]
    NoIssuer,
    /// The certificate is on no path to a trusted root, so its URLs may be chosen by an attacker.
    #[error("not checked: the certificate is not on any path to a trusted root")]
    Untrusted,
    /// The guard of outgoing connections rejects the URL (see `outbound::guard`).
    #[error("not checked: {0}")]
    Refused(String),
    /// A redirect was not followed: too many, without a valid target, or from https to http.
    #[error("{0}")]
    Redirected(String),
    /// The connection failed or was lost.
    #[error("cannot connect to the CRL or OCSP server, or the connection was lost: {0}")]
    Unreachable(String),
    /// There was no complete response within the timeout.
    #[error("no answer in time")]
    TimedOut,
    /// The HTTP status was not 200.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The response exceeds the size limit.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The size limit in bytes.
        limit: usize,
    },
    /// The response is not a CRL or an OCSP response.
    #[error("{0}")]
    Malformed(String),
    /// The signature was not made by the key of the issuer or its responder.
    #[error("the signature is not by the issuer")]
    BadSignature,
    /// The signature algorithm is not supported.
    #[error("the signature cannot be checked: {0}")]
    Unverifiable(&'static str),
    /// The issuer's certificate must not sign CRLs (RFC 5280 section 6.3.3 (f)).
    #[error("the issuer's certificate has no key usage cRLSign")]
    MayNotSign,
    /// The CRL was not issued by the certificate's issuer.
    #[error("the CRL is from another issuer")]
    WrongIssuer,
    /// The CRL belongs to another distribution point (RFC 5280 section 6.3.3 (b)(2)(i)).
    #[error("the CRL is from a distribution point that the certificate does not name")]
    WrongDistributionPoint,
    /// The CRL covers another kind of certificate (RFC 5280 section 6.3.3 (b)(2)(ii) to (iv)).
    #[error("the CRL does not cover certificates of this type")]
    WrongScope,
    /// The CRL is indirect (it covers certificates of several issuers), which is not supported.
    #[error("indirect CRLs are not supported")]
    Indirect,
    /// The CRL covers some reasons only and does not list the certificate.
    #[error("the CRL covers only some revocation reasons")]
    SomeReasons,
    /// The CRL has an unknown critical extension with this dotted object identifier.
    #[error("the CRL has the unknown critical extension {0}")]
    UnknownExtension(String),
    /// The list is a delta CRL instead of a complete CRL.
    #[error("the CRL is a delta CRL instead of a complete CRL")]
    WrongKind,
    /// The source is past its nextUpdate, or has none.
    #[error("the CRL or OCSP response is out of date{}", since(*next_update))]
    Stale {
        /// The nextUpdate of the source.
        next_update: Option<UnixTime>,
    },
    /// The thisUpdate of the source is in the future.
    #[error("thisUpdate is in the future: {this_update}")]
    FromTheFuture {
        /// The thisUpdate of the source.
        this_update: UnixTime,
    },
    /// The signer of the OCSP response is not authorized by the issuer (RFC 6960 section 4.2.2.2).
    #[error("the OCSP responder is not authorized by the issuer")]
    NotAuthorized,
    /// The OCSP response is about other certificates.
    #[error("the OCSP response is for another certificate")]
    OtherCertificate,
    /// The responder does not know the certificate.
    #[error("the OCSP responder does not know the certificate")]
    UnknownToResponder,
    /// The responder returned an error with this number (RFC 6960 section 4.2.1).
    #[error("the OCSP responder returned error {0}")]
    NoAnswer(i64),
    /// An internal error of Bulla.
    #[error("the check ended abnormally; please report it")]
    Abnormal,
}

fn since(next_update: Option<UnixTime>) -> String {
    next_update.map_or_else(|| ": it has no nextUpdate".to_owned(), |due| format!(" since {due}"))
}

impl Cause {
    /// Returns the stable name of the cause, for outputs and counters.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSource => "no-source",
            Self::OcspOff => "ocsp-off",
            Self::NoIssuer => "no-issuer",
            Self::Untrusted => "untrusted",
            Self::Refused(_) => "refused-by-guard",
            Self::Redirected(_) => "redirected",
            Self::Unreachable(_) => "unreachable",
            Self::TimedOut => "timed-out",
            Self::Status(_) => "http-status",
            Self::TooLarge { .. } => "too-large",
            Self::Malformed(_) => "malformed",
            Self::BadSignature => "bad-signature",
            Self::Unverifiable(_) => "unverifiable",
            Self::MayNotSign => "may-not-sign",
            Self::WrongIssuer => "wrong-issuer",
            Self::WrongDistributionPoint => "wrong-distribution-point",
            Self::WrongScope => "wrong-scope",
            Self::Indirect => "indirect",
            Self::SomeReasons => "some-reasons",
            Self::UnknownExtension(_) => "unknown-extension",
            Self::WrongKind => "wrong-kind",
            Self::Stale { .. } => "stale",
            Self::FromTheFuture { .. } => "from-the-future",
            Self::NotAuthorized => "not-authorized",
            Self::OtherCertificate => "other-certificate",
            Self::UnknownToResponder => "unknown-to-responder",
            Self::NoAnswer(_) => "no-answer",
            Self::Abnormal => "abnormal",
        }
    }

    /// Returns whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Redirected(_)
                | Self::Unreachable(_)
                | Self::TimedOut
                | Self::Status(_)
                | Self::Stale { .. }
                | Self::FromTheFuture { .. }
                | Self::NoAnswer(_)
                | Self::Abnormal
        )
    }
}

/// Reason why a certificate needs no revocation check.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NoCheckReason {
    /// The certificate has expired: CRLs omit expired certificates (RFC 5280 section 3.3), and clients reject it anyway.
    Expired,
    /// The certificate is self-issued: a root is removed from trust stores instead of revoked.
    SelfIssued,
    /// The issuer publishes no revocation information about the certificate (noRevAvail, RFC 9608).
    NoRevocation,
    /// The certificate names no source, and its lifetime is too short to need one (Baseline Requirements section 7.1.2.11.2).
    ShortLived,
    /// The certificate is for neither TLS servers nor TLS clients, and is not a CA certificate.
    NotForTls,
    /// The certificate is a precertificate, which is never used (RFC 6962 section 3.1).
    Precertificate,
}

impl NoCheckReason {
    /// Returns the stable name of the reason, for outputs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::SelfIssued => "self-issued",
            Self::NoRevocation => "no-revocation-available",
            Self::ShortLived => "short-lived",
            Self::NotForTls => "not-for-tls",
            Self::Precertificate => "precertificate",
        }
    }

    /// Returns the reason why `certificate` needs no check at `now`; `None` if it needs one.
    pub(super) fn of(certificate: &Certificate, now: UnixTime) -> Option<Self> {
        let no_source = certificate.crl_urls.is_empty() && certificate.ocsp_urls.is_empty();
        let reasons = [
            (now > certificate.not_after, Self::Expired),
            (certificate.is_self_issued(), Self::SelfIssued),
            (certificate.precertificate, Self::Precertificate),
            (certificate.no_revocation, Self::NoRevocation),
            (no_source && is_short_lived(certificate), Self::ShortLived),
            (!is_for_tls(certificate), Self::NotForTls),
        ];
        reasons.into_iter().find_map(|(holds, why)| holds.then_some(why))
    }
}

impl fmt::Display for NoCheckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the certificate has expired",
            Self::SelfIssued => "the certificate is its own issuer",
            Self::NoRevocation => "the issuer publishes no revocation information",
            Self::ShortLived => "the certificate is short-lived",
            Self::NotForTls => "the certificate is not for TLS",
            Self::Precertificate => "a precertificate",
        })
    }
}

/// Returns whether the lifetime is short. Both ends are part of the validity (RFC 5280 section 4.1.2.5).
fn is_short_lived(certificate: &Certificate) -> bool {
    let life = certificate.not_after.since(certificate.not_before).saturating_add(1);
    let most = if certificate.not_before < SEVEN_DAYS_FROM { SHORT_LIFE_BEFORE } else { SHORT_LIFE };
    !certificate.is_ca() && life <= most
}

fn is_for_tls(certificate: &Certificate) -> bool {
    /// OIDs of the extended key usages serverAuth, clientAuth and anyExtendedKeyUsage.
    const TLS: [&str; 3] = ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2", "2.5.29.37.0"];
    certificate.is_ca()
        || certificate
            .extended_key_usage
            .as_ref()
            .is_none_or(|usages| usages.iter().any(|usage| TLS.contains(&usage.as_str())))
}
