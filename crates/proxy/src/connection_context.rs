//! What is known of a client's connection.

use std::sync::Arc;

use http_relay::client::Client;
use http_relay::target::Origin;
use tokio_util::task::TaskTracker;

/// What all requests of a connection share.
#[derive(Clone, Debug)]
pub(super) struct ConnectionContext {
    pub(super) origin: Arc<Origin>,
    /// Whose they are.
    pub(super) client: Client,
    /// Whether the client was shown all names of the server's certificate, and may ask for any of them.
    pub(super) is_mirrored: bool,
    /// What goes on after the connection's own part has ended, which has to be waited for: changes of protocol.
    pub(super) tunnels: TaskTracker,
}
