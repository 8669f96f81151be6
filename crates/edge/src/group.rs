//! Upstreams with one or more servers: load balancing, health and ejection.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http_relay::upstream::UpstreamTls;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::bad_route::{BadRoute, SERVERS_MAX};

/// Maximum servers that are tried for a connection or request before it fails.
pub(super) const TRIES_MAX: usize = 3;
/// Maximum doublings of the ejection time: the longest ejection is 32 times the first one.
const DOUBLINGS_MAX: u32 = 5;

coded::named! {
    /// Load balancing policy: how a server is chosen among the healthy servers of an upstream.
    pub enum Balance: "balancing policy" {
        /// Each server in turn.
        RoundRobin => "round-robin",
        /// The server with the fewest connections and requests in flight.
        LeastRequests => "least-requests",
        /// Hash of the client's address. Each client gets the same server while that server is up. All terminators choose the same server.
        ClientAddress => "client-address",
    }
}

/// Health checks and ejection of servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HealthOptions {
    /// Time between two checks of a server. `None` disables checks.
    pub interval: Option<Duration>,
    /// Timeout of a health check.
    pub timeout: Duration,
    /// Path of the HTTP check (GET); a status of 200 to 399 is healthy. `None` checks only that a connection, with TLS if
    /// configured, succeeds.
    pub path: Option<String>,
    /// Host in the request of the check. `None` uses the name in the server's certificate or, without TLS, the server's host.
    pub host: Option<String>,
    /// Successful checks in a row that mark a server as up.
    pub healthy_after: u32,
    /// Failed checks in a row that mark a server as down.
    pub unhealthy_after: u32,
    /// Failed connections or requests in a row that eject a server. 0 disables ejection.
    pub eject_after: u32,
    /// Duration of the first ejection. It doubles with each further ejection in a row, up to 32 times the first.
    pub eject: Duration,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(5)),
            timeout: Duration::from_secs(2),
            path: None,
            host: None,
            healthy_after: 2,
            unhealthy_after: 3,
            eject_after: 3,
            eject: Duration::from_secs(10),
        }
    }
}

impl HealthOptions {
    /// Disables checks and ejection.
    #[must_use]
    pub fn none() -> Self {
        Self { interval: None, eject_after: 0, ..Self::default() }
    }
}

/// An upstream: a group of interchangeable servers.
#[derive(Debug)]
pub struct Group {
    name: Arc<str>,
    servers: Vec<Arc<Server>>,
    balance: Balance,
    health: HealthOptions,
    tls: Option<UpstreamTls>,
    turn: AtomicUsize,
}

/// One server of an upstream.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    /// Name of the server in logs and metrics: `HOST:PORT`.
    pub(super) label: Arc<str>,
    in_flight: Arc<AtomicUsize>,
    state: Mutex<State>,
}

/// Health state of a server.
#[derive(Clone, Debug)]
struct State {
    /// Whether the server is up according to its health checks.
    is_up: bool,
    /// Number of consecutive checks that contradict `is_up`.
    contradictions: u32,
    /// Connections and requests in a row that failed.
    failures: u32,
    ejections: u32,
    ejected_until: Option<Instant>,
    /// Time of the next check; `None` while a check is in progress.
    check_at: Option<Instant>,
}

/// A connection or a request in flight to a server, until dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Change of a server's state after a check or a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// The state did not change.
    Same,
    /// The server receives connections and requests again.
    Up,
    /// The server is down and receives no connections.
    Down,
}

impl Group {
    /// Creates an upstream of `servers`, each `HOST:PORT`.
    ///
    /// # Errors
    /// [`BadRoute`]
    pub fn new(
        name: &str,
        servers: &[String],
        balance: Balance,
        health: HealthOptions,
        tls: Option<UpstreamTls>,
    ) -> Result<Self, BadRoute> {
        if servers.is_empty() || servers.len() > SERVERS_MAX {
            return Err(BadRoute::Servers(name.to_owned()));
        }
        let mut parsed: Vec<Arc<Server>> = Vec::with_capacity(servers.len());
        for text in servers {
            let server = Server::parse(text)?;
            if parsed.iter().any(|other| (&other.host, other.port) == (&server.host, server.port)) {
                return Err(BadRoute::ServerTwice(text.clone()));
            }
            parsed.push(Arc::new(server));
        }
        Ok(Self { name: name.into(), servers: parsed, balance, health, tls, turn: AtomicUsize::new(0) })
    }

    /// Creates an upstream of one server, without checks or ejection.
    ///
    /// # Errors
    /// [`BadRoute`]
    pub fn single(server: &str) -> Result<Self, BadRoute> {
        Self::new(server, &[server.to_owned()], Balance::RoundRobin, HealthOptions::none(), None)
    }

    /// Returns the upstream's name in logs and metrics.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    pub(super) fn health(&self) -> &HealthOptions {
        &self.health
    }

    pub(super) fn tls(&self) -> Option<&UpstreamTls> {
        self.tls.as_ref()
    }

    /// Copies the health state of each server from `before`, an equal group.
    pub(super) fn take_over(&self, before: &Self) {
        for (server, before) in self.servers.iter().zip(&before.servers) {
            let mut known = before.state.lock().clone();
            known.check_at = known.check_at.or(Some(Instant::now()));
            *server.state.lock() = known;
        }
    }

    /// Returns the index of the server for the next connection or request of `client`. Skips the servers in `tried`. If no server
    /// is up, treats all as up: a wrong check is less harmful than an outage.
    pub(super) fn choose(&self, client: IpAddr, tried: &[usize]) -> Option<usize> {
        if let [_] = self.servers.as_slice() {
            return tried.is_empty().then_some(0);
        }
        let now = Instant::now();
        let untried = (0..self.servers.len()).filter(|at| !tried.contains(at));
        let up: Vec<usize> = untried.clone().filter(|at| self.servers[*at].is_up(now)).collect();
        let among = if up.is_empty() { untried.collect() } else { up };
        if among.is_empty() {
            return None;
        }
        let turn = self.turn.fetch_add(1, Relaxed) % among.len();
        let in_turn = || (0..among.len()).map(|step| among[(turn + step) % among.len()]);
        match self.balance {
            Balance::RoundRobin => Some(among[turn]),
            Balance::LeastRequests => in_turn().min_by_key(|at| self.servers[*at].in_flight.load(Relaxed)),
            // Rendezvous hashing: adding or removing a server moves only the clients of that server.
            Balance::ClientAddress => in_turn().max_by_key(|at| hash_of(client, &self.servers[*at].label)),
        }
    }
}

/// Returns the hash of a client and a server, equal on every terminator.
fn hash_of(client: IpAddr, label: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (client.to_canonical(), label).hash(&mut hasher);
    hasher.finish()
}

/// Groups are equal if name, servers, TLS, balancing and health options are equal.
impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.balance == other.balance
            && self.health == other.health
            && self.tls == other.tls
            && self.servers.len() == other.servers.len()
            && self.servers.iter().zip(&other.servers).all(|(one, other)| one.label == other.label)
    }
}

impl Eq for Group {}

impl Server {
    fn parse(text: &str) -> Result<Self, BadRoute> {
        let wrong = || BadRoute::Upstream(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(wrong)?,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let port: u16 = port.parse().map_err(|_| wrong())?;
        if host.is_empty() || port == 0 {
            return Err(wrong());
        }
        let state = State {
            is_up: true,
            contradictions: 0,
            failures: 0,
            ejections: 0,
            ejected_until: None,
            check_at: Some(Instant::now()),
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            label: text.into(),
            in_flight: Arc::default(),
            state: Mutex::new(state),
        })
    }

    /// Returns whether the server is up by its checks and not ejected.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.is_up && state.ejected_until.is_none_or(|until| until <= now)
    }

    /// Counts a connection or a request as in flight.
    pub(super) fn begin(&self) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(Arc::clone(&self.in_flight))
    }

    /// Records a successful connection or response.
    pub(super) fn answered(&self) {
        let mut state = self.state.lock();
        (state.failures, state.ejections, state.ejected_until) = (0, 0, None);
    }

    /// Records a failed connection or request. Returns [`Change::Down`] if the server is now ejected.
    pub(super) fn failed(&self, health: &HealthOptions) -> Change {
        if health.eject_after == 0 {
            return Change::Same;
        }
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        let now = Instant::now();
        // Failures of requests that began before the ejection do not count again.
        let is_ejected = state.ejected_until.is_some_and(|until| now < until);
        if state.failures < health.eject_after || is_ejected {
            return Change::Same;
        }
        state.ejected_until = Some(now + health.eject * (1 << state.ejections.min(DOUBLINGS_MAX)));
        state.ejections += 1;
        Change::Down
    }

    /// Returns whether a check is due. The caller must then check the server and call [`Self::checked`].
    pub(super) fn is_check_due(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_due = state.check_at.is_some_and(|at| at <= now);
        if is_due {
            state.check_at = None;
        }
        is_due
    }

    /// Records the result of a health check and schedules the next one after `interval`.
    pub(super) fn checked(&self, is_healthy: bool, interval: Duration, health: &HealthOptions) -> Change {
        let mut state = self.state.lock();
        state.check_at = Some(Instant::now() + interval);
        if is_healthy == state.is_up {
            state.contradictions = 0;
            return Change::Same;
        }
        state.contradictions += 1;
        let needed = if is_healthy { health.healthy_after } else { health.unhealthy_after };
        if state.contradictions < needed {
            return Change::Same;
        }
        (state.is_up, state.contradictions) = (is_healthy, 0);
        if is_healthy {
            (state.failures, state.ejections, state.ejected_until) = (0, 0, None);
            return Change::Up;
        }
        Change::Down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn group(balance: Balance) -> Group {
        let servers = ["a:1", "b:1", "c:1"].map(str::to_owned);
        Group::new("shop", &servers, balance, HealthOptions::default(), None).unwrap()
    }

    fn chosen(group: &Group, times: usize) -> Vec<usize> {
        (0..times).filter_map(|_| group.choose(CLIENT, &[])).collect()
    }

    fn fail(group: &Group, at: usize, times: u32) -> Vec<Change> {
        (0..times).map(|_| group.servers[at].failed(group.health())).collect()
    }

    #[tokio::test]
    async fn round_robin_rotates_servers_and_skips_tried_ones() {
        let group = group(Balance::RoundRobin);
        assert_eq!(chosen(&group, 6), [0, 1, 2, 0, 1, 2]);
        for _ in 0..6 {
            assert_eq!(group.choose(CLIENT, &[0, 2]), Some(1));
        }
        assert_eq!(group.choose(CLIENT, &[0, 1, 2]), None);
        let single = Group::single("a:1").unwrap();
        assert_eq!((single.choose(CLIENT, &[]), single.choose(CLIENT, &[0])), (Some(0), None));
    }

    #[tokio::test]
    async fn least_requests_chooses_the_server_with_fewest_active_requests() {
        let group = group(Balance::LeastRequests);
        let _busy = (group.servers[0].begin(), group.servers[2].begin());
        assert_eq!(chosen(&group, 4), [1; 4]);
        let more = (group.servers[1].begin(), group.servers[1].begin());
        assert!(!chosen(&group, 4).contains(&1));
        drop(more);
        assert_eq!(chosen(&group, 4), [1; 4]);
    }

    #[tokio::test]
    async fn client_address_hash_keeps_the_server_until_it_is_down() {
        let group = group(Balance::ClientAddress);
        let own = group.choose(CLIENT, &[]).unwrap();
        assert_eq!(chosen(&group, 9), [own; 9]);
        let clients = (0..=255).map(|last| IpAddr::from([192, 0, 2, last]));
        let before: Vec<_> = clients.clone().map(|client| group.choose(client, &[]).unwrap()).collect();
        for at in 0..3 {
            assert!(before.iter().filter(|chosen| **chosen == at).count() > 40, "{before:?}");
        }
        fail(&group, own, 3);
        for (client, before) in clients.zip(before) {
            let now = group.choose(client, &[]).unwrap();
            assert!(now != own && (before == own || now == before), "others stay where they were");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_failures_eject_a_server_with_doubling_delay() {
        let group = group(Balance::RoundRobin);
        fail(&group, 1, 2);
        group.servers[1].answered();
        assert_eq!(fail(&group, 1, 2), [Change::Same; 2], "not in a row");
        let mut wait = Duration::from_secs(10);
        for _ in 0..3 {
            assert_eq!(fail(&group, 1, 1), [Change::Down]);
            assert_eq!(fail(&group, 1, 1), [Change::Same], "it was in flight");
            tokio::time::advance(wait - Duration::from_secs(1)).await;
            assert_eq!(chosen(&group, 4).iter().filter(|at| **at == 1).count(), 0);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(chosen(&group, 3).contains(&1), "after {wait:?}");
            wait *= 2;
        }
        group.servers[1].answered();
        assert_eq!(fail(&group, 1, 3), [Change::Same, Change::Same, Change::Down]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(chosen(&group, 3).contains(&1), "the first time again");
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_health_checks_mark_a_server_down_and_up() {
        let group = group(Balance::RoundRobin);
        let check = |is_healthy| group.servers[0].checked(is_healthy, Duration::from_secs(5), group.health());
        let changes: Vec<_> = [false, false, true, false, false, false, false].map(check).into();
        assert_eq!(changes.iter().position(|change| *change == Change::Down), Some(5), "{changes:?}");
        assert!(!chosen(&group, 6).contains(&0));
        let changes: Vec<_> = [true, false, true, true].map(check).into();
        assert_eq!(changes, [Change::Same, Change::Same, Change::Same, Change::Up]);
        assert!(chosen(&group, 6).contains(&0));
        let server = &group.servers[1];
        assert!(server.is_check_due(Instant::now()) && !server.is_check_due(Instant::now()), "one at a time");
        server.checked(true, Duration::from_secs(5), group.health());
        assert!(!server.is_check_due(Instant::now()));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(server.is_check_due(Instant::now()));
    }

    #[tokio::test]
    async fn all_servers_are_tried_when_none_is_healthy() {
        let group = group(Balance::RoundRobin);
        for at in 0..3 {
            fail(&group, at, 3);
        }
        let mut all = chosen(&group, 3);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    }

    #[test]
    fn group_rejects_empty_duplicate_or_invalid_servers() {
        let new = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            Group::new("shop", &servers, Balance::RoundRobin, HealthOptions::default(), None).err()
        };
        assert_eq!(new(&[]), Some(BadRoute::Servers("shop".into())));
        assert_eq!(new(&["a:1", "a:2", "a:1"]), Some(BadRoute::ServerTwice("a:1".into())));
        assert_eq!(new(&["a"]), Some(BadRoute::Upstream("a".into())));
        assert_eq!(new(&["a:1", "[::1]:1"]), None);
    }
}
