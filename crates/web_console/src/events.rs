//! Live events: the API's event stream for the page in the browser.

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

/// Streams events. Status 204 stops the browser from reconnecting, when the user may not read events or the session has ended.
async fn follow(State(api): State<Api>, parts: Parts) -> Response {
    match api.client(&parts).send(Method::GET, "/api/v1/events", None, None).await {
        Ok(stream) => stream,
        Err(Failure::Refused(problem)) if matches!(problem.status, 401 | 403) => {
            StatusCode::NO_CONTENT.into_response()
        }
        Err(other) => other.into_response(),
    }
}
