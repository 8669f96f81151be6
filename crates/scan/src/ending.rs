//! Converts the errors of each phase of a probe to outcomes.

use outbound::dial::DialError;
use outbound::resolve::ResolveError;

use crate::starttls::StartTlsError;
use crate::tls::Failure;
use events::ProbeOutcome;

/// Returns the outcome of a failed STARTTLS dialogue, with details.
pub(crate) fn starttls_outcome(error: &StartTlsError) -> (ProbeOutcome, String) {
    let outcome = match error {
        StartTlsError::NotOffered { .. } => ProbeOutcome::StartTlsNotOffered,
        StartTlsError::Refused { .. } => ProbeOutcome::StartTlsRefused,
        StartTlsError::NotThatProtocol { .. } => ProbeOutcome::OtherProtocol,
        StartTlsError::Malformed { .. } => ProbeOutcome::Malformed,
        StartTlsError::TooLong { .. } => ProbeOutcome::LimitExceeded,
    };
    (outcome, error.to_string())
}

/// Returns the outcome of a failed handshake, with details.
pub(crate) fn handshake_outcome(failure: &Failure) -> (ProbeOutcome, String) {
    let outcome = match failure {
        Failure::NotTls { .. } | Failure::Ssl2 => ProbeOutcome::NotTls,
        Failure::Alert { .. } => ProbeOutcome::Alert,
        Failure::Malformed(_)
        | Failure::UnexpectedMessage { .. }
        | Failure::NotOffered(_)
        | Failure::Cryptography(_) => ProbeOutcome::Malformed,
        Failure::LimitExceeded { .. } => ProbeOutcome::LimitExceeded,
        Failure::NoCertificate(_) => ProbeOutcome::NoCertificate,
    };
    (outcome, failure.to_string())
}

/// Returns the outcome of a failed connection, with details.
pub(crate) fn dial_outcome(error: DialError) -> (ProbeOutcome, Option<String>) {
    let outcome = match error {
        DialError::Refused => ProbeOutcome::Refused,
        DialError::Reset => ProbeOutcome::Reset,
        DialError::HostUnreachable | DialError::NetworkUnreachable => ProbeOutcome::Unreachable,
        DialError::TimedOut => ProbeOutcome::BlackHole,
        DialError::NoDescriptors | DialError::NoPorts | DialError::Denied => ProbeOutcome::LocalLimit,
        DialError::NoAddress => ProbeOutcome::NoAddress,
        DialError::Other(_) => ProbeOutcome::Unknown,
    };
    (outcome, Some(error.to_string()))
}

/// Returns the outcome of a failed DNS lookup, with details.
pub(crate) fn lookup_outcome(error: &ResolveError) -> (ProbeOutcome, Option<String>) {
    let outcome = match error {
        ResolveError::NxDomain => ProbeOutcome::NxDomain,
        ResolveError::NoAddress => ProbeOutcome::NoAddress,
        ResolveError::ServFail => ProbeOutcome::ServFail,
        ResolveError::Refused | ResolveError::NoServer => ProbeOutcome::DnsRefused,
        ResolveError::TimedOut => ProbeOutcome::DnsTimeout,
        ResolveError::AliasLoop(_) => ProbeOutcome::CnameLoop,
        ResolveError::Malformed(_) | ResolveError::BadName => ProbeOutcome::DnsMalformed,
    };
    (outcome, Some(error.to_string()))
}
