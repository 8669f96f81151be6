//! Events as server-sent events.

use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use events::feed::{LAGGED, Lagged};
use futures_util::{Stream, StreamExt, stream};
use http::request::Parts;
use serde::Deserialize;
use serde_json::json;
use store::OutboxPosition;
use utoipa::IntoParams;

use crate::access::{CACHE_LIFETIME, Caller, Permission};
use crate::events::{FeedItem, Follower};
use crate::extract::Query;
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::State;

pub(crate) fn routes() -> Api {
    Api::area("events").route(Access::needs(Permission::EventRead).streams(), routes!(follow))
}

/// Query parameters that filter the event stream by kind.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventParams {
    /// Prefix of the event kinds: `certificate.`
    kind: Option<String>,
}

/// Streams events.
///
/// Each event has its kind as name, its position as ID, and a JSON object with `at`, `subject` and `body` as data. With
/// `Last-Event-ID` the stream begins with the stored events after that ID. A client that is too slow gets the event `lagged` with
/// the number of missed events, and should reload its data. The stream ends within seconds when the caller loses access, for
/// example when the caller signs out everywhere.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "followEvents",
    params(EventParams, ("Last-Event-ID" = Option<String>, Header)),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn follow(
    state: State,
    caller: Caller,
    parts: Parts,
    Query(params): Query<EventParams>,
) -> Result<Response, Problem> {
    let since =
        parts.headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(position).transpose()?;
    let follower = state.events().follow(state.store().clone(), since).await?;
    let stopping = state.stopping().clone();
    let ended = wait_until_access_lost(state, caller.session().map(|session| session.hash), parts);
    let events = event_stream(follower, params.kind).take_until(stopping.cancelled_owned()).take_until(ended);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// Returns when the caller may no longer read events: its session, token or certificate ended, or lost the permission. Does not
/// return while the database is unavailable.
async fn wait_until_access_lost(state: State, session: Option<[u8; 32]>, parts: Parts) {
    loop {
        tokio::time::sleep(CACHE_LIFETIME).await;
        let holds = match session {
            Some(hash) => state.access().is_session_permitted(hash, Permission::EventRead).await,
            None => {
                let caller = state.authentication().caller(&parts).await;
                caller.map(|caller| caller.has_permission_everywhere(Permission::EventRead))
            }
        };
        match holds {
            Ok(true) => {}
            Ok(false) => return,
            Err(problem) if problem.status().is_server_error() => {}
            Err(_) => return,
        }
    }
}

fn event_stream(
    follower: Follower,
    kind: Option<String>,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::unfold((follower, kind), |(mut follower, kind)| async move {
        loop {
            let event = match follower.next().await? {
                FeedItem::Event(event) => {
                    if kind.as_ref().is_some_and(|kind| !event.kind.starts_with(kind.as_str())) {
                        continue;
                    }
                    Event::default()
                        .id(id_of(event.position))
                        .event(event.kind.replace(['\r', '\n'], " "))
                        .data(event.data.as_str())
                }
                FeedItem::Lagged(missed) => {
                    Event::default().event(LAGGED).data(json!(Lagged { missed }).to_string())
                }
            };
            return Some((Ok(event), (follower, kind)));
        }
    })
}

fn position(id: &str) -> Result<OutboxPosition, Problem> {
    parse_position(id).ok_or_else(|| Problem::bad_request("Last-Event-ID is not the ID of an event"))
}

/// Formats an outbox position as an event ID.
pub(super) fn id_of(position: OutboxPosition) -> String {
    format!("{}-{}", position.transaction, position.id)
}

/// Parses an event ID as an outbox position.
pub(super) fn parse_position(id: &str) -> Option<OutboxPosition> {
    let (transaction, id) = id.split_once('-')?;
    Some(OutboxPosition { transaction: transaction.parse().ok()?, id: id.parse().ok()? })
}
