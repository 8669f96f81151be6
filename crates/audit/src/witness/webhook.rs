//! A URL that heads are posted to.

use std::time::Duration;

use callout::{Posts, Service};
use futures_util::future::BoxFuture;
use keys::Secret;
use uuid::Uuid;

use super::place::Witness;

/// How long a post may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Posts each head, signed as webhooks of issuers are, through the guard over destinations.
#[derive(Clone, Debug)]
pub struct WebhookWitness {
    /// Posts.
    pub posts: Posts,
    /// Where, `https://…`.
    pub url: String,
    /// What signs the posts: at least 16 bytes.
    pub secret: Secret,
    /// Certificates to trust in place of the system's, PEM.
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
