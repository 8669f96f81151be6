//! A source that could not be prepared: its listing fails, and other sources are still listed.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use outbound::Deadline;

use crate::api_error::chain;
use crate::error::SourceError;
use crate::provider::Provider;
use crate::sink::Sink;
use crate::source::CloudSource;

/// A source that always fails, in place of a source without credentials or with invalid settings.
pub struct Unavailable {
    name: Arc<str>,
    provider: Provider,
    why: String,
}

impl Unavailable {
    /// Creates a replacement for the source `name` that always fails with `error`.
    #[must_use]
    pub fn new(name: Arc<str>, provider: Provider, error: &SourceError) -> Self {
        Self { name, provider, why: chain(error) }
    }
}

impl CloudSource for Unavailable {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn provider(&self) -> Provider {
        self.provider
    }

    fn list<'a>(&'a self, _: &'a Sink, _: Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        let why = self.why.clone();
        async move { Err(SourceError::Configuration(why)) }.boxed()
    }
}
