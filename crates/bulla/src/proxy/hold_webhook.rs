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

use crate::config::{HoldWebhook, HoldWebhookFormat};

/// Timeout of one POST request to the webhook.
const POST_WITHIN: Duration = Duration::from_secs(10);
/// Maximum concurrent POST requests to the webhook.
const POSTS_MAX: usize = 8;
/// Pauses before the second and the third attempt.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Returns the task that posts each held request, until `stop`.
pub(super) fn run(
    webhook: HoldWebhook,
    guard: Guard,
    mut notifications: Receiver<HeldRequest>,
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
                new = notifications.recv(), if posting.len() < POSTS_MAX => match new {
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
    let body = match webhook.format {
        HoldWebhookFormat::Json => json!({ "event": "proxy.request.held", "request": request }),
        HoldWebhookFormat::Slack => json!({ "text": slack_text(&request) }),
    };
    let body = body.to_string().into_bytes();
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

/// Returns the text of a message for Slack.
fn slack_text(request: &HeldRequest) -> String {
    let HeldRequest { id, client, method, url, rule, deadline, .. } = request;
    let credentials = match &*request.credentials {
        [] => "no credential".to_owned(),
        names => format!("credentials {}", names.join(", ")),
    };
    let text = format!(
        "A request waits for an approval until {}.\n{method} {url} of {client}, rule {rule}, {credentials}\n\
         Decide in the console, or by `bulla proxy approve {id}`, `bulla proxy reject {id}`.",
        deadline.strftime("%H:%M:%S UTC")
    );
    // Slack reads <, > and & as markup.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_for_slack_has_no_markup_of_the_request() {
        let request: HeldRequest = serde_json::from_value(json!({
            "id": "0a1b2c3d4e", "client": "identity:ci", "identity": "ci", "method": "POST", "host": "a.example", "port": 443,
            "url": "https://a.example/<!channel>&", "path": "/<!channel>&", "rule": "deploy", "credentials": ["/github"],
            "since": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T00:02:00Z",
        }))
        .unwrap();
        assert_eq!(
            slack_text(&request),
            "A request waits for an approval until 00:02:00 UTC.\nPOST https://a.example/&lt;!channel&gt;&amp; of identity:ci, rule \
             deploy, credentials /github\nDecide in the console, or by `bulla proxy approve 0a1b2c3d4e`, `bulla proxy reject \
             0a1b2c3d4e`."
        );
    }
}
