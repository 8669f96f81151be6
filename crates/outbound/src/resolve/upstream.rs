//! One upstream name server: a few connected UDP sockets, each with a reader task.
//!
//! Sockets are reused, so a query costs one send and one receive. Each socket has a random port and receives from its upstream
//! only. A response must have the random id of a pending query on that socket and repeat its question.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ResolveError;
use super::counters::Counters;
use super::exchange::{self, ExchangeError};
use super::query::{self, Query};

/// Sockets per upstream. An attacker has to guess the port of one of them and a 16-bit id; reading is distributed over as many
/// tasks.
const SOCKETS: usize = 8;
/// Longest UDP message in bytes.
const UDP_MESSAGE_MAX: usize = 65_535;
/// Number of ids generated at a time: a call of the generator is expensive compared with its output.
const IDS_DRAWN: usize = 64;
/// Maximum pending queries on one socket. Far below the number of ids, so that free ids are found quickly and guessing stays hard;
/// [`super::Options::in_flight`] is well below it.
const PENDING_MAX: usize = 16_384;

/// Timeouts of a query to one upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryTimeouts {
    /// Times after the first packet at which the query is sent again, in case a packet was lost.
    pub(crate) resend: [Duration; 2],
    /// Time after the first packet at which the query fails.
    pub(crate) give_up: Duration,
}

impl QueryTimeouts {
    /// Returns the timeouts for a caller with `limit`: one retransmission after a third of `limit`. Other callers may have joined
    /// the query later, so the query continues for another `limit`, with one more retransmission.
    pub(crate) fn for_caller(limit: Duration) -> Self {
        Self { resend: [limit / 3, limit + limit / 6], give_up: limit.saturating_mul(2) }
    }
}

pub(crate) struct Upstream {
    address: SocketAddr,
    sockets: [Mutex<Option<Socket>>; SOCKETS],
    next: AtomicUsize,
    no_edns: AtomicBool,
    counters: Arc<Counters>,
}

/// A socket that is opened for the first query and reopened after an error. Dropping it stops its reader.
struct Socket {
    shared_socket: Arc<SharedSocket>,
    reader: JoinHandle<()>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

struct SharedSocket {
    socket: UdpSocket,
    pending: Mutex<Pending>,
}

/// Pending queries of a socket, locked for single table operations; shared by the callers and the reader.
#[derive(Default)]
struct Pending {
    unanswered: HashMap<u16, PendingQuery>,
    ids: Vec<u8>,
    registered: u64,
}

/// The response bytes, or an error.
type QueryOutcome = Result<Vec<u8>, ResolveError>;

struct PendingQuery {
    /// Number of this registration: an id is reused as soon as its response has arrived.
    serial: u64,
    question: Box<[u8]>,
    answer: oneshot::Sender<QueryOutcome>,
}

/// A pending query. Dropping this value removes the query from the table.
struct QueryRegistration<'a> {
    shared_socket: &'a SharedSocket,
    id: u16,
    serial: u64,
}

impl Drop for QueryRegistration<'_> {
    fn drop(&mut self) {
        let mut pending = self.shared_socket.pending.lock();
        if pending.unanswered.get(&self.id).is_some_and(|unanswered| unanswered.serial == self.serial) {
            pending.unanswered.remove(&self.id);
        }
    }
}

impl Upstream {
    pub(crate) fn new(address: SocketAddr, counters: Arc<Counters>) -> Self {
        Self {
            address,
            sockets: std::array::from_fn(|_| Mutex::new(None)),
            next: AtomicUsize::new(0),
            no_edns: AtomicBool::new(false),
            counters,
        }
    }

    pub(crate) fn supports_edns(&self) -> bool {
        !self.no_edns.load(Ordering::Relaxed)
    }

    pub(crate) fn disable_edns(&self) {
        self.no_edns.store(true, Ordering::Relaxed);
    }

    /// Sends a query, over TCP if the response does not fit into UDP. Returns the response, with any response code.
    pub(crate) async fn send_query(
        &self,
        query: Query,
        timeouts: QueryTimeouts,
    ) -> Result<Vec<u8>, ResolveError> {
        let give_up = Instant::now() + timeouts.give_up;
        let answer = self.query_over_udp(query.clone(), timeouts).await?;
        if !query::is_truncated(&answer) {
            return Ok(answer);
        }
        self.counters.truncated.fetch_add(1, Ordering::Relaxed);
        tokio::time::timeout_at(give_up, self.query_over_tcp(query))
            .await
            .map_err(|_| ResolveError::TimedOut)?
    }

    async fn query_over_udp(&self, query: Query, timeouts: QueryTimeouts) -> Result<Vec<u8>, ResolveError> {
        let shared_socket = self.shared_socket()?;
        let (registration, mut answer) = shared_socket.register(&query)?;
        let query = query.with_id(registration.id);
        let started = Instant::now();
        for wait in timeouts.resend.into_iter().chain([timeouts.give_up]) {
            self.counters.sent.fetch_add(1, Ordering::Relaxed);
            // A send may report the error of an earlier packet. In either case the query counts as lost and is sent again.
            if let Err(error) = shared_socket.socket.send(query.message_bytes()).await {
                tracing::debug!(upstream = %self.address, %error, "DNS query not sent");
            }
            if let Ok(answered) = tokio::time::timeout_at(started + wait, &mut answer).await {
                drop(registration);
                // The sender is dropped unused only when the reader stops.
                return answered.unwrap_or(Err(ResolveError::NoServer));
            }
        }
        self.counters.silent.fetch_add(1, Ordering::Relaxed);
        Err(ResolveError::TimedOut)
    }

    /// Returns the next socket in round-robin order, opened if needed. If no socket can be opened, uses one that is open.
    fn shared_socket(&self) -> Result<Arc<SharedSocket>, ResolveError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % SOCKETS;
        let mut slot = self.sockets[index].lock();
        if let Some(shared_socket) = slot.as_ref().and_then(Socket::shared_socket) {
            return Ok(shared_socket);
        }
        match Socket::open(self.address, self.counters.clone()) {
            Ok(socket) => Ok(slot.insert(socket).shared_socket.clone()),
            Err(error) => {
                drop(slot);
                tracing::warn!(upstream = %self.address, %error, "cannot open another socket for DNS queries");
                let mut open = self.sockets.iter().filter_map(|slot| slot.lock().as_ref()?.shared_socket());
                open.next().ok_or(ResolveError::NoServer)
            }
        }
    }

    /// Queries over TCP. The caller sets the timeout.
    async fn query_over_tcp(&self, query: Query) -> Result<Vec<u8>, ResolveError> {
        let query = query.with_id(query::random_id().map_err(|_| ResolveError::NoServer)?);
        exchange::over_tcp(self.address, query.message_bytes(), query.question()).await.map_err(|error| {
            match error {
                ExchangeError::Foreign => ResolveError::Malformed("the answer belongs to another query"),
                _ => ResolveError::NoServer,
            }
        })
    }
}

impl Socket {
    /// Returns the open socket with its pending queries; `None` once its reader task has ended.
    fn shared_socket(&self) -> Option<Arc<SharedSocket>> {
        (!self.reader.is_finished()).then(|| self.shared_socket.clone())
    }

    fn open(upstream: SocketAddr, counters: Arc<Counters>) -> io::Result<Self> {
        let socket = exchange::connected_socket(upstream)?;
        let shared_socket = Arc::new(SharedSocket { socket, pending: Mutex::default() });
        let guard = telemetry::tasks::guard("dns-reader");
        let reading = shared_socket.clone();
        let reader = tokio::spawn(async move {
            let _guard = guard;
            reading.read(&counters).await;
        });
        Ok(Self { shared_socket, reader })
    }
}

impl SharedSocket {
    fn register(
        &self,
        query: &Query,
    ) -> Result<(QueryRegistration<'_>, oneshot::Receiver<QueryOutcome>), ResolveError> {
        let (answer, receiver) = oneshot::channel();
        let mut pending = self.pending.lock();
        if pending.unanswered.len() >= PENDING_MAX {
            return Err(ResolveError::NoServer);
        }
        pending.registered += 1;
        let serial = pending.registered;
        loop {
            let id = pending.random_id()?;
            if let Entry::Vacant(free) = pending.unanswered.entry(id) {
                free.insert(PendingQuery { serial, question: query.question().into(), answer });
                return Ok((QueryRegistration { shared_socket: self, id, serial }, receiver));
            }
        }
    }

    async fn read(&self, counters: &Counters) {
        let mut message = vec![0; UDP_MESSAGE_MAX];
        loop {
            match self.socket.recv(&mut message).await {
                Ok(length) => self.deliver(&message[..length], counters),
                // The upstream's host reports that the port is closed: all pending queries fail.
                Err(error) => {
                    self.fail_all(&ResolveError::NoServer);
                    if error.kind() != io::ErrorKind::ConnectionRefused {
                        return; // broken for good, perhaps: the next question opens another
                    }
                }
            }
        }
    }

    fn deliver(&self, message: &[u8], counters: &Counters) {
        let unanswered = query::response_id(message).and_then(|id| {
            let mut pending = self.pending.lock();
            let Entry::Occupied(entry) = pending.unanswered.entry(id) else { return None };
            query::repeats(message, &entry.get().question).then(|| entry.remove())
        });
        match unanswered {
            Some(unanswered) => {
                counters.answers.fetch_add(1, Ordering::Relaxed);
                // The caller may have been dropped in the meantime.
                let _ = unanswered.answer.send(Ok(message.to_vec()));
            }
            None => drop(counters.strays.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn fail_all(&self, error: &ResolveError) {
        let all = std::mem::take(&mut self.pending.lock().unanswered);
        for unanswered in all.into_values() {
            let _ = unanswered.answer.send(Err(error.clone()));
        }
    }
}

impl Pending {
    fn random_id(&mut self) -> Result<u16, ResolveError> {
        if self.ids.len() < 2 {
            let mut drawn = [0; IDS_DRAWN * 2];
            aws_lc_rs::rand::fill(&mut drawn).map_err(|_| ResolveError::NoServer)?;
            self.ids.extend_from_slice(&drawn);
        }
        let (Some(high), Some(low)) = (self.ids.pop(), self.ids.pop()) else {
            return Err(ResolveError::NoServer);
        };
        Ok(u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::Kind;
    use crate::resolve::name::WireName;

    /// Regression test: before registrations had serial numbers, one lookup in 50,000 failed.
    #[tokio::test]
    async fn finished_query_does_not_remove_the_next_one_with_its_id() {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
        let pending = Mutex::new(Pending { ids: vec![7; 4], ..Pending::default() });
        let (shared_socket, counters) = (SharedSocket { socket, pending }, Counters::default());
        let query = Query::new(&WireName::parse("a.example").unwrap(), Kind::A, false);
        let mut answer = query.clone().with_id(0x0707).message_bytes().to_vec();
        answer[2] |= 0x80;

        let (first, _answered) = shared_socket.register(&query).unwrap();
        shared_socket.deliver(&answer, &counters);
        let (second, mut waiting) = shared_socket.register(&query).unwrap();
        assert_eq!(first.id, second.id);
        drop(first);
        shared_socket.deliver(&answer, &counters);
        assert_eq!(waiting.try_recv(), Ok(Ok(answer)));
    }
}
