//! State of a handshake before it is complete.

use std::sync::{Arc, OnceLock};

use super::alert::HandshakeAlert;
use super::routes::Route;
use super::site::Site;

/// State of a handshake before it is complete, shared by the callbacks and the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct HandshakeState {
    pub(super) alert: HandshakeAlert,
    pub(super) chosen: Arc<OnceLock<SelectedSite>>,
}

impl HandshakeState {
    /// Returns whether the ClientHello has arrived.
    pub(super) fn has_client_hello(&self) -> bool {
        self.chosen.get().is_some() || self.alert.get().is_some()
    }
}

/// The route and the site that were chosen for a ClientHello.
#[derive(Clone, Debug)]
pub(super) struct SelectedSite {
    /// Route of the connection, if one matches.
    pub(super) route: Option<Arc<Route>>,
    pub(super) site: Arc<Site>,
}
