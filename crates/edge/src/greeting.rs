//! What is known of a handshake before it is done.

use std::sync::{Arc, OnceLock};

use super::alert::Alert;
use super::routes::Route;
use super::site::Site;

/// What is known of a handshake before it is done, shared by all who take part in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Greeting {
    pub(super) alert: Alert,
    pub(super) chosen: Arc<OnceLock<Chosen>>,
}

impl Greeting {
    /// Whether the client has said hello.
    pub(super) fn is_heard(&self) -> bool {
        self.chosen.get().is_some() || self.alert.get().is_some()
    }
}

/// What a client's hello was answered with, whatever there is by the end.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    /// Who gets the connection, if there is anybody.
    pub(super) route: Option<Arc<Route>>,
    pub(super) site: Arc<Site>,
}
