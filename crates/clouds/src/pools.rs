//! The pools of all providers: their sizes and rates, held against each other and against what the machine and the
//! database have.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::api_error::ApiError;
use outbound::Deadline;
use outbound::budget::Adaptive;
use outbound::pool::{CallError, Pool, PoolGauges, PoolOptions};
use outbound::rate::{Pace, Rate};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::provider::Provider;

/// Fewest connections in flight that a machine must have room for: the global pool of the smallest estates.
pub const IN_FLIGHT_MIN: usize = 256;
/// Connections in flight when nobody says otherwise: more gain little (1,024 saved 0.7 s of 7 on 1,800 endpoints).
const IN_FLIGHT_DEFAULT_MAX: usize = 2_048;
/// Of them, calls to clouds when nobody says otherwise: five regions of AWS at 32 and as much again.
const CLOUDS_DEFAULT_MAX: usize = 256;
/// Pools there may be, a few hundred bytes each: accounts times regions. Past it pools share one.
const POOLS_MAX: usize = 16_384;
/// Longest one call may take: a page of a slow provider takes two seconds, a hanging one for ever.
const CALL_LIMIT: Duration = Duration::from_secs(20);

/// Sizes and rates of all pools; what is left out is chosen by the machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSettings {
    /// Everything in flight at once: dials to endpoints and calls to clouds.
    pub in_flight: Option<usize>,
    /// Dials to endpoints at once.
    pub raw: Option<usize>,
    /// Calls to all clouds at once.
    pub clouds: Option<usize>,
    /// AWS: a pool an account and region. 32 at once.
    pub aws: ProviderSettings,
    /// Azure: a pool a vault, and one a subscription. 16 at once.
    pub azure: ProviderSettings,
    /// Google Cloud: a pool a project. 16 at once.
    pub gcp: ProviderSettings,
    /// Kubernetes: a pool a cluster. 8 at once.
    pub kubernetes: ProviderSettings,
}

/// Size and rates of a provider's pools.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderSettings {
    /// Calls to one server at once.
    pub concurrency: Option<usize>,
    /// Rates of operations by name (`acm:GetCertificate`), in place of what the provider documents.
    pub operations: BTreeMap<String, OperationPace>,
}

/// How often an operation may be asked for. Zero is refused.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct OperationPace {
    /// Requests a second.
    pub per_second: Option<u32>,
    /// Requests a minute.
    pub per_minute: Option<u32>,
    /// How many of them at once after a rest; 1 unless given. As many more may come in any second (or minute).
    pub burst: Option<u32>,
}

/// What a process has to work with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Sockets there may be ([`outbound::limits::descriptor_budget`]).
    pub descriptors: usize,
    /// The database, where there is one.
    pub database: Option<Database>,
}

/// A database's connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Database {
    /// Connections this process opens at most. They are descriptors too.
    pub connections: usize,
    /// Connections the server has for ordinary users; `None`: no server.
    pub connections_max: Option<usize>,
}

impl Database {
    /// Whether so many connections can be, where there may be so many descriptors.
    ///
    /// # Errors
    /// [`PoolsError::PastDatabase`], [`PoolsError::PastFiles`].
    pub fn check(self, descriptors: usize) -> Result<(), PoolsError> {
        let Self { connections, connections_max } = self;
        if let Some(connections_max) = connections_max.filter(|most| connections > *most) {
            return Err(PoolsError::PastDatabase { connections, connections_max });
        }
        if connections >= descriptors {
            return Err(PoolsError::PastFiles { connections, room: descriptors });
        }
        Ok(())
    }
}

/// Why pools of these sizes cannot be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PoolsError {
    /// Operator: raise the limit of open files (`ulimit -n`, `LimitNOFILE=`).
    #[error("the limit of open files leaves room for {room} connections, and {least} are needed at least")]
    TooFewDescriptors {
        /// Connections there is room for.
        room: usize,
        /// Connections needed.
        least: usize,
    },
    /// Operator: lower `in_flight`, or raise the limit of open files.
    #[error(
        "{in_flight} connections in flight do not fit into the {room} that the limit of open files leaves"
    )]
    PastDescriptors {
        /// As configured.
        in_flight: usize,
        /// What there is room for, the database's own connections taken off.
        room: usize,
    },
    /// Operator: raise `in_flight`, or lower one of the two. Raised one without the other, they would starve each other.
    #[error(
        "raw dials ({raw}) and calls to clouds ({clouds}) together are more than all that may be in flight ({in_flight})"
    )]
    PastWhole {
        /// Dials to endpoints.
        raw: usize,
        /// Calls to clouds.
        clouds: usize,
        /// All together.
        in_flight: usize,
    },
    /// Operator: raise `clouds`, or lower the provider's.
    #[error(
        "a pool of {provider} with {concurrency} calls at once is larger than what all clouds may have ({clouds})"
    )]
    PastClouds {
        /// Whose.
        provider: Provider,
        /// As configured.
        concurrency: usize,
        /// Of all clouds.
        clouds: usize,
    },
    /// Operator: lower `store.connections`, or raise the server's `max_connections`. Observations would wait for a connection that never comes.
    #[error("this process opens {connections} database connections, and the server has {connections_max}")]
    PastDatabase {
        /// Ours.
        connections: usize,
        /// The server's.
        connections_max: usize,
    },
    /// Operator: lower `store.connections`, or raise the limit of open files.
    #[error(
        "this process opens {connections} database connections, and the limit of open files leaves room for {room} \
         connections of all kinds"
    )]
    PastFiles {
        /// Ours to the database.
        connections: usize,
        /// What there is room for.
        room: usize,
    },
    /// Operator: give a number from 1, or leave it out.
    #[error("{0} is 0: give at least 1, or leave it out")]
    Zero(String),
    /// Operator: the operations there are stand in the message.
    #[error("{provider} knows no operation {operation:?}; there are {known}")]
    UnknownOperation {
        /// Whose.
        provider: Provider,
        /// As configured.
        operation: String,
        /// The known names.
        known: String,
    },
}

impl PoolsError {
    /// A hint for the operator.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooFewDescriptors { .. } => {
                "raise the limit of open files: `ulimit -n 4096`, or LimitNOFILE=4096"
            }
            Self::PastDescriptors { .. } => "lower pools.in_flight, or raise the limit of open files",
            Self::PastWhole { .. } => "raise pools.in_flight, or lower pools.raw or pools.clouds",
            Self::PastClouds { .. } => "raise pools.clouds, or lower the provider's concurrency",
            Self::PastDatabase { .. } => {
                "lower store.connections, or raise max_connections of the database server"
            }
            Self::PastFiles { .. } => "lower store.connections, or raise the limit of open files",
            Self::Zero(_) => "give a number from 1, or leave it out",
            Self::UnknownOperation { .. } => "correct the name, or leave it out",
        }
    }
}

impl ProviderSettings {
    fn concurrency(&self, default: usize) -> usize {
        self.concurrency.unwrap_or(default)
    }
}

impl PoolSettings {
    fn of(&self, provider: Provider) -> &ProviderSettings {
        match provider {
            Provider::Aws => &self.aws,
            Provider::Azure => &self.azure,
            Provider::Gcp => &self.gcp,
            Provider::Kubernetes => &self.kubernetes,
        }
    }
}

/// Calls at once to one server of a provider, when nobody says otherwise.
fn concurrency_default(provider: Provider) -> usize {
    match provider {
        Provider::Aws => 32,
        Provider::Azure | Provider::Gcp => 16,
        Provider::Kubernetes => 8,
    }
}

/// The sizes, decided and held against each other.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes {
    raw: usize,
    clouds: usize,
}

fn sizes(settings: &PoolSettings, machine: Machine) -> Result<Sizes, PoolsError> {
    for (name, size) in
        [("in_flight", settings.in_flight), ("raw", settings.raw), ("clouds", settings.clouds)]
    {
        if size == Some(0) {
            return Err(PoolsError::Zero(format!("pools.{name}")));
        }
    }
    if let Some(database) = machine.database {
        database.check(machine.descriptors)?;
    }
    let room =
        machine.descriptors.saturating_sub(machine.database.map_or(0, |database| database.connections));
    if room < IN_FLIGHT_MIN {
        return Err(PoolsError::TooFewDescriptors { room, least: IN_FLIGHT_MIN });
    }
    let in_flight = settings.in_flight.unwrap_or_else(|| room.min(IN_FLIGHT_DEFAULT_MAX));
    if in_flight > room {
        return Err(PoolsError::PastDescriptors { in_flight, room });
    }
    let clouds = settings.clouds.unwrap_or_else(|| {
        let left = settings.raw.map_or(in_flight, |raw| in_flight.saturating_sub(raw).max(1));
        CLOUDS_DEFAULT_MAX.min(in_flight / 2).min(left).max(1)
    });
    let raw = settings.raw.unwrap_or_else(|| in_flight.saturating_sub(clouds).max(1));
    if raw + clouds > in_flight {
        return Err(PoolsError::PastWhole { raw, clouds, in_flight });
    }
    for provider in Provider::ALL {
        check_provider(provider, settings.of(provider), clouds)?;
    }
    Ok(Sizes { raw, clouds })
}

fn check_provider(provider: Provider, settings: &ProviderSettings, clouds: usize) -> Result<(), PoolsError> {
    match settings.concurrency {
        Some(0) => return Err(PoolsError::Zero(format!("pools.{provider}.concurrency"))),
        Some(concurrency) if concurrency > clouds => {
            return Err(PoolsError::PastClouds { provider, concurrency, clouds });
        }
        _ => {}
    }
    for (operation, pace) in &settings.operations {
        if !documented(provider).iter().any(|(known, _)| known == operation) {
            let known: Vec<&str> = documented(provider).iter().map(|(known, _)| *known).collect();
            let operation = operation.clone();
            return Err(PoolsError::UnknownOperation { provider, operation, known: known.join(", ") });
        }
        for (name, rate) in
            [("per_second", pace.per_second), ("per_minute", pace.per_minute), ("burst", pace.burst)]
        {
            if rate == Some(0) {
                return Err(PoolsError::Zero(format!("pools.{provider}.operations.\"{operation}\".{name}")));
            }
        }
    }
    Ok(())
}

const fn second(count: u32) -> OperationPace {
    OperationPace { per_second: Some(count), per_minute: None, burst: None }
}

/// AWS, an account and region. ACM's are its quotas of 2026 less one, evenly apart, so that no second has more however it
/// is counted (ListCertificates has been seen with 5 a second and with 1; a page has up to 1,000). IAM, ELB, CloudFront, API
/// Gateway and Account document none for these: chosen low, learned if lower still.
const AWS: &[(&str, OperationPace)] = &[
    ("acm:ListCertificates", OperationPace { per_second: None, per_minute: Some(48), burst: None }),
    ("acm:GetCertificate", second(9)),
    ("acm:DescribeCertificate", second(9)),
    ("acm:ListTagsForCertificate", second(9)),
    ("iam:ListServerCertificates", second(4)),
    ("iam:GetServerCertificate", second(9)),
    ("iam:ListServerCertificateTags", second(9)),
    ("elasticloadbalancing:DescribeLoadBalancers", second(9)),
    ("elasticloadbalancing:DescribeListeners", second(9)),
    ("elasticloadbalancing:DescribeListenerCertificates", second(9)),
    ("cloudfront:ListDistributions", second(4)),
    ("apigateway:GetDomainNames", second(4)),
    ("account:ListRegions", second(1)),
];

/// Azure: half of the 4,000 transactions in ten seconds that a vault and region has, because its other users need it
/// too (Key Vault service limits). Resource Manager: reads refill at 25 a second, 250 at once.
const AZURE: &[(&str, OperationPace)] = &[
    ("keyvault:Read", second(200)),
    ("resourcemanager:Read", OperationPace { per_second: Some(20), per_minute: None, burst: Some(40) }),
];

/// Google Cloud, a project: 300 requests a minute are documented, whichever they are; 240 and a burst of 50 never come to more.
const GCP_PACE: OperationPace = OperationPace { per_second: None, per_minute: Some(240), burst: Some(50) };
const GCP: &[(&str, OperationPace)] = &[("certificatemanager:Read", GCP_PACE), ("compute:Read", GCP_PACE)];

/// Kubernetes: client-go's default is 5 a second with bursts of 10; API servers queue fairly by themselves.
const KUBERNETES: &[(&str, OperationPace)] =
    &[("kubernetes:Read", OperationPace { per_second: Some(5), per_minute: None, burst: Some(10) })];

fn documented(provider: Provider) -> &'static [(&'static str, OperationPace)] {
    match provider {
        Provider::Aws => AWS,
        Provider::Azure => AZURE,
        Provider::Gcp => GCP,
        Provider::Kubernetes => KUBERNETES,
    }
}

impl From<OperationPace> for Pace {
    fn from(pace: OperationPace) -> Self {
        let burst = pace.burst.unwrap_or(1);
        Self {
            per_second: pace.per_second.map(|count| Rate::per_second(count).with_burst(burst)),
            per_minute: pace.per_minute.map(|count| Rate::per_minute(count).with_burst(burst)),
        }
    }
}

/// The pools of all providers, made as they are asked for. Build it once: what was learned from throttling answers is
/// remembered in it. Clones share everything.
#[derive(Clone)]
pub struct Pools(Arc<PoolSet>);

struct PoolSet {
    settings: PoolSettings,
    sizes: Sizes,
    whole: Adaptive,
    made: Mutex<BTreeMap<String, ProviderPool>>,
}

/// The pool of one server, with its provider's rates.
#[derive(Clone)]
pub struct ProviderPool {
    pool: Pool,
    paces: Arc<BTreeMap<&'static str, Pace>>,
}

impl Pools {
    /// Pools of these sizes, if they fit each other, the machine and the database.
    ///
    /// # Errors
    /// [`PoolsError`]; [`PoolsError::hint`] says what to do.
    pub fn new(settings: PoolSettings, machine: Machine) -> Result<Self, PoolsError> {
        let sizes = sizes(&settings, machine)?;
        let whole = Adaptive::new(sizes.clouds);
        Ok(Self(Arc::new(PoolSet { settings, sizes, whole, made: Mutex::default() })))
    }

    /// Dials to endpoints that may be in flight beside these pools: [`scan::ScanOptions::in_flight`].
    #[must_use]
    pub fn raw(&self) -> usize {
        self.0.sizes.raw
    }

    /// Calls to all clouds that may be in flight.
    #[must_use]
    pub fn clouds(&self) -> usize {
        self.0.sizes.clouds
    }

    /// The pool of one server of `provider`, by whatever tells its servers (and their quotas) apart.
    #[must_use]
    pub fn of(&self, provider: Provider, server: &str) -> ProviderPool {
        let mut made = self.0.made.lock();
        let mut name = format!("{provider}/{server}");
        if made.len() >= POOLS_MAX && !made.contains_key(&name) {
            name = format!("{provider}/others");
        }
        if let Some(pool) = made.get(&name) {
            return pool.clone();
        }
        let settings = self.0.settings.of(provider);
        let paces = documented(provider).iter().map(|(operation, documented)| {
            (*operation, Pace::from(settings.operations.get(*operation).copied().unwrap_or(*documented)))
        });
        // No more than there may be of all clouds: a small machine has smaller pools.
        let concurrency = settings.concurrency(concurrency_default(provider)).min(self.0.sizes.clouds);
        let options = PoolOptions { concurrency, call_limit: CALL_LIMIT };
        let pool = Pool::new(name.as_str(), options, self.0.whole.clone());
        let pool = ProviderPool { pool, paces: Arc::new(paces.collect()) };
        made.insert(name, pool.clone());
        pool
    }

    /// Numbers of every pool, for a dashboard.
    #[must_use]
    pub fn gauges(&self) -> Vec<PoolGauges> {
        self.0.made.lock().values().map(|made| made.pool.gauges()).collect()
    }
}

impl ProviderPool {
    /// Calls `operation` at its pace ([`Pool::call`]).
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Cancellation
    /// Dropping the future drops the call under way.
    pub async fn call<T, F: Future<Output = Result<T, ApiError>>>(
        &self,
        operation: &'static str,
        deadline: Deadline,
        attempt: impl FnMut() -> F,
    ) -> Result<T, CallError<ApiError>> {
        let pace = self.paces.get(operation).copied();
        debug_assert!(pace.is_some(), "{operation} has no documented pace");
        self.pool.call(operation, pace.unwrap_or_default(), deadline, attempt).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(descriptors: usize, ours: usize, servers: Option<usize>) -> Machine {
        let database = Some(Database { connections: ours, connections_max: servers });
        Machine { descriptors, database }
    }

    #[test]
    fn what_nobody_configured_fits_every_machine_that_is_large_enough() {
        for (descriptors, raw, clouds) in
            [(268, 128, 128), (896, 628, 256), (1_048_448, 1_792, 256), (2_060, 1_792, 256)]
        {
            let found = sizes(&PoolSettings::default(), machine(descriptors, 12, Some(97)));
            assert_eq!(found, Ok(Sizes { raw, clouds }), "{descriptors} descriptors");
        }
    }

    #[test]
    fn pools_are_held_against_each_other_and_against_what_there_is() {
        let settings = |text: &str| toml_like(text);
        let small = machine(896, 12, Some(97));
        for (text, machine, error) in [
            (r#"{"in_flight": 512}"#, small, None),
            (r#"{"in_flight": 885}"#, small, Some(PoolsError::PastDescriptors { in_flight: 885, room: 884 })),
            (r#"{}"#, machine(200, 12, None), Some(PoolsError::TooFewDescriptors { room: 188, least: 256 })),
            (
                r#"{"in_flight": 512, "raw": 400, "clouds": 200}"#,
                small,
                Some(PoolsError::PastWhole { raw: 400, clouds: 200, in_flight: 512 }),
            ),
            // The outage of six hours: one pool raised, the other not.
            (
                r#"{"raw": 884, "clouds": 256}"#,
                small,
                Some(PoolsError::PastWhole { raw: 884, clouds: 256, in_flight: 884 }),
            ),
            (
                r#"{}"#,
                machine(4_096, 120, Some(97)),
                Some(PoolsError::PastDatabase { connections: 120, connections_max: 97 }),
            ),
            (r#"{}"#, machine(300, 300, None), Some(PoolsError::PastFiles { connections: 300, room: 300 })),
            (
                r#"{"clouds": 64, "azure": {"concurrency": 65}}"#,
                small,
                Some(PoolsError::PastClouds { provider: Provider::Azure, concurrency: 65, clouds: 64 }),
            ),
            (r#"{"raw": 0}"#, small, Some(PoolsError::Zero("pools.raw".into()))),
            (r#"{"gcp": {"concurrency": 0}}"#, small, Some(PoolsError::Zero("pools.gcp.concurrency".into()))),
            (
                r#"{"kubernetes": {"operations": {"kubernetes:Read": {"per_second": 0}}}}"#,
                small,
                Some(PoolsError::Zero("pools.kubernetes.operations.\"kubernetes:Read\".per_second".into())),
            ),
            (
                r#"{"gcp": {"operations": {"list": {"per_second": 1}}}}"#,
                small,
                Some(PoolsError::UnknownOperation {
                    provider: Provider::Gcp,
                    operation: "list".into(),
                    known: "certificatemanager:Read, compute:Read".into(),
                }),
            ),
        ] {
            assert_eq!(sizes(&settings(text), machine).err(), error, "{text}");
        }
    }

    fn toml_like(text: &str) -> PoolSettings {
        serde_json::from_str(text).expect("settings")
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(serde_json::from_str::<PoolSettings>(r#"{"aws": {"workers": 3}}"#).is_err());
    }

    #[test]
    fn a_pool_is_made_once_for_a_server() {
        let pools = Pools::new(PoolSettings::default(), machine(2_060, 12, None)).unwrap();
        let (one, other) = (pools.of(Provider::Aws, "1/eu-west-1"), pools.of(Provider::Aws, "1/eu-west-2"));
        assert_ne!(one.pool.name(), other.pool.name());
        let again = pools.of(Provider::Aws, "1/eu-west-1");
        assert!(Arc::ptr_eq(one.pool.name(), again.pool.name()));
        assert_eq!(pools.gauges().len(), 2);
        assert_eq!(pools.gauges()[0].places.limit_max, 32);
    }
}
