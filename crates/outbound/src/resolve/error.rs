//! Why a name has no addresses.

use serde::{Deserialize, Serialize};

/// Why a name has no addresses. Cheap to copy: whoever asked knows the name.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ResolveError {
    /// The name does not exist (RFC 1035, code 3).
    #[error("no such name (NXDOMAIN)")]
    NxDomain,
    /// The name exists and has no address of the families asked for (RFC 2308 section 2.2).
    #[error("the name exists but has no address of the family asked for")]
    NoData,
    /// The name servers of the zone fail, or its signatures do (code 2).
    #[error("the resolver could not find out (SERVFAIL); try `dig` on the zone's own name servers")]
    ServFail,
    /// The upstream does not serve us (code 5).
    #[error("the resolver refuses to answer; use another upstream")]
    Refused,
    /// Another response code than those above.
    #[error("the resolver answered with code {0}")]
    Rcode(u16),
    /// No upstream answered in time.
    #[error("no answer from any resolver within the time allowed")]
    Timeout,
    /// Nothing listens at any upstream, or there is no route to it.
    #[error("no resolver can be reached; check /etc/resolv.conf or the upstreams given")]
    Unreachable,
    /// Aliases lead back to themselves, or on for more than eight steps.
    #[error("the name's aliases (CNAME) lead in a circle or are more than 8")]
    CnameLoop,
    /// No answer could be read.
    #[error("the resolver's answer cannot be read")]
    Malformed,
    /// Never asked: not a host name.
    #[error("not a host name: labels of 1 to 63 letters, digits, hyphens, underscores; 253 in all")]
    BadName,
    /// This machine is out of descriptors, ports or questions.
    #[error("this machine has no socket to ask with; raise `ulimit -n` or ask less at once")]
    NoSocket,
    /// No upstream is known.
    #[error("no resolver is configured; add a nameserver to /etc/resolv.conf or name an upstream")]
    NoUpstream,
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomness,
}

impl ResolveError {
    /// Stable, for records and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NxDomain => "nx-domain",
            Self::NoData => "no-data",
            Self::ServFail => "serv-fail",
            Self::Refused => "refused",
            Self::Rcode(_) => "rcode",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::CnameLoop => "cname-loop",
            Self::Malformed => "malformed",
            Self::BadName => "bad-name",
            Self::NoSocket => "no-socket",
            Self::NoUpstream => "no-upstream",
            Self::NoRandomness => "no-randomness",
        }
    }

    /// Whether asking again may well go differently.
    #[must_use]
    pub fn can_heal(&self) -> bool {
        match self {
            Self::ServFail | Self::Timeout | Self::Unreachable | Self::NoSocket => true,
            Self::NxDomain
            | Self::NoData
            | Self::Refused
            | Self::Rcode(_)
            | Self::CnameLoop
            | Self::Malformed
            | Self::BadName
            | Self::NoUpstream
            | Self::NoRandomness => false,
        }
    }

    /// Which of several upstreams' failures, or of two families', tells most: higher is better.
    pub(crate) fn weight(&self) -> u8 {
        match self {
            Self::NxDomain => 9,
            Self::CnameLoop => 8,
            Self::ServFail => 7,
            Self::Refused | Self::Rcode(_) => 6,
            Self::Malformed => 5,
            Self::Timeout => 4,
            Self::Unreachable => 3,
            Self::NoSocket | Self::NoRandomness | Self::NoUpstream | Self::BadName => 2,
            Self::NoData => 1,
        }
    }
}
