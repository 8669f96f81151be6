//! Leaves like the server's own certificate.
//!
//! Its server is spoken to before the client is shown anything, by the way that requests go, and that connection is kept for the
//! first of them. What it showed is remembered for a while for all clients, so that many of them cost one such look. A server that
//! is not reached or not believed is no reason to end the client's handshake: it is shown a leaf like any other, and its requests
//! are told what is wrong.

use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use http_relay::client::Client;
use http_relay::clock::now;
use http_relay::target::{Origin, Target};
use http_relay::upstream::{NoConnection, Upstreams};
use x509::HostOrIp;

use super::metrics::ProxyMetrics;
use super::options::Options;
use crate::certificate_store::{LOOKS_PER_NAME, NewNameLimit, RateLimitKey, TooManyNames};
use crate::mint::{Likeness, NoLikeness, VALIDITY_MIN};

/// How long it counts what a server showed: so late another certificate of its is seen.
const SEEN_FOR: Duration = Duration::from_secs(300);
/// How long it counts that a server was not reached, or not believed.
const UNREACHED_FOR: Duration = Duration::from_secs(5);
/// Bytes of what is remembered: some 20,000 servers of usual certificates. What was asked for the longest ago goes first.
const OCTETS_MAX: u64 = 32 << 20;
/// Bytes of an entry beside its likeness: the cache's own nodes, and the key.
const ENTRY_OCTETS: usize = 512;

/// What a client is shown in place of a leaf like any other.
#[derive(Clone)]
pub(super) struct Mirrored {
    pub(super) likeness: Arc<Likeness>,
    /// Whether the server speaks HTTP/2.
    pub(super) http2: bool,
}

/// Why a leaf is like any other.
#[derive(Clone, Debug, thiserror::Error)]
enum NotMirrored {
    #[error("{0}")]
    Unreached(Arc<NoConnection>),
    #[error("it showed no certificate")]
    Nothing,
    #[error(transparent)]
    Unlike(#[from] NoLikeness),
    #[error(transparent)]
    TooMany(#[from] TooManyNames),
}

impl NotMirrored {
    fn lifetime(&self) -> Duration {
        match self {
            Self::Unreached(_) => UNREACHED_FOR,
            Self::Nothing | Self::Unlike(_) => SEEN_FOR,
            // The next client may.
            Self::TooMany(_) => Duration::ZERO,
        }
    }

    fn outcome(&self) -> &'static str {
        match self {
            Self::Unreached(_) => "unreached",
            Self::Nothing | Self::Unlike(_) => "unlike",
            Self::TooMany(_) => "refused",
        }
    }
}

/// What servers showed. Bounded in bytes and time.
pub(super) struct Mirrors {
    seen: Cache<Arc<Origin>, Mirrored, NotMirrored>,
    /// Who has servers looked at: names come from clients, and hosts of one certificate are no new names.
    newcomers: Arc<NewNameLimit>,
    upstreams: Upstreams,
    metrics: ProxyMetrics,
}

impl Mirrors {
    pub(super) fn new(options: &Options, upstreams: Upstreams, metrics: ProxyMetrics) -> Self {
        let looks = |names: u32| names.saturating_mul(LOOKS_PER_NAME);
        let newcomers =
            NewNameLimit::new(looks(options.new_names_per_minute), looks(options.new_names_burst));
        let weigh = |origin: &Arc<Origin>, seen: &Result<Mirrored, NotMirrored>| {
            let names = [Some(&origin.target.name), origin.server.as_ref()];
            let names = names.into_iter().flatten().map(|name| name.dns().map_or(0, str::len)).sum::<usize>();
            let octets = ENTRY_OCTETS + names + seen.as_ref().map_or(0, |seen| seen.likeness.octets());
            u32::try_from(octets).unwrap_or(u32::MAX)
        };
        Self {
            seen: Cache::with_weight(OCTETS_MAX, weigh),
            newcomers: Arc::new(newcomers),
            upstreams,
            metrics,
        }
    }

    /// What stands behind `target` as `name`, for clients that speak HTTP/2 or do not. None when there is nothing to be like.
    /// Takes as long as connecting to an upstream may.
    /// `client` is who asks, and is charged for a look.
    pub(super) async fn of(
        &self,
        target: &Target,
        name: &HostOrIp,
        http2: bool,
        client: &Client,
    ) -> Option<Mirrored> {
        let origin = Arc::new(Origin {
            target: target.clone(),
            server: Some(name.clone()),
            tls: None,
            http2,
            in_full: false,
            may_be_here: client.is_here(),
        });
        // Names that nobody vouched for are not vouched for here.
        if !self.upstreams.verifies(&origin) {
            return None;
        }
        let (upstreams, metrics) = (self.upstreams.clone(), self.metrics.clone());
        let (asked, name, newcomers) = (Arc::clone(&origin), name.clone(), Arc::clone(&self.newcomers));
        let charged = RateLimitKey::from(client);
        let look = move || async move {
            let looked = match newcomers.admit(&charged, &name) {
                Ok(()) => look(&upstreams, &asked, &name).await,
                Err(refused) => Err(refused.into()),
            };
            metrics.mirror_look(looked.as_ref().map_or_else(NotMirrored::outcome, |_| "mirrored"));
            looked.map_err(|error| {
                tracing::info!(target = %asked.target, %name, %error, "the leaf is not like the server's certificate");
                Failed { lifetime: error.lifetime(), error }
            })
        };
        self.seen.fetch(&origin, look).await.ok()
    }
}

async fn look(
    upstreams: &Upstreams,
    origin: &Origin,
    name: &HostOrIp,
) -> Result<Fresh<Mirrored>, NotMirrored> {
    let introduced = upstreams.probe(origin, name).await;
    let introduced = introduced.map_err(|error| NotMirrored::Unreached(Arc::new(error)))?;
    let shown = introduced.certificate.ok_or(NotMirrored::Nothing)?;
    let now = now();
    let likeness = Likeness::of(&shown, name, now)?;
    // A leaf like it has to hold for a while.
    let left =
        Duration::from_secs(likeness.not_after().since(now).max(0) as u64).saturating_sub(VALIDITY_MIN);
    let seen = Mirrored { likeness: Arc::new(likeness), http2: introduced.http2 };
    Ok(Fresh { value: seen, lifetime: left.min(SEEN_FOR) })
}
