//! The server processes that use the same database.

use api::health::ServerNodeView;
use axum::extract::State as With;
use store::nodes::{GONE_AFTER_US, ServerNodes};
use store::{Clock, Store};

use crate::access::Permission;
use crate::extract::Json;
use crate::paging::Listing;
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("servers").route(Permission::MetricsRead, routes!(list))
}

/// Lists the server processes that use this database, longest running first. Processes not seen for a day are left out.
#[utoipa::path(get, path = "/api/v1/servers", operation_id = "listServers",
    responses((status = 200, body = Listing<ServerNodeView>)))]
async fn list(
    With(store): With<Store>,
    With(clock): With<Clock>,
) -> Result<Json<Listing<ServerNodeView>>, Problem> {
    let now_us = clock.now_us();
    let nodes = ServerNodes::of(&store).list().await?;
    let view = |node: store::nodes::ServerNode| {
        let gone = now_us.saturating_sub(node.seen_at_us) > GONE_AFTER_US;
        ServerNodeView {
            id: node.id,
            host: node.host,
            version: node.version,
            state: if gone { "gone" } else { "up" }.to_owned(),
            started_at: time::shown(node.started_at_us),
            seen_at: time::shown(node.seen_at_us),
        }
    };
    Ok(Json(Listing::whole(nodes.into_iter().map(view).collect())))
}
