//! Places where private keys may be: sites, the key service nodes at them, and the policies over them.

mod attributes;
mod nodes;
mod own;
mod policies;
mod sealed_keys;
mod tokens;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde::{Deserialize, Serialize};
use sites::{NewSite, SiteError, Sites};
use store::places::SiteRow;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time::shown;
use attributes::{AREA, AttributesBody, shown_attributes};

pub(crate) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::NodeRead, routes!(list))
        .route(Permission::NodeManage, routes!(create))
        .route(Permission::NodeRead, routes!(get_one))
        .route(Permission::NodeManage, routes!(replace))
        .route(Permission::NodeManage, routes!(delete))
        .merge(tokens::routes())
        .merge(nodes::routes())
        .merge(own::routes())
        .merge(policies::routes())
        .merge(sealed_keys::routes())
}

impl From<SiteError> for Problem {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::NotFound(what) => Self::not_found(format_args!("{what} of that name")),
            SiteError::Invalid(_) | SiteError::Attribute(_) | SiteError::Csr(_) => Self::unprocessable(error),
            SiteError::NameTaken(_) => Self::conflict(error).hint("choose another name"),
            SiteError::KeyTaken => Self::conflict(error)
                .hint("remove the folder of the node's state, and join with another token"),
            SiteError::Changed => Self::precondition_failed(error),
            SiteError::NotEmpty(_) | SiteError::Full { .. } | SiteError::Retired => Self::conflict(error),
            SiteError::OtherKey => Self::forbidden(error),
            SiteError::Token => {
                Self::unauthenticated(error).hint("make a new one: bulla node token --site NAME")
            }
            SiteError::Certify(error) => error.into(),
            SiteError::Signer(_) | SiteError::Statement(_) => Self::internal(error),
            SiteError::Store(error) => error.into(),
        }
    }
}

/// A site.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeySite)]
struct SiteView {
    /// Its identity.
    id: Uuid,
    /// Its name, unique.
    #[schema(example = "frankfurt")]
    name: String,
    /// What is so at all its nodes.
    #[schema(example = json!({"country": "DE", "region": "EU"}))]
    attributes: AttributesBody,
    /// When it was made.
    created_at: String,
    /// When it last changed.
    updated_at: String,
}

impl SiteView {
    fn of(row: SiteRow) -> Self {
        Self {
            id: row.id,
            attributes: shown_attributes(&row.attributes),
            name: row.name,
            created_at: shown(row.created_at_us),
            updated_at: shown(row.updated_at_us),
        }
    }
}

/// A site to make, or what one shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeySiteBody)]
struct SiteBody {
    /// Its name, unique.
    #[schema(example = "frankfurt", min_length = 1, max_length = 128)]
    name: String,
    /// What is so at all its nodes: up to 32, names `[a-z][a-z0-9_-]*`, values `[A-Za-z0-9][A-Za-z0-9._-]*`.
    #[serde(default)]
    #[schema(example = json!({"country": "DE", "region": "EU"}))]
    attributes: AttributesBody,
}

impl SiteBody {
    fn taken(self) -> Result<NewSite, Problem> {
        let attributes = sites::Attributes::of(self.attributes).map_err(SiteError::from)?;
        Ok(NewSite { name: self.name, attributes })
    }
}

/// Lists the sites, by name.
#[utoipa::path(get, path = "/api/v1/key-sites", operation_id = "listKeySites", params(PagingParams),
    responses((status = 200, body = Listing<SiteView>)))]
async fn list(
    Component(places): Component<Sites>,
    paging: Paging,
) -> Result<Json<Listing<SiteView>>, Problem> {
    let page = places.sites(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, SiteView::of)))
}

/// Makes a site.
#[utoipa::path(post, path = "/api/v1/key-sites", operation_id = "createKeySite", request_body = SiteBody,
    responses((status = 201, body = SiteView)))]
async fn create(
    Component(places): Component<Sites>,
    caller: Caller,
    Json(body): Json<SiteBody>,
) -> Result<Response, Problem> {
    let row = places.create_site(body.taken()?, caller.actor()).await?;
    let at = HeaderValue::from_str(&format!("/api/v1/key-sites/{}", row.id));
    let mut response = (StatusCode::CREATED, Revision(row.revision, SiteView::of(row))).into_response();
    response.headers_mut().extend(at.ok().map(|at| (LOCATION, at)));
    Ok(response)
}

/// Shows a site, by its name or its identity.
#[utoipa::path(get, path = "/api/v1/key-sites/{site}", operation_id = "getKeySite",
    params(("site" = String, Path)), responses((status = 200, body = SiteView)))]
async fn get_one(
    Component(places): Component<Sites>,
    Path(site): Path<String>,
) -> Result<Revision<SiteView>, Problem> {
    let row = places.site(&site).await?;
    Ok(Revision(row.revision, SiteView::of(row)))
}

/// Changes a site. Its nodes get statements with its attributes within a second.
#[utoipa::path(put, path = "/api/v1/key-sites/{site}", operation_id = "replaceKeySite",
    params(("site" = String, Path)), request_body = SiteBody, responses((status = 200, body = SiteView)))]
async fn replace(
    Component(places): Component<Sites>,
    caller: Caller,
    Path(site): Path<String>,
    if_match: IfMatch,
    Json(body): Json<SiteBody>,
) -> Result<Revision<SiteView>, Problem> {
    let before = places.site(&site).await?;
    if_match.check(before.revision)?;
    let row = places.update_site(before.id, before.revision, body.taken()?, caller.actor()).await?;
    Ok(Revision(row.revision, SiteView::of(row)))
}

/// Removes a site without nodes, and the node tokens for it.
#[utoipa::path(delete, path = "/api/v1/key-sites/{site}", operation_id = "deleteKeySite",
    params(("site" = String, Path)), responses((status = 204)))]
async fn delete(
    Component(places): Component<Sites>,
    caller: Caller,
    Path(site): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let row = places.site(&site).await?;
    if_match.check(row.revision)?;
    places.delete_site(row.id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
