//! Messages in the stream of credential changes, which the store and agents serve.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Name of the first event of a stream.
pub const READY: &str = "ready";

/// Name of the event that reports lost events.
pub const LAGGED: &str = "lagged";

/// Name of the event that contains only an id, from which a client can resume the stream.
pub const PLACE: &str = "place";

/// Name of the event about the reader's access: see [`Access`].
pub const ACCESS: &str = "access";

/// Kind of the event by which an agent reports a changed or deleted credential.
pub const CREDENTIAL_CHANGED: &str = "credential.changed";

/// First event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Whether the stream continues without a gap after the client's last event.
    pub resumed: bool,
}

/// An event about the reader's access. The first one in a stream announces that changes of access will be reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Whether the access may have changed. Cached values are then invalid.
    pub changed: bool,
}

/// A report of lost events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lagged {
    /// Number of lost events.
    pub missed: u64,
}

/// A change of a credential as reported to its readers: without the value and without the actor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CredentialNews {
    /// Time of the change, RFC 3339.
    pub at: String,
    /// Path of the changed or deleted credential.
    pub name: String,
    /// The type of the new version; `None` when there is no new version.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The new version's id; `None` when there is no new version.
    pub version: Option<Uuid>,
}
