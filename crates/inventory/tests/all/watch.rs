//! Tests of watches: each scheduled run happens once, even if nodes fail.

use std::sync::Arc;
use std::time::Duration;

use clouds::CloudSource;
use fleet::{Fleet, Mix, Plan};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use inventory::sources::Observer;
use inventory::tables::watch_parts::RunProgress;
use inventory::tables::watches::{WatchOutcome, WatchRow, WatchSettings};
use inventory::watch::{Clouds, NewWatch, ScanEnvironment, WatchError, WatchOptions, WatchSpec, Watches};
use outbound::resolve::Resolver;
use scan::{Observation, ScanOptions, Scanner, TargetOptions, Targets, Trusted};
use store::testing::WriteLock;
use store::{Clock, ScanState, Store, StoreOptions};
use testbed::Database;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::limits::{long_timeout_options, options};
use crate::watch_clouds::Shelf;

/// 2026-11-21, µs.
const NOW: i64 = 1_795_219_200_000_000;
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than the lease of a dead node.
const DEAD: Duration = Duration::from_secs(61);
const DEAD_US: i64 = 61_000_000;
const HOUR_US: i64 = 3_600_000_000;
pub(crate) const ENDPOINTS: usize = 40;
/// Page size: more rows than any list in these tests has.
const PAGE: usize = 100;

struct FleetKit {
    resolver: Resolver,
    roots: Vec<u8>,
    shelf: Arc<Shelf>,
    gates: Option<Arc<Gates>>,
    /// Whether time limits are long enough for every endpoint to answer. If false, no endpoint answers before the run is cancelled.
    is_patient: bool,
}

/// Holds back parts of a run until the test adds permits.
pub(crate) struct Gates {
    /// Passes that send notices during the run.
    pub(crate) notices: Semaphore,
    /// The end of the run.
    pub(crate) end: Semaphore,
}

impl FleetKit {
    fn options(&self) -> ScanOptions {
        if self.is_patient { long_timeout_options() } else { options() }
    }

    fn trusted(&self) -> Trusted {
        let mut trusted = Trusted::trusting_none();
        trusted.add_bytes(&self.roots);
        trusted
    }
}

impl ScanEnvironment for FleetKit {
    fn targets(&self, spec: &WatchSpec) -> Result<Targets, String> {
        Targets::of_network(&spec.targets, TargetOptions::default()).map_err(|error| error.to_string())
    }

    fn scanner(&self, _: &WatchSpec) -> Result<Scanner, String> {
        Scanner::new(self.options(), self.resolver.clone(), self.trusted()).map_err(|error| error.to_string())
    }

    fn check_sources(&self, spec: &WatchSpec) -> Result<(), String> {
        match spec.sources.iter().find(|source| **source != **self.shelf.name()) {
            Some(unknown) => Err(format!("there is no source {unknown:?}")),
            None => Ok(()),
        }
    }

    fn clouds<'a>(
        &'a self,
        spec: &'a WatchSpec,
        store: &'a Store,
    ) -> BoxFuture<'a, Result<Option<Clouds>, String>> {
        let clouds = (!spec.sources.is_empty()).then(|| Clouds {
            sources: vec![self.shelf.clone()],
            observer: Observer::new(&self.options(), self.trusted(), Some(store.clone())),
        });
        async move {
            if let Some(gates) = &self.gates {
                gates.end.acquire().await.unwrap().forget();
            }
            Ok(clouds)
        }
        .boxed()
    }

    fn between_notices(&self, pause: Duration) -> BoxFuture<'_, ()> {
        async move {
            match &self.gates {
                Some(gates) => gates.notices.acquire().await.unwrap().forget(),
                None => tokio::time::sleep(pause).await,
            }
        }
        .boxed()
    }

    fn scan_parameters(&self, spec: &WatchSpec) -> String {
        serde_json::to_string(spec).unwrap()
    }

    fn detail(&self, _: &Observation) -> String {
        "{}".to_owned()
    }
}

fn usual() -> WatchOptions {
    WatchOptions { at_once: 4, ..WatchOptions::default() }
}

/// Options that split a run into four parts.
fn cut(at_once: usize) -> WatchOptions {
    WatchOptions { at_once, part_endpoints: 10, ..WatchOptions::default() }
}

pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) targets: Vec<String>,
    pub(crate) shelf: Arc<Shelf>,
    /// Gates of the nodes that are created after they are set.
    pub(crate) gates: Option<Arc<Gates>>,
    /// Whether every endpoint of the fleet answers.
    is_healthy: bool,
    /// A name server that never answers.
    mute: std::net::UdpSocket,
    // Last field: connections of the store are dropped before the database.
    database: Database,
}

impl World {
    async fn sqlite() -> Self {
        Self::sqlite_with(Mix::Healthy).await
    }

    async fn postgres() -> Self {
        Self::postgres_with(Mix::Healthy).await
    }

    pub(crate) async fn sqlite_with(mix: Mix) -> Self {
        Self::over(Database::sqlite(), mix).await
    }

    pub(crate) async fn postgres_with(mix: Mix) -> Self {
        Self::over(Database::postgres().await, mix).await
    }

    async fn over(database: Database, mix: Mix) -> Self {
        let is_healthy = matches!(mix, Mix::Healthy);
        let plan = Plan { endpoints: ENDPOINTS, dead_fraction: 0.0, mix, ..Plan::default() };
        let fleet = Fleet::start(&plan).await.expect("a fleet on loopback");
        let targets = fleet.truth().into_iter().map(|truth| truth.target).collect();
        let store = database.open().await;
        let clock = Clock::manual(NOW);
        let mute = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let shelf = Arc::default();
        Self { fleet, store, clock, targets, shelf, gates: None, is_healthy, mute, database }
    }

    /// Creates a node with its own connections.
    pub(crate) async fn node(&self) -> Watches {
        self.node_with(self.fleet.dns(), usual()).await
    }

    /// Creates a node whose runs take two minutes, because it cannot resolve names.
    async fn slow_node(&self) -> Watches {
        self.slow_node_with(usual()).await
    }

    async fn slow_node_with(&self, options: WatchOptions) -> Watches {
        self.node_with(self.mute.local_addr().unwrap(), options).await
    }

    pub(crate) async fn node_with(&self, dns: std::net::SocketAddr, options: WatchOptions) -> Watches {
        let store = if self.store.is_postgres() { self.database.open().await } else { self.store.clone() };
        self.node_on(store, dns, options)
    }

    fn node_on(&self, store: Store, dns: std::net::SocketAddr, options: WatchOptions) -> Watches {
        let kit = FleetKit {
            resolver: Resolver::with_upstreams(vec![dns]),
            roots: self.fleet.roots_pem().into_bytes(),
            shelf: Arc::clone(&self.shelf),
            gates: self.gates.clone(),
            is_patient: self.is_healthy,
        };
        Watches::new(store, self.clock.clone(), kit, options)
    }

    pub(crate) fn watch(&self, name: &str) -> NewWatch {
        NewWatch {
            name: name.to_owned(),
            group: "fleet".to_owned(),
            spec: WatchSpec { targets: self.targets.clone(), ..WatchSpec::default() },
            interval: HOUR,
            jitter: Duration::ZERO,
            enabled: true,
        }
    }

    /// Adds gates that hold back the notices and the end of every run.
    pub(crate) fn gated(mut self) -> (Self, Arc<Gates>) {
        let gates = Arc::new(Gates { notices: Semaphore::new(0), end: Semaphore::new(0) });
        self.gates = Some(Arc::clone(&gates));
        (self, gates)
    }

    /// Holds back writes to a table until the result is dropped.
    pub(crate) fn lock_writes(&self, table: &str) -> WriteLock {
        self.database.lock_writes(table)
    }

    pub(crate) async fn row(&self, id: Uuid) -> WatchRow {
        inventory::tables::Watches::of(&self.store).get(id).await.unwrap().unwrap()
    }

    pub(crate) async fn scans(&self) -> Vec<store::ScanRow> {
        store::Scans::of(&self.store).page(None, PAGE).await.unwrap().rows
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_watch_fills_the_inventory_and_repeats_after_its_interval() {
    let world = World::sqlite().await;
    let node = world.node().await;
    let id = node.create(&world.watch("edge"), "user:a").await.unwrap().id;
    let mut runner = node.runner();
    assert_eq!(runner.tick().await.unwrap(), 1);
    runner.idle().await;
    let row = world.row(id).await;
    let last = row.last.clone().expect("a run has ended");
    assert_eq!((last.outcome, &last.error, row.run), (WatchOutcome::Finished, &None, None));
    let counts: serde_json::Value = serde_json::from_str(last.counts.as_deref().unwrap()).unwrap();
    assert_eq!((counts["endpoints"].as_u64(), counts["answered"].as_u64()), (Some(40), Some(40)), "{counts}");
    assert_eq!(row.times.next_run_at_us, NOW + HOUR_US);
    let page = store::Inventory::of(&world.store).known_endpoints(None, PAGE).await.unwrap();
    assert_eq!(page.rows.len(), ENDPOINTS);
    assert_eq!(world.scans().await[0].state, ScanState::Finished);

    assert_eq!(runner.tick().await.unwrap(), 0, "not due");
    // Three scheduled times are missed. One run makes up for all of them.
    world.clock.advance(3 * HOUR + Duration::from_secs(7));
    assert_eq!(runner.tick().await.unwrap(), 1);
    runner.idle().await;
    assert_eq!(runner.tick().await.unwrap(), 0);
    assert_eq!(world.row(id).await.times.next_run_at_us, NOW + 4 * HOUR_US);
    assert_eq!(world.scans().await.len(), 2);

    // A manual run does not change the schedule.
    node.run_now(&world.row(id).await, "user:a").await.unwrap();
    assert_eq!(runner.tick().await.unwrap(), 1);
    runner.idle().await;
    assert_eq!(world.row(id).await.times.next_run_at_us, NOW + 4 * HOUR_US);
    runner.stop().await;
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_run_each_watch_once() {
    let world = World::postgres().await;
    let (one, two) = (world.node().await, world.node().await);
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(one.create(&world.watch(&format!("w{n}")), "user:a").await.unwrap().id);
    }
    let (mut first, mut second) = (one.runner(), two.runner());
    let mut began = 0;
    // A node that races with another node's claim may get fewer rows than it has room for. It gets the rest at its next tick.
    while began < 6 {
        let (a, b) = tokio::join!(first.tick(), second.tick());
        began += a.unwrap() + b.unwrap();
        tokio::join!(first.idle(), second.idle());
    }
    assert_eq!(began, 6, "each is claimed by one");
    assert_eq!(first.tick().await.unwrap() + second.tick().await.unwrap(), 0);
    for id in ids {
        let row = world.row(id).await;
        let last = row.last.as_ref().expect("it has run");
        assert_eq!((last.outcome, &last.error, row.claims), (WatchOutcome::Finished, &None, 1));
    }
    let scans = world.scans().await;
    assert_eq!(scans.len(), 6);
    assert!(scans.iter().all(|scan| scan.observations == ENDPOINTS as u64), "{scans:?}");
    world.fleet.stop().await;
}

async fn a_lost_run_is_taken_over(world: World) {
    let (one, two) = (world.slow_node().await, world.node().await);
    let id = one.create(&world.watch("edge"), "user:a").await.unwrap().id;
    let (mut first, mut second) = (one.runner(), two.runner());
    assert_eq!(first.tick().await.unwrap(), 1);
    let scan = scan_of(&world, id).await;
    // The node is killed: it ends nothing and releases nothing.
    drop(first);
    assert_eq!(second.tick().await.unwrap(), 0, "the lease holds");
    world.clock.advance(DEAD);
    assert_eq!(second.tick().await.unwrap(), 1);
    second.idle().await;
    let row = world.row(id).await;
    let last = row.last.unwrap();
    assert_eq!(
        (last.outcome, last.scan),
        (WatchOutcome::Finished, Some(scan)),
        "the same scan goes on: {:?}",
        last.error
    );
    assert_eq!((last.began_at_us, row.claims), (NOW, 2));
    let scans = world.scans().await;
    assert_eq!((scans.len(), scans[0].observations, scans[0].state), (1, 40, ScanState::Finished));
    world.fleet.stop().await;
}

/// Returns the ID of the scan of the current run.
async fn scan_of(world: &World, id: Uuid) -> Uuid {
    loop {
        if let Some(scan) = world.row(id).await.run.and_then(|run| run.scan) {
            return scan;
        }
        tokio::task::yield_now().await;
    }
}

async fn assert_whole(world: &World, id: Uuid, claims: i64) {
    let row = world.row(id).await;
    let last = row.last.expect("it has ended");
    assert_eq!((last.outcome, &last.error, row.claims), (WatchOutcome::Finished, &None, claims));
    let counts: serde_json::Value = serde_json::from_str(last.counts.as_deref().unwrap()).unwrap();
    let of = |what: &str| counts[what].as_u64().unwrap();
    assert_eq!((of("endpoints"), of("answered"), of("parts")), (40, 40, 4), "{counts}");
    assert!(
        inventory::tables::WatchParts::of(&world.store).results(last.scan.unwrap()).await.unwrap().is_empty()
    );
}

/// The first node holds the run and one part without progress. The second node runs the other parts.
async fn a_wide_run_is_shared_by_nodes(world: World) {
    let (one, two) = (world.slow_node_with(cut(1)).await, world.node_with(world.fleet.dns(), cut(4)).await);
    let id = one.create(&world.watch("wide"), "user:a").await.unwrap().id;
    let (mut first, mut second) = (one.runner(), two.runner());
    assert_eq!(first.tick().await.unwrap(), 1);
    let scan = scan_of(&world, id).await;
    // A claim whose lease expires immediately shows how many parts are free.
    let free = async || {
        let free = inventory::tables::WatchParts::of(&world.store)
            .claim(Uuid::nil(), Some(scan), NOW, NOW, 10)
            .await
            .unwrap();
        free.len()
    };
    while free().await != 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.tick().await.unwrap(), 3);
    second.idle().await;
    let results = inventory::tables::WatchParts::of(&world.store).results(scan).await.unwrap();
    assert_eq!(results.iter().flatten().count(), 3, "{results:?}");
    let seen = store::Scans::of(&world.store).get(scan).await.unwrap().unwrap();
    assert_eq!((seen.observations, seen.answered), (30, 30));
    let progress = two.progress(&[world.row(id).await]).await.unwrap()[&id];
    let RunProgress { observations, parts, parts_ended, parts_leased } = progress.done;
    assert_eq!((observations, parts, parts_ended, parts_leased, progress.expected), (30, 4, 3, 1, Some(40)));
    // The first node releases the run and its part. The second node completes both.
    first.stop().await;
    assert!(second.tick().await.unwrap() >= 1);
    second.idle().await;
    assert_whole(&world, id, 2).await;
    assert!(two.progress(&[world.row(id).await]).await.unwrap().is_empty(), "nothing is under way");
    world.fleet.stop().await;
}

/// The first node dies with the run and one part, and a third node dies with two parts.
async fn a_dead_node_costs_its_parts_only(world: World) {
    let (one, two) = (world.slow_node_with(cut(1)).await, world.node_with(world.fleet.dns(), cut(4)).await);
    let id = one.create(&world.watch("wide"), "user:a").await.unwrap().id;
    let (mut first, mut second) = (one.runner(), two.runner());
    assert_eq!(first.tick().await.unwrap(), 1);
    let scan = scan_of(&world, id).await;
    while inventory::tables::WatchParts::of(&world.store).results(scan).await.unwrap().len() != 4 {
        tokio::task::yield_now().await;
    }
    let lost = inventory::tables::WatchParts::of(&world.store)
        .claim(Uuid::nil(), Some(scan), NOW, NOW + DEAD_US, 2)
        .await
        .unwrap();
    drop(first);
    second.tick().await.unwrap();
    second.idle().await;
    let ended =
        inventory::tables::WatchParts::of(&world.store).results(scan).await.unwrap().iter().flatten().count();
    assert!(ended < 4, "what is held is left alone while its lease holds");
    world.clock.advance(2 * DEAD);
    assert!(second.tick().await.unwrap() >= 1);
    second.idle().await;
    assert_whole(&world, id, 2).await;
    assert!(
        !lost.is_empty()
            && !inventory::tables::WatchParts::of(&world.store)
                .end(&lost[0], Uuid::nil(), "{}")
                .await
                .unwrap()
    );
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_several_parts_is_shared_by_nodes_on_postgres() {
    a_wide_run_is_shared_by_nodes(World::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_several_parts_is_shared_by_runners_on_sqlite() {
    a_wide_run_is_shared_by_nodes(World::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_parts_of_a_dead_node_are_repeated_on_postgres() {
    a_dead_node_costs_its_parts_only(World::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_of_a_killed_node_is_taken_over_after_lease_expiry() {
    a_lost_run_is_taken_over(World::sqlite().await).await;
    a_lost_run_is_taken_over(World::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_node_releases_its_run_immediately() {
    let world = World::sqlite().await;
    let (one, two) = (world.slow_node().await, world.node().await);
    let id = one.create(&world.watch("edge"), "user:a").await.unwrap().id;
    let (mut first, mut second) = (one.runner(), two.runner());
    assert_eq!(first.tick().await.unwrap(), 1);
    first.stop().await;
    let run = world.row(id).await.run.expect("it is not over");
    assert_eq!((run.holder, run.until_us), (None, None));
    assert_eq!(second.tick().await.unwrap(), 1, "no waiting for the lease");
    second.idle().await;
    assert_eq!(world.row(id).await.last.unwrap().outcome, WatchOutcome::Finished);
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_watch_cancels_its_run_and_paused_watch_starts_none() {
    let world = World::sqlite().await;
    let node = world.slow_node().await;
    let row = node.create(&world.watch("edge"), "user:a").await.unwrap();
    let mut runner = node.runner();
    assert_eq!(runner.tick().await.unwrap(), 1);
    assert!(matches!(node.run_now(&row, "user:a").await, Err(WatchError::NotNow)), "it runs");
    node.delete(&row, "user:a").await.unwrap();
    runner.tick().await.unwrap();
    runner.idle().await;
    assert!(inventory::tables::Watches::of(&world.store).get(row.id).await.unwrap().is_none());
    let scans = world.scans().await;
    assert!(scans.iter().all(|scan| scan.state == ScanState::Interrupted), "{scans:?}");

    let row = node.create(&world.watch("edge"), "user:a").await.unwrap();
    let row = node.pause(&row, "user:a").await.unwrap();
    assert_eq!(runner.tick().await.unwrap(), 0);
    assert!(matches!(node.run_now(&row, "user:a").await, Err(WatchError::NotNow)));
    node.resume(&row, "user:a").await.unwrap();
    assert!(matches!(node.resume(&row, "user:a").await, Err(WatchError::Changed)), "read before");
    assert_eq!(runner.tick().await.unwrap(), 1);
    runner.stop().await;
    let actions = world.store.audit_page(&store::AuditFilter::default(), None, PAGE).await.unwrap().rows;
    let mut actions: Vec<_> = actions.into_iter().map(|row| row.action).collect();
    actions.sort();
    assert_eq!(actions, ["watch.create", "watch.create", "watch.delete", "watch.pause", "watch.resume"]);
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_fails_to_start_is_reported_and_rescheduled() {
    let world = World::sqlite().await;
    let node = world.node().await;
    let id = node.create(&world.watch("edge"), "user:a").await.unwrap().id;
    // As if the configuration had changed in the meantime.
    let settings =
        WatchSettings { spec: r#"{"targets":["10.0.0.0/8"]}"#.into(), ..world.row(id).await.settings };
    let times = world.row(id).await.times;
    let change = world.store.write("change", move |tx| {
        async move { inventory::tables::watches::update_watch(tx, id, 1, &settings, times, NOW).await }
            .boxed()
    });
    assert!(change.await.unwrap());
    let mut runner = node.runner();
    assert_eq!(runner.tick().await.unwrap(), 1);
    runner.idle().await;
    let row = world.row(id).await;
    let last = row.last.unwrap();
    assert_eq!((last.outcome, row.times.next_run_at_us), (WatchOutcome::Failed, NOW + HOUR_US));
    assert!(last.error.as_deref().is_some_and(|error| error.contains("more than")), "{:?}", last.error);
    assert_eq!(world.scans().await[0].state, ScanState::Interrupted);
    let events = world.store.outbox_after(store::OutboxPosition::default(), PAGE as i64).await.unwrap();
    assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["watch.failed"]);
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_watches_are_rejected_with_a_reason() {
    let world = World::sqlite().await;
    let node = world.node().await;
    let of = |targets: &[&str]| WatchSpec {
        targets: targets.iter().map(|target| (*target).to_owned()).collect(),
        ..WatchSpec::default()
    };
    let usual = || world.watch("edge");
    let cases = [
        (NewWatch { name: String::new(), ..usual() }, "a name must have"),
        (NewWatch { name: "a/b".into(), ..usual() }, "a name must have"),
        (
            NewWatch { name: Uuid::nil().to_string(), ..usual() },
            "letters, digits, '.', '_' or '-', and must not be",
        ),
        (NewWatch { group: "a b".into(), ..usual() }, "a group has"),
        (NewWatch { interval: Duration::from_secs(59), ..usual() }, "the interval must be from 60 to"),
        (NewWatch { jitter: 2 * HOUR, ..usual() }, "the jitter must not exceed the interval"),
        (NewWatch { spec: of(&[]), ..usual() }, "at least one target or source"),
        (NewWatch { spec: of(&["a.example", "/etc/ssl"]), ..usual() }, "write a host"),
        (NewWatch { spec: of(&["@/etc/passwd"]), ..usual() }, "write a host"),
        (NewWatch { spec: of(&["-"]), ..usual() }, "write a host"),
        (NewWatch { spec: of(&["*.example"]), ..usual() }, "a wildcard"),
        (NewWatch { spec: of(&["10.0.0.0/8"]), ..usual() }, "more than"),
        (NewWatch { spec: of(&["10.0.0.0/16"; 17]), ..usual() }, "1048576 endpoints"),
    ];
    for (watch, wanted) in cases {
        let message = node.create(&watch, "user:a").await.unwrap_err().to_string();
        assert!(message.contains(wanted), "{:?}: {message}", watch.spec.targets.last());
    }
    // A target that is also the name of a local file is a host here.
    let host = NewWatch { name: "host".into(), spec: of(&["Cargo.toml"]), ..usual() };
    node.create(&host, "user:a").await.unwrap();
    let taken = node.create(&host, "user:a").await.unwrap_err();
    assert!(matches!(taken, WatchError::Taken(_)), "{taken}");
    world.fleet.stop().await;
}

/// Callers far beyond the number of connections wait for a connection, and so does a run. No call fails, and no more connections
/// are opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_share_the_default_connection_pool() {
    many_workers_share(store::CONNECTIONS_DEFAULT).await;
}

/// The outage of CertPulse: a pool of five connections with 256 workers. No call stalls, and none fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_share_five_connections() {
    many_workers_share(5).await;
}

/// The minimum: a reader and a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_share_two_connections() {
    many_workers_share(store::CONNECTIONS_MIN).await;
}

async fn many_workers_share(connections: usize) {
    const WORKERS: usize = 256;
    const READS: usize = 20;
    /// 10,240 calls take a few seconds over a single connection.
    const STALLED: Duration = Duration::from_secs(600);
    let mut world = World::postgres().await;
    let cluster = world.database.cluster();
    let options = StoreOptions { connections, ..StoreOptions::default() };
    // The store of the world is closed: this process must have no other connections to the database.
    world.store = world.database.open_with(&options).await;
    assert_eq!(world.store.connections().await.unwrap().ours, connections);
    let node = world.node_on(world.store.clone(), world.fleet.dns(), usual());
    let id = node.create(&world.watch("edge"), "user:a").await.unwrap().id;
    let mut runner = node.runner();
    assert_eq!(runner.tick().await.unwrap(), 1);
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let store = world.store.clone();
        workers.spawn(async move {
            for _ in 0..READS {
                store::Inventory::of(&store).known_endpoints(None, PAGE).await.unwrap();
                inventory::tables::Watches::of(&store).claim(Uuid::nil(), NOW - 1, NOW, 1).await.unwrap();
            }
        });
    }
    let all = async {
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
        runner.idle().await;
    };
    tokio::time::timeout(STALLED, all).await.expect("nothing stalls");
    let last = world.row(id).await.last.expect("it has run");
    assert_eq!((last.outcome, &last.error), (WatchOutcome::Finished, &None));
    let most = world.store.connections().await.unwrap().ours;
    let url = world.database.url.to_string();
    let database = url.split(['/', '?']).find(|part| part.starts_with("bulla_")).unwrap();
    let within = format!(
        "SELECT 1 / (CASE WHEN count(*) <= {most} THEN 1 ELSE 0 END) FROM pg_stat_activity \
         WHERE datname = '{database}' AND application_name = 'bulla'"
    );
    assert!(cluster.psql("postgres", &within), "more than {most} connections");
    world.fleet.stop().await;
}
