//! Locations of private keys: sites, the key service nodes at them, and the key policies.

mod attributes;
mod load;
mod nodes;
mod own;
mod policies;
mod sealed_keys;
mod tokens;

use api::sites::{SiteBody, SiteView};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use sites::tables::SiteRow;
use sites::{NewSite, SiteError, Sites};

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time::shown;
use attributes::{AREA, shown_attributes};

pub(crate) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::NodeRead, routes!(list))
        .route(Permission::NodeManage, routes!(create))
        .route(Permission::NodeRead, routes!(get_one))
        .route(Permission::NodeManage, routes!(replace))
        .route(Permission::NodeManage, routes!(delete))
        .merge(load::routes())
        .merge(tokens::routes())
        .merge(nodes::routes())
        .merge(own::routes())
        .merge(policies::routes())
        .merge(sealed_keys::routes())
}

impl From<SiteError> for Problem {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::NotFound(what) => Self::not_found(format_args!("{what} with that name")),
            SiteError::Invalid(_) | SiteError::Attribute(_) | SiteError::Csr(_) => Self::unprocessable(error),
            SiteError::NameTaken(_) => Self::conflict(error).hint("choose another name"),
            SiteError::KeyTaken => Self::conflict(error)
                .hint("delete the state directory of the node, and join with another token"),
            SiteError::Changed => Self::precondition_failed(error),
            SiteError::NotEmpty(_) | SiteError::Full { .. } | SiteError::Retired => Self::conflict(error),
            SiteError::OtherKey => Self::forbidden(error),
            SiteError::Token => {
                Self::unauthenticated(error).hint("create a new one: bulla key node token --site NAME")
            }
            SiteError::Certify(error) => error.into(),
            SiteError::Signer(_) | SiteError::Statement(_) => Self::internal(error),
            SiteError::Store(error) => error.into(),
        }
    }
}

fn site_view(row: SiteRow) -> SiteView {
    SiteView {
        id: row.id,
        attributes: shown_attributes(&row.attributes),
        name: row.name,
        created_at: shown(row.created_at_us),
        updated_at: shown(row.updated_at_us),
    }
}

fn new_site(body: SiteBody) -> Result<NewSite, Problem> {
    let attributes = sites::Attributes::of(body.attributes).map_err(SiteError::from)?;
    Ok(NewSite { name: body.name, attributes })
}

/// Lists the sites, by name.
#[utoipa::path(get, path = "/api/v1/key-sites", operation_id = "listKeySites", params(PageQuery),
    responses((status = 200, body = Listing<SiteView>)))]
async fn list(
    Component(sites): Component<Sites>,
    paging: Paging,
) -> Result<Json<Listing<SiteView>>, Problem> {
    let page = sites.sites(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, site_view)))
}

/// Creates a site.
#[utoipa::path(post, path = "/api/v1/key-sites", operation_id = "createKeySite", request_body = SiteBody,
    responses((status = 201, body = SiteView)))]
async fn create(
    Component(sites): Component<Sites>,
    caller: Caller,
    Json(body): Json<SiteBody>,
) -> Result<Response, Problem> {
    let row = sites.create_site(new_site(body)?, caller.actor()).await?;
    let at = HeaderValue::from_str(&format!("/api/v1/key-sites/{}", row.id));
    let mut response = (StatusCode::CREATED, Revision(row.revision, site_view(row))).into_response();
    response.headers_mut().extend(at.ok().map(|at| (LOCATION, at)));
    Ok(response)
}

/// Shows a site, by its name or ID.
#[utoipa::path(get, path = "/api/v1/key-sites/{site}", operation_id = "getKeySite",
    params(("site" = String, Path)), responses((status = 200, body = SiteView)))]
async fn get_one(
    Component(sites): Component<Sites>,
    Path(site): Path<String>,
) -> Result<Revision<SiteView>, Problem> {
    let row = sites.site(&site).await?;
    Ok(Revision(row.revision, site_view(row)))
}

/// Changes a site. Its nodes receive signed statements with the new attributes within a second.
#[utoipa::path(put, path = "/api/v1/key-sites/{site}", operation_id = "replaceKeySite",
    params(("site" = String, Path)), request_body = SiteBody, responses((status = 200, body = SiteView)))]
async fn replace(
    Component(sites): Component<Sites>,
    caller: Caller,
    Path(site): Path<String>,
    if_match: IfMatch,
    Json(body): Json<SiteBody>,
) -> Result<Revision<SiteView>, Problem> {
    let before = sites.site(&site).await?;
    if_match.check(before.revision)?;
    let row = sites.update_site(before.id, before.revision, new_site(body)?, caller.actor()).await?;
    Ok(Revision(row.revision, site_view(row)))
}

/// Deletes a site without nodes, and the node tokens for it.
#[utoipa::path(delete, path = "/api/v1/key-sites/{site}", operation_id = "deleteKeySite",
    params(("site" = String, Path)), responses((status = 204)))]
async fn delete(
    Component(sites): Component<Sites>,
    caller: Caller,
    Path(site): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let row = sites.site(&site).await?;
    if_match.check(row.revision)?;
    sites.delete_site(row.id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
