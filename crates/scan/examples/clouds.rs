//! CertPulse's fleet in one run: 1,800 certificates, of them 1,200 in three clouds that enforce their quotas and 600 on
//! endpoints with its latencies, into an SQLite inventory; once from an empty state and once more.
//!
//! `cargo run --release -p scan --features aws,azure,gcp,kubernetes --example clouds`. Fails when a certificate is missing
//! or wrong, or when a cloud counted a throttling answer; the times are for people to judge.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::{Duration as AzureDuration, OffsetDateTime};
use fleet::cloud::aws::{ACCESS_KEY, AwsCloud, AwsPlan};
use fleet::cloud::azure::{AzureCloud, AzurePlan, SUBSCRIPTION};
use fleet::cloud::gcp::{GcpCloud, GcpPlan};
use fleet::cloud::{CloudTruth, Manners, OperationCounts};
use fleet::{Fleet, Latency, Mix, Plan};
use google_cloud_auth::credentials::anonymous::Builder as Anonymous;
use outbound::resolve::Resolver;
use scan::clouds::aws::{AwsAccount, AwsOptions, AwsSource};
use scan::clouds::azure::{AzureOptions, AzureSource, AzureSubscription};
use scan::clouds::gcp::{GcpOptions, GcpProject, GcpSource};
use scan::clouds::http::HttpClient;
use scan::clouds::{CloudSource, Database, Event, Machine, Observer, PoolSettings, Pools, State, start};
use scan::{Known, Outcome, Recorder, ScanOptions, Scanner, TargetOptions, Targets, Trusted};
use store::{Sender, Store, StoreUrl, Writer, WriterOptions};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

type Failure = Box<dyn std::error::Error>;

/// Longest a run may take at all.
const LIMIT: Duration = Duration::from_secs(120);
const PROJECTS: [&str; 2] = ["one", "two"];

/// From a request to its answer, as CertPulse reports handshakes; it reports no latencies of clouds.
fn manners(seed: u64) -> Manners {
    let latency = Duration::from_millis(80)..=Duration::from_millis(300);
    Manners { latency, seed, ..Manners::default() }
}

struct World {
    fleet: Fleet,
    aws: AwsCloud,
    azure: Arc<AzureCloud>,
    gcp: Vec<GcpCloud>,
}

impl World {
    /// 2 accounts of 5 regions of 36 and 10 in IAM each; 4 vaults of 110; 2 projects of 150 and 40; 600 endpoints.
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
            ..Plan::default()
        };
        Ok(Self {
            fleet: Fleet::start(&endpoints).await?,
            aws: AwsCloud::start(&aws)?,
            azure: Arc::new(AzureCloud::start(&azure)?),
            gcp: PROJECTS.iter().map(project).collect::<Result<_, _>>()?,
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

    fn truth(&self) -> Vec<CloudTruth> {
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
    ) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new(self.0.token(), OffsetDateTime::now_utc() + AzureDuration::hours(1)))
    }
}

/// What one run found: by place, the leaf's SHA-256.
struct Run {
    took: Duration,
    clouds_took: Duration,
    found: HashMap<String, Option<String>>,
    endpoints: usize,
    read: u64,
    stored: u64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let world = World::start().await?;
    let folder = tempfile::tempdir()?;
    let store = Store::open(&StoreUrl::sqlite(folder.path().join("inventory.db"))).await?;
    let connections = store.connections().await?;
    let machine = Machine {
        descriptors: outbound::limits::descriptor_budget(),
        database: Some(Database { connections: connections.ours, connections_max: connections.servers }),
    };
    let pools = Pools::new(PoolSettings::default(), machine)?;
    let http = HttpClient::new(&[world.azure.root()])?;
    let sources = world.sources(&pools, &http).await?;
    println!(
        "{:<22} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}",
        "run", "wall s", "clouds s", "places", "read", "endpoints", "stored"
    );
    for name in ["from an empty state", "once more"] {
        let run = run(&world, &pools, &sources, &store).await?;
        println!(
            "{name:<22} {:>8.2} {:>8.2} {:>8} {:>8} {:>9} {:>8}",
            run.took.as_secs_f64(),
            run.clouds_took.as_secs_f64(),
            run.found.len(),
            run.read,
            run.endpoints,
            run.stored
        );
        let truth: HashMap<_, _> = world.truth().into_iter().map(|one| (one.name, one.leaf_sha256)).collect();
        if run.found != truth || run.endpoints != 600 {
            return Err("what was found is not what there is".into());
        }
    }
    report(&world, &http)
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

async fn run(
    world: &World,
    pools: &Pools,
    sources: &[Arc<dyn CloudSource>],
    store: &Store,
) -> Result<Run, Failure> {
    let began = Instant::now();
    let id = Uuid::now_v7();
    store.begin_scan(id, now_us(), "{}").await?;
    let (sender, writer) = Writer::start(store.clone(), id, WriterOptions::default());
    let mut states = HashMap::new();
    for (source, state) in store.source_states().await? {
        states.insert(source, State::from_text(&state)?);
    }
    let trust = || {
        let mut trust = Trusted::nobody();
        trust.add_bytes(world.fleet.roots_pem().as_bytes());
        trust
    };
    let options = ScanOptions { in_flight: Some(pools.raw()), ..ScanOptions::default() };
    let observer = Observer::new(&options, trust(), Some(store.clone()));
    let scanner = Scanner::new(options, Resolver::with_upstreams(vec![world.fleet.dns()]), trust())?;
    let (endpoints, listed) = tokio::join!(
        scan_endpoints(world, &scanner, sender.clone()),
        list_clouds(sources, states, &observer, sender.clone()),
    );
    let (mut run, ended) = listed?;
    run.clouds_took = began.elapsed();
    drop(sender);
    run.stored = writer.finish().await?.recorded.inserted;
    // Only now: what a source showed counts once its observations are stored.
    for (source, state) in ended {
        store.put_source_state(&source, &state.to_text(), now_us()).await?;
    }
    run.endpoints = endpoints?;
    run.took = began.elapsed();
    Ok(run)
}

async fn scan_endpoints(world: &World, scanner: &Scanner, sender: Sender) -> Result<usize, Failure> {
    let targets: Vec<_> = world.fleet.truth().into_iter().map(|truth| truth.target).collect();
    let targets = Box::new(Targets::new(targets, TargetOptions::default()));
    let mut run = scanner.start(targets, Known::default(), CancellationToken::new());
    let (mut recorder, mut answered) = (Recorder::default(), 0);
    while let Some(observation) = run.observations.recv().await {
        answered += usize::from(observation.outcome == Outcome::Answered);
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
) -> Result<(Run, Vec<(Arc<str>, State)>), Failure> {
    let mut events = start(sources.to_vec(), states, LIMIT, CancellationToken::new());
    let (mut recorder, mut ended) = (Recorder::default(), Vec::new());
    let none = Duration::ZERO;
    let mut run =
        Run { took: none, clouds_took: none, found: HashMap::new(), endpoints: 0, read: 0, stored: 0 };
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
                if !listed.failed.is_empty() || !listed.gone.is_empty() {
                    return Err(format!("{}: {:?} {:?}", listed.source, listed.failed, listed.gone).into());
                }
                run.read += listed.read;
                ended.push((listed.source, listed.state));
            }
        }
    }
    Ok((run, ended))
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
