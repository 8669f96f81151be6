//! Why a name has no addresses.

use serde::Serialize;

/// Why a name has no addresses. Anyone who asked knows the name.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ResolveError {
    /// The name does not exist (RFC 1035 section 4.1.1, code 3).
    #[error("no such name (NXDOMAIN)")]
    NxDomain,
    /// The name exists and has no address of the families asked for (NODATA, RFC 2308 section 2.2).
    #[error("the name exists but has no address of the requested family")]
    NoAddress,
    /// The name servers of the zone fail, or its signatures do (code 2).
    #[error("the name servers failed (SERVFAIL); try `dig` on the zone's own name servers")]
    ServFail,
    /// The upstream does not serve us (code 5).
    #[error("the resolver refuses to answer; use another upstream")]
    Refused,
    /// No upstream answered in time.
    #[error("no answer from any resolver within the time allowed")]
    TimedOut,
    /// No upstream is known, nothing listens at any, there is no route, or no socket to ask with.
    #[error("no resolver can be reached; check /etc/resolv.conf or the upstreams given")]
    NoServer,
    /// Aliases lead back to themselves or on for more than [`super::CHAIN_MAX`] steps; the name is the
    /// one at which they were given up.
    #[error("the aliases (CNAME) lead in a circle, or too far, at {0}")]
    AliasLoop(String),
    /// The answer is malformed, for this reason.
    #[error("the resolver's answer is of no use: {0}")]
    Malformed(&'static str),
    /// Never asked: not a host name.
    #[error("not a host name: labels of 1 to 63 letters, digits, hyphens, underscores; 253 in all")]
    BadName,
}

impl ResolveError {
    /// Stable, for records and metrics.
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

    /// Whether asking again may well go differently.
    #[must_use]
    pub fn can_heal(&self) -> bool {
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

    /// Which of several upstreams' failures, or of two families', tells most: higher is better.
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
