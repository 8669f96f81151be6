//! A URL that heads are posted to.

use std::time::Duration;

use callout::{Posts, Service};
use futures_util::future::BoxFuture;
use keys::Secret;
use uuid::Uuid;

use super::external::Witness;

/// Timeout of a POST request.
const LIMIT: Duration = Duration::from_secs(30);

/// A witness that posts each head to a URL. The requests are signed like requests to issuer webhooks, and pass the egress guard.
#[derive(Clone, Debug)]
pub struct WebhookWitness {
    /// Client for signed POST requests.
    pub posts: Posts,
    /// URL, `https://…`.
    pub url: String,
    /// Secret that signs the requests: at least 16 bytes.
    pub secret: Secret,
    /// PEM trust anchors for the webhook's server, instead of the system's.
    pub roots: Option<String>,
}

impl Witness for WebhookWitness {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>> {
        // The configuration does not change while the process runs.
        let revision = Uuid::nil();
        let service =
            Service { revision, url: &self.url, secret: &self.secret, roots: self.roots.as_deref() };
        Box::pin(self.posts.post(service, head.as_bytes().to_vec(), LIMIT))
    }
}
