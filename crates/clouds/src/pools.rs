//! Call pools of all providers. Their sizes and rates are checked against each other and against the limits of the machine and the
//! database.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::api_error::ApiError;
use outbound::Deadline;
use outbound::budget::AdaptiveLimit;
use outbound::pool::{CallError, Pool, PoolGauges, PoolOptions};
use outbound::rate::{Pace, Rate};
use parking_lot::Mutex;
use serde::Deserialize;
use shared::Shared;

use crate::provider::Provider;

/// Minimum concurrent connections that the machine must support: the global pool of the smallest installations.
pub const IN_FLIGHT_MIN: usize = 256;
/// Default maximum of concurrent connections. Higher values gain little (1,024 saved 0.7 s of 7 s on 1,800 endpoints).
const IN_FLIGHT_DEFAULT_MAX: usize = 2_048;
/// Default maximum of concurrent calls to clouds, out of all connections: five AWS regions with 32 calls each, and about as many
/// for others.
const CLOUDS_DEFAULT_MAX: usize = 256;
/// Maximum number of pools (accounts times regions). A pool uses a few hundred bytes. Servers beyond this number share one pool.
const POOLS_MAX: usize = 16_384;
/// Timeout of one call. A page of a slow provider takes two seconds; without a timeout, a hanging call would never end.
const CALL_LIMIT: Duration = Duration::from_secs(20);

/// Sizes and rates of all pools. Defaults depend on the machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSettings {
    /// Maximum concurrent connections: dials to endpoints and calls to clouds.
    pub in_flight: Option<usize>,
    /// Maximum concurrent dials to endpoints.
    pub raw: Option<usize>,
    /// Maximum concurrent calls to all clouds.
    pub clouds: Option<usize>,
    /// AWS: one pool per account and region. Default: 32 concurrent calls.
    pub aws: ProviderSettings,
    /// Azure: one pool per vault and one per subscription. Default: 16 concurrent calls.
    pub azure: ProviderSettings,
    /// Google Cloud: one pool per project. Default: 16 concurrent calls.
    pub gcp: ProviderSettings,
    /// Kubernetes: one pool per cluster. Default: 8 concurrent calls.
    pub kubernetes: ProviderSettings,
}

/// Size and rates of a provider's pools.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderSettings {
    /// Maximum concurrent calls to one server.
    pub concurrency: Option<usize>,
    /// Rates of operations by name (`acm:GetCertificate`). They replace the provider's documented rates.
    pub operations: BTreeMap<String, OperationRateLimit>,
}

/// Rate limit of an operation. Zero is rejected.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct OperationRateLimit {
    /// Maximum requests per second, if limited.
    pub per_second: Option<u32>,
    /// Maximum requests per minute, if limited.
    pub per_minute: Option<u32>,
    /// Maximum burst after an idle period; default 1. Any second (or minute) may have this many requests in addition to the rate.
    pub burst: Option<u32>,
}

/// Resource limits of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Available sockets ([`outbound::limits::descriptor_budget`]).
    pub descriptors: usize,
    /// Connection limits of the database, if any.
    pub database: Option<Database>,
}

/// Connection limits of a database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Database {
    /// Maximum connections that this process opens. Each needs a file descriptor.
    pub connections: usize,
    /// Connections that the server allows for ordinary users. `None` for a database without a server.
    pub connections_max: Option<usize>,
}

impl Database {
    /// Checks that the database server and the `descriptors` allow this number of connections.
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

/// Invalid pool sizes or rates.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PoolsError {
    /// The limit of open files is too low. Operator: raise it (`ulimit -n`, `LimitNOFILE=`).
    #[error("the limit of open files allows only {room} connections; at least {least} are needed")]
    TooFewDescriptors {
        /// Available connections.
        room: usize,
        /// Minimum number of connections.
        least: usize,
    },
    /// `in_flight` exceeds the limit of open files. Operator: lower `in_flight`, or raise the limit of open files.
    #[error("pools.in_flight is {in_flight}, but the limit of open files allows only {room} connections")]
    PastDescriptors {
        /// Configured maximum of concurrent connections.
        in_flight: usize,
        /// Available connections, without those that the database uses.
        room: usize,
    },
    /// `raw` and `clouds` together exceed `in_flight`. Operator: raise `in_flight`, or lower `raw` or `clouds`. Otherwise one of them could
    /// use the connections of the other.
    #[error(
        "connections to endpoints ({raw}) and calls to clouds ({clouds}) together exceed the total limit of connections in flight ({in_flight})"
    )]
    PastWhole {
        /// Configured dials to endpoints.
        raw: usize,
        /// Configured calls to clouds.
        clouds: usize,
        /// Configured maximum of both together.
        in_flight: usize,
    },
    /// The pool of a provider exceeds the limit for all clouds. Operator: raise `clouds`, or lower the provider's `concurrency`.
    #[error(
        "the pool of {provider} with {concurrency} concurrent calls exceeds the limit for all clouds ({clouds})"
    )]
    PastClouds {
        /// Cloud provider whose `concurrency` is too high.
        provider: Provider,
        /// Configured concurrent calls to one server.
        concurrency: usize,
        /// Configured concurrent calls to all clouds.
        clouds: usize,
    },
    /// The database server allows fewer connections. Operator: lower `store.connections`, or raise the server's `max_connections`.
    /// Otherwise requests would wait for a connection that the server never grants.
    #[error("this process opens {connections} database connections, but the server allows {connections_max}")]
    PastDatabase {
        /// Connections that this process opens.
        connections: usize,
        /// Connections that the server allows.
        connections_max: usize,
    },
    /// The database connections exceed the limit of open files. Operator: lower `store.connections`, or raise the limit of open files.
    #[error(
        "this process opens {connections} database connections, but the limit of open files allows only {room} \
         connections of all kinds"
    )]
    PastFiles {
        /// Database connections that this process opens.
        connections: usize,
        /// Available connections.
        room: usize,
    },
    /// A setting is zero. Operator: set it to 1 or more, or remove it.
    #[error("{0} is 0: set at least 1, or leave it out")]
    Zero(String),
    /// The operation is not known. Operator: the message lists the known operations.
    #[error("unknown operation {operation:?} of {provider}; known operations: {known}")]
    UnknownOperation {
        /// Provider whose settings contain the operation.
        provider: Provider,
        /// Operation name as configured.
        operation: String,
        /// Known operation names.
        known: String,
    },
}

impl PoolsError {
    /// Returns how the operator can correct the error.
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
            Self::Zero(_) => "set at least 1, or leave it out",
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

/// Returns the default number of concurrent calls to one server of a provider.
fn concurrency_default(provider: Provider) -> usize {
    match provider {
        Provider::Aws => 32,
        Provider::Azure | Provider::Gcp => 16,
        Provider::Kubernetes => 8,
    }
}

/// Validated pool sizes.
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
        if !documented_rates(provider).iter().any(|(known, _)| known == operation) {
            let known: Vec<&str> = documented_rates(provider).iter().map(|(known, _)| *known).collect();
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

const fn second(count: u32) -> OperationRateLimit {
    OperationRateLimit { per_second: Some(count), per_minute: None, burst: None }
}

/// AWS rates per account and region. ACM: its quotas of 2026 minus one, evenly spaced, so that no second exceeds the quota however
/// AWS counts. ListCertificates has been observed with quotas of 5 and of 1 per second; a page has up to 1,000 certificates. IAM,
/// ELB, CloudFront, API Gateway and Account document no quotas for these operations. Their rates are low, and the pool lowers them
/// further when throttled.
const AWS: &[(&str, OperationRateLimit)] = &[
    ("acm:ListCertificates", OperationRateLimit { per_second: None, per_minute: Some(48), burst: None }),
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

/// Azure rates. A vault allows 4,000 transactions in ten seconds per region; half of that is left to other clients (Key Vault
/// service limits). Resource Manager refills 25 reads per second, with a burst of 250.
const AZURE: &[(&str, OperationRateLimit)] = &[
    ("keyvault:Read", second(200)),
    ("resourcemanager:Read", OperationRateLimit { per_second: Some(20), per_minute: None, burst: Some(40) }),
];

/// Google Cloud rate per project. The documented quota is 300 requests per minute for all operations together; 240 per minute plus
/// a burst of 50 stay below this quota.
const GCP_PACE: OperationRateLimit =
    OperationRateLimit { per_second: None, per_minute: Some(240), burst: Some(50) };
const GCP: &[(&str, OperationRateLimit)] =
    &[("certificatemanager:Read", GCP_PACE), ("compute:Read", GCP_PACE)];

/// Kubernetes rates. The default of client-go is 5 requests per second with bursts of 10; API servers apply fair queuing
/// themselves.
const KUBERNETES: &[(&str, OperationRateLimit)] =
    &[("kubernetes:Read", OperationRateLimit { per_second: Some(5), per_minute: None, burst: Some(10) })];

fn documented_rates(provider: Provider) -> &'static [(&'static str, OperationRateLimit)] {
    match provider {
        Provider::Aws => AWS,
        Provider::Azure => AZURE,
        Provider::Gcp => GCP,
        Provider::Kubernetes => KUBERNETES,
    }
}

impl From<OperationRateLimit> for Pace {
    fn from(pace: OperationRateLimit) -> Self {
        let burst = pace.burst.unwrap_or(1);
        Self {
            per_second: pace.per_second.map(|count| Rate::per_second(count).with_burst(burst)),
            per_minute: pace.per_minute.map(|count| Rate::per_minute(count).with_burst(burst)),
        }
    }
}

/// Pools of all providers, created on demand. Create this value only once per process, because it stores the rates that the pools
/// learned from throttling responses. Clones share everything.
#[derive(Clone)]
pub struct Pools(Shared<PoolSet>);

struct PoolSet {
    settings: PoolSettings,
    sizes: Sizes,
    total: AdaptiveLimit,
    existing: Mutex<BTreeMap<String, ProviderPool>>,
}

/// The pool of one server, with its provider's rates.
#[derive(Clone)]
pub struct ProviderPool {
    pool: Pool,
    paces: Arc<BTreeMap<&'static str, Pace>>,
}

impl Pools {
    /// Creates pools after checking the sizes against each other, the machine and the database.
    ///
    /// # Errors
    /// [`PoolsError`]; [`PoolsError::hint`] returns a hint.
    pub fn new(settings: PoolSettings, machine: Machine) -> Result<Self, PoolsError> {
        let sizes = sizes(&settings, machine)?;
        let total = AdaptiveLimit::new(sizes.clouds);
        Ok(Self(Shared::new(PoolSet { settings, sizes, total, existing: Mutex::default() })))
    }

    /// Returns the maximum concurrent dials to endpoints, in addition to the connections of these pools: [`scan::ScanOptions::in_flight`].
    #[must_use]
    pub fn raw(&self) -> usize {
        self.0.sizes.raw
    }

    /// Returns the maximum concurrent calls to all clouds.
    #[must_use]
    pub fn clouds(&self) -> usize {
        self.0.sizes.clouds
    }

    /// Returns the pool of one server of `provider`. `server` is any name that distinguishes servers with separate quotas.
    #[must_use]
    pub fn of(&self, provider: Provider, server: &str) -> ProviderPool {
        let mut existing = self.0.existing.lock();
        let mut name = format!("{provider}/{server}");
        if existing.len() >= POOLS_MAX && !existing.contains_key(&name) {
            name = format!("{provider}/others");
        }
        if let Some(pool) = existing.get(&name) {
            return pool.clone();
        }
        let settings = self.0.settings.of(provider);
        let paces = documented_rates(provider).iter().map(|(operation, documented_rates)| {
            (
                *operation,
                Pace::from(settings.operations.get(*operation).copied().unwrap_or(*documented_rates)),
            )
        });
        // Limited by the number for all clouds: a small machine has smaller pools.
        let concurrency = settings.concurrency(concurrency_default(provider)).min(self.0.sizes.clouds);
        let options = PoolOptions { concurrency, call_limit: CALL_LIMIT };
        let pool = Pool::new(name.as_str(), options, self.0.total.clone());
        let pool = ProviderPool { pool, paces: Arc::new(paces.collect()) };
        existing.insert(name, pool.clone());
        pool
    }

    /// Returns the metrics of every pool.
    #[must_use]
    pub fn gauges(&self) -> Vec<PoolGauges> {
        self.0.existing.lock().values().map(|existing| existing.pool.gauges()).collect()
    }
}

impl ProviderPool {
    /// Calls `operation` within its rate limit ([`Pool::call`]).
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Cancellation
    /// Dropping the future drops the call in progress.
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
    fn default_pool_sizes_follow_the_descriptor_limit() {
        for (descriptors, raw, clouds) in
            [(268, 128, 128), (896, 628, 256), (1_048_448, 1_792, 256), (2_060, 1_792, 256)]
        {
            let found = sizes(&PoolSettings::default(), machine(descriptors, 12, Some(97)));
            assert_eq!(found, Ok(Sizes { raw, clouds }), "{descriptors} descriptors");
        }
    }

    #[test]
    fn pool_sizes_are_checked_against_each_other_and_machine_limits() {
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
            // Cause of a six-hour outage: one pool limit was raised without the other.
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
    fn unknown_config_keys_are_rejected() {
        assert!(serde_json::from_str::<PoolSettings>(r#"{"aws": {"workers": 3}}"#).is_err());
    }

    #[test]
    fn one_pool_is_created_per_server() {
        let pools = Pools::new(PoolSettings::default(), machine(2_060, 12, None)).unwrap();
        let (one, other) = (pools.of(Provider::Aws, "1/eu-west-1"), pools.of(Provider::Aws, "1/eu-west-2"));
        assert_ne!(one.pool.name(), other.pool.name());
        let repeated = pools.of(Provider::Aws, "1/eu-west-1");
        assert!(Arc::ptr_eq(one.pool.name(), repeated.pool.name()));
        assert_eq!(pools.gauges().len(), 2);
        assert_eq!(pools.gauges()[0].permits.limit_max, 32);
    }
}
