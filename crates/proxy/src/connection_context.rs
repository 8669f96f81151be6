//! What is known of a client's connection.

use std::sync::Arc;

use http_relay::client::Client;
use http_relay::target::Origin;
use tokio_util::task::TaskTracker;

use crate::mint::Likeness;

/// What all requests of a connection share.
#[derive(Clone, Debug)]
pub(super) struct ConnectionContext {
    pub(super) origin: Arc<Origin>,
    /// Whose they are.
    pub(super) client: Client,
    /// The certificate whose names the client was shown: it may ask for any of them. None where it was shown one name.
    pub(super) mirrored: Option<Arc<Likeness>>,
    /// What goes on after the connection's own part has ended, which has to be waited for: changes of protocol.
    pub(super) tunnels: TaskTracker,
}
