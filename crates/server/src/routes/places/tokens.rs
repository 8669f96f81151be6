//! Join tokens for nodes.

use api::sites::{CreatedKeyNodeToken, KeyNodeTokenView, NewKeyNodeToken};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sites::tables::NodeTokenRow;
use sites::{Attributes, NewNodeToken, SiteError, Sites};
use uuid::Uuid;

use super::attributes::{AREA, shown_attributes};
use crate::access::{Caller, Permission};
use crate::extract::{Json, Path};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

/// Default lifetime of a token in seconds: an hour.
const SECONDS: i64 = 3_600;

pub(super) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::NodeEnroll, routes!(list))
        .route(Permission::NodeEnroll, routes!(create))
        .route(Permission::NodeEnroll, routes!(delete))
}

fn key_node_token_view(row: NodeTokenRow) -> KeyNodeTokenView {
    KeyNodeTokenView {
        id: row.id,
        site: row.site_name,
        attributes: shown_attributes(&row.attributes),
        created_by: row.created_by,
        created_at: time::shown(row.created_at_us),
        expires_at: time::shown(row.expires_at_us),
        used_at: time::maybe_shown(row.used_at_us),
        node: row.node,
    }
}

/// Lists the node tokens, newest first.
#[utoipa::path(get, path = "/api/v1/key-node-tokens", operation_id = "listKeyNodeTokens", params(PageQuery),
    responses((status = 200, body = Listing<KeyNodeTokenView>)))]
async fn list(
    Component(sites): Component<Sites>,
    paging: Paging,
) -> Result<Json<Listing<KeyNodeTokenView>>, Problem> {
    let page = sites.tokens(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, key_node_token_view)))
}

/// Creates a node token, which enrols one host as a node of the key service at a site, once.
#[utoipa::path(post, path = "/api/v1/key-node-tokens", operation_id = "createKeyNodeToken",
    request_body = NewKeyNodeToken, responses((status = 201, body = CreatedKeyNodeToken)))]
async fn create(
    Component(sites): Component<Sites>,
    caller: Caller,
    Json(new): Json<NewKeyNodeToken>,
) -> Result<Response, Problem> {
    let attributes = Attributes::of(new.attributes).map_err(SiteError::from)?;
    let site = new.site.clone();
    let new = NewNodeToken { site: new.site, attributes, seconds: new.seconds.unwrap_or(SECONDS) };
    let made = sites.create_token(new, caller.actor()).await.map_err(|error| match error {
        SiteError::NotFound(_) => Problem::missing(format_args!("there is no site {site:?}"))
            .hint("`bulla key site list` shows the sites; create this one with `bulla key site create NAME`"),
        error => error.into(),
    })?;
    let body =
        CreatedKeyNodeToken { token: made.token.as_str().to_owned(), view: key_node_token_view(made.row) };
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Revokes a node token.
#[utoipa::path(delete, path = "/api/v1/key-node-tokens/{id}", operation_id = "deleteKeyNodeToken",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete(
    Component(sites): Component<Sites>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    sites.delete_token(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
