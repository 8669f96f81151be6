//! Rate limit of new names: host names for which a client caused the first leaf.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http_relay::client::Client;
use outbound::rate::Rate;
use x509::HostOrIp;

use crate::client_buckets::ClientBuckets;

/// Lookups that a client may cause for each new name that it may mint. A name whose leaf is in the second level is not charged as
/// new, but costs a lookup.
pub(crate) const LOOKUPS_PER_NAME: u32 = 10;

/// Key of a rate limit: the user name or, if unknown, the address (for IPv6, the /64, because one machine may use all of it).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RateLimitKey {
    /// Name of the authenticated user.
    User(Arc<str>),
    /// A client network, as returned by [`inbound::network`].
    Address(IpAddr),
}

impl From<IpAddr> for RateLimitKey {
    fn from(address: IpAddr) -> Self {
        Self::Address(inbound::network(address))
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

/// The client has exceeded its rate limit of new names.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{client} requests too many new names: at most {per_minute} per minute, with a burst of {burst}")]
pub struct TooManyNames {
    /// User or address that has exceeded the limit.
    pub client: RateLimitKey,
    /// Permitted new names per minute.
    pub per_minute: u32,
    /// Permitted new names in a burst.
    pub burst: u32,
}

/// Rate limit with two token buckets for each client: for new names and for lookups.
#[derive(Debug)]
pub struct NewNameLimit {
    per_minute: u32,
    burst: u32,
    buckets: ClientBuckets<RateLimitKey, 2>,
}

impl NewNameLimit {
    /// Creates a limit of `per_minute` new names for each client, with bursts of up to `burst` names.
    #[must_use]
    pub fn new(per_minute: u32, burst: u32) -> Self {
        let (per_minute, burst) = (per_minute.max(1), burst.max(1));
        let lookups = |names: u32| names.saturating_mul(LOOKUPS_PER_NAME);
        let names = Rate::per_minute(per_minute).with_burst(burst);
        let lookups = Rate::per_minute(lookups(per_minute)).with_burst(lookups(burst));
        Self { per_minute, burst, buckets: ClientBuckets::new([names, lookups]) }
    }

    /// Charges a new name to a client.
    ///
    /// # Errors
    /// [`TooManyNames`]
    pub(crate) fn admit(&self, client: &RateLimitKey, name: &HostOrIp) -> Result<(), TooManyNames> {
        if self.buckets.take(client) {
            return Ok(());
        }
        tracing::debug!(%client, %name, "too many new names");
        Err(TooManyNames { client: client.clone(), per_minute: self.per_minute, burst: self.burst })
    }

    /// Refunds the charge for a new name whose leaf was found in the second level. The charge for the lookup stays.
    pub(super) fn give_back(&self, client: &RateLimitKey) {
        self.buckets.give_back(client);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_names_are_limited_per_client_by_burst_and_rate() {
        let name_limit = NewNameLimit::new(60, 3);
        let name = HostOrIp::parse("a.example").unwrap();
        let of = |client: &str| {
            client.parse::<IpAddr>().map_or_else(|_| RateLimitKey::User(client.into()), RateLimitKey::from)
        };
        let admit = |client: &str| name_limit.admit(&of(client), &name).is_ok();
        assert!((0..3).all(|_| admit("2001:db8::1")));
        assert!(!admit("2001:db8::2"), "the same network");
        assert!(admit("2001:db8:0:1::1") && admit("10.0.0.1") && admit("alice"), "others");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(admit("2001:db8::3"));
        assert!(!admit("2001:db8::3"));
    }

    #[tokio::test(start_paused = true)]
    async fn returned_tokens_allow_at_most_ten_times_the_burst() {
        let name_limit = NewNameLimit::new(1, 3);
        let name = HostOrIp::parse("a.example").unwrap();
        let client = RateLimitKey::from("10.0.0.1".parse::<IpAddr>().unwrap());
        for number in 0..30 {
            assert!(name_limit.admit(&client, &name).is_ok(), "{number}");
            name_limit.give_back(&client);
        }
        assert!(name_limit.admit(&client, &name).is_err(), "there is an end to looking, too");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(name_limit.admit(&client, &name).is_ok(), "ten a minute");
    }
}
