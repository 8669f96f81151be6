//! Rate limit of new names: names that a client has minted and that nobody had before.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use http_relay::client::Client;
use parking_lot::Mutex;
use tokio::time::Instant;
use x509::HostOrIp;

/// Clients that are remembered; of those, the ones that asked the longest ago are forgotten.
const CLIENTS_MAX: u64 = 65_536;

/// Names a client may ask for, to each that it may have minted: the others are found with the second level, and not charged
/// for as new, but cost a trip.
pub(crate) const LOOKS_PER_NAME: u32 = 10;

/// Whose rate limit counts: a user's or, where that is not known, an address (of IPv6, its network of 64 bits, as one machine
/// has all of it).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RateLimitKey {
    /// By name.
    User(Arc<str>),
    /// As [`NewNameLimit`] tells addresses apart.
    Address(IpAddr),
}

impl From<IpAddr> for RateLimitKey {
    fn from(address: IpAddr) -> Self {
        Self::Address(NewNameLimit::of(address))
    }
}

impl From<&Client> for RateLimitKey {
    fn from(client: &Client) -> Self {
        match &client.user {
            Some(user) => Self::User(Arc::clone(user)),
            None => Self::from(client.ip()),
        }
    }
}

impl fmt::Display for RateLimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "{user}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Refused, at once.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{client} asks for too many new names: {per_minute} a minute, {burst} at once")]
pub struct TooManyNames {
    /// Who asks.
    pub client: RateLimitKey,
    /// That are let in.
    pub per_minute: u32,
    /// That are let in at once.
    pub burst: u32,
}

/// A bucket for each client.
#[derive(Debug)]
pub struct NewNameLimit {
    per_minute: u32,
    burst: u32,
    buckets: BoundedMap<RateLimitKey, Arc<Mutex<Bucket>>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    looks: f64,
    at: Instant,
}

impl NewNameLimit {
    /// Of each client, `per_minute` names, and `burst` at once.
    #[must_use]
    pub fn new(per_minute: u32, burst: u32) -> Self {
        let refilled = Duration::from_secs(60 * u64::from(burst) / u64::from(per_minute.max(1)) + 60);
        let buckets = BoundedMap::builder(CLIENTS_MAX)
            .time_to_idle(refilled)
            // The default policy may refuse a newcomer, who would have a whole burst each time.
            .eviction(Eviction::LeastRecent)
            .build();
        Self { per_minute: per_minute.max(1), burst: burst.max(1), buckets }
    }

    /// The client that an address belongs to.
    pub(crate) fn of(address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
            four => four,
        }
    }

    /// # Errors
    /// [`TooManyNames`]
    pub(crate) fn admit(&self, client: &RateLimitKey, name: &HostOrIp) -> Result<(), TooManyNames> {
        let bucket = self.buckets.get_with_by_ref(client, || {
            Arc::new(Mutex::new(Bucket {
                left: f64::from(self.burst),
                looks: self.looks_max(),
                at: Instant::now(),
            }))
        });
        let mut bucket = bucket.lock();
        let now = Instant::now();
        let came = now.duration_since(bucket.at).as_secs_f64() * f64::from(self.per_minute) / 60.0;
        bucket.left = (bucket.left + came).min(f64::from(self.burst));
        bucket.looks = (bucket.looks + came * f64::from(LOOKS_PER_NAME)).min(self.looks_max());
        bucket.at = now;
        if bucket.left < 1.0 || bucket.looks < 1.0 {
            tracing::debug!(%client, %name, "too many new names");
            let client = client.clone();
            return Err(TooManyNames { client, per_minute: self.per_minute, burst: self.burst });
        }
        bucket.left -= 1.0;
        bucket.looks -= 1.0;
        Ok(())
    }

    /// The name was not new: the second level had it. The look stays charged for.
    pub(super) fn give_back(&self, client: &RateLimitKey) {
        if let Some(bucket) = self.buckets.get(client) {
            let mut bucket = bucket.lock();
            bucket.left = (bucket.left + 1.0).min(f64::from(self.burst));
        }
    }

    fn looks_max(&self) -> f64 {
        f64::from(self.burst) * f64::from(LOOKS_PER_NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_its_burst_and_then_its_rate_and_others_theirs() {
        let newcomers = NewNameLimit::new(60, 3);
        let name = HostOrIp::parse("a.example").unwrap();
        let of = |client: &str| {
            client.parse::<IpAddr>().map_or_else(|_| RateLimitKey::User(client.into()), RateLimitKey::from)
        };
        let admit = |client: &str| newcomers.admit(&of(client), &name).is_ok();
        assert!((0..3).all(|_| admit("2001:db8::1")));
        assert!(!admit("2001:db8::2"), "the same network");
        assert!(admit("2001:db8:0:1::1") && admit("10.0.0.1") && admit("alice"), "others");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(admit("2001:db8::3"));
        assert!(!admit("2001:db8::3"));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_were_not_new_are_given_back_up_to_ten_times_as_many() {
        let newcomers = NewNameLimit::new(1, 3);
        let name = HostOrIp::parse("a.example").unwrap();
        let client = RateLimitKey::from("10.0.0.1".parse::<IpAddr>().unwrap());
        for number in 0..30 {
            assert!(newcomers.admit(&client, &name).is_ok(), "{number}");
            newcomers.give_back(&client);
        }
        assert!(newcomers.admit(&client, &name).is_err(), "there is an end to looking, too");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(newcomers.admit(&client, &name).is_ok(), "ten a minute");
    }
}
