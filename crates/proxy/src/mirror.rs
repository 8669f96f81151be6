//! Leaves that mirror the server's own certificate.
//!
//! The proxy connects to the server before the client's handshake, by the route that requests use. The connection is kept for the
//! first request. The server's certificate is cached for all clients, so that many connections cost one such probe. If the server
//! is unreachable or not trusted, the handshake continues with a normal leaf, and requests get an error page.

use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use http_relay::client::Client;
use http_relay::clock::now;
use http_relay::target::{Origin, Target};
use http_relay::upstream::{UpstreamConnectError, Upstreams};
use x509::HostOrIp;

use super::metrics::ProxyMetrics;
use super::options::Options;
use crate::certificate_store::{LOOKUPS_PER_NAME, NewNameLimit, RateLimitKey, TooManyNames};
use crate::mint::{MirrorTemplate, MirrorTemplateError, VALIDITY_MIN};

/// Time for which a server's certificate is cached, and maximum delay before the proxy detects a replaced certificate.
const SEEN_FOR: Duration = Duration::from_secs(300);
/// Time for which a failure to connect or verify is cached.
const UNREACHED_FOR: Duration = Duration::from_secs(5);
/// Maximum size of the cache in bytes, enough for about 20,000 servers. The least recently used entry is evicted first.
const BYTES_MAX: u64 = 32 << 20;
/// Bytes of an entry without its certificate: the cache's nodes and the key.
const ENTRY_BYTES: usize = 512;

/// Certificate properties and protocols of an upstream server that its mirrored leaf copies.
#[derive(Clone)]
pub(super) struct MirroredServer {
    pub(super) template: Arc<MirrorTemplate>,
    /// Whether the server supports HTTP/2.
    pub(super) http2: bool,
}

/// Reason why a certificate is not mirrored.
#[derive(Clone, Debug, thiserror::Error)]
enum MirrorError {
    #[error("{0}")]
    Unreached(Arc<UpstreamConnectError>),
    #[error("the server sent no certificate")]
    Nothing,
    #[error(transparent)]
    Unlike(#[from] MirrorTemplateError),
    #[error(transparent)]
    TooMany(#[from] TooManyNames),
}

impl MirrorError {
    fn lifetime(&self) -> Duration {
        match self {
            Self::Unreached(_) => UNREACHED_FOR,
            Self::Nothing | Self::Unlike(_) => SEEN_FOR,
            // Not cached: the next client may be within its limit.
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

/// Cache of the certificate properties of upstream servers, limited in bytes and time.
pub(super) struct MirrorCache {
    seen: Cache<Arc<Origin>, MirroredServer, MirrorError>,
    /// Rate limit of probes, separate from the limit of the certificate store: the store counts all hosts of a mirrored certificate
    /// as one name, but each host costs a probe.
    name_limit: Arc<NewNameLimit>,
    upstreams: Upstreams,
    metrics: ProxyMetrics,
}

impl MirrorCache {
    pub(super) fn new(options: &Options, upstreams: Upstreams, metrics: ProxyMetrics) -> Self {
        let lookups = |names: u32| names.saturating_mul(LOOKUPS_PER_NAME);
        let name_limit =
            NewNameLimit::new(lookups(options.new_names_per_minute), lookups(options.new_names_burst));
        let weigh = |origin: &Arc<Origin>, seen: &Result<MirroredServer, MirrorError>| {
            let names = [Some(&origin.target.name), origin.server.as_ref()];
            let names = names.into_iter().flatten().map(|name| name.dns().map_or(0, str::len)).sum::<usize>();
            let byte_size = ENTRY_BYTES + names + seen.as_ref().map_or(0, |seen| seen.template.byte_size());
            u32::try_from(byte_size).unwrap_or(u32::MAX)
        };
        Self {
            seen: Cache::with_weight_max(BYTES_MAX, weigh),
            name_limit: Arc::new(name_limit),
            upstreams,
            metrics,
        }
    }

    /// Returns the properties of the server at `target` for the host `name`; `None` if its certificate cannot be mirrored. `http2`:
    /// whether the client supports HTTP/2. On a cache miss, connects to the server, and charges the probe to `client`.
    pub(super) async fn of(
        &self,
        target: &Target,
        name: &HostOrIp,
        http2: bool,
        client: &Client,
    ) -> Option<MirroredServer> {
        let origin = Arc::new(Origin {
            target: target.clone(),
            server: Some(name.clone()),
            tls: None,
            http2,
            absolute_form: false,
            may_be_local: client.is_local(),
        });
        // Names of an unverified certificate must not be copied to a trusted leaf.
        if !self.upstreams.verifies(&origin) {
            return None;
        }
        let (upstreams, metrics) = (self.upstreams.clone(), self.metrics.clone());
        let (probed, name, name_limit) = (Arc::clone(&origin), name.clone(), Arc::clone(&self.name_limit));
        let charged = RateLimitKey::from(client);
        let probe = move || async move {
            let result = match name_limit.admit(&charged, &name) {
                Ok(()) => probe(&upstreams, &probed, &name).await,
                Err(refused) => Err(refused.into()),
            };
            metrics.count_mirror_probe(result.as_ref().map_or_else(MirrorError::outcome, |_| "mirrored"));
            result.map_err(|error| {
                tracing::info!(target = %probed.target, %name, %error, "cannot mirror the server's certificate");
                Failed { lifetime: error.lifetime(), error }
            })
        };
        self.seen.fetch(&origin, probe).await.ok()
    }
}

async fn probe(
    upstreams: &Upstreams,
    origin: &Origin,
    name: &HostOrIp,
) -> Result<Fresh<MirroredServer>, MirrorError> {
    let introduced = upstreams.probe(origin, name).await;
    let introduced = introduced.map_err(|error| MirrorError::Unreached(Arc::new(error)))?;
    let shown = introduced.certificate.ok_or(MirrorError::Nothing)?;
    let now = now();
    let template = MirrorTemplate::of(&shown, name, now)?;
    // The cached template is used only while a mirrored leaf would be valid for at least `VALIDITY_MIN`.
    let left =
        Duration::from_secs(template.not_after().since(now).max(0) as u64).saturating_sub(VALIDITY_MIN);
    let seen = MirroredServer { template: Arc::new(template), http2: introduced.http2 };
    Ok(Fresh { value: seen, lifetime: left.min(SEEN_FOR) })
}
