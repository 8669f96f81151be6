//! The connection to one server, and its pending requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use keys::Deadline;
use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, oneshot, watch};

use super::address::Server;
use super::error::{ClientError, ClientStartError};
use super::metrics::{ClientMetrics, ServerMetrics};
use super::options::ClientOptions;
use crate::wire::{ErrorCode, MessageItems};

/// Maximum bytes in the output queue, enough for about 4,000 requests. A longer queue means that the server does not read.
const OUTGOING_MAX: usize = 4 << 20;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ConnectionState {
    /// The connection is being opened, at startup or after a loss. Callers wait until it is open.
    Connecting,
    /// The connection accepts requests.
    Up,
    /// The last attempt to connect failed. Retries continue in the background; callers do not wait.
    Down,
}

type Reply = Result<Vec<u8>, ErrorCode>;

/// TLS options for the connection to one server.
pub(super) struct LinkTls {
    pub(super) name: ServerName<'static>,
    pub(super) config: RwLock<Arc<ClientConfig>>,
}

/// The connection to one server.
pub(super) struct Channel {
    server: Server,
    pub(super) tls: Option<LinkTls>,
    pub(super) options: ClientOptions,
    pub(super) metrics: ServerMetrics,
    state: watch::Sender<ConnectionState>,
    pending: Mutex<PendingReplies>,
    /// Notified when there is data to write.
    written: Notify,
}

#[derive(Default)]
struct PendingReplies {
    is_open: bool,
    waiting: HashMap<u32, oneshot::Sender<Reply>>,
    outgoing: Vec<u8>,
    next: u32,
}

impl PendingReplies {
    /// Returns an ID that no pending request uses.
    fn id(&mut self) -> u32 {
        loop {
            let id = self.next;
            self.next = self.next.wrapping_add(1);
            if !self.waiting.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Channel {
    pub(super) fn new(
        server: &Server,
        options: &ClientOptions,
        tls: Option<Arc<ClientConfig>>,
        metrics: &ClientMetrics,
    ) -> Result<Arc<Self>, ClientStartError> {
        let tls = match server {
            Server::Unix(_) => None,
            Server::Tls { host, .. } => {
                let config = tls.ok_or_else(|| ClientStartError::NoCertificate(server.clone()))?;
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| ClientStartError::BadName(server.clone()))?;
                Some(LinkTls { name, config: RwLock::new(config) })
            }
        };
        Ok(Arc::new(Self {
            tls,
            options: options.clone(),
            metrics: metrics.of(server),
            server: server.clone(),
            state: watch::Sender::new(ConnectionState::Connecting),
            pending: Mutex::default(),
            written: Notify::new(),
        }))
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn state(&self) -> ConnectionState {
        *self.state.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<ConnectionState> {
        self.state.subscribe()
    }

    pub(super) fn set(&self, state: ConnectionState) {
        self.metrics.up(state == ConnectionState::Up);
        self.state.send_replace(state);
    }

    pub(super) fn change_tls(&self, config: &Arc<ClientConfig>) {
        if let Some(tls) = &self.tls {
            *tls.config.write() = Arc::clone(config);
        }
    }

    /// Accepts requests from now on.
    pub(super) fn open(&self) {
        self.pending.lock().is_open = true;
        self.set(ConnectionState::Up);
    }

    /// Fails all pending requests, then sets the state to `then`. A caller that still sees `Up` may get an error, but never waits
    /// forever.
    pub(super) fn close(&self, then: ConnectionState) {
        let lost = {
            let mut pending = self.pending.lock();
            pending.is_open = false;
            pending.outgoing = Vec::new();
            std::mem::take(&mut pending.waiting)
        };
        self.set(then);
        drop(lost);
    }

    /// Sends a request and waits for the reply.
    pub(super) async fn call(
        &self,
        items: &MessageItems<'_>,
        deadline: Deadline,
    ) -> Result<Vec<u8>, ClientError> {
        let pending = self.send(items, self.options.in_flight_max);
        let done = match pending {
            Ok(pending) => pending.reply(deadline).await,
            Err(error) => Err(error),
        };
        done.inspect_err(|error| self.metrics.failed(error))
    }

    /// Queues a request to be written.
    pub(super) fn send(
        &self,
        items: &MessageItems<'_>,
        in_flight_max: usize,
    ) -> Result<PendingRequest<'_>, ClientError> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut pending = self.pending.lock();
            if !pending.is_open {
                return Err(ClientError::Lost(self.server.clone()));
            }
            if pending.waiting.len() >= in_flight_max || pending.outgoing.len() > OUTGOING_MAX {
                return Err(ClientError::Overloaded(self.server.clone()));
            }
            let id = pending.id();
            items.encode(id, &mut pending.outgoing).map_err(|_| ClientError::TooLong)?;
            pending.waiting.insert(id, sender);
            id
        };
        self.metrics.began();
        self.written.notify_one();
        Ok(PendingRequest { channel: self, id, answer, began: Instant::now() })
    }

    /// Swaps the pending output with the empty `buffer`. Waits until there is output.
    pub(super) async fn outgoing(&self, buffer: &mut Vec<u8>) {
        loop {
            {
                let mut pending = self.pending.lock();
                if !pending.outgoing.is_empty() {
                    std::mem::swap(&mut pending.outgoing, buffer);
                    return;
                }
            }
            self.written.notified().await;
        }
    }

    /// Delivers a reply to the request with this ID. A reply to a cancelled request is dropped.
    pub(super) fn complete(&self, id: u32, reply: Reply) {
        let waiting = self.pending.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply);
        }
    }
}

/// A request that waits for its reply. Dropping it cancels the request.
pub(super) struct PendingRequest<'a> {
    channel: &'a Channel,
    id: u32,
    answer: oneshot::Receiver<Reply>,
    began: Instant,
}

impl PendingRequest<'_> {
    pub(super) async fn reply(mut self, deadline: Deadline) -> Result<Vec<u8>, ClientError> {
        let server = || self.channel.server.clone();
        match tokio::time::timeout_at(deadline.into(), &mut self.answer).await {
            Ok(Ok(Ok(payload))) => Ok(payload),
            Ok(Ok(Err(code))) => Err(ClientError::Refused { server: server(), code }),
            Ok(Err(_)) => Err(ClientError::Lost(server())),
            Err(_) => Err(ClientError::Late(server())),
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.channel.pending.lock().waiting.remove(&self.id);
        self.channel.metrics.ended(self.began.elapsed());
    }
}
