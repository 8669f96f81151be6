//! Rate limit of failed authentication attempts.

use std::net::IpAddr;

use inbound::{OriginLimit, Slots};
use outbound::rate::Rate;

use crate::client_buckets::ClientBuckets;

/// Maximum failed password attempts of a client in a burst.
const BURST: u32 = 20;
/// Maximum failed password attempts of a client per minute.
const PER_MINUTE: u32 = 20;

/// Maximum password checks of one client, queued or in progress.
const WAITING_OF_ONE_MAX: usize = 16;
/// Maximum password checks of all clients, queued or in progress.
const WAITING_MAX: usize = 256;

/// Returns the slots for password checks. Without a free slot, clients get a response that asks them to retry later.
pub(super) fn waiting() -> Slots {
    Slots::limited(WAITING_MAX, OriginLimit::PerNetwork(WAITING_OF_ONE_MAX))
}

/// Limit of failed attempts for each client (an IPv4 address, or an IPv6 /64).
#[derive(Clone, Debug)]
pub(super) struct FailedAttemptLimit(ClientBuckets<IpAddr, 1>);

impl FailedAttemptLimit {
    pub(super) fn new() -> Self {
        Self(ClientBuckets::new([Rate::per_minute(PER_MINUTE).with_burst(BURST)]))
    }

    /// Returns whether an attempt is permitted. The attempt counts as failed until [`Self::succeeded`].
    pub(super) fn begin(&self, client: IpAddr) -> bool {
        self.0.take(&inbound::network(client))
    }

    /// Returns whether an attempt would be permitted.
    pub(super) fn is_attempt_permitted(&self, client: IpAddr) -> bool {
        self.0.has_tokens(&inbound::network(client))
    }

    /// Records that the attempt succeeded, so that it does not count as failed.
    pub(super) fn succeeded(&self, client: IpAddr) {
        self.0.give_back(&inbound::network(client));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_attempts_are_limited_and_successful_ones_are_not() {
        let attempts = FailedAttemptLimit::new();
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..1_000 {
            assert!(attempts.begin(one));
            attempts.succeeded(one);
        }
        let failing = (0..1_000).filter(|_| attempts.begin(one)).count();
        assert_eq!(failing, BURST as usize);
        assert!(!attempts.is_attempt_permitted(one) && attempts.is_attempt_permitted(other));
        assert!(attempts.begin(other));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(attempts.is_attempt_permitted(one), "a look takes nothing");
        assert!(attempts.begin(one));
        assert!(!attempts.begin(one));
    }

    #[test]
    fn waiting_attempts_are_limited_per_client_and_in_total() {
        let waiting = waiting();
        let (one, other) = ("2001:db8::1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut waits: Vec<_> = (0..WAITING_OF_ONE_MAX).map(|_| waiting.take(Some(one)).unwrap()).collect();
        assert!(waiting.take(Some(one)).is_none() && waiting.take("2001:db8::2".parse().ok()).is_none());
        drop(waiting.take(Some(other)).unwrap());
        waits.pop();
        waits.extend(waiting.take(Some(one)));
        let more = (0..255).flat_map(|last| [last; WAITING_OF_ONE_MAX]);
        waits.extend(more.map_while(|last| waiting.take(Some([10, 0, 1, last].into()))));
        assert_eq!(waits.len(), WAITING_MAX);
        drop(waits);
        assert_eq!(waiting.in_use(), 0);
    }
}
