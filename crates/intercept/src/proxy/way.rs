//! What is known of a client's connection, and what the rules say of where it leads.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::{Action, Rules};
use crate::http::client::Client;
use crate::http::target::{Origin, Target};

impl Target {
    /// What rules say of it before its client has said anything. An address that nobody named stands for itself alone: what becomes
    /// of all others in no list is decided by the name that is still to come.
    pub(super) fn action(&self, rules: &Rules) -> Option<Action> {
        if self.redirected { rules.listed(&self.name) } else { Some(rules.decide(&self.name)) }
    }
}

impl Origin {
    /// Whether it is an address that nobody named, and nobody there shows whose it is: any name may be asked for there.
    pub(super) fn is_unproven(&self) -> bool {
        self.target.redirected && self.server.is_none()
    }
}

/// What all requests of a connection share.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) origin: Arc<Origin>,
    /// Whose they are.
    pub(super) client: Client,
    /// Whether the client was shown all names of the server's certificate, and may ask for any of them.
    pub(super) is_mirrored: bool,
    /// What goes on after the connection's own part has ended, which has to be waited for: changes of protocol.
    pub(super) tunnels: TaskTracker,
}
