//! The trait of accounts and clusters whose certificates can be listed.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use outbound::Deadline;

use crate::error::SourceError;
use crate::provider::Provider;
use crate::sink::Sink;

/// One account, subscription, project or cluster whose certificates can be listed.
pub trait CloudSource: Send + Sync {
    /// Returns the name of the source, the same in every run: `aws/123456789012`, `azure/SUBSCRIPTION`, `gcp/PROJECT`,
    /// `kubernetes/CLUSTER`. The key of its [`State`](crate::State).
    fn name(&self) -> &Arc<str>;

    /// Returns the provider whose API the source calls.
    fn provider(&self) -> Provider;

    /// Lists all certificates into `sink`, which has the previous state: unchanged certificates are not read again.
    ///
    /// A part (a region, a vault) that cannot be listed is reported to the sink; the other parts are still listed.
    ///
    /// # Errors
    /// [`SourceError`] when the list of parts cannot be read; then no certificate is reported as gone.
    ///
    /// # Cancellation
    /// Dropping the future drops the calls in progress; data already in the sink remains.
    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>>;
}
