//! Benchmark: reads CertPulse's fleet into a SQLite inventory, once from an empty state and once more. The fleet has 1,800
//! certificates: 1,200 in three clouds that enforce their quotas, and 600 on endpoints with CertPulse's latencies. Their revocation
//! is checked by CRLs, and the issuances logged for 20 domains with 1,800 names are read, too.
//!
//! `cargo run --release -p inventory --features aws,azure,gcp --example clouds`. Fails when a certificate is missing
//! or wrong, or when a cloud counted a throttling response. The times are printed, but not judged.
//!
//! With the argument `story`, reads the same fleet once for each mechanism, without that mechanism. Each run is a separate process
//! with at most 768 open files, which include both ends of every connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cloud_apis::auth::http::HttpClient;
use cloud_apis::sources::aws::{AwsAccount, AwsOptions, AwsSource};
use cloud_apis::sources::azure::sdk::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use cloud_apis::sources::azure::sdk::time::{Duration as AzureDuration, OffsetDateTime};
use cloud_apis::sources::azure::{AzureOptions, AzureSource, AzureSubscription};
use cloud_apis::sources::gcp::{Anonymous, GcpOptions, GcpProject, GcpSource};
use clouds::{
    CloudSource, Database, Event, Listed, Machine, PoolSettings, Pools, ProviderSettings, State, start,
};
use ct::DomainSet;
use ct::ledger::{ReportedIssuance, record};
use ct::search::{SearchCursor, SearchQuery, SearchService, poll};
use ct::tables::{CtDomainSettings, insert_ct_domain};
use fleet::cloud::aws::{ACCESS_KEY, AwsCloud, AwsPlan};
use fleet::cloud::azure::{AzureCloud, AzurePlan, SUBSCRIPTION};
use fleet::cloud::gcp::{GcpCloud, GcpPlan};
use fleet::cloud::{CloudBehavior, OperationCounts, SimulatedCertificate};
use fleet::ct::{CtAuthority, FakeSearchService, Quota, SearchKind};
use fleet::{Fleet, Latency, Mix, Plan};
use inventory::Recorder;
use inventory::sources::{Observer, keep, source_states};
use outbound::resolve::Resolver;
use scan::revocation::{RevocationChecker, RevocationOptions};
use scan::{KnownEndpoints, ProbeOutcome, ScanOptions, Scanner, TargetOptions, Targets, Trusted};
use store::{Clock, Sender, Store, StoreUrl, Writer, WriterOptions};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

type Failure = Box<dyn std::error::Error>;

/// Timeout of a run.
const LIMIT: Duration = Duration::from_secs(900);
const PROJECTS: [&str; 2] = ["one", "two"];
/// Number of registered domains, and of names in them. Each name has a certificate.
const DOMAINS: usize = 20;
const NAMES: usize = 1_800;
/// Requests per second that the search service allows. Cert Spotter's free plan allows far fewer.
const SEARCHES_A_SECOND: u32 = 20;
/// Requests per second that are sent, evenly spaced. Below the quota, because a busy machine sends some late and close together.
const SEARCHES_MADE_A_SECOND: u32 = 15;

/// Returns the latencies of the clouds: those that CertPulse reports for handshakes, because it reports none for clouds.
fn manners(seed: u64) -> CloudBehavior {
    let latency = Duration::from_millis(80)..=Duration::from_millis(300);
    CloudBehavior { latency, seed, ..CloudBehavior::default() }
}

struct World {
    fleet: Fleet,
    aws: AwsCloud,
    azure: Arc<AzureCloud>,
    gcp: Vec<GcpCloud>,
    logged: FakeSearchService,
}

/// Returns the watched domains.
fn domains() -> Vec<String> {
    (0..DOMAINS).map(|n| format!("estate-{n}.example")).collect()
}

/// Starts a search service that has a certificate for each name.
async fn search_service() -> Result<FakeSearchService, Failure> {
    let options = fleet::ct::SearchOptions {
        quota: Quota { per_second: Some(SEARCHES_A_SECOND), retry_after: true, ..Quota::default() },
        latency: Duration::from_millis(80),
        ..fleet::ct::SearchOptions::new(SearchKind::CertSpotter)
    };
    let (service, authority, domains) =
        (FakeSearchService::start(&options).await?, CtAuthority::new(1)?, domains());
    let now = now_us() / 1_000_000;
    let name = |n: usize| format!("host-{n}.{}", domains[n % DOMAINS]);
    let pairs = (0..NAMES).map(|n| authority.issue(&[&name(n)], now, 90)).collect::<Result<Vec<_>, _>>()?;
    service.add(&pairs);
    Ok(service)
}

impl World {
    /// Starts the fleet: 2 AWS accounts, each with 36 certificates in each of 5 regions and 10 in IAM; 4 Azure vaults with 110 each;
    /// 2 Google projects with 150 and 40; 600 endpoints.
    async fn start() -> Result<Self, Failure> {
        let aws = AwsPlan { accounts: 2, regions: 5, acm: 36, iam: 10, balancers: 2, manners: manners(1) };
        let azure = AzurePlan { vaults: 4, certificates: 110, manners: manners(2) };
        let project = |project: &&str| {
            let plan =
                GcpPlan { project: (*project).to_owned(), managed: 150, classic: 40, manners: manners(3) };
            GcpCloud::start(&plan)
        };
        let endpoints = Plan {
            endpoints: 600,
            latency: Latency::CertPulse,
            dead_fraction: 0.0,
            mix: Mix::Healthy,
            revocation: true,
            ..Plan::default()
        };
        Ok(Self {
            fleet: Fleet::start(&endpoints).await?,
            aws: AwsCloud::start(&aws)?,
            azure: Arc::new(AzureCloud::start(&azure)?),
            gcp: PROJECTS.iter().map(project).collect::<Result<_, _>>()?,
            logged: search_service().await?,
        })
    }

    async fn sources(&self, pools: &Pools, http: &HttpClient) -> Result<Vec<Arc<dyn CloudSource>>, Failure> {
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        let credentials = Some((ACCESS_KEY.to_owned(), "secret".to_owned()));
        let options = AwsOptions { endpoint: Some(self.aws.endpoint()), credentials };
        for account in self.aws.accounts() {
            let role = Some(AwsCloud::role(&account));
            let account = AwsAccount { account, role, external_id: None, regions: Vec::new() };
            sources.push(Arc::new(AwsSource::new(account, &options, http.clone(), pools.clone()).await?));
        }
        let options = AzureOptions {
            management: Some(self.azure.management()),
            credential: Some(Arc::new(Tokens(self.azure.clone()))),
            any_resource: true,
        };
        let subscription = AzureSubscription { subscription: SUBSCRIPTION.to_owned(), vaults: Vec::new() };
        sources.push(Arc::new(AzureSource::new(subscription, &options, http.clone(), pools.clone())?));
        for (cloud, project) in self.gcp.iter().zip(PROJECTS) {
            let credentials = Some(Anonymous::new().build());
            let options = GcpOptions { endpoint: Some(cloud.endpoint()), credentials };
            let project = GcpProject { project: project.to_owned() };
            sources.push(Arc::new(GcpSource::new(project, &options, pools).await?));
        }
        Ok(sources)
    }

    fn truth(&self) -> Vec<SimulatedCertificate> {
        let gcp = self.gcp.iter().flat_map(GcpCloud::truth);
        self.aws.truth().into_iter().chain(self.azure.truth()).chain(gcp).collect()
    }

    fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        let gcp = self.gcp.iter().flat_map(GcpCloud::counts);
        self.aws.counts().into_iter().chain(self.azure.counts()).chain(gcp).collect()
    }

    fn traffic(&self) -> (u64, u64) {
        let each = [self.aws.traffic(), self.azure.traffic()];
        let all = each.into_iter().chain(self.gcp.iter().map(GcpCloud::traffic));
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

struct Tokens(Arc<AzureCloud>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

#[async_trait::async_trait]
impl TokenCredential for Tokens {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> cloud_apis::sources::azure::sdk::Result<AccessToken> {
        Ok(AccessToken::new(self.0.token(), OffsetDateTime::now_utc() + AzureDuration::hours(1)))
    }
}

/// Results of one run: the SHA-256 of each leaf by location.
struct Run {
    took: Duration,
    clouds_took: Duration,
    search_took: Duration,
    logged: usize,
    found: HashMap<String, Option<String>>,
    endpoints: usize,
    read: u64,
    stored: u64,
    /// Number of transactions of the writer, and their total time.
    commits: u64,
    flushing: Duration,
    /// Parts that could not be listed.
    failed: Vec<String>,
}

/// A run without one mechanism.
struct Variant {
    name: &'static str,
    /// Maximum idle connections to one server of AWS or Azure.
    idle: usize,
    /// Maximum entries of the DNS cache.
    dns_cache: u64,
    pools: fn() -> PoolSettings,
    /// Whether pools take the limit of open files into account.
    bounded: bool,
    /// Maximum rows of a transaction.
    rows: Option<usize>,
}

const ALL: Variant = Variant {
    name: "as it is",
    idle: 32,
    dns_cache: 8_192,
    pools: PoolSettings::default,
    bounded: true,
    rows: None,
};

const STORY: [Variant; 6] = [
    ALL,
    Variant { name: "no connection kept", idle: 0, ..ALL },
    Variant { name: "no DNS cache", dns_cache: 0, ..ALL },
    Variant { name: "a row a transaction", rows: Some(1), ..ALL },
    Variant { name: "pools without bounds", pools: unbounded, bounded: false, ..ALL },
    Variant { name: "one at a time", pools: one_at_a_time, ..ALL },
];

/// Limit of open files of each process of `story`.
const STORY_FILES: usize = 768;

fn unbounded() -> PoolSettings {
    let provider = || ProviderSettings { concurrency: Some(4_096), ..ProviderSettings::default() };
    PoolSettings {
        in_flight: Some(8_192),
        raw: Some(4_096),
        clouds: Some(4_096),
        aws: provider(),
        azure: provider(),
        gcp: provider(),
        ..PoolSettings::default()
    }
}

fn one_at_a_time() -> PoolSettings {
    let provider = || ProviderSettings { concurrency: Some(1), ..ProviderSettings::default() };
    PoolSettings {
        raw: Some(1),
        clouds: Some(1),
        aws: provider(),
        azure: provider(),
        gcp: provider(),
        kubernetes: provider(),
        ..PoolSettings::default()
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => runtime.block_on(judged()),
        ["story"] => story(),
        ["story", name] => {
            let variant = STORY.iter().find(|one| one.name == name).ok_or("no such variant")?;
            runtime.block_on(chapter(variant))
        }
        _ => Err("there is only the word `story`".into()),
    }
}

/// Runs each variant in a separate process.
fn story() -> Result<(), Failure> {
    println!(
        "{:<21} {:>6} {:>6} {:>6} {:>12} {:>11} {:>10} {:>10} {:>9}",
        "variant", "s", "again", "CPU s", "connections", "questions", "commits, s", "endpoints", "places"
    );
    for variant in &STORY {
        let status = std::process::Command::new("sh")
            .args(["-c", &format!("ulimit -n {STORY_FILES} && exec \"$0\" story \"$1\"")])
            .arg(std::env::current_exe()?)
            .arg(variant.name)
            .status()?;
        if !status.success() {
            println!("{:<21} ended with {status}", variant.name);
        }
    }
    Ok(())
}

/// Runs a variant twice and prints one line. Missing certificates are a result, not an error.
async fn chapter(variant: &Variant) -> Result<(), Failure> {
    let world = World::start().await?;
    let mut estate = Estate::open(&world, variant).await?;
    let (first, second) = (estate.run(&world).await?, estate.run(&world).await?);
    let truth: HashMap<_, _> = world.truth().into_iter().map(|one| (one.name, one.leaf_sha256)).collect();
    let right = first.found.iter().filter(|(name, leaf)| truth.get(*name) == Some(leaf)).count();
    println!(
        "{:<21} {:>6.1} {:>6.1} {:>6.1} {:>12} {:>11} {:>10} {:>10} {:>9}",
        variant.name,
        first.took.as_secs_f64(),
        second.took.as_secs_f64(),
        processor_seconds()?,
        world.traffic().0,
        estate.resolver.counts().queries_sent,
        format!("{} {:.2}", first.commits, first.flushing.as_secs_f64()),
        format!("{}/600", first.endpoints),
        format!("{right}/{}", truth.len()),
    );
    Ok(())
}

/// Returns the user and system time of this process, including the fleet and the clouds.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 =
        fields.get(11).ok_or("stat")?.parse::<f64>()? + fields.get(12).ok_or("stat")?.parse::<f64>()?;
    Ok(ticks / 100.0)
}

/// Objects that are created once and shared by the runs.
struct Estate {
    store: Store,
    pools: Pools,
    sources: Vec<Arc<dyn CloudSource>>,
    http: HttpClient,
    resolver: Resolver,
    revocation: RevocationChecker,
    search: Search,
    rows: Option<usize>,
    _folder: tempfile::TempDir,
}

impl Estate {
    async fn open(world: &World, variant: &Variant) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("inventory.db"))).await?;
        let connections = store.connections().await?;
        let database = Some(Database { connections: connections.ours, connections_max: connections.servers });
        // Both ends of every connection are in this process.
        let descriptors = match variant.bounded {
            true => outbound::limits::descriptor_budget() / 2,
            false => usize::MAX / 2,
        };
        let pools = Pools::new((variant.pools)(), Machine { descriptors, database })?;
        let http = HttpClient::with_idle_max(&[world.azure.root()], variant.idle)?;
        let sources = world.sources(&pools, &http).await?;
        let options = outbound::resolve::Options {
            cache_entries: variant.dns_cache,
            ..outbound::resolve::Options::default()
        };
        let resolver = Resolver::with_options(vec![world.fleet.dns()], &options)?;
        let client = || outbound::http::Client::new(&resolver, &outbound::http::Options::default());
        let revocation = RevocationChecker::new(client()?, RevocationOptions::default());
        let search = Search::new(client()?, world, &store).await?;
        let rows = variant.rows;
        Ok(Self { store, pools, sources, http, resolver, revocation, search, rows, _folder: folder })
    }
}

/// Runs twice and checks that all results are correct.
async fn judged() -> Result<(), Failure> {
    let world = World::start().await?;
    let mut estate = Estate::open(&world, &ALL).await?;
    println!(
        "{:<22} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8}",
        "run", "wall s", "clouds s", "CT s", "places", "read", "endpoints", "logged", "stored"
    );
    for name in ["from an empty state", "once more"] {
        let run = estate.run(&world).await?;
        println!(
            "{name:<22} {:>8.2} {:>8.2} {:>8.2} {:>8} {:>8} {:>9} {:>8} {:>8}",
            run.took.as_secs_f64(),
            run.clouds_took.as_secs_f64(),
            run.search_took.as_secs_f64(),
            run.found.len(),
            run.read,
            run.endpoints,
            run.logged,
            run.stored
        );
        let truth: HashMap<_, _> = world.truth().into_iter().map(|one| (one.name, one.leaf_sha256)).collect();
        if run.found != truth || run.endpoints != 600 || !run.failed.is_empty() {
            return Err(format!("what was found is not what there is: {:?}", run.failed).into());
        }
    }
    let (revocation_requests, counts) = (estate.revocation.counts(), world.logged.counts());
    println!("\nrevocation: {revocation_requests:?}\nCT: {counts:?}");
    report(&world, &estate.http)
}

/// Certificate Transparency searches as the server makes them: by registered domain, with a cursor.
struct Search {
    service: Arc<SearchService>,
    cursors: HashMap<String, SearchCursor>,
    store: Store,
}

impl Search {
    async fn new(http: outbound::http::Client, world: &World, store: &Store) -> Result<Self, Failure> {
        let names = domains();
        let cursors = names.iter().map(|name| (name.clone(), SearchCursor::default())).collect();
        store
            .write("domains", move |tx| {
                Box::pin(async move {
                    for name in &names {
                        let settings =
                            CtDomainSettings { rule: "{}".to_owned(), enabled: true, services: Vec::new() };
                        insert_ct_domain(tx, name, &settings, now_us()).await?;
                    }
                    Ok(())
                })
            })
            .await?;
        let usual = ct::search::SearchOptions::cert_spotter(None);
        let pace = outbound::rate::Pace {
            per_second: Some(outbound::rate::Rate::per_second(SEARCHES_MADE_A_SECOND)),
            per_minute: None,
        };
        let options = ct::search::SearchOptions { url: world.logged.url(), pace, ..usual };
        let service = Arc::new(SearchService::new(options, http, Clock::system()));
        Ok(Self { service, cursors, store: store.clone() })
    }

    /// Searches each domain for new issuances and stores them. Returns the number of issuances and the duration.
    async fn search_domains(&mut self) -> Result<(usize, Duration), Failure> {
        let began = Instant::now();
        let all = domains();
        let set = DomainSet::compile(all.iter().map(String::as_str), 1)?;
        let question = |(domain, cursor): (&String, &SearchCursor)| SearchQuery {
            domain: domain.clone(),
            cursor: cursor.clone(),
        };
        let questions = self.cursors.iter().map(question).collect();
        let (send, mut answers) = tokio::sync::mpsc::channel(4);
        let polling = tokio::spawn(poll(vec![(self.service.clone(), questions)], send));
        let mut logged = 0;
        while let Some(answer) = answers.recv().await {
            let page = answer.result?;
            let (domain, service) = (answer.domain, answer.service);
            let found: Vec<ReportedIssuance> = page
                .issuances
                .into_iter()
                .map(|one| ReportedIssuance::from_search_result(one, &domain, &set, &service))
                .collect();
            logged += found.len();
            self.store
                .write("issuances", move |tx| Box::pin(async move { record(tx, found, now_us()).await }))
                .await?;
            self.cursors.insert(domain, page.cursor);
        }
        polling.await?;
        Ok((logged, began.elapsed()))
    }
}

fn report(world: &World, http: &HttpClient) -> Result<(), Failure> {
    let (connections, requests) = world.traffic();
    println!(
        "\nclouds: {requests} requests over {connections} connections (AWS and Azure: {:?})",
        http.counts()
    );
    println!(
        "{:<30} {:>8} {:>10} {:>14} {:>14}",
        "operation, worst of all quotas", "taken", "throttled", "most a second", "most a minute"
    );
    let mut worst: BTreeMap<&str, OperationCounts> = BTreeMap::new();
    for ((operation, _), counts) in world.counts() {
        let sum = worst.entry(operation).or_default();
        sum.taken += counts.taken;
        sum.throttled += counts.throttled;
        sum.peak_a_second = sum.peak_a_second.max(counts.peak_a_second);
        sum.peak_a_minute = sum.peak_a_minute.max(counts.peak_a_minute);
    }
    for (operation, counts) in &worst {
        let OperationCounts { taken, throttled, peak_a_second, peak_a_minute, .. } = counts;
        println!("{operation:<30} {taken:>8} {throttled:>10} {peak_a_second:>14} {peak_a_minute:>14}");
    }
    let throttled: u64 = worst.values().map(|counts| counts.throttled).sum();
    if throttled > 0 {
        return Err(format!("{throttled} throttling answers").into());
    }
    Ok(())
}

impl Estate {
    async fn run(&mut self, world: &World) -> Result<Run, Failure> {
        let Self { store, pools, sources, resolver, revocation, search, rows, .. } = self;
        let began = Instant::now();
        let id = Uuid::now_v7();
        store::Scans::of(store).begin(id, now_us(), "{}").await?;
        let usual = WriterOptions::default();
        let options = WriterOptions { rows_max: rows.unwrap_or(usual.rows_max), ..usual };
        let (sender, writer) = Writer::start(store.clone(), id, options);
        let states = source_states(store, sources).await?;
        let trust = || {
            let mut trust = Trusted::trusting_none();
            trust.add_bytes(world.fleet.roots_pem().as_bytes());
            trust
        };
        let options = ScanOptions {
            in_flight: Some(pools.raw()),
            revocation: Some(revocation.clone()),
            ..ScanOptions::default()
        };
        let observer = Observer::new(&options, trust(), Some(store.clone()));
        let scanner = Scanner::new(options, resolver.clone(), trust())?;
        let clouds = async {
            let listed = list_clouds(sources, states, &observer, sender.clone()).await;
            (listed, began.elapsed())
        };
        let (endpoints, (listed, clouds_took), logged) =
            tokio::join!(scan_endpoints(world, &scanner, sender.clone()), clouds, search.search_domains());
        let (mut run, ended) = listed?;
        run.clouds_took = clouds_took;
        match logged {
            Ok((logged, took)) => (run.logged, run.search_took) = (logged, took),
            Err(error) => run.failed.push(error.to_string()),
        }
        drop(sender);
        let written = writer.finish().await?;
        (run.stored, run.commits, run.flushing) =
            (written.recorded.inserted, written.batches, written.flush_time);
        // Only now, because the state of a source must be stored after its observations.
        keep(store, &ended, now_us()).await?;
        run.endpoints = endpoints?;
        run.took = began.elapsed();
        Ok(run)
    }
}

async fn scan_endpoints(world: &World, scanner: &Scanner, sender: Sender) -> Result<usize, Failure> {
    let targets: Vec<_> = world.fleet.truth().into_iter().map(|truth| truth.target).collect();
    let targets = Box::new(Targets::new(targets, TargetOptions::default()));
    let mut run = scanner.start(targets, KnownEndpoints::default(), CancellationToken::new());
    let (mut recorder, mut answered) = (Recorder::default(), 0);
    while let Some(observation) = run.observations.recv().await {
        answered += usize::from(observation.outcome == ProbeOutcome::Answered);
        let row = recorder.row(&observation, "{}".to_owned());
        sender.send(row).await.map_err(|_| "the writer is gone")?;
    }
    Ok(answered)
}

async fn list_clouds(
    sources: &[Arc<dyn CloudSource>],
    states: HashMap<String, State>,
    observer: &Observer,
    sender: Sender,
) -> Result<(Run, Vec<Listed>), Failure> {
    let mut events = start(sources.to_vec(), states, LIMIT, CancellationToken::new());
    let (mut recorder, mut ended) = (Recorder::default(), Vec::new());
    let none = Duration::ZERO;
    let mut run = Run {
        took: none,
        clouds_took: none,
        search_took: none,
        logged: 0,
        found: HashMap::new(),
        endpoints: 0,
        read: 0,
        stored: 0,
        commits: 0,
        flushing: none,
        failed: Vec::new(),
    };
    while let Some(event) = events.recv().await {
        match event {
            Event::Certificates { source, certificates } => {
                let (observations, missing) = observer.observe(&source, certificates).await?;
                if !missing.is_empty() {
                    return Err(format!("not in the inventory: {missing:?}").into());
                }
                for observation in observations {
                    let leaf = observation.leaf().map(|leaf| leaf.fingerprint.to_string());
                    run.found.insert(observation.target.host_text().to_owned(), leaf);
                    let row = recorder.row(&observation, "{}".to_owned());
                    sender.send(row).await.map_err(|_| "the writer is gone")?;
                }
            }
            Event::Ended(listed) => {
                run.failed.extend(listed.failures());
                run.failed.extend(listed.removed.iter().map(|resource| format!("{} is gone", resource.name)));
                run.read += listed.read;
                ended.push(*listed);
            }
        }
    }
    Ok((run, ended))
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
