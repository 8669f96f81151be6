//! Data that all requests of a client's connection share: client, origin, mirrored certificate.

use std::sync::Arc;

use http_relay::client::Client;
use http_relay::target::Origin;
use tokio_util::task::TaskTracker;

use crate::mint::MirrorTemplate;

/// Data that all requests of a client's connection share.
#[derive(Clone, Debug)]
pub(super) struct ConnectionContext {
    pub(super) origin: Arc<Origin>,
    pub(super) client: Client,
    /// Template of the mirrored certificate that was presented. The client may request any name in this certificate. `None` if the
    /// leaf has only one name.
    pub(super) mirrored: Option<Arc<MirrorTemplate>>,
    /// Tasks that outlive the HTTP connection and must be awaited: upgraded connections.
    pub(super) tunnels: TaskTracker,
}
