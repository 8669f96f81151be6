//! Errors of name resolution.

use serde::Serialize;

/// Reason why a name could not be resolved. The error does not contain the name.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ResolveError {
    /// The name does not exist (RFC 1035 section 4.1.1, code 3).
    #[error("no such name (NXDOMAIN)")]
    NxDomain,
    /// The name exists but has no address of the requested families (NODATA, RFC 2308 section 2.2).
    #[error("the name exists but has no address of the requested family")]
    NoAddress,
    /// SERVFAIL: the zone's name servers or its DNSSEC signatures fail (code 2).
    #[error("the name servers failed (SERVFAIL); try `dig` on the zone's own name servers")]
    ServFail,
    /// REFUSED: the upstream does not answer this client (code 5).
    #[error("the DNS server refuses to answer (REFUSED); use another DNS server")]
    Refused,
    /// No upstream responded in time.
    #[error("no answer from any resolver within the time allowed")]
    TimedOut,
    /// No upstream is configured or reachable, or no socket could be opened.
    #[error("no resolver can be reached; check /etc/resolv.conf, or the configured DNS servers")]
    NoServer,
    /// The alias chain is a loop or has more than [`super::CHAIN_MAX`] steps; contains the name at which the resolver stopped.
    #[error("the CNAME chain loops or is too long at {0}")]
    AliasLoop(String),
    /// The response is malformed; contains the reason.
    #[error("invalid answer from the resolver: {0}")]
    Malformed(&'static str),
    /// The name is not a valid host name, so no query was sent.
    #[error(
        "invalid host name: each label must have 1 to 63 letters, digits, hyphens or underscores, and the name at most 253 characters"
    )]
    BadName,
}

impl ResolveError {
    /// Returns a stable code for records and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NxDomain => "nx-domain",
            Self::NoAddress => "no-address",
            Self::ServFail => "serv-fail",
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::NoServer => "no-server",
            Self::AliasLoop(_) => "alias-loop",
            Self::Malformed(_) => "malformed",
            Self::BadName => "bad-name",
        }
    }

    /// Returns whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::ServFail | Self::TimedOut | Self::NoServer => true,
            Self::NxDomain
            | Self::NoAddress
            | Self::Refused
            | Self::AliasLoop(_)
            | Self::Malformed(_)
            | Self::BadName => false,
        }
    }

    /// Returns the priority of this error when several upstreams or both families fail: higher is more specific.
    pub(crate) fn weight(&self) -> u8 {
        match self {
            Self::NxDomain => 8,
            Self::AliasLoop(_) => 7,
            Self::ServFail => 6,
            Self::Refused => 5,
            Self::Malformed(_) => 4,
            Self::TimedOut => 3,
            Self::NoServer => 2,
            Self::NoAddress | Self::BadName => 1,
        }
    }
}
