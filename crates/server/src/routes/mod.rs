//! The routes of the API. Each area has a module.
//!
//! # How an area adds routes
//!
//! ```text
//! // crates/server/src/routes/profiles.rs
//! use api::profiles::ProfileView;
//! use crate::access::{Caller, Permission, Scope};
//! use crate::routing::{Access, Api, routes};
//! use crate::extract::{Json, Path};
//! use crate::paging::{Listing, Paging, PageQuery, listing};
//! use crate::problem::Problem;
//! use crate::state::Component;
//!
//! pub(crate) fn routes() -> Api {
//!     Api::area("profiles")
//!         // Routes with the same permission share a `route`. A bare permission is required in scope `any`.
//!         .route(Permission::ProfileManage, routes!(create))
//!         // `.scoped()` also accepts narrower grants: the handler must then call `caller.may(…)` or `caller.reach(…)`.
//!         .route(Access::needs(Permission::ProfileRead).scoped(), routes!(list))
//!         .route(Access::needs(Permission::ProfileRead).scoped(), routes!(get_one))
//! }
//!
//! /// Lists the profiles.                          <- the first line is the summary in the API's description
//! #[utoipa::path(get, path = "/api/v1/profiles", operation_id = "listProfiles", params(PageQuery),
//!     responses((status = 200, body = Listing<ProfileView>)))]
//! async fn list(
//!     Component(authority): Component<Authority>,      // 503 if this process does not run the component
//!     caller: Caller,
//!     paging: Paging,
//! ) -> Result<Json<Listing<ProfileView>>, Problem> {
//!     let page = authority.profiles(caller.reach(Permission::ProfileRead), paging.after.as_ref(), paging.limit).await?;
//!     Ok(Json(listing(page, profile_view)))
//! }
//! ```
//!
//! - Request and response types are in the crate `api`. A response (`…View`) is not a row of the store; a function next to
//!   the route converts the row. Requests reject unknown fields. Times are RFC 3339 texts ([`crate::time`]).
//! - Errors: use the kinds in [`crate::problem`]. For others, write `impl From<YourError> for Problem` next to your routes,
//!   or use `map_err`. Responses 401, 403, 404, 405, 413, 415 and 429, panics, and rejected JSON are problem documents
//!   already. Do not list error responses in `responses(…)`: the builder adds them, the authentication and the permission.
//! - `GET`: the framework handles the ETag, `If-None-Match` and `fields=` ([`crate::conditional`]). `POST`: it also handles
//!   `Idempotency-Key`. `PUT`, `PATCH` and `DELETE` of an object with a revision: take `IfMatch`, and respond with `Revision`.
//! - Register each route with `Api::route`: there is no other way. The test `matrix` calls all routes with every role.
//! - Operation ids are unique across all areas (`listProfiles`, not `list`).

pub mod acme_admin;
pub mod agents;
pub mod alerts;
pub mod approvals;
pub mod audit;
pub mod authorities;
pub mod certificates;
pub mod changes;
pub mod client_certificates;
pub mod credhub;
pub mod enrolments;
pub mod events;
pub mod health;
pub mod history;
pub(crate) mod identity;
pub mod inventory;
pub mod issuers;
pub mod jobs;
mod limits;
pub mod master_key;
pub mod oidc;
pub mod ownership;
pub mod people;
pub mod places;
mod plan_signature;
pub mod policies;
pub mod profiles;
pub mod protocols;
mod proxy;
pub mod roles;
mod scans;
mod search;
mod security_keys;
mod series;
mod servers;
mod sign_in;
pub mod targets;
pub mod tokens;
pub mod transparency;
pub mod users;
mod vault;
pub mod watches;

use axum::Router;

use crate::routing::{Api, NonApiOperation};
use crate::state::State;
use credhub::context::Context;

/// Returns every route of the API.
pub(crate) fn api() -> Api {
    Api::area("")
        .merge(health::routes())
        .merge(tokens::routes())
        .merge(users::routes())
        .merge(security_keys::routes())
        .merge(roles::routes())
        .merge(client_certificates::routes())
        .merge(oidc::routes())
        .merge(sign_in::routes())
        .merge(audit::routes())
        .merge(events::routes())
        .merge(certificates::routes())
        .merge(issuers::routes())
        .merge(profiles::routes())
        .merge(authorities::routes())
        .merge(policies::routes())
        .merge(people::routes())
        .merge(approvals::routes())
        .merge(changes::routes())
        .merge(acme_admin::routes())
        .merge(enrolments::routes())
        .merge(jobs::routes())
        .merge(agents::routes())
        .merge(targets::routes())
        .merge(places::routes())
        .merge(proxy::routes())
        .merge(alerts::routes())
        .merge(inventory::routes())
        .merge(scans::routes())
        .merge(ownership::routes())
        .merge(transparency::routes())
        .merge(watches::routes())
        .merge(history::routes())
        .merge(series::routes())
        .merge(servers::routes())
        .merge(limits::routes())
        .merge(search::routes())
        .merge(master_key::routes())
}

/// Returns the protocols over TLS that have their own error formats: ACME, EST, SCEP.
pub(crate) fn protocols() -> Router<State> {
    protocols::tls_routes()
}

/// Returns the router of the credential store's listener: CredHub's API, and Vault's API below its own prefix.
pub(crate) fn credentials(context: &Context) -> Router {
    let router = credhub::router(context).nest("/v1", vault::router(context));
    router.layer(axum::middleware::from_fn(credhub::reject_browser_writes))
}

/// Returns the router of the credential store for pages of this process, with CredHub's API only. Omits the layer that rejects
/// requests from web pages, because browsers send the requests of these pages. An unsafe request needs the CSRF token of its
/// session instead.
pub(crate) fn console_credential_router(context: &Context) -> Router {
    credhub::router(context)
}

/// Returns the operations of the credential store's listener.
pub(crate) fn credential_operations() -> Vec<NonApiOperation> {
    let mut all = credhub::operation_table().operations("");
    all.extend(vault::operation_table().operations("/v1"));
    all
}

/// Returns the routes that are also served without TLS: CRLs, OCSP, http-01 responses.
pub(crate) fn public() -> Router<State> {
    protocols::public()
}
