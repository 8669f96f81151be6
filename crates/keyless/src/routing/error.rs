//! Why a node did not sign.

use keys::SignError;
use tonic::{Code, Status};

/// Why there is no answer of a node.
#[derive(Clone, Debug)]
pub(super) enum PeerError {
    /// As many requests as may are under way to it; of the tenant, or in all.
    Full,
    /// There was no connection any more.
    Unsent,
    /// The connection was lost.
    Lost,
    /// It did not answer in time. Whatever comes later is dropped.
    Late,
    /// The node answered with this status.
    Answered(Status),
}

impl PeerError {
    /// Whether another node may do what this one did not: one that is gone, late or has too much to do says nothing of the
    /// key, nor does one that does not have it yet. A failure of the key itself is the same everywhere.
    pub(super) fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Full | Self::Unsent | Self::Lost | Self::Late => true,
            Self::Answered(status) => matches!(
                status.code(),
                Code::NotFound
                    | Code::ResourceExhausted
                    | Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
            ),
        }
    }

    /// Whether the node did nothing for it: then another one's work is the first, and no second.
    pub(super) fn did_no_work(&self) -> bool {
        matches!(self, Self::Full | Self::Unsent) || self.lacks_key()
    }

    /// It does not hold the key.
    pub(super) fn lacks_key(&self) -> bool {
        matches!(self, Self::Answered(status) if status.code() == Code::NotFound)
    }

    /// In metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Unsent => "unsent",
            Self::Lost => "lost",
            Self::Late => "late",
            Self::Answered(status) => crate::native::code_name(status.code()),
        }
    }
}

impl std::fmt::Display for PeerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => f.write_str("too many concurrent requests to it"),
            Self::Unsent => f.write_str("there is no connection to it"),
            Self::Lost => f.write_str("the connection to it was lost"),
            Self::Late => f.write_str("it did not answer in time"),
            Self::Answered(status) => f.write_str(status.message()),
        }
    }
}

/// Why no node signed. Each names those that were asked, and the one that gave up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RouteError {
    /// None of the nodes that may use the key can be reached. Operator: `bulla key node list`, and `bulla_keyless_site_nodes_up`.
    #[error("none of the nodes that may use this key can be reached")]
    Nobody,
    /// The way to the nearest takes longer than there is time.
    #[error("{node} is {way_ms} ms away and {left_ms} ms are left")]
    TooFar {
        /// The nearest.
        node: String,
        /// There and back.
        way_ms: u64,
        /// Milliseconds that were left.
        left_ms: u64,
    },
    /// No node answered before the deadline.
    #[error("not in time: {0}")]
    Late(String),
    /// All that may be asked have too much to do.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// All attempted nodes failed.
    #[error("{0}")]
    Unavailable(String),
    /// The key, or what was to be signed: the same everywhere.
    #[error("{node}: {status}", status = status.message())]
    Refused {
        /// The node.
        node: String,
        /// The message of the other side.
        status: Status,
    },
}

impl From<RouteError> for SignError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Late(_) | RouteError::TooFar { .. } => Self::Late,
            RouteError::Refused { .. } => Self::Failed(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// Why a request was not passed on, or what was answered to it there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum RelayError {
    /// There is no connection to that node.
    #[error("this node has no way to that one")]
    NoWay,
    /// As many requests as may are under way to it.
    #[error("too many concurrent requests to that node")]
    Full,
    /// The connection was lost with it.
    #[error("the way to that node was lost")]
    Lost,
    /// It did not answer in time, or there is less time than the way takes.
    #[error("that node did not answer in time")]
    Late,
    /// It said so: a code of gRPC, and for people.
    #[error("{1}")]
    Answered(tonic::Code, String),
}

impl From<PeerError> for RelayError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Full => Self::Full,
            PeerError::Unsent => Self::NoWay,
            PeerError::Lost => Self::Lost,
            PeerError::Late => Self::Late,
            PeerError::Answered(status) => Self::Answered(status.code(), status.message().to_owned()),
        }
    }
}
