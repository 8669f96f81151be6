//! Changes of credentials as they happen, as server-sent events: not in CredHub.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use credentials::Asker;
use events::feed::{LAGGED, Lagged, PLACE, READY, Ready};
use futures_util::{Stream, StreamExt, stream};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use store::Store;
use tokio::time::Instant;

use super::context::Context;
use super::principal::{Principal, authenticate};
use crate::credhub::Refused;
use crate::events::{Followed, Follower};
use crate::routes::events::{id_of, place_of};

/// Between two looks whether whoever follows is still let in.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Events that are not for a follower, after which it is told its place: it need not be read past them again.
const PASSED_MAX: usize = 500;

/// Follows the changes of the credentials that the caller may read at the time of each: `credential.changed` and
/// `credential.deleted`, with the name and no value.
///
/// The first event is `ready`. Its `resumed` says whether all that happened since `Last-Event-ID` follows; where it does
/// not, and after `lagged`, something may have been missed. `place` has nothing but an id to go on from.
pub(super) async fn follow(
    context: Context,
    Principal(asker): Principal,
    parts: Parts,
) -> Result<Response, Refused> {
    let since = parts.headers.get("last-event-id").and_then(|id| place_of(id.to_str().ok()?));
    let store = context.server().store().clone();
    let begun = context.server().events().follow_credentials(store.clone(), since, &asker.actor).await;
    let (follower, resumed) = begun.map_err(credentials::CredentialError::from)?.ok_or_else(|| {
        let text = "Too many follow the changes already. Please try again later.";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let ready =
        Event::default().id(id_of(follower.place())).event(READY).data(json!(Ready { resumed }).to_string());
    let stopping = context.server().stopping().clone();
    let feed = EventFeed { context, parts, asker, store, follower, ask_at: Instant::now() + ASK_EVERY };
    let events = stream::iter([Ok(ready)]).chain(feed.events()).take_until(stopping.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// The events that a client follows.
struct EventFeed {
    context: Context,
    parts: Parts,
    asker: Asker,
    store: Store,
    follower: Follower,
    ask_at: Instant,
}

impl EventFeed {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        stream::unfold(self, |mut this| async move {
            let event = this.next().await?;
            Some((Ok(event), this))
        })
    }

    /// The next event; `None` ends the stream, from whose place the follower goes on.
    async fn next(&mut self) -> Option<Event> {
        let mut passed = 0;
        loop {
            let followed = tokio::select! {
                followed = self.follower.next() => followed?,
                () = tokio::time::sleep_until(self.ask_at) => {
                    self.asker = authenticate(&self.parts, &self.context).await.ok()?;
                    self.ask_at = Instant::now() + ASK_EVERY;
                    continue;
                }
            };
            let event = match followed {
                Followed::Lagged(missed) => {
                    let data = json!(Lagged { missed }).to_string();
                    return Some(Event::default().event(LAGGED).data(data));
                }
                Followed::Event(event) => event,
            };
            if let Some(change) = &event.credential
                && change.may_read(&self.asker, &self.store).await.ok()?
            {
                let told = Event::default().id(id_of(event.place)).event(event.kind.as_str());
                return Some(told.data(change.data.as_str()));
            }
            passed += 1;
            if passed >= PASSED_MAX {
                return Some(Event::default().id(id_of(event.place)).event(PLACE).data("{}"));
            }
        }
    }
}
