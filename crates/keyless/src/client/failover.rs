//! Requests to the first key service that is connected, and to the next one when that fails.

use std::fmt;
use std::sync::Arc;

use futures_util::future::select_all;
use keys::Deadline;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::channel::{Channel, ConnectionState};
use super::connection;
use super::error::{ClientError, ClientStartError};
use super::metrics::ClientMetrics;
use super::options::{ClientOptions, SERVERS_MAX};
use super::tls::{self, ClientTls};
use crate::budget::Budget;
use crate::wire::Items;

/// Key services that are asked for signatures. Cheap to clone; with the last clone its connections end.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

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
    /// Begins to connect, and waits for nothing.
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
            tracker.spawn(connection::keep(Arc::clone(channel), stopping.clone()));
        }
        tracker.close();
        Ok(Self(Arc::new(ClientState { channels, budget: Budget::default(), metrics, tracker, stopping })))
    }

    /// Presents another certificate, and believes other roots, from the next connection on.
    ///
    /// # Errors
    /// Those of the library; all stays as it was then.
    pub fn change_tls(&self, tls: &ClientTls) -> Result<(), rustls::Error> {
        let config = tls::config(tls)?;
        self.0.channels.iter().for_each(|channel| channel.change_tls(&config));
        Ok(())
    }

    /// Whether at least one server is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.channels.iter().any(|channel| channel.state() == ConnectionState::Up)
    }

    /// Asks the first server that is connected; another one only when that one is gone or has too much to do, and only for
    /// a tenth of all requests. Waits for a connection while none was tried and failed, never longer than the deadline.
    ///
    /// # Errors
    /// [`ClientError`], never later than shortly after `deadline`.
    ///
    /// # Cancellation
    /// Dropping the future gives its place to another request; what comes for it is dropped.
    #[crate::boxed]
    pub async fn call(&self, items: &Items<'_>, deadline: Deadline) -> Result<Vec<u8>, ClientError> {
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

    /// Waits until a server is connected, or none will be soon.
    async fn connected(&self, deadline: Deadline) -> Result<(), ClientError> {
        // The usual case, which costs nothing.
        if self.is_up() {
            return Ok(());
        }
        loop {
            // Seen before the look, so that no change is missed.
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

    /// Closes all connections; requests under way fail.
    pub async fn stop(self) {
        self.0.stopping.cancel();
        self.0.tracker.wait().await;
    }
}
