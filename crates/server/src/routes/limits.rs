//! The limits and the retention of this server.

use std::sync::Arc;

use api::limits::LimitView;

use crate::access::Permission;
use crate::extract::Json;
use crate::paging::Listing;
use crate::routing::{Api, routes};
use crate::state::Component;

pub(crate) fn routes() -> Api {
    Api::area("limits").route(Permission::AccessRead, routes!(list))
}

/// Lists the limits, timeouts and retention periods of this server process: the value in effect, and the source of each value.
///
/// The values are read at startup. To change a value, set its key in the configuration file or its environment variable, and
/// restart the server.
#[utoipa::path(get, path = "/api/v1/limits", operation_id = "listLimits",
    responses((status = 200, body = Listing<LimitView>)))]
async fn list(Component(limits): Component<Arc<[LimitView]>>) -> Json<Listing<LimitView>> {
    Json(Listing::whole(limits.to_vec()))
}
