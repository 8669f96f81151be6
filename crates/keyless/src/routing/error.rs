//! Errors of requests to other nodes.

use keys::SignError;
use tonic::{Code, Status};

/// Reason why a node returned no signature.
#[derive(Clone, Debug)]
pub(super) enum PeerError {
    /// The node has the maximum number of requests in progress, of the tenant or in total.
    Full,
    /// The connection was closed before the request was sent.
    Unsent,
    /// The connection was lost.
    Lost,
    /// The node did not reply in time. A later reply is dropped.
    Late,
    /// The node replied with this status.
    Answered(Status),
}

impl PeerError {
    /// Returns whether another node may succeed. True if this node is down, late or overloaded, or does not have the key yet. A
    /// failure of the key itself would be the same on every node.
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

    /// Returns whether the node did no work for the request, so that a retry adds no load.
    pub(super) fn did_no_work(&self) -> bool {
        matches!(self, Self::Full | Self::Unsent) || self.lacks_key()
    }

    /// Returns whether the node reported that it does not have the key.
    pub(super) fn lacks_key(&self) -> bool {
        matches!(self, Self::Answered(status) if status.code() == Code::NotFound)
    }

    /// Returns the error's name in metrics.
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
            Self::Full => f.write_str("too many concurrent requests to the node"),
            Self::Unsent => f.write_str("no connection to the node"),
            Self::Lost => f.write_str("the connection to the node was lost"),
            Self::Late => f.write_str("the node did not answer in time"),
            Self::Answered(status) => f.write_str(status.message()),
        }
    }
}

/// Reason why no node signed. The error names the nodes that were tried, or the one that refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RouteError {
    /// None of the nodes that may use the key can be reached. Operator: `bulla key node list`, and `bulla_keyless_site_nodes_up`.
    #[error("none of the nodes that may use this key can be reached")]
    NoNode,
    /// The round trip to the nearest node takes longer than the remaining time.
    #[error(
        "the round trip to {node} takes {round_trip_ms} ms, but only {left_ms} ms are left until the deadline"
    )]
    TooFar {
        /// Name of the nearest node.
        node: String,
        /// Round-trip time in milliseconds.
        round_trip_ms: u64,
        /// Milliseconds left until the deadline.
        left_ms: u64,
    },
    /// No node replied before the deadline.
    #[error("deadline exceeded: {0}")]
    Late(String),
    /// All eligible nodes are overloaded.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// All attempted nodes failed.
    #[error("{0}")]
    Unavailable(String),
    /// The key failed or the input is invalid; other nodes would fail in the same way.
    #[error("{node}: {status}", status = status.message())]
    Refused {
        /// Name of the node that refused.
        node: String,
        /// Status that the node sent.
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

/// Reason why a request was not forwarded, or the error that the destination returned.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum RelayError {
    /// This node has no connection to the destination.
    #[error("this node has no connection to the requested node")]
    NoConnection,
    /// The destination has the maximum number of requests in progress.
    #[error("too many concurrent requests to the requested node")]
    Full,
    /// The connection to the destination was lost.
    #[error("the connection to the requested node was lost")]
    Lost,
    /// The destination did not reply in time, or the remaining time is shorter than the round trip.
    #[error("the requested node did not answer in time")]
    Late,
    /// The destination returned this gRPC code and message.
    #[error("{1}")]
    Answered(tonic::Code, String),
}

impl From<PeerError> for RelayError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Full => Self::Full,
            PeerError::Unsent => Self::NoConnection,
            PeerError::Lost => Self::Lost,
            PeerError::Late => Self::Late,
            PeerError::Answered(status) => Self::Answered(status.code(), status.message().to_owned()),
        }
    }
}
