//! The accept loop: accepts connections while slots are free, and serves each in its own task.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::OwnedSemaphorePermit;

use crate::listener::Listener;
use crate::slots::{Slot, Slots};
use crate::tasks::ServiceTasks;

/// Pause after a failed `accept` (no free file descriptors, connection reset).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time for the task of an evicted connection to free its slot.
const EVICTED_WITHIN: Duration = Duration::from_secs(1);

/// Behavior for new connections while all slots are in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhenFull {
    /// New connections wait in the system's queue for a slot.
    Wait,
    /// New connections are closed immediately: another server may have a free slot.
    Refuse,
    /// Each new connection evicts the connection that has been silent the longest. Otherwise a few silent clients could block all
    /// others. If no connection is silent, new ones are closed immediately. The handler ends a connection's silence
    /// ([`Slot::silence`]).
    EvictSilent,
}

/// Reason why a connection is closed before it is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// All slots are in use.
    Full,
    /// The client's address already uses its maximum number of slots.
    AddressShare,
    /// The connection was silent, and another one needed its slot.
    Evicted,
    /// A trusted proxy sent an invalid PROXY protocol header, or none in time.
    ProxyHeader,
}

impl Refusal {
    /// Returns the reason's name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::AddressShare => "address-share",
            Self::Evicted => "evicted",
            Self::ProxyHeader => "proxy-header",
        }
    }
}

/// Service-specific handler of accepted connections.
pub trait ConnectionHandler<L: Listener = TcpListener>: Send + Sync + 'static {
    /// Serves a connection until it ends. `slot` is released at the end, or earlier by [`Slot::release`].
    fn serve(
        self: Arc<Self>,
        stream: L::Stream,
        client: L::Address,
        slot: &mut Slot,
    ) -> impl Future<Output = ()> + Send;

    /// Closes a connection that is not served.
    fn refused(&self, stream: L::Stream, reason: Refusal) {
        drop((stream, reason));
    }

    /// Records that a silent connection was evicted: to free its slot for another connection, or because its network has too many
    /// silent connections.
    fn evicted(&self) {}

    /// Records that a connection was aborted at the end of the shutdown's grace period.
    fn cut_off(&self) {}
}

impl<L, F, Serving> ConnectionHandler<L> for F
where
    L: Listener,
    F: Fn(L::Stream, L::Address) -> Serving + Send + Sync + 'static,
    Serving: Future<Output = ()> + Send + 'static,
{
    fn serve(
        self: Arc<Self>,
        stream: L::Stream,
        client: L::Address,
        _: &mut Slot,
    ) -> impl Future<Output = ()> + Send {
        self(stream, client)
    }
}

/// An accept loop. Accepts connections while slots are free, and serves each in its own task.
#[derive(Clone, Debug)]
pub struct Acceptor {
    tasks: ServiceTasks,
    slots: Slots,
    when_full: WhenFull,
}

impl Acceptor {
    /// Creates an acceptor. Its connections run in `tasks` and use `slots`.
    #[must_use]
    pub fn new(tasks: &ServiceTasks, slots: Slots, when_full: WhenFull) -> Self {
        Self { tasks: tasks.clone(), slots, when_full }
    }

    /// Starts a task that accepts connections until the shutdown begins.
    pub fn start<L: Listener, H: ConnectionHandler<L>>(self, listener: L, handler: Arc<H>) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move { self.run(&listener, handler).await });
    }

    /// Accepts connections until the shutdown begins. Open connections continue after that.
    pub async fn run<L: Listener, H: ConnectionHandler<L>>(&self, listener: &L, handler: Arc<H>) {
        let stopping = self.tasks.stopping();
        loop {
            let accepting = self.accept(listener, &*handler);
            let Some(accepted) = stopping.run_until_cancelled(accepting).await else { return };
            if let Some((stream, client, slot)) = accepted {
                self.serve(stream, client, slot, &handler);
            }
        }
    }

    /// Accepts the next connection, and takes a slot for it. Returns `None` if `accept` failed or the connection got no slot.
    async fn accept<L: Listener, H: ConnectionHandler<L>>(
        &self,
        listener: &L,
        handler: &H,
    ) -> Option<(L::Stream, L::Address, Slot)> {
        let reserved = match self.when_full {
            WhenFull::Wait => Some(self.slots.reserve().await?),
            WhenFull::Refuse | WhenFull::EvictSilent => None,
        };
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                return None;
            }
        };
        match self.slot(reserved, L::ip(&client)).await {
            Ok(slot) => Some((stream, client, slot)),
            Err(reason) => {
                handler.refused(stream, reason);
                None
            }
        }
    }

    /// Takes a slot for a client at `address`.
    async fn slot(
        &self,
        reserved: Option<OwnedSemaphorePermit>,
        address: Option<IpAddr>,
    ) -> Result<Slot, Refusal> {
        // Checked first, so that a connection that is refused anyway evicts no other.
        if !self.slots.is_below_limit(address) {
            return Err(Refusal::AddressShare);
        }
        let permit = match reserved.or_else(|| self.slots.try_reserve()) {
            None if self.when_full == WhenFull::EvictSilent => self.evict().await,
            permit => permit,
        };
        let mut slot = self.slots.fill(permit.ok_or(Refusal::Full)?, address).ok_or(Refusal::AddressShare)?;
        if self.when_full == WhenFull::EvictSilent {
            let network = address.filter(|_| !self.slots.is_proxy(address)).map(crate::network);
            slot.silence = self.slots.silent().enter(network);
        }
        Ok(slot)
    }

    /// Evicts the longest silent connection and returns its slot.
    async fn evict(&self) -> Option<OwnedSemaphorePermit> {
        if !self.slots.silent().evict_oldest() {
            return None;
        }
        tokio::time::timeout(EVICTED_WITHIN, self.slots.reserve()).await.ok().flatten()
    }

    fn serve<L: Listener, H: ConnectionHandler<L>>(
        &self,
        stream: L::Stream,
        client: L::Address,
        mut slot: Slot,
        handler: &Arc<H>,
    ) {
        let (serving, aborted) = (Arc::clone(handler), Arc::clone(handler));
        let is_proxy = self.slots.is_proxy(L::ip(&client));
        let work = async move {
            let silence = slot.silence();
            let served = async {
                if is_proxy {
                    serve_behind_proxy(Arc::clone(&serving), stream, client, &mut slot).await;
                } else {
                    Arc::clone(&serving).serve(stream, client, &mut slot).await;
                }
            };
            tokio::select! {
                () = served => {}
                () = silence.evicted() => serving.evicted(),
            }
        };
        self.tasks.spawn_with_abort_handler(work, move || aborted.cut_off());
    }
}

/// Serves a connection from the trusted proxy at `peer`, under the client address that the proxy sends, if any.
async fn serve_behind_proxy<L: Listener, H: ConnectionHandler<L>>(
    handler: Arc<H>,
    mut stream: L::Stream,
    peer: L::Address,
    slot: &mut Slot,
) {
    let proxy = L::ip(&peer);
    let client = match L::client_behind(&mut stream, peer).await {
        Ok(client) => client,
        Err(error) => {
            tracing::info!(?proxy, %error, "rejected a connection from a trusted proxy");
            return handler.refused(stream, Refusal::ProxyHeader);
        }
    };
    let stated = L::ip(&client).filter(|address| proxy != Some(*address));
    if stated.is_some_and(|address| !slot.charge(address)) {
        return handler.refused(stream, Refusal::AddressShare);
    }
    handler.serve(stream, client, slot).await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use parking_lot::Mutex;
    use tokio::sync::mpsc;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::slots::OriginLimit;

    /// Longer than any grace period of these tests.
    const LONG: Duration = Duration::from_secs(3_600);

    /// A listener without a network: a connection is the number of its client.
    #[derive(Clone, Default)]
    struct Clients {
        waiting: Arc<Mutex<VecDeque<io::Result<u8>>>>,
        arrived: Arc<tokio::sync::Notify>,
    }

    impl Clients {
        fn connect(&self, clients: impl IntoIterator<Item = u8>) {
            self.waiting.lock().extend(clients.into_iter().map(Ok));
            self.arrived.notify_one();
        }

        fn fail(&self, times: usize) {
            self.waiting.lock().extend((0..times).map(|_| Err(io::ErrorKind::ConnectionAborted.into())));
            self.arrived.notify_one();
        }
    }

    impl Listener for Clients {
        type Stream = u8;
        type Address = SocketAddr;

        async fn accept(&self) -> io::Result<(u8, SocketAddr)> {
            loop {
                if let Some(accepted) = self.waiting.lock().pop_front() {
                    return accepted.map(|client| (client, ([192, 0, 2, client], 443).into()));
                }
                self.arrived.notified().await;
            }
        }

        fn ip(address: &SocketAddr) -> Option<IpAddr> {
            Some(address.ip())
        }
    }

    /// Handler that serves each connection until [`BlockingHandler::end`], or forever.
    struct BlockingHandler {
        served: mpsc::UnboundedSender<u8>,
        refused: mpsc::UnboundedSender<u8>,
        end: CancellationToken,
        releases: bool,
        /// Clients with a number below this send data immediately.
        sending_below: u8,
        cut_off: AtomicUsize,
        evicted: AtomicUsize,
    }

    impl ConnectionHandler<Clients> for BlockingHandler {
        async fn serve(self: Arc<Self>, client: u8, _: SocketAddr, slot: &mut Slot) {
            if self.releases {
                slot.release();
            }
            if client < self.sending_below {
                slot.silence().end();
            }
            let _ = self.served.send(client);
            self.end.cancelled().await;
        }

        fn refused(&self, client: u8, _: Refusal) {
            let _ = self.refused.send(client);
        }

        fn evicted(&self) {
            self.evicted.fetch_add(1, Relaxed);
        }

        fn cut_off(&self) {
            self.cut_off.fetch_add(1, Relaxed);
        }
    }

    struct World {
        clients: Clients,
        tasks: ServiceTasks,
        handler: Arc<BlockingHandler>,
        served: mpsc::UnboundedReceiver<u8>,
        refused: mpsc::UnboundedReceiver<u8>,
    }

    impl World {
        fn new(slots: &Slots, when_full: WhenFull, releases: bool) -> Self {
            let (clients, tasks) = (Clients::default(), ServiceTasks::default());
            let ((served_to, served), (refused_to, refused)) =
                (mpsc::unbounded_channel(), mpsc::unbounded_channel());
            let end = CancellationToken::new();
            let handler = BlockingHandler {
                served: served_to,
                refused: refused_to,
                end,
                releases,
                sending_below: 3,
                cut_off: 0.into(),
                evicted: 0.into(),
            };
            let handler = Arc::new(handler);
            Acceptor::new(&tasks, slots.clone(), when_full).start(clients.clone(), Arc::clone(&handler));
            Self { clients, tasks, handler, served, refused }
        }
    }

    /// Lets every task run until all of them wait. Time is paused.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn drain(received: &mut mpsc::UnboundedReceiver<u8>) -> Vec<u8> {
        std::iter::from_fn(|| received.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn connections_above_the_limit_wait_or_are_refused() {
        for (when_full, refused, later) in
            [(WhenFull::Wait, vec![], vec![3]), (WhenFull::Refuse, vec![3], vec![])]
        {
            let slots = Slots::new(2);
            let mut world = World::new(&slots, when_full, false);
            world.clients.connect([1, 2, 3]);
            settle().await;
            assert_eq!(drain(&mut world.served), [1, 2], "{when_full:?}");
            assert_eq!(drain(&mut world.refused), refused, "{when_full:?}");
            assert_eq!(slots.in_use(), 2);
            world.handler.end.cancel();
            settle().await;
            assert_eq!(drain(&mut world.served), later, "{when_full:?}");
            assert_eq!(slots.in_use(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn longest_silent_connection_is_evicted_for_a_new_one() {
        let slots = Slots::new(4);
        let mut world = World::new(&slots, WhenFull::EvictSilent, false);
        // Clients 1 and 2 send data; 3 and then 4 stay silent.
        world.clients.connect([1, 3, 4, 2]);
        settle().await;
        for newcomer in [5, 6, 7] {
            world.clients.connect([newcomer]);
            settle().await;
        }
        assert_eq!(drain(&mut world.served), [1, 3, 4, 2, 5, 6, 7]);
        assert_eq!((world.handler.evicted.load(Relaxed), slots.in_use()), (3, 4));
        world.tasks.abort();
        settle().await;
        assert_eq!(slots.in_use(), 0);
        assert!(!slots.silent().evict_oldest(), "nothing is left of those that ended");
        // If no client is silent, none is evicted.
        let mut world = World::new(&Slots::new(2), WhenFull::EvictSilent, false);
        for client in 1..=3 {
            world.clients.connect([client]);
            settle().await;
        }
        assert_eq!((drain(&mut world.served), drain(&mut world.refused)), (vec![1, 2], vec![3]));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_of_one_network_are_limited_to_an_eighth() {
        let slots = Slots::new(16);
        let mut world = World::new(&slots, WhenFull::EvictSilent, false);
        for client in std::iter::once(8).chain([9; 40]) {
            world.clients.connect([client]);
            settle().await;
        }
        assert_eq!(drain(&mut world.served).len(), 41);
        assert_eq!(slots.in_use(), 3, "an eighth of all, and the other client");
        assert_eq!(world.handler.evicted.load(Relaxed), 38);
    }

    #[tokio::test(start_paused = true)]
    async fn higher_origin_limit_allows_half_of_it_to_be_silent() {
        let mut world =
            World::new(&Slots::limited(16, OriginLimit::PerNetwork(16)), WhenFull::EvictSilent, false);
        world.clients.connect([9; 8]);
        settle().await;
        assert_eq!((drain(&mut world.served).len(), world.handler.evicted.load(Relaxed)), (8, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn origin_at_its_limit_evicts_no_connection() {
        let slots = Slots::limited(3, OriginLimit::PerNetwork(2));
        let mut world = World::new(&slots, WhenFull::EvictSilent, false);
        // Client 8 is silent, 1 is not; the last two connections exceed the share of their address.
        for client in [8, 1, 1, 1, 1] {
            world.clients.connect([client]);
            settle().await;
        }
        assert_eq!((drain(&mut world.served), drain(&mut world.refused)), (vec![8, 1, 1], vec![1, 1]));
        assert_eq!(world.handler.evicted.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_share_their_slots() {
        let slots = Slots::new(1);
        let mut worlds = [(); 2].map(|()| World::new(&slots, WhenFull::Refuse, false));
        worlds[0].clients.connect([1]);
        settle().await;
        worlds[1].clients.connect([2]);
        settle().await;
        assert_eq!(drain(&mut worlds[0].served), [1]);
        assert_eq!(drain(&mut worlds[1].refused), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_per_origin_are_limited() {
        for when_full in [WhenFull::Wait, WhenFull::Refuse] {
            let slots = Slots::limited(9, OriginLimit::PerAddress(2));
            let mut world = World::new(&slots, when_full, false);
            world.clients.connect([1, 1, 1, 2, 1]);
            settle().await;
            assert_eq!(drain(&mut world.served), [1, 1, 2], "{when_full:?}");
            assert_eq!(drain(&mut world.refused), [1, 1], "{when_full:?}");
            world.handler.end.cancel();
            settle().await;
            world.clients.connect([1]);
            settle().await;
            assert_eq!(drain(&mut world.served), [1], "{when_full:?}: slots are free again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slot_can_be_released_before_the_connection_ends() {
        let slots = Slots::new(1);
        let mut world = World::new(&slots, WhenFull::Refuse, true);
        for client in 1..=3 {
            world.clients.connect([client]);
            settle().await;
        }
        assert_eq!(drain(&mut world.served), [1, 2, 3]);
        assert_eq!(slots.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn accept_loop_pauses_after_errors_and_continues() {
        let mut world = World::new(&Slots::new(2), WhenFull::Wait, false);
        let began = Instant::now();
        world.clients.fail(3);
        world.clients.connect([1]);
        assert_eq!(world.served.recv().await, Some(1));
        assert_eq!(began.elapsed().as_millis() / ACCEPT_PAUSE.as_millis(), 3, "three pauses");
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_drains_and_aborts_after_the_deadline() {
        for drains in [true, false] {
            let mut world = World::new(&Slots::new(2), WhenFull::Wait, false);
            world.clients.connect([1, 2]);
            settle().await;
            let (end, began) = (world.handler.end.clone(), Instant::now());
            let closing = tokio::spawn(world.tasks.clone().close(Duration::from_secs(5)));
            settle().await;
            world.clients.connect([3]);
            settle().await;
            assert!(!closing.is_finished(), "connections are still open");
            if drains {
                end.cancel();
            }
            assert_eq!(closing.await.unwrap(), drains);
            assert_eq!(began.elapsed() >= Duration::from_secs(5), !drains);
            assert_eq!(world.handler.cut_off.load(Relaxed), if drains { 0 } else { 2 });
            assert_eq!(drain(&mut world.served), [1, 2], "no connection is accepted after the stop");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn abort_closes_connections_without_waiting() {
        let slots = Slots::new(2);
        let mut world = World::new(&slots, WhenFull::Wait, false);
        world.clients.connect([1]);
        assert_eq!(world.served.recv().await, Some(1));
        world.tasks.abort();
        assert!(world.tasks.clone().close(LONG).await);
        assert_eq!((slots.in_use(), world.handler.cut_off.load(Relaxed)), (0, 1));
    }

    #[tokio::test]
    async fn function_is_accepted_as_handler_for_tcp_connections() {
        let listener = crate::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = ServiceTasks::stopped_by(CancellationToken::new());
        let (served, mut clients) = mpsc::unbounded_channel();
        let handler = move |_: tokio::net::TcpStream, client: SocketAddr| {
            let served = served.clone();
            async move { served.send(client).unwrap() }
        };
        Acceptor::new(&tasks, Slots::new(1), WhenFull::Refuse).start(listener, Arc::new(handler));
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        assert_eq!(clients.recv().await, stream.local_addr().ok());
        assert!(tasks.close(LONG).await);
    }
}
