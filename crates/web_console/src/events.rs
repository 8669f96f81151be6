//! What happens, as it happens: the API's stream of events for the page that a browser shows.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::request::Parts;
use http::{Method, StatusCode};

use crate::api::Api;
use crate::failure::Failure;

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console/events", get(follow))
}

/// 204 ends a browser's attempts to connect again: of a person who may not follow events, or whose session has ended.
async fn follow(State(api): State<Api>, parts: Parts) -> Response {
    match api.client(&parts).send(Method::GET, "/api/v1/events", None, None).await {
        Ok(stream) => stream,
        Err(Failure::Refused(problem)) if matches!(problem.status, 401 | 403) => {
            StatusCode::NO_CONTENT.into_response()
        }
        Err(other) => other.into_response(),
    }
}
