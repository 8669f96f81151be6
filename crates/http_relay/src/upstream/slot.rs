//! Slots of upstream connections: limits in total and for each host.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use outbound::Deadline;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use x509::HostOrIp;

use super::super::address::canonical;
use super::super::target::Target;
use super::error::UpstreamConnectError;
use inbound::ServiceTasks;

/// Maximum wait for a slot when all are in use, after the longest idle connection was closed.
const SLOT_WITHIN: Duration = Duration::from_millis(500);

/// Host name or IP address, and port. Identifies the host for its connection limit.
type HostPort = (HostOrIp, u16);

/// Local and remote address of a connection. No two open connections have the same pair.
type AddressPair = (SocketAddr, SocketAddr);

/// The connection slots of the pool.
pub(super) struct Slots {
    free: Arc<Semaphore>,
    per_host_max: AtomicUsize,
    hosts: Arc<Mutex<HashMap<HostPort, usize>>>,
    /// Addresses of the open connections: at most one entry for each slot.
    open: Arc<Mutex<HashSet<AddressPair>>>,
}

impl Slots {
    pub(super) fn new(most: usize, per_host_max: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            per_host_max: AtomicUsize::new(per_host_max),
            hosts: Arc::default(),
            open: Arc::default(),
        }
    }

    /// Takes a slot for a connection to `target`. Waits briefly for a slot that a closing connection is about to free.
    pub(super) async fn take(
        &self,
        target: &Target,
        deadline: Deadline,
    ) -> Result<Slot, UpstreamConnectError> {
        let waiting = Arc::clone(&self.free).acquire_owned();
        let permit = tokio::time::timeout(deadline.remaining().min(SLOT_WITHIN), waiting).await;
        let Ok(Ok(permit)) = permit else { return Err(UpstreamConnectError::Full) };
        let mut hosts = self.hosts.lock();
        let host = (target.name.clone(), target.port);
        let taken = hosts.entry(host.clone()).or_default();
        if *taken >= self.per_host_max.load(Relaxed) {
            return Err(UpstreamConnectError::Full);
        }
        *taken += 1;
        drop(hosts);
        let (hosts, open) = (Arc::clone(&self.hosts), Arc::clone(&self.open));
        Ok(Slot { _permit: permit, host, hosts, addresses: None, open })
    }

    /// Returns whether a slot is free.
    pub(super) fn has_free(&self) -> bool {
        self.free.available_permits() > 0
    }

    /// Sets the limit of slots for each host. Existing connections beyond the limit stay open.
    pub(super) fn limit_per_host(&self, most: usize) {
        self.per_host_max.store(most, Relaxed);
    }

    /// Returns whether this process opened the connection between these addresses. A connection is registered before anything is
    /// sent on it.
    pub(super) fn made(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.open.lock().contains(&(canonical(from), canonical(to)))
    }
}

/// A slot, counted in total and for its host until dropped.
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    host: HostPort,
    hosts: Arc<Mutex<HashMap<HostPort, usize>>>,
    /// Addresses of the connection that uses the slot; `None` until it is connected.
    addresses: Option<AddressPair>,
    open: Arc<Mutex<HashSet<AddressPair>>>,
}

impl Slot {
    /// Assigns the slot to the connection of `stream`.
    pub(super) fn assign_to(&mut self, stream: &TcpStream) {
        let (Ok(from), Ok(to)) = (stream.local_addr(), stream.peer_addr()) else { return };
        let addresses = (canonical(from), canonical(to));
        self.addresses = Some(addresses);
        self.open.lock().insert(addresses);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(addresses) = &self.addresses {
            self.open.lock().remove(addresses);
        }
        let mut hosts = self.hosts.lock();
        if let Some(taken) = hosts.get_mut(&self.host) {
            *taken -= 1;
            if *taken == 0 {
                hosts.remove(&self.host);
            }
        }
    }
}

/// Executor for the tasks of an HTTP/2 connection. The tasks end with the service, and own the connection's slot.
#[derive(Clone)]
pub(super) struct SlotExecutor {
    tasks: ServiceTasks,
    slot: Arc<Slot>,
}

impl SlotExecutor {
    pub(super) fn new(tasks: ServiceTasks, slot: Slot) -> Self {
        Self { tasks, slot: Arc::new(slot) }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for SlotExecutor {
    fn execute(&self, work: F) {
        let slot = Arc::clone(&self.slot);
        self.tasks.spawn_bounded(async move {
            let _slot = slot;
            work.await;
        });
    }
}

/// A connection's stream with its slot. Dropping the stream frees the slot; the owner is the HTTP connection or, after a protocol
/// upgrade, the relay.
pub(super) struct SlottedStream<S> {
    stream: S,
    /// Slot of the connection. Dropped after the stream.
    _slot: Slot,
}

impl<S> SlottedStream<S> {
    pub(super) fn new(stream: S, slot: Slot) -> Self {
        Self { stream, _slot: slot }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlottedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SlottedStream<S> {
    inbound::forward_writes!(stream);
}
