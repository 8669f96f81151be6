//! Single-flight lookup of the AWS resources that use a certificate. All tasks share one result.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, Shared, join_all};

use super::usage::Usage;

/// A lookup of uses that several tasks share. The first task that awaits the lookup performs it.
pub(super) type UsageLookup<'a> = Shared<BoxFuture<'a, Arc<Usage>>>;

pub(super) fn shared_lookup<'a>(found: impl Future<Output = Usage> + Send + 'a) -> UsageLookup<'a> {
    found.map(Arc::new).boxed().shared()
}

pub(super) async fn merged<'a>(all: Vec<UsageLookup<'a>>, more: Option<UsageLookup<'a>>) -> Usage {
    let mut usage = Usage::default();
    for found in join_all(all.into_iter().chain(more)).await {
        usage.add(&found);
    }
    usage
}
