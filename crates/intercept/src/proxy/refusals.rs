//! Clients that refuse leaves, as those do which pin certificates: what they refused is passed on to them the next time.
//!
//! Whoever wants to get past the proxy unseen only needs to refuse, so this is done where it is asked for alone.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustls::AlertDescription;

use super::client::Client;
use super::tls::NotIntercepted;
use crate::certificate_store::Newcomers;
use crate::mint::LeafName;

/// Names of clients that are remembered; those refused the longest ago are forgotten.
const REMEMBERED_MAX: u64 = 65_536;
/// Handshakes that end without a word, before that is a refusal: a client may have other reasons to go.
const BROKEN_OFF: u8 = 3;

/// A user or, where that is not known, an address (of IPv6, its network of 64 bits).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Who {
    User(Arc<str>),
    Address(IpAddr),
}

/// Who refused what.
pub(super) struct Refusals(Option<Cache<(Who, LeafName), u8>>);

impl Refusals {
    /// Remembered for `life`; nothing is when there is none.
    pub(super) fn new(life: Option<Duration>) -> Self {
        let remembering = |life| {
            let cache = Cache::builder().max_capacity(REMEMBERED_MAX).time_to_live(life);
            cache.eviction_policy(EvictionPolicy::lru()).build()
        };
        Self(life.map(remembering))
    }

    /// Whether `client` is passed on to `name`.
    pub(super) fn has(&self, client: &Client, name: &LeafName) -> bool {
        let Some(remembered) = &self.0 else { return false };
        remembered.get(&key(client, name)).is_some_and(|times| times >= BROKEN_OFF)
    }

    /// A handshake failed. True when the next connection is passed on.
    pub(super) fn note(&self, client: &Client, name: &LeafName, error: &NotIntercepted) -> bool {
        let Some(remembered) = &self.0 else { return false };
        let NotIntercepted::Handshake(error) = error else { return false };
        let Some(weight) = weight(error) else { return false };
        let counted = remembered
            .entry(key(client, name))
            .and_upsert_with(|before| before.map_or(0, |entry| entry.into_value()).saturating_add(weight));
        counted.into_value() >= BROKEN_OFF
    }
}

fn key(client: &Client, name: &LeafName) -> (Who, LeafName) {
    let who = match &client.user {
        Some(user) => Who::User(Arc::clone(user)),
        None => Who::Address(Newcomers::of(client.ip())),
    };
    (who, name.clone())
}

/// How much a failure says that the leaf was not wanted.
fn weight(error: &std::io::Error) -> Option<u8> {
    use AlertDescription as Alert;
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate,
        )) => Some(BROKEN_OFF),
        Some(_) => None,
        None => {
            use std::io::ErrorKind as Kind;
            matches!(error.kind(), Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe)
                .then_some(1)
        }
    }
}
