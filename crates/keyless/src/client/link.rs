//! One server, and the requests that are under way to it.

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
use crate::wire::{ErrorCode, Items};

/// Octets that wait to be written: four thousand requests. A server that reads none of them is no help.
const OUTGOING_MAX: usize = 4 << 20;

/// How a link stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// It is being made, for the first time or since it was lost: to wait for it is reasonable.
    Connecting,
    /// Requests can be made.
    Up,
    /// It could not be made; it is tried again, and nobody waits for that.
    Down,
}

/// What a request is answered with.
type Answer = Result<Vec<u8>, ErrorCode>;

/// How to speak TLS to a server.
pub(super) struct LinkTls {
    pub(super) name: ServerName<'static>,
    pub(super) config: RwLock<Arc<ClientConfig>>,
}

/// One server.
pub(super) struct Link {
    server: Server,
    pub(super) tls: Option<LinkTls>,
    pub(super) options: ClientOptions,
    pub(super) metrics: ServerMetrics,
    state: watch::Sender<State>,
    queue: Mutex<Queue>,
    /// Something is to be written.
    written: Notify,
}

#[derive(Default)]
struct Queue {
    is_open: bool,
    waiting: HashMap<u32, oneshot::Sender<Answer>>,
    outgoing: Vec<u8>,
    next: u32,
}

impl Queue {
    /// An id that no request under way has.
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

impl Link {
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
            state: watch::Sender::new(State::Connecting),
            queue: Mutex::default(),
            written: Notify::new(),
        }))
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn state(&self) -> State {
        *self.state.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn set(&self, state: State) {
        self.metrics.up(state == State::Up);
        self.state.send_replace(state);
    }

    pub(super) fn change_tls(&self, config: &Arc<ClientConfig>) {
        if let Some(tls) = &self.tls {
            *tls.config.write() = Arc::clone(config);
        }
    }

    /// Requests may be made from now on.
    pub(super) fn open(&self) {
        self.queue.lock().is_open = true;
        self.set(State::Up);
    }

    /// Everything under way is lost. Closed before the state says so: who sees it up may still be refused, never forgotten.
    pub(super) fn close(&self, then: State) {
        let lost = {
            let mut queue = self.queue.lock();
            queue.is_open = false;
            queue.outgoing = Vec::new();
            std::mem::take(&mut queue.waiting)
        };
        self.set(then);
        drop(lost);
    }

    /// Asks, and waits for the answer.
    pub(super) async fn call(&self, items: &Items<'_>, deadline: Deadline) -> Result<Vec<u8>, ClientError> {
        let asked = self.ask(items, self.options.in_flight_max);
        let done = match asked {
            Ok(asked) => asked.answered(deadline).await,
            Err(error) => Err(error),
        };
        done.inspect_err(|error| self.metrics.failed(error))
    }

    /// Puts a request among those to be written.
    pub(super) fn ask(&self, items: &Items<'_>, in_flight_max: usize) -> Result<Asked<'_>, ClientError> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut queue = self.queue.lock();
            if !queue.is_open {
                return Err(ClientError::Lost(self.server.clone()));
            }
            if queue.waiting.len() >= in_flight_max || queue.outgoing.len() > OUTGOING_MAX {
                return Err(ClientError::Overloaded(self.server.clone()));
            }
            let id = queue.id();
            items.encode(id, &mut queue.outgoing).map_err(|_| ClientError::TooLong)?;
            queue.waiting.insert(id, sender);
            id
        };
        self.metrics.began();
        self.written.notify_one();
        Ok(Asked { link: self, id, answer, began: Instant::now() })
    }

    /// Takes all that is to be written in exchange for an empty `buffer`; waits until there is something.
    pub(super) async fn outgoing(&self, buffer: &mut Vec<u8>) {
        loop {
            {
                let mut queue = self.queue.lock();
                if !queue.outgoing.is_empty() {
                    std::mem::swap(&mut queue.outgoing, buffer);
                    return;
                }
            }
            self.written.notified().await;
        }
    }

    /// Gives an answer to whoever waits for it; nobody may.
    pub(super) fn answer(&self, id: u32, answer: Answer) {
        let waiting = self.queue.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }
}

/// One request under way; dropped, it is forgotten.
pub(super) struct Asked<'a> {
    link: &'a Link,
    id: u32,
    answer: oneshot::Receiver<Answer>,
    began: Instant,
}

impl Asked<'_> {
    pub(super) async fn answered(mut self, deadline: Deadline) -> Result<Vec<u8>, ClientError> {
        let server = || self.link.server.clone();
        match tokio::time::timeout_at(deadline.into(), &mut self.answer).await {
            Ok(Ok(Ok(payload))) => Ok(payload),
            Ok(Ok(Err(code))) => Err(ClientError::Refused { server: server(), code }),
            Ok(Err(_)) => Err(ClientError::Lost(server())),
            Err(_) => Err(ClientError::Late(server())),
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.link.queue.lock().waiting.remove(&self.id);
        self.link.metrics.ended(self.began.elapsed());
    }
}
