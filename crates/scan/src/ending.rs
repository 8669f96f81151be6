//! How the errors of each phase become outcomes.

use outbound::dial::DialError;
use outbound::resolve::ResolveError;

use crate::observation::Outcome;
use crate::starttls::StartTlsError;
use crate::tls::Failure;

/// How a dialogue before TLS failed.
pub(crate) fn of_starttls(error: &StartTlsError) -> (Outcome, String) {
    let outcome = match error {
        StartTlsError::NotOffered { .. } => Outcome::StartTlsNotOffered,
        StartTlsError::Refused { .. } => Outcome::StartTlsRefused,
        StartTlsError::NotThatProtocol { .. } => Outcome::OtherProtocol,
        StartTlsError::Malformed { .. } => Outcome::Malformed,
        StartTlsError::TooLong { .. } => Outcome::LimitExceeded,
    };
    (outcome, error.to_string())
}

/// How a handshake failed.
pub(crate) fn of_handshake(failure: &Failure) -> (Outcome, String) {
    let outcome = match failure {
        Failure::NotTls { .. } | Failure::Ssl2 => Outcome::NotTls,
        Failure::Alert { .. } => Outcome::Alert,
        Failure::Malformed(_)
        | Failure::UnexpectedMessage { .. }
        | Failure::NotOffered(_)
        | Failure::Cryptography(_) => Outcome::Malformed,
        Failure::LimitExceeded { .. } => Outcome::LimitExceeded,
        Failure::NoCertificate(_) => Outcome::NoCertificate,
    };
    (outcome, failure.to_string())
}

/// How a connection failed.
pub(crate) fn of_dial(error: DialError) -> (Outcome, Option<String>) {
    let outcome = match error {
        DialError::Refused => Outcome::Refused,
        DialError::Reset => Outcome::Reset,
        DialError::HostUnreachable | DialError::NetworkUnreachable => Outcome::Unreachable,
        DialError::TimedOut => Outcome::BlackHole,
        DialError::NoDescriptors | DialError::NoPorts | DialError::Denied => Outcome::LocalLimit,
        DialError::NoAddress => Outcome::NoAddress,
        DialError::Other(_) => Outcome::Unknown,
    };
    (outcome, Some(error.to_string()))
}

/// How a name led nowhere.
pub(crate) fn of_lookup(error: &ResolveError) -> (Outcome, Option<String>) {
    let outcome = match error {
        ResolveError::NxDomain => Outcome::NxDomain,
        ResolveError::NoAddress => Outcome::NoAddress,
        ResolveError::ServFail => Outcome::ServFail,
        ResolveError::Refused | ResolveError::NoServer => Outcome::DnsRefused,
        ResolveError::TimedOut => Outcome::DnsTimeout,
        ResolveError::AliasLoop(_) => Outcome::CnameLoop,
        ResolveError::Malformed(_) | ResolveError::BadName => Outcome::DnsMalformed,
    };
    (outcome, Some(error.to_string()))
}
