//! Configuration of a hook, and the client that posts to it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use keys::Secret;
use uuid::Uuid;

/// Timeout of a hook call.
pub const HOOK_LIMIT: Duration = Duration::from_secs(15);

/// Configuration of a rotation hook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Name of the hook: letters, digits, `-` and `_`, at most 64 characters.
    pub name: String,
    /// URL of the webhook.
    pub url: String,
    /// The signing key: at least 16 bytes.
    pub secret: Secret,
    /// Whether the hook must agree before a value becomes current. Any status other than 2xx keeps the old value.
    pub before: bool,
    /// Whether to notify the hook after a rotation, with retries until the hook returns a 2xx status.
    pub after: bool,
    /// Certificates to trust for this hook, in PEM. They replace the system's roots.
    pub roots: Option<String>,
}

/// A client that posts to hooks, implemented by the caller of this crate.
pub trait HookSender: Send + Sync {
    /// Posts a body that is signed with the hook's secret. `revision` identifies the hook's configuration, for a cache of clients.
    /// Returns once the hook has responded with a 2xx status, within [`HOOK_LIMIT`].
    ///
    /// # Errors
    /// The reason of the failure, without secrets.
    fn post<'a>(&'a self, hook: &'a Hook, revision: Uuid, body: Vec<u8>)
    -> BoxFuture<'a, Result<(), String>>;
}
