//! Notifications of held requests to a service of the operator: a signed webhook without headers, query values and bodies.

use std::time::Duration;

use callout::{Posts, Service};
use cli::exit::{Exit, Outcome, Problem};
use futures_util::stream::{FuturesUnordered, StreamExt};
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use proxy::holds::HeldRequest;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::HoldWebhook;

/// Timeout of a POST request.
const POST_WITHIN: Duration = Duration::from_secs(10);
/// Maximum concurrent POST requests.
const POSTS_MAX: usize = 8;
/// Pauses before the second and the third attempt.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Returns the task that posts each held request, until `stop`.
pub(super) fn run(
    webhook: HoldWebhook,
    guard: Guard,
    mut news: Receiver<HeldRequest>,
    stop: CancellationToken,
) -> Outcome<impl Future<Output = ()> + Send + 'static> {
    let resolver = Resolver::system().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot resolve names: {error}"))
            .hint("check /etc/resolv.conf")
    })?;
    let posts = Posts::new(resolver, Guard { allow_link_local: false, ..guard });
    Ok(async move {
        let _live = telemetry::tasks::guard("proxy-hold-webhook");
        let mut posting = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = posting.next() => {}
                new = news.recv(), if posting.len() < POSTS_MAX => match new {
                    Ok(request) => posting.push(post(&posts, &webhook, request)),
                    Err(RecvError::Lagged(lost)) => {
                        tracing::warn!(lost, "the webhook about held requests is too slow: some notifications were dropped");
                    }
                    Err(RecvError::Closed) => return,
                },
            }
        }
    })
}

async fn post(posts: &Posts, webhook: &HoldWebhook, request: HeldRequest) {
    let body = json!({ "event": "proxy.request.held", "request": request }).to_string().into_bytes();
    for pause in PAUSES.map(Some).into_iter().chain([None]) {
        // The configuration of the webhook does not change while the process runs.
        let service = Service {
            revision: Uuid::nil(),
            url: &webhook.url,
            secret: &webhook.secret,
            roots: webhook.roots.as_deref(),
        };
        let Err(error) = posts.post(service, body.clone(), POST_WITHIN).await else { return };
        tracing::warn!(id = %request.id, %error, "the webhook about a held request failed");
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return,
        }
    }
}
