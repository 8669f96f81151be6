//! The client of the credential store.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use flight::{Failed, Fresh};
use futures_util::FutureExt;
use futures_util::future::join_all;
use keys::Secret;
use tokio::task::unconstrained;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use zeroize::Zeroizing;

use crate::batch::{self, Batches};
use crate::cache::{Age, Cache, LookupResult};
use crate::events::{self, Changes};
use crate::limits::Limits;
use crate::login::Login;
use crate::transport::{Endpoint, Transport, TransportOptions, check_socket};
use crate::{Credential, Error, Name, Stats};

/// Interval of checks whether the stream of changes has begun, when an agent starts.
const FOLLOWED_POLL: Duration = Duration::from_millis(20);

/// Builder of a [`Client`]: address, trusted certificates, authentication and cache limits.
pub struct Builder {
    url: String,
    roots: Option<Vec<u8>>,
    identity: Option<Zeroizing<Vec<u8>>>,
    login: Login,
    limits: Limits,
}

impl Builder {
    /// Sets the trusted certificates (PEM), which replace the system's.
    #[must_use]
    pub fn roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Sets the client certificate: its chain and its key, PEM.
    #[must_use]
    pub fn identity(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Zeroizing::new(pem.into()));
        self
    }

    /// Authenticates with a bearer token without expiry.
    #[must_use]
    pub fn bearer(mut self, token: impl Into<String>) -> Self {
        self.login = Login::Bearer(Arc::new(Secret::new(token)));
        self
    }

    /// Logs in at `/oauth/token`. Concurrent requests share one login. The token is renewed before it expires, or when the store
    /// reports that it has expired.
    #[must_use]
    pub fn client_credentials(mut self, id: &str, secret: impl Into<String>) -> Self {
        self.login = Login::client(id, &Secret::new(secret));
        self
    }

    /// Sets the lifetimes and sizes of the cache.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Builds the client. It does not connect yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address, the roots or the certificate cannot be used.
    pub fn build(self) -> Result<Client, Error> {
        let endpoint = Endpoint::parse(&self.url)?;
        if let Endpoint::Socket(path) = &endpoint {
            check_socket(path)?;
        }
        let options = TransportOptions {
            endpoint,
            roots: self.roots,
            identity: self.identity,
            login: self.login,
            deadline: self.limits.deadline,
        };
        let stop = CancellationToken::new();
        Ok(Client(Arc::new(ClientState {
            transport: Arc::new(Transport::new(options)?),
            cache: Arc::new(Cache::new(self.limits)),
            flights: flight::Cache::with_entries_max(1),
            running: OnceLock::new(),
            changes: events::channel(),
            limits: self.limits,
            _stop: stop.clone().drop_guard(),
            stop,
        })))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &self.url)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A client of the credential store. Cheap to clone; all clones share connections, token and cache.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

/// Key of a shared request: its names, and the number of the last change of any of them. A request after a change therefore does
/// not share a request that was sent before the change.
type Flight = (Arc<[Name]>, u64);

struct ClientState {
    transport: Arc<Transport>,
    cache: Arc<Cache>,
    /// Requests in progress, which concurrent callers share. Caches nothing.
    flights: flight::Cache<Flight, LookupResult, Error>,
    /// The background tasks, started with the first request.
    running: OnceLock<Batches>,
    changes: events::Sender,
    limits: Limits,
    stop: CancellationToken,
    /// Guard that stops the background tasks when the last clone is dropped.
    _stop: DropGuard,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl Client {
    /// Builds a client of the store at `https://HOST:PORT`, or of an agent at `unix:PATH`.
    #[must_use]
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            roots: None,
            identity: None,
            login: Login::None,
            limits: Limits::default(),
        }
    }

    /// Returns the current credential of a name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; other errors if neither the store nor the cache has a result.
    #[crate::boxed]
    pub async fn get(&self, name: &str) -> Result<Arc<Credential>, Error> {
        let found = self.lookup(&[name]).await?;
        found.ok_or_else(|| Error::NotFound(name.to_owned()))
    }

    /// Returns the current credential of the first of these names that exists and may be read; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no name or too many names; other errors if neither the store nor the cache has a result.
    pub async fn lookup<S: AsRef<str>>(&self, names: &[S]) -> Result<Option<Arc<Credential>>, Error> {
        if names.is_empty() || names.len() > batch::NAMES_MAX {
            return Err(Error::invalid(format_args!("a lookup must have 1 to {} names", batch::NAMES_MAX)));
        }
        let names: Arc<[Name]> =
            names.iter().map(|name| Name::parse(name.as_ref())).collect::<Result<_, _>>()?;
        let counters = &self.0.transport.counters;
        let Some((cached, age)) = self.0.cache.first(&names) else {
            counters.misses.add();
            if let Some((error, false)) = self.0.transport.outage() {
                return Err(error);
            }
            return self.fetch(names).await;
        };
        match (age, self.0.transport.outage()) {
            (Age::Fresh, _) => {
                counters.hits.add();
                return Ok(cached);
            }
            (Age::Stale, None) | (Age::Stale | Age::Old, Some((_, true))) => self.renew(names),
            (Age::Stale | Age::Old, Some((_, false))) => {}
            (Age::Old, None) => match self.fetch(Arc::clone(&names)).await {
                // Serve the cached value, unless it was revoked or has expired in the meantime.
                Err(error) if error.is_unavailable() && self.0.cache.first(&names).is_some() => {
                    tracing::warn!(%error, "the credential store is unreachable: a credential is served from the cache");
                }
                answer => {
                    counters.misses.add();
                    return answer;
                }
            },
        }
        counters.stale_hits.add();
        Ok(cached)
    }

    /// Like [`Self::lookup`], for many lists in as few requests as possible. Each list has its own result.
    pub async fn lookup_many<S: AsRef<str>>(
        &self,
        lists: &[Vec<S>],
    ) -> Vec<Result<Option<Arc<Credential>>, Error>> {
        let gathering = self.batches().gather().await;
        let mut lookups = join_all(lists.iter().map(|names| self.lookup(names)));
        // The first poll queues every miss. Tokio's cooperative budget would interrupt it.
        let first = unconstrained(poll_fn(|context| Poll::Ready(lookups.poll_unpin(context)))).await;
        drop(gathering);
        match first {
            Poll::Ready(found) => found,
            Poll::Pending => lookups.await,
        }
    }

    /// Subscribes to changes from now on. Starts the stream of changes, unless it is disabled.
    #[must_use]
    pub fn changes(&self) -> Changes {
        // Subscribe before the stream starts, so that its first change is not missed.
        let changes = self.0.changes.subscribe();
        self.batches();
        changes
    }

    /// Marks the current value of a name as doubtful, because a server rejected it. The next lookup reads it from the store, if the
    /// store responds.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name.
    pub fn doubt(&self, name: &str) -> Result<(), Error> {
        self.record_change(Some(Name::parse(name)?));
        Ok(())
    }

    /// Returns the counters of connections, requests, logins, cache lookups and changes since the client was built.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.transport.counters.snapshot()
    }

    /// Returns the lifetimes and sizes of the cache.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Starts the stream of changes. Returns once it has begun, or after the timeout `most`.
    pub(crate) async fn wait_until_following(&self, most: Duration) {
        self.batches();
        let followed = async {
            while !self.0.cache.is_followed() {
                tokio::time::sleep(FOLLOWED_POLL).await;
            }
        };
        if self.0.limits.follow && timeout(most, followed).await.is_err() {
            tracing::warn!(
                "the credential store does not send changes yet: credentials are refreshed when they expire from the cache"
            );
        }
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.0.cache
    }

    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.0.transport
    }

    /// Records that a name was changed through this client, and invalidates it without waiting for the stream of changes.
    pub(crate) fn changed(&self, name: Option<Name>) {
        events::notify(&self.0.cache, &self.0.changes, name, &reread(Arc::downgrade(&self.0)));
    }

    /// Records that a name may have been changed through this client: the response to the change is missing.
    pub(crate) fn record_change(&self, name: Option<Name>) {
        events::doubt(&self.0.cache, &self.0.changes, name);
    }

    /// Returns the background tasks. They start at the first call, because a client may be built before a runtime exists.
    fn batches(&self) -> &Batches {
        self.0.running.get_or_init(|| {
            let (transport, cache) = (Arc::clone(&self.0.transport), Arc::clone(&self.0.cache));
            if self.0.limits.follow {
                let (changes, reread) = (self.0.changes.clone(), reread(Arc::downgrade(&self.0)));
                let following = events::follow(Arc::clone(&transport), Arc::clone(&cache), changes, reread);
                let stop = self.0.stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(following).await });
            }
            Batches::start(transport, cache)
        })
    }

    /// Reads from the store, once for concurrent requests of the same names.
    async fn fetch(&self, names: Arc<[Name]>) -> Result<LookupResult, Error> {
        let batches = self.batches().clone();
        let (requested, cache) = (Arc::clone(&names), Arc::clone(&self.0.cache));
        let make = move || async move {
            // Another request may have filled the cache in the meantime.
            if let Some((value, Age::Fresh)) = cache.first(&requested) {
                return Ok(Fresh { value, lifetime: Duration::ZERO });
            }
            // The lifetime is zero: waiting callers share this result, and later ones use the cache.
            match batches.lookup(requested).await {
                Ok(value) => Ok(Fresh { value, lifetime: Duration::ZERO }),
                Err(error) => Err(Failed { error, lifetime: Duration::ZERO }),
            }
        };
        // The deadline includes the time in the queue.
        let most = self.0.limits.deadline;
        let timeout_error = || Error::Unavailable(format!("no response within {most:?}"));
        let flight = (Arc::clone(&names), self.0.cache.last_change(&names));
        timeout(most, self.0.flights.fetch(&flight, make)).await.unwrap_or_else(|_| Err(timeout_error()))
    }

    /// Renews entries in the background.
    fn renew(&self, names: Arc<[Name]>) {
        if !self.0.cache.begin_refresh(&names) {
            return;
        }
        let client = self.clone();
        tokio::spawn(async move {
            let renewed = client.fetch(Arc::clone(&names)).await;
            if let Err(error) = renewed {
                tracing::debug!(%error, "cannot refresh a credential");
            }
            client.0.cache.end_refresh(&names);
        });
    }
}

/// Reads a name again in the background, as long as a client exists.
fn reread(client: Weak<ClientState>) -> impl Fn(Name) {
    move |name| {
        let Some(inner) = client.upgrade() else { return };
        tokio::spawn(async move {
            let client = Client(inner);
            match client.fetch(Arc::from([name.clone()])).await {
                Ok(_) => client.0.cache.mark_unread(&name),
                Err(error) => tracing::debug!(%error, "cannot query the changes"),
            }
        });
    }
}
