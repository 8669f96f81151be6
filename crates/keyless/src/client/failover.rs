//! Failover: requests go to the first connected key service. If that service fails, they go to the next one.

use std::fmt;
use std::sync::Arc;

use futures_util::future::select_all;
use keys::Deadline;
use shared::Shared;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::channel::{Channel, ConnectionState};
use super::connection;
use super::error::{ClientError, ClientStartError};
use super::metrics::ClientMetrics;
use super::options::{ClientOptions, SERVERS_MAX};
use super::tls::{self, ClientTls};
use crate::budget::Budget;
use crate::wire::MessageItems;

/// A client of key services. Clones share the connections, which close with the last clone.
#[derive(Clone)]
pub struct Client(Shared<ClientState>);

struct ClientState {
    channels: Vec<Arc<Channel>>,
    budget: Budget,
    metrics: ClientMetrics,
    tracker: TaskTracker,
    stopping: CancellationToken,
}

impl Drop for ClientState {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.channels.iter().map(|channel| channel.server())).finish()
    }
}

impl Client {
    /// Starts connecting in the background.
    ///
    /// # Errors
    /// [`ClientStartError`]
    pub fn start(options: &ClientOptions, metrics: ClientMetrics) -> Result<Self, ClientStartError> {
        match options.servers.len() {
            0 => return Err(ClientStartError::NoServer),
            1..=SERVERS_MAX => {}
            more => return Err(ClientStartError::TooMany(more)),
        }
        let tls = options.tls.as_ref().map(tls::config).transpose()?;
        let mut channels = Vec::new();
        for server in &options.servers {
            channels.push(Channel::new(server, options, tls.clone(), &metrics)?);
        }
        let (tracker, stopping) = (TaskTracker::new(), CancellationToken::new());
        for channel in &channels {
            tracker.spawn(connection::maintain(Arc::clone(channel), stopping.clone()));
        }
        tracker.close();
        Ok(Self(Shared::new(ClientState { channels, budget: Budget::default(), metrics, tracker, stopping })))
    }

    /// Changes the client certificate and the roots for new connections.
    ///
    /// # Errors
    /// The TLS library rejects them; the old ones stay in use.
    pub fn change_tls(&self, tls: &ClientTls) -> Result<(), rustls::Error> {
        let config = tls::config(tls)?;
        self.0.channels.iter().for_each(|channel| channel.change_tls(&config));
        Ok(())
    }

    /// Returns whether at least one server is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.channels.iter().any(|channel| channel.state() == ConnectionState::Up)
    }

    /// Sends a request to the first connected server. If that server is disconnected or overloaded, retries on another one, for at
    /// most a tenth of all requests. Waits for a first connection until the deadline.
    ///
    /// # Errors
    /// [`ClientError`], at the latest shortly after `deadline`.
    ///
    /// # Cancellation
    /// Dropping the future frees its slot; a later reply is dropped.
    #[crate::boxed]
    pub async fn call(&self, items: &MessageItems<'_>, deadline: Deadline) -> Result<Vec<u8>, ClientError> {
        let inner = &self.0;
        inner.budget.earn();
        self.connected(deadline).await?;
        let mut failed = None;
        for channel in inner.channels.iter().filter(|channel| channel.state() == ConnectionState::Up) {
            if failed.is_some() {
                let may = inner.budget.spend();
                inner.metrics.retried(may);
                if !may {
                    break;
                }
            }
            match channel.call(items, deadline).await {
                Err(error) if error.may_go_elsewhere() => failed = Some(error),
                done => return done,
            }
        }
        Err(failed.unwrap_or(ClientError::Unreachable))
    }

    /// Waits until a server is connected, or all attempts have failed.
    async fn connected(&self, deadline: Deadline) -> Result<(), ClientError> {
        // The usual case: already connected, without any wait.
        if self.is_up() {
            return Ok(());
        }
        loop {
            // Subscribe before the check, so that no change is missed.
            let mut states: Vec<_> = self.0.channels.iter().map(|channel| channel.watch()).collect();
            let now: Vec<ConnectionState> =
                states.iter_mut().map(|state| *state.borrow_and_update()).collect();
            if now.contains(&ConnectionState::Up) {
                return Ok(());
            }
            if !now.contains(&ConnectionState::Connecting) {
                return Err(ClientError::Unreachable);
            }
            let changed = select_all(states.iter_mut().map(|state| Box::pin(state.changed())));
            if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                return Err(ClientError::Unreachable);
            }
        }
    }

    /// Closes all connections. Pending requests fail.
    pub async fn stop(self) {
        self.0.stopping.cancel();
        self.0.tracker.wait().await;
    }
}
