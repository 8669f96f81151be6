//! Changes of credentials as server-sent events. An extension to CredHub.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use credentials::Requester;
use credentials::tables::PermissionsFingerprint;
use events::feed::{ACCESS, Access, LAGGED, Lagged, PLACE, READY, Ready};
use futures_util::{Stream, StreamExt, stream};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use store::Store;
use tokio::time::Instant;

use super::context::Context;
use super::principal::{Principal, authenticate};
use crate::credhub::Refused;
use crate::events::{FeedItem, Follower};
use crate::routes::events::{id_of, parse_position};

/// Interval between checks of a subscriber's permissions while there are at most [`CHECKS_MAX`] subscribers. A revoked permission
/// takes effect within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum subscribers that a node checks in one [`POLL_INTERVAL`]. If there are more, each is checked less often.
const CHECKS_MAX: usize = 256;

/// Number of consecutive events that the stream skips, because they are not for the caller, before it sends its position. After a
/// reconnect, the skipped events need not be read again.
const SKIPPED_MAX: usize = 500;

/// Streams the changes of credentials that the caller may read at the time of each change: `credential.changed` and
/// `credential.deleted`, with the name but without the value.
///
/// The first event is `ready`. Its member `resumed` is true if all events since `Last-Event-ID` follow. If `resumed` is false, or
/// after the event `lagged`, events may be missing. The event `position` contains only an ID for `Last-Event-ID`. The event `access`
/// reports that the caller's permissions may have changed. If the caller has lost all access, the stream ends after this event.
pub(super) async fn follow(
    context: Context,
    Principal(requester): Principal,
    parts: Parts,
) -> Result<Response, Refused> {
    let since = parts.headers.get("last-event-id").and_then(|id| parse_position(id.to_str().ok()?));
    let store = context.server().store().clone();
    let begun =
        context.server().events().subscribe_to_credentials(store.clone(), since, &requester.actor).await;
    let (follower, resumed) = begun.map_err(credentials::CredentialError::from)?.ok_or_else(|| {
        let text = "Too many clients follow the changes already. Please try again later.";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let ready = Event::default()
        .id(id_of(follower.position()))
        .event(READY)
        .data(json!(Ready { resumed }).to_string());
    let stopping = context.server().stopping().clone();
    // Read before the stream begins, so that the stream reports every later change.
    let fingerprint =
        credentials::tables::Credentials::of(&store).permissions_fingerprint(&requester.actor).await;
    let fingerprint = fingerprint.map_err(credentials::CredentialError::from)?;
    let access = Event::default().event(ACCESS).data(json!(Access { changed: false }).to_string());
    let check_at = Instant::now() + POLL_INTERVAL;
    let feed = EventFeed { context, parts, requester, fingerprint, store, follower, check_at, ended: false };
    let begin = stream::iter([Ok(ready), Ok(access)]);
    let events = begin.chain(feed.events()).take_until(stopping.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// The event stream of a client.
struct EventFeed {
    context: Context,
    parts: Parts,
    requester: Requester,
    store: Store,
    follower: Follower,
    /// Fingerprint of the caller's permissions at the last check.
    fingerprint: PermissionsFingerprint,
    check_at: Instant,
    /// Whether the caller has lost access.
    ended: bool,
}

impl EventFeed {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        stream::unfold(self, |mut this| async move {
            let event = this.next().await?;
            Some((Ok(event), this))
        })
    }

    /// Returns whether the caller has lost access, or its permissions have changed. Returns false while the database is
    /// unavailable.
    async fn has_access_changed(&mut self) -> bool {
        let followers = self.context.server().events().credential_subscriber_count();
        self.check_at =
            Instant::now() + POLL_INTERVAL * u32::try_from(1 + followers / CHECKS_MAX).unwrap_or(u32::MAX);
        let requester = match authenticate(&self.parts, &self.context).await {
            Ok(requester) => requester,
            Err(refused) => {
                let status = refused.status();
                self.ended = !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS;
                return self.ended;
            }
        };
        let tables = credentials::tables::Credentials::of(&self.store);
        let Ok(fingerprint) = tables.permissions_fingerprint(&requester.actor).await else { return false };
        let changed = fingerprint != self.fingerprint || requester.full_access != self.requester.full_access;
        (self.requester, self.fingerprint) = (requester, fingerprint);
        changed
    }

    /// Returns the next event. `None` ends the stream, and the client can resume from its last position.
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let mut skipped = 0;
        loop {
            let followed = tokio::select! {
                followed = self.follower.next() => followed?,
                () = tokio::time::sleep_until(self.check_at) => {
                    if self.has_access_changed().await {
                        let data = json!(Access { changed: true }).to_string();
                        return Some(Event::default().event(ACCESS).data(data));
                    }
                    continue;
                }
            };
            let event = match followed {
                FeedItem::Lagged(missed) => {
                    let data = json!(Lagged { missed }).to_string();
                    return Some(Event::default().event(LAGGED).data(data));
                }
                FeedItem::Event(event) => event,
            };
            if let Some(change) = &event.credential
                && change.may_read(&self.requester, &self.store).await.ok()?
            {
                let message = Event::default().id(id_of(event.position)).event(event.kind.as_str());
                return Some(message.data(change.data.as_str()));
            }
            skipped += 1;
            if skipped >= SKIPPED_MAX {
                return Some(Event::default().id(id_of(event.position)).event(PLACE).data("{}"));
            }
        }
    }
}
