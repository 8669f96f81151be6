//! Clients that reject leaves, for example because of certificate pinning: their next connection to the host is tunneled.
//!
//! Any client could bypass the proxy by rejecting a leaf, so this feature is off by default.

use std::time::Duration;

use flight::{BoundedMap, Eviction};
use http_relay::client::Client;
use rustls::AlertDescription;
use tokio::time::Instant;
use x509::HostOrIp;

use super::tls::NotIntercepted;
use crate::certificate_store::RateLimitKey;

/// Maximum remembered pairs of client and host name; the oldest are forgotten first.
const REMEMBERED_MAX: u64 = 65_536;
/// Number of handshakes that a client must abort, without a TLS alert, to count as one rejection. A single aborted handshake does
/// not count, because a client may have other reasons to disconnect.
const ABORTS_MIN: u8 = 3;
/// Maximum time from the first of [`ABORTS_MIN`] aborted handshakes to the last one.
const ABORTS_WITHIN: Duration = Duration::from_secs(60);

/// Rejections of leaves by one client for one host: the sum of their weights, and the time of the first.
#[derive(Clone, Copy, Debug)]
struct Refused {
    times: u8,
    first: Instant,
}

impl Refused {
    fn is_enough(self) -> bool {
        self.times >= ABORTS_MIN
    }

    /// Adds a rejection with this `weight` to the count `before`. Starts a new count if `before` is too old.
    fn add(before: Option<Self>, weight: u8) -> Self {
        match before {
            Some(before) if before.is_enough() || before.first.elapsed() <= ABORTS_WITHIN => {
                Self { times: before.times.saturating_add(weight), ..before }
            }
            _ => Self { times: weight, first: Instant::now() },
        }
    }
}

/// Rejections of leaves, by client and host name.
pub(super) struct Refusals(Option<BoundedMap<(RateLimitKey, HostOrIp), Refused>>);

impl Refusals {
    /// Creates counters that are kept for `life`; `None` disables them.
    pub(super) fn new(life: Option<Duration>) -> Self {
        let remembering = |life| {
            let cache = BoundedMap::builder(REMEMBERED_MAX).time_to_live(life);
            cache.eviction(Eviction::LeastRecent).build()
        };
        Self(life.map(remembering))
    }

    /// Returns whether connections of `client` to `name` are tunneled.
    pub(super) fn has(&self, client: &Client, name: &HostOrIp) -> bool {
        let Some(remembered) = &self.0 else { return false };
        remembered.get(&key(client, name)).is_some_and(Refused::is_enough)
    }

    /// Records a failed handshake. Returns true if the next connection will be tunneled.
    pub(super) fn note(&self, client: &Client, name: &HostOrIp, error: &NotIntercepted) -> bool {
        let Some(remembered) = &self.0 else { return false };
        let NotIntercepted::Handshake(error) = error else { return false };
        let Some(weight) = weight(error) else { return false };
        let counted = remembered.upsert_with(key(client, name), |before| Refused::add(before, weight));
        counted.is_enough()
    }

    /// Records a successful handshake. Earlier aborted handshakes no longer count, unless they were enough to tunnel the next
    /// connection.
    pub(super) fn accepted(&self, client: &Client, name: &HostOrIp) {
        let Some(remembered) = &self.0 else { return };
        let key = key(client, name);
        if remembered.get(&key).is_some_and(|refused| !refused.is_enough()) {
            remembered.invalidate(&key);
        }
    }
}

fn key(client: &Client, name: &HostOrIp) -> (RateLimitKey, HostOrIp) {
    (RateLimitKey::from(client), name.clone())
}

/// Returns the weight of a failed handshake: [`ABORTS_MIN`] for a TLS alert that rejects the leaf, 1 for a closed connection,
/// `None` for any other failure.
fn weight(error: &std::io::Error) -> Option<u8> {
    use AlertDescription as Alert;
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate,
        )) => Some(ABORTS_MIN),
        Some(_) => None,
        None => {
            use std::io::ErrorKind as Kind;
            matches!(error.kind(), Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe)
                .then_some(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    fn broken_off() -> NotIntercepted {
        NotIntercepted::Handshake(Error::from(ErrorKind::UnexpectedEof))
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_handshakes_count_when_consecutive_within_a_minute() {
        let refusals = Refusals::new(Some(Duration::from_secs(3_600)));
        let client = Client::at("192.0.2.1:1".parse().unwrap());
        let name = HostOrIp::parse("a.example").unwrap();
        let note = || refusals.note(&client, &name, &broken_off());
        assert!(!note() && !note());
        refusals.accepted(&client, &name);
        assert!(!note() && !note(), "the one that was done stands between");
        tokio::time::advance(ABORTS_WITHIN + Duration::from_secs(1)).await;
        assert!(!note() && !note(), "those before are long ago");
        assert!(!refusals.has(&client, &name));
        assert!(note() && refusals.has(&client, &name));
        // Neither a successful handshake that began earlier nor the passing of time cancels the rejection.
        refusals.accepted(&client, &name);
        tokio::time::advance(ABORTS_WITHIN + Duration::from_secs(1)).await;
        assert!(note() && refusals.has(&client, &name));
    }

    #[test]
    fn unknown_ca_alert_counts_alone_and_other_failures_do_not() {
        let refusals = Refusals::new(Some(Duration::from_secs(3_600)));
        let client = Client::at("192.0.2.1:1".parse().unwrap());
        let alert = |alert| NotIntercepted::Handshake(Error::other(rustls::Error::AlertReceived(alert)));
        let name = HostOrIp::parse("a.example").unwrap();
        for _ in 0..10 {
            assert!(!refusals.note(&client, &name, &alert(AlertDescription::HandshakeFailure)));
            assert!(!refusals.note(&client, &name, &NotIntercepted::Late));
        }
        assert!(refusals.note(&client, &name, &alert(AlertDescription::UnknownCA)));
        assert!(!Refusals::new(None).note(&client, &name, &alert(AlertDescription::UnknownCA)));
    }
}
