//! Posts signed webhooks to services of operators, with cached HTTP clients: see [`Posts::post`].

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::Secret;
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::cache::ClientCache;
use crate::client::{HttpClient, Request};
use crate::config::HttpConfig;
use crate::error::HttpError;
use crate::signature::SigningKey;

/// A service that receives webhooks.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// Revision of the configuration. Every change sets a new revision. Clients are cached by revision.
    pub revision: Uuid,
    /// URL that receives the posts.
    pub url: &'a str,
    /// The signing key: at least 16 bytes.
    pub secret: &'a Secret,
    /// Certificates to trust for this service, in PEM. They replace the system's roots.
    pub roots: Option<&'a str>,
}

/// Sender of signed JSON webhooks, with the headers `x-bulla-timestamp` and `x-bulla-signature`. Cheap to clone.
#[derive(Clone)]
pub struct Posts {
    resolver: Resolver,
    guard: Guard,
    clients: Arc<Mutex<ClientCache<HttpClient>>>,
}

impl fmt::Debug for Posts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posts").finish_non_exhaustive()
    }
}

impl Posts {
    /// Creates a sender that resolves names with this resolver and checks addresses against the guard.
    #[must_use]
    pub fn new(resolver: Resolver, guard: Guard) -> Self {
        Self { resolver, guard, clients: Arc::default() }
    }

    /// Posts a body, and returns once the service has responded with a 2xx status.
    ///
    /// # Errors
    /// The reason of the failure, without secrets.
    pub async fn post(&self, service: Service<'_>, body: Vec<u8>, limit: Duration) -> Result<(), String> {
        let http = self.client(&service).map_err(|error| error.to_string())?;
        let key = SigningKey::new(service.secret).map_err(|error| error.to_string())?;
        let request = key.sign(Request::post(service.url, "application/json", body));
        let reply = http.send(request, Instant::now() + limit, "waiting for the service").await;
        let reply = reply.map_err(|error| error.to_string())?;
        if reply.status.is_success() {
            return Ok(());
        }
        Err(format!("it answered {}: {}", reply.status, reply.excerpt()))
    }

    fn client(&self, service: &Service<'_>) -> Result<HttpClient, HttpError> {
        let of = (service.revision, 0);
        if let Some(known) = self.clients.lock().get(of) {
            return Ok(known);
        }
        let roots = service.roots.map(str::to_owned);
        let config = HttpConfig { roots, guard: self.guard, ..HttpConfig::default() };
        let client = HttpClient::new(&config, &self.resolver)?;
        self.clients.lock().put(of, client.clone());
        Ok(client)
    }
}
