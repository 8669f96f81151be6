//! What is known of a certificate's revocation, and why no more is.

use std::fmt;
use std::sync::Arc;

use x509::crl::Reason;
use x509::{Certificate, UnixTime};

/// Longest life, seconds, that needs no way to revoke: seven days, as for certificates issued since 2026-03-15
/// (CA/Browser Forum Baseline Requirements section 1.6.1, Short-lived Subscriber Certificate).
const SHORT_LIFE: i64 = 7 * x509::DAY;
/// The same for certificates issued before [`SEVEN_DAYS_FROM`]: ten days.
const SHORT_LIFE_BEFORE: i64 = 10 * x509::DAY;
/// 2026-03-15T00:00:00Z.
const SEVEN_DAYS_FROM: UnixTime = UnixTime(1_773_532_800);

/// What is known of one certificate's revocation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Not revoked.
    Good {
        /// Source of the status.
        source: Source,
        /// When newer news is due.
        until: UnixTime,
    },
    /// Revoked.
    Revoked {
        /// When.
        at: UnixTime,
        /// The reason, if given.
        reason: Option<Reason>,
        /// Source of the status.
        source: Source,
    },
    /// No source had the status.
    Unknown {
        /// Why the most telling source did not help.
        cause: Cause,
    },
    /// There is nothing to ask.
    NotApplicable {
        /// Why.
        why: Why,
    },
}

impl Verdict {
    /// The verdict if the issuer's certificate is unknown.
    pub(super) fn without_issuer(certificate: &Certificate, now: UnixTime) -> Self {
        match Why::of(certificate, now) {
            Some(why) => Self::NotApplicable { why },
            None => Self::Unknown { cause: Cause::NoIssuer },
        }
    }

    /// A stable word: `good`, `revoked`, `unknown`, `not-applicable`.
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

/// Source of a status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// The OCSP response in the handshake.
    Staple,
    /// A CRL.
    Crl {
        /// As the certificate names it.
        url: Arc<str>,
        /// A delta CRL was read with it.
        delta: bool,
    },
    /// An OCSP responder.
    Ocsp {
        /// As the certificate names it.
        url: Arc<str>,
    },
}

impl Source {
    /// A stable word: `staple`, `crl`, `delta-crl`, `ocsp`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Staple => "staple",
            Self::Crl { delta: false, .. } => "crl",
            Self::Crl { delta: true, .. } => "delta-crl",
            Self::Ocsp { .. } => "ocsp",
        }
    }

    /// URL of the source.
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

/// Why a source could not tell. Texts of servers are cut and have no control characters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Cause {
    /// It names neither a CRL nor a responder.
    #[error("the certificate names no CRL and no OCSP responder")]
    NoSource,
    /// It names OCSP only, which is not switched on.
    #[error("the certificate names an OCSP responder only, and OCSP is disabled")]
    OcspOff,
    /// Its issuer's certificate is neither sent nor known, so nothing could be checked.
    #[error("the issuer's certificate is not known")]
    NoIssuer,
    /// It is on no path to a trusted root: anyone who made it chose the URLs that would be fetched.
    #[error("not checked: no path to a trusted root leads through the certificate")]
    Untrusted,
    /// The guard over outgoing connections refuses the URL (see `outbound::guard`).
    #[error("not checked: {0}")]
    Refused(String),
    /// A redirect that is not followed: one too many, to nowhere, from https to http.
    #[error("{0}")]
    Redirected(String),
    /// No connection, or one that broke off.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// No whole answer within the limit.
    #[error("no answer in time")]
    TimedOut,
    /// Another HTTP status than 200.
    #[error("HTTP status {0}")]
    Status(u16),
    /// Longer than is read, bytes.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// Bytes.
        limit: usize,
    },
    /// Not a CRL or an OCSP response.
    #[error("{0}")]
    Malformed(String),
    /// The signature is not by the issuer's key, or that of its responder.
    #[error("the signature is not by the issuer")]
    BadSignature,
    /// The signature is of a kind that cannot be checked here.
    #[error("the signature cannot be checked: {0}")]
    Unverifiable(&'static str),
    /// The issuer's certificate does not allow signing CRLs (RFC 5280 section 6.3.3 (f)).
    #[error("the issuer's certificate has no key usage cRLSign")]
    MayNotSign,
    /// The CRL is by somebody else than the certificate's issuer.
    #[error("the CRL is by another issuer")]
    WrongIssuer,
    /// The CRL is of another distribution point (RFC 5280 section 6.3.3 (b)(2)(i)).
    #[error("the CRL is of a distribution point that the certificate does not name")]
    WrongDistributionPoint,
    /// The CRL speaks of another kind of certificate (RFC 5280 section 6.3.3 (b)(2)(ii) to (iv)).
    #[error("the CRL is not about certificates of this kind")]
    WrongScope,
    /// The CRL speaks of several issuers' certificates, which is not read.
    #[error("the CRL is an indirect one")]
    Indirect,
    /// The CRL speaks of some reasons only and does not list the certificate.
    #[error("the CRL is about some reasons only")]
    SomeReasons,
    /// The CRL has a critical extension that nobody here knows, dotted.
    #[error("the CRL has the unknown critical extension {0}")]
    UnknownExtension(String),
    /// A delta CRL where a complete one belongs, or the other way round.
    #[error("a delta CRL in the place of a complete one, or the other way round")]
    WrongKind,
    /// Past its nextUpdate, or without one.
    #[error("out of date{}", since(*next_update))]
    Stale {
        /// When the next one was due.
        next_update: Option<UnixTime>,
    },
    /// Its thisUpdate lies in the future.
    #[error("dated in the future, {this_update}")]
    FromTheFuture {
        /// From when it will be right.
        this_update: UnixTime,
    },
    /// Anyone who signed the OCSP response may not speak for the issuer (RFC 6960 section 4.2.2.2).
    #[error("the responder may not speak for the issuer")]
    NotAuthorized,
    /// The OCSP response is about other certificates.
    #[error("the OCSP response is not about this certificate")]
    OtherCertificate,
    /// The responder says that it does not know the certificate.
    #[error("the responder does not know the certificate")]
    UnknownToResponder,
    /// The responder gives an error instead of an answer, by its number (RFC 6960 section 4.2.1).
    #[error("the responder gives no answer (OCSP error {0})")]
    NoAnswer(i64),
    /// A fault of ours.
    #[error("the check ended abnormally; please report it")]
    Abnormal,
}

fn since(next_update: Option<UnixTime>) -> String {
    next_update
        .map_or_else(|| ": it does not say until when it holds".to_owned(), |due| format!(" since {due}"))
}

impl Cause {
    /// A stable word.
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

    /// Whether asking again a little later may well end otherwise.
    #[must_use]
    pub fn can_heal(&self) -> bool {
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

/// Why there is nothing to ask.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Why {
    /// It has expired: CRLs drop expired certificates (RFC 5280 section 3.3), and nobody accepts it anyway.
    Expired,
    /// It is its own issuer: a root is removed from trust stores, nobody else could revoke it.
    SelfIssued,
    /// Its issuer says that nothing is published about it (noRevAvail, RFC 9608).
    NoRevocation,
    /// It names no source and lives too shortly to need one (Baseline Requirements section 7.1.2.11.2).
    ShortLived,
    /// It is for neither servers nor clients of TLS, and no authority.
    NotForTls,
    /// A precertificate, which is never used (RFC 6962 section 3.1).
    Precertificate,
}

impl Why {
    /// A stable word.
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

    /// Why nothing is to be asked about `certificate` at `now`, if that is so.
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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the certificate has expired",
            Self::SelfIssued => "the certificate is its own issuer",
            Self::NoRevocation => "its issuer publishes nothing about it",
            Self::ShortLived => "the certificate is short-lived",
            Self::NotForTls => "the certificate is not for TLS",
            Self::Precertificate => "a precertificate",
        })
    }
}

/// Both ends belong to the validity (RFC 5280 section 4.1.2.5).
fn is_short_lived(certificate: &Certificate) -> bool {
    let life = certificate.not_after.since(certificate.not_before).saturating_add(1);
    let most = if certificate.not_before < SEVEN_DAYS_FROM { SHORT_LIFE_BEFORE } else { SHORT_LIFE };
    !certificate.is_ca() && life <= most
}

fn is_for_tls(certificate: &Certificate) -> bool {
    /// serverAuth, clientAuth, any.
    const TLS: [&str; 3] = ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2", "2.5.29.37.0"];
    certificate.is_ca()
        || certificate
            .extended_key_usage
            .as_ref()
            .is_none_or(|usages| usages.iter().any(|usage| TLS.contains(&usage.as_str())))
}
