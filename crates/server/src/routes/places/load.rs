//! Load and traces of the key services.

use std::sync::Arc;

use serde_json::Value;

use super::attributes::AREA;
use crate::access::Permission;
use crate::extract::{Json, Path};
use crate::key_services::KeyServices;
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;

/// Maximum characters of a trace or request ID.
const ID_CHARS_MAX: usize = 128;

pub(super) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::NodeRead, routes!(load))
        .route(Permission::NodeRead, routes!(traces))
        .route(Permission::NodeRead, routes!(trace))
}

/// Shows the load (rates, queues and times) of the key services that this server reads, over the time since the previous request.
///
/// The services are in `keys.monitor_urls` of the server's configuration. A service that does not respond is listed in `away`. The
/// members are the same as in `bulla key top --json`.
#[utoipa::path(get, path = "/api/v1/key-load", operation_id = "getKeyLoad", responses((status = 200, body = Object)))]
async fn load(Component(services): Component<Arc<dyn KeyServices>>) -> Json<Value> {
    Json(services.load().await)
}

/// Lists recent requests to the key services that failed or were slow.
///
/// The members are the same as in `bulla key trace --json`.
#[utoipa::path(get, path = "/api/v1/key-traces", operation_id = "listKeyTraces",
    responses((status = 200, body = Object)))]
async fn traces(Component(services): Component<Arc<dyn KeyServices>>) -> Json<Value> {
    Json(services.traces(None).await)
}

/// Shows one request to the key service with the nodes that it was sent to, by its trace (32 hexadecimal digits) or request ID.
///
/// Each service keeps recent requests in memory until the service is restarted. For an unknown ID, the response contains no
/// requests.
#[utoipa::path(get, path = "/api/v1/key-traces/{id}", operation_id = "getKeyTrace", params(("id" = String, Path)),
    responses((status = 200, body = Object)))]
async fn trace(
    Component(services): Component<Arc<dyn KeyServices>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    if id.is_empty() || id.chars().count() > ID_CHARS_MAX {
        return Err(Problem::bad_request(format_args!("an id must have 1 to {ID_CHARS_MAX} characters")));
    }
    Ok(Json(services.traces(Some(id)).await))
}
