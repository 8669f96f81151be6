//! Rate limits for addresses and callers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use governor::Quota;
use governor::middleware::StateSnapshot;
use http::{HeaderMap, HeaderName, HeaderValue};
use inbound::{KeyedConcurrencyLimit, KeyedPermit};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::access::{Caller, CallerKind};
use crate::keyed_limit::KeyedLimit;
use crate::problem::Problem;
use crate::sign_in_limit::SignInLimits;

pub use crate::sign_in_limit::{SignInRates, SlowRate};

/// Maximum keys of a limiter, a few hundred bytes each. While a limiter has this many keys, all keys share one bucket, until idle
/// keys are removed.
const KEYS_MAX: usize = 65_536;

/// Maximum bytes of an account name that are compared. Longer names are truncated.
const ACCOUNT_MAX: usize = 256;

/// `Retry-After` in seconds for a caller with too many concurrent requests.
const BUSY_RETRY_SECONDS: u64 = 1;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// A rate limit: a steady rate and a burst.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Steady rate, in requests per second.
    pub per_second: NonZeroU32,
    /// Maximum requests in a burst after a pause.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Creates a rate. A value of 0 is raised to 1.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        const fn at_least_one(number: u32) -> NonZeroU32 {
            match NonZeroU32::new(number) {
                Some(number) => number,
                None => NonZeroU32::MIN,
            }
        }
        Self { per_second: at_least_one(per_second), burst: at_least_one(burst) }
    }
}

/// Rate limits of the API, the other protocols and the credential store. `None` disables a limit.
#[derive(Clone, Debug)]
pub struct LimitOptions {
    /// Requests of one caller of the API.
    pub caller: Option<Rate>,
    /// Maximum concurrent requests of one caller of the API.
    pub caller_in_flight_max: usize,
    /// Requests of one address (a /64 for IPv6) to the API, before authentication. Large enough for an office behind one address.
    pub address: Option<Rate>,
    /// Failed logins of one address. The limit slows down guessing, and bounds the cost of a broken client.
    pub failures: Option<Rate>,
    /// Failed logins of one account name, from all addresses.
    pub account_failures: Option<Rate>,
    /// Requests of one address to ACME, EST, SCEP, CRLs and OCSP, which are without authentication. One address may be a cache or a
    /// whole site.
    pub protocol_address: Option<Rate>,
    /// Requests of one actor to the credential store.
    pub credential_caller: Option<Rate>,
    /// Requests of one address to the credential store.
    pub credential_address: Option<Rate>,
    /// Rates of API tokens, by token name. Such a rate replaces `caller` and `credential_caller`.
    pub tokens: Vec<(String, Rate)>,
    /// Rates of callers, by role name. Such a rate replaces `caller` and `credential_caller`, except for a token with an entry in
    /// `tokens`. With several roles the highest rate applies.
    pub roles: Vec<(String, Rate)>,
    /// Attempts to sign in with a password.
    pub sign_in: SignInRates,
}

impl Default for LimitOptions {
    /// Returns the default limits. The table in `docs/control-plane.md` has the reasons.
    fn default() -> Self {
        Self {
            caller: Some(Rate::new(200, 400)),
            caller_in_flight_max: 256,
            address: Some(Rate::new(1_000, 2_000)),
            failures: Some(Rate::new(5, 50)),
            account_failures: Some(Rate::new(1, 20)),
            protocol_address: Some(Rate::new(10_000, 20_000)),
            credential_caller: Some(Rate::new(10_000, 20_000)),
            credential_address: Some(Rate::new(20_000, 40_000)),
            tokens: Vec::new(),
            roles: Vec::new(),
            sign_in: SignInRates::default(),
        }
    }
}

impl LimitOptions {
    /// Returns options without any limit, for measurements.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            caller: None,
            caller_in_flight_max: usize::MAX,
            address: None,
            failures: None,
            account_failures: None,
            protocol_address: None,
            credential_caller: None,
            credential_address: None,
            tokens: Vec::new(),
            roles: Vec::new(),
            sign_in: SignInRates::default(),
        }
    }
}

/// The remaining requests of a limit, for the response headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RemainingQuota {
    limit: u32,
    remaining: u32,
    reset_seconds: u64,
}

impl RemainingQuota {
    pub(crate) fn write_headers(self, headers: &mut HeaderMap) {
        headers.insert(LIMIT, HeaderValue::from(self.limit));
        headers.insert(REMAINING, HeaderValue::from(self.remaining));
        headers.insert(RESET, HeaderValue::from(self.reset_seconds));
    }
}

/// A rate limiter by key that also returns the remaining requests.
pub(crate) struct Limiter<K: Hash + Eq + Clone> {
    rate: Rate,
    buckets: KeyedLimit<K>,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    fn new(rate: Rate, overflow: K) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        Self { rate, buckets: KeyedLimit::new(quota, overflow, KEYS_MAX) }
    }

    /// Takes a token from the bucket of `key`. Returns the remaining requests, or the seconds until the next request is allowed.
    fn take(&self, key: &K) -> Result<RemainingQuota, u64> {
        self.buckets.take(key).map(|snapshot| self.remaining_quota(&snapshot))
    }

    fn forget_idle(&self) {
        self.buckets.forget_idle();
    }

    fn remaining_quota(&self, snapshot: &StateSnapshot) -> RemainingQuota {
        let (limit, remaining) = (self.rate.burst.get(), snapshot.remaining_burst_capacity());
        let missing = u64::from(limit - remaining.min(limit));
        RemainingQuota {
            limit,
            remaining,
            reset_seconds: missing.div_ceil(u64::from(self.rate.per_second.get())),
        }
    }
}

/// A group of protocols whose requests from one address share a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProtocolGroup {
    Api,
    /// ACME, EST, SCEP, CRLs, OCSP.
    Protocols,
    Credentials,
}

/// Limiters by the name of a token or of a role, each with its own rate.
struct NamedLimiters(Vec<(String, Limiter<Uuid>)>);

impl NamedLimiters {
    /// Creates the limiters, sorted by rate, the highest first.
    fn new(rates: &[(String, Rate)]) -> Self {
        let mut rates = rates.to_vec();
        rates.sort_by_key(|(_, rate)| std::cmp::Reverse(rate.per_second));
        Self(rates.into_iter().map(|(name, rate)| (name, Limiter::new(rate, Uuid::nil()))).collect())
    }

    fn first(&self, mut is_match: impl FnMut(&str) -> bool) -> Option<&Limiter<Uuid>> {
        self.0.iter().find(|(name, _)| is_match(name)).map(|(_, limiter)| limiter)
    }
}

/// The rate limiters of the server.
pub(crate) struct Limits {
    callers: Option<Limiter<Uuid>>,
    in_flight: KeyedConcurrencyLimit<Uuid>,
    addresses: Option<Limiter<IpAddr>>,
    failures: Option<Limiter<IpAddr>>,
    account_failures: Option<Limiter<String>>,
    protocol_addresses: Option<Limiter<IpAddr>>,
    credential_callers: Option<Limiter<String>>,
    credential_addresses: Option<Limiter<IpAddr>>,
    tokens: NamedLimiters,
    roles: NamedLimiters,
    sign_in: SignInLimits,
    /// Limiters by team; each team has its own rate.
    teams: RwLock<HashMap<String, (u32, Arc<Limiter<u8>>)>>,
    /// Number of running servers that use the database. Each has an equal share of a team's rate.
    servers: AtomicU32,
}

impl Limits {
    pub(crate) fn new(options: &LimitOptions) -> Self {
        let by_address =
            |rate: Option<Rate>| rate.map(|rate| Limiter::new(rate, IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        let by_name = |rate: Option<Rate>| rate.map(|rate| Limiter::new(rate, String::new()));
        Self {
            callers: options.caller.map(|rate| Limiter::new(rate, Uuid::nil())),
            in_flight: KeyedConcurrencyLimit::new(options.caller_in_flight_max),
            addresses: by_address(options.address),
            failures: by_address(options.failures),
            account_failures: by_name(options.account_failures),
            protocol_addresses: by_address(options.protocol_address),
            credential_callers: by_name(options.credential_caller),
            credential_addresses: by_address(options.credential_address),
            tokens: NamedLimiters::new(&options.tokens),
            roles: NamedLimiters::new(&options.roles),
            sign_in: SignInLimits::new(&options.sign_in),
            teams: RwLock::default(),
            servers: AtomicU32::new(1),
        }
    }

    /// Sets the number of running servers, this one included.
    pub(crate) fn set_servers(&self, count: u32) {
        self.servers.store(count.max(1), Ordering::Relaxed);
    }

    /// Returns the limits of password logins.
    pub(crate) fn sign_in(&self) -> &SignInLimits {
        &self.sign_in
    }

    /// Returns the number of running servers.
    #[cfg(test)]
    pub(crate) fn servers(&self) -> u32 {
        self.servers.load(Ordering::Relaxed)
    }

    /// Counts a request of this caller for each of its teams that has a rate. This server's share of a rate is rounded up.
    pub(crate) fn teams(&self, caller: &Caller) -> Result<(), Problem> {
        let ownership = caller.ownership();
        if !ownership.has_request_quota() {
            return Ok(());
        }
        for team in caller.teams() {
            if let Some(per_second) = ownership.quota(team).requests_per_second {
                let share = per_second.div_ceil(self.servers.load(Ordering::Relaxed));
                self.team(team, share).take(&0).map_err(Problem::too_many)?;
            }
        }
        Ok(())
    }

    /// Returns the limiter of a team. Creates a limiter if the team has none, or if `per_second` has changed.
    fn team(&self, team: &str, per_second: u32) -> Arc<Limiter<u8>> {
        if let Some((rate, limiter)) = self.teams.read().get(team)
            && *rate == per_second
        {
            return Arc::clone(limiter);
        }
        let limiter = Arc::new(Limiter::new(Rate::new(per_second, per_second), 0));
        self.teams.write().insert(team.to_owned(), (per_second, Arc::clone(&limiter)));
        limiter
    }

    /// Counts a request from this address.
    pub(crate) fn address(&self, group: ProtocolGroup, address: IpAddr) -> Result<(), Problem> {
        let limiter = match group {
            ProtocolGroup::Api => &self.addresses,
            ProtocolGroup::Protocols => &self.protocol_addresses,
            ProtocolGroup::Credentials => &self.credential_addresses,
        };
        check(limiter.as_ref(), &inbound::network(address)).map(drop)
    }

    /// Counts a request of this caller to the API.
    pub(crate) fn caller(&self, caller: &Caller) -> Result<Option<RemainingQuota>, Problem> {
        check(self.caller_limiter(caller).or(self.callers.as_ref()), &caller.id())
    }

    /// Counts a concurrent request of this caller to the API, until the returned value is dropped.
    pub(crate) fn begin(&self, caller: &Caller) -> Result<KeyedPermit<Uuid>, Problem> {
        self.in_flight.take(caller.id()).ok_or_else(|| Problem::too_many(BUSY_RETRY_SECONDS))
    }

    /// Counts a request of this caller to the credential store. `actor` is the caller's name in the store.
    pub(crate) fn credential_caller(&self, caller: Option<&Caller>, actor: &str) -> Result<(), Problem> {
        match caller.and_then(|caller| Some((self.caller_limiter(caller)?, caller.id()))) {
            Some((limiter, id)) => check(Some(limiter), &id).map(drop),
            None => check(self.credential_callers.as_ref(), actor).map(drop),
        }
    }

    /// Returns the limiter with the caller's own rate: the rate of the token's name, or else the highest rate of its roles.
    fn caller_limiter(&self, caller: &Caller) -> Option<&Limiter<Uuid>> {
        let name =
            (caller.kind() == CallerKind::Token).then(|| caller.actor().strip_prefix("token:")).flatten();
        let of_token = name.and_then(|name| self.tokens.first(|token| token == name));
        of_token.or_else(|| self.roles.first(|role| caller.has_role(role)))
    }

    /// Counts a failed login. Returns an error if the address or the named account has reached its limit.
    pub(crate) fn failure(&self, address: IpAddr, account: Option<&str>) -> Result<(), Problem> {
        let of_address = check(self.failures.as_ref(), &inbound::network(address));
        let account = account.map(|account| account.get(..ACCOUNT_MAX).unwrap_or(account));
        let of_account = account.map(|account| check(self.account_failures.as_ref(), account)).transpose();
        of_address.and(of_account).map(drop)
    }

    /// Removes idle keys.
    pub(crate) fn forget_idle(&self) {
        self.sign_in.forget_idle();
        let caller_limiter = self.tokens.0.iter().chain(&self.roles.0).map(|(_, limiter)| limiter);
        self.callers.iter().chain(caller_limiter).for_each(Limiter::forget_idle);
        let by_address =
            [&self.addresses, &self.failures, &self.protocol_addresses, &self.credential_addresses];
        by_address.into_iter().flatten().for_each(Limiter::forget_idle);
        [&self.account_failures, &self.credential_callers]
            .into_iter()
            .flatten()
            .for_each(Limiter::forget_idle);
    }
}

fn check<K, Q>(limiter: Option<&Limiter<K>>, key: &Q) -> Result<Option<RemainingQuota>, Problem>
where
    K: Hash + Eq + Clone,
    Q: ToOwned<Owned = K> + ?Sized,
{
    limiter.map(|limiter| limiter.take(&key.to_owned())).transpose().map_err(Problem::too_many)
}

#[cfg(test)]
mod tests {
    use authority::teams::{Ownership, Quota};

    use super::*;
    use crate::access::{Granted, Permissions};

    fn limits(rate: Rate) -> Limits {
        Limits::new(&LimitOptions { caller: Some(rate), ..LimitOptions::unlimited() })
    }

    fn caller(name: &str, id: u128) -> Caller {
        Caller::new(format!("token:{name}"), CallerKind::Token, Uuid::from_u128(id), Vec::new())
    }

    #[test]
    fn requests_beyond_the_burst_are_rejected_per_caller() {
        let limits = limits(Rate::new(1, 3));
        let (a, b) = (caller("a", 1), caller("b", 2));
        let remaining_quota: Vec<_> = (0..3).map(|_| limits.caller(&a).unwrap().unwrap().remaining).collect();
        assert_eq!(remaining_quota, [2, 1, 0]);
        let problem = limits.caller(&a).unwrap_err();
        assert_eq!(problem.status(), 429);
        assert!(limits.caller(&b).is_ok(), "others are not held up");
        for _ in 0..1_000 {
            assert!(limits.failure(IpAddr::from([127, 0, 0, 1]), Some("a")).is_ok(), "switched off");
        }
    }

    #[test]
    fn token_and_role_rates_override_the_default_rate() {
        let limits = Limits::new(&LimitOptions {
            caller: Some(Rate::new(1, 1)),
            credential_caller: Some(Rate::new(1, 1)),
            tokens: vec![("busy".to_owned(), Rate::new(10_000, 50))],
            roles: vec![("slow".to_owned(), Rate::new(1, 2)), ("fast".to_owned(), Rate::new(100, 10))],
            ..LimitOptions::unlimited()
        });
        let with_roles = |id, roles: &[&str]| {
            caller("x", id).with_roles(roles.iter().map(|role| (*role).to_owned()).collect())
        };
        let table = [
            (caller("busy", 1), 50),
            (caller("busy", 2).with_roles(vec!["slow".to_owned()]), 50),
            (caller("x", 3), 1),
            (with_roles(4, &["slow"]), 2),
            (with_roles(5, &["slow", "fast"]), 10),
        ];
        for (caller, burst) in table {
            let at_once = (0..200).take_while(|_| limits.caller(&caller).is_ok()).count();
            assert_eq!(at_once, burst, "{}", caller.actor());
            // The caller's own rate applies at the credential store too. Callers without a rate of their own have the store's rate.
            assert_eq!(
                limits.credential_caller(Some(&caller), &format!("uaa-client:{burst}")).is_err(),
                burst > 1
            );
        }
        assert!(limits.credential_caller(None, "mtls-app:1").is_ok());
        assert!(limits.credential_caller(None, "mtls-app:1").is_err());
        assert!(limits.credential_caller(None, "mtls-app:2").is_ok());
    }

    #[test]
    fn callers_of_a_team_share_its_request_quota() {
        let quota = |team: &str, rate| {
            (team.to_owned(), Quota { requests_per_second: Some(rate), ..Quota::default() })
        };
        let ownership = Arc::new(Ownership::new([], [quota("a", 3), quota("b", 50)]));
        let of = |id, scope: &str| {
            let scope = scope.parse().unwrap();
            let granted = vec![Granted { permissions: Permissions::all(), scope }];
            let caller = Caller::new("token:x".to_owned(), CallerKind::Token, Uuid::from_u128(id), granted);
            caller.with_ownership(Arc::clone(&ownership))
        };
        let limits = Limits::new(&LimitOptions::unlimited());
        let (one, two) = (of(1, "team:a"), of(2, "team:a,profile:web"));
        let passed = (0..100).filter(|n| limits.teams(if n % 2 == 0 { &one } else { &two }).is_ok()).count();
        assert_eq!(passed, 3);
        let refused = limits.teams(&one).unwrap_err();
        assert_eq!(refused.status(), 429);
        for other in [of(3, "team:b"), of(4, "any"), of(5, "profile:web")] {
            assert!((0..40).all(|_| limits.teams(&other).is_ok()), "{other:?}");
        }
    }

    #[test]
    fn account_failures_are_limited_across_addresses() {
        let limits = Limits::new(&LimitOptions {
            account_failures: Some(Rate::new(1, 3)),
            failures: Some(Rate::new(1, 100)),
            ..LimitOptions::unlimited()
        });
        let from = |host: u8, account| limits.failure(IpAddr::from([192, 0, 2, host]), account).is_ok();
        let allowed = (0..200).filter(|&host| from(host, Some("root"))).count();
        assert_eq!(allowed, 3);
        assert!(from(1, Some("other")) && from(1, None));
    }

    #[test]
    fn concurrent_requests_per_caller_are_limited() {
        let limits = Limits::new(&LimitOptions { caller_in_flight_max: 2, ..LimitOptions::unlimited() });
        let one = caller("one", 1);
        let in_flight = [limits.begin(&one).unwrap(), limits.begin(&one).unwrap()];
        assert_eq!(limits.begin(&one).unwrap_err().status(), 429);
        assert!(limits.begin(&caller("other", 2)).is_ok());
        drop(in_flight);
        assert!(limits.begin(&one).is_ok());
    }

    #[test]
    fn rate_limit_headers_report_the_remaining_requests() {
        let mut headers = HeaderMap::new();
        let limits = limits(Rate::new(2, 10));
        limits.caller(&caller("a", 0)).unwrap().unwrap().write_headers(&mut headers);
        assert_eq!(headers[LIMIT], "10");
        assert_eq!(headers[REMAINING], "9");
        assert_eq!(headers[RESET], "1");
    }
}
