//! A hook, and the client that posts to it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use keys::Secret;
use uuid::Uuid;

/// Longest a hook may take to answer.
pub const HOOK_LIMIT: Duration = Duration::from_secs(15);

/// A hook as it is to be.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its name: letters, digits, `-` and `_`, at most 64.
    pub name: String,
    /// URL of the webhook.
    pub url: String,
    /// The signing key: at least 16 bytes.
    pub secret: Secret,
    /// Whether it is asked before a value becomes current; anything but 2xx keeps the old value.
    pub before: bool,
    /// Whether to notify after the rotation, with retries until a 2xx status.
    pub after: bool,
    /// Certificates to trust there in place of the system's, PEM.
    pub roots: Option<String>,
}

/// Posts to hooks. Given from outside: this crate opens no connection.
pub trait HookSender: Send + Sync {
    /// Posts a body that is signed under the hook's secret. `revision` names the hook as it is now, for a client that is
    /// kept. Answers once the other side has answered 2xx, within [`HOOK_LIMIT`].
    ///
    /// # Errors
    /// Why not, without secrets.
    fn post<'a>(&'a self, hook: &'a Hook, revision: Uuid, body: Vec<u8>)
    -> BoxFuture<'a, Result<(), String>>;
}
