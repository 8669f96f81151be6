//! What the stream of changes of credentials says, from the store and from an agent over it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name of the event that a stream begins with.
pub const READY: &str = "ready";

/// The name of the event that says that events were lost.
pub const LAGGED: &str = "lagged";

/// The name of the event that has an id to resume from, and nothing else.
pub const PLACE: &str = "place";

/// The name of the event about what the reader may read: see [`Access`].
pub const ACCESS: &str = "access";

/// The kind of event with which an agent names a changed credential, also a deleted one.
pub const CREDENTIAL_CHANGED: &str = "credential.changed";

/// A stream begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Whether everything since the event that the client had last follows.
    pub resumed: bool,
}

/// What a reader may read. The first one of a stream says that changes of access follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Whether it may have changed: nothing that was read before holds.
    pub changed: bool,
}

/// Events were lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}

/// A change of a credential, as its readers see it: without the value, and without who changed it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CredentialNews {
    /// When, RFC 3339.
    pub at: String,
    /// The credential's path.
    pub name: String,
    /// The type of the new version; `None` when there is no new version.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The new version's id; `None` when there is no new version.
    pub version: Option<Uuid>,
}
