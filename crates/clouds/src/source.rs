//! What every source can do: list its certificates.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use outbound::Deadline;

use crate::error::SourceError;
use crate::provider::Provider;
use crate::sink::Sink;

/// One account, subscription, project or cluster.
pub trait CloudSource: Send + Sync {
    /// Its name, the same in every run: `aws/123456789012`, `azure/SUBSCRIPTION`, `gcp/PROJECT`, `kubernetes/CLUSTER`.
    /// The key of its [`State`](crate::State).
    fn name(&self) -> &Arc<str>;

    /// The provider.
    fn provider(&self) -> Provider;

    /// Lists everything into `sink`, which knows what was there before: what is unchanged is not read again.
    ///
    /// A part (a region, a vault) that cannot be listed is told to the sink and does not keep the others from being
    /// listed.
    ///
    /// # Errors
    /// [`SourceError`] when not even the parts could be found out: then nothing is taken to be gone.
    ///
    /// # Cancellation
    /// Dropping the future drops the calls under way; what the sink was told stays.
    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>>;
}
