//! The routes, a module an area.
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
//!         // One `route` a permission. A bare permission is asked for in scope `any` …
//!         .route(Permission::ProfileManage, routes!(create))
//!         // … `.scoped()` lets narrower grants in: the handler must then ask `caller.may(…)` or `caller.reach(…)`.
//!         .route(Access::needs(Permission::ProfileRead).scoped(), routes!(list))
//!         .route(Access::needs(Permission::ProfileRead).scoped(), routes!(get_one))
//! }
//!
//! /// Lists the profiles.                          <- the first line is the summary in the API's description
//! #[utoipa::path(get, path = "/api/v1/profiles", operation_id = "listProfiles", params(PageQuery),
//!     responses((status = 200, body = Listing<ProfileView>)))]
//! async fn list(
//!     Component(authority): Component<Authority>,      // 503 where this process does not run it
//!     caller: Caller,
//!     paging: Paging,
//! ) -> Result<Json<Listing<ProfileView>>, Problem> {
//!     let page = authority.profiles(caller.reach(Permission::ProfileRead), paging.after.as_ref(), paging.limit).await?;
//!     Ok(Json(listing(page, profile_view)))
//! }
//! ```
//!
//! - Request and response types are in the crate `api`: responses (`…View`) are not the store's rows, requests refuse
//!   unknown fields. A function next to the route converts one to the other. Times are RFC 3339 texts ([`crate::time`]).
//! - Errors: `impl From<YourError> for Problem` beside your routes, or `map_err`; the kinds in [`crate::problem`] first.
//!   401, 403, 404, 405, 413, 415, 429, panics, and refused JSON are problems already. Do not list refusals in
//!   `responses(…)`: the builder adds them, the security and the permission's note.
//! - `GET`: ETag, `If-None-Match`, `fields=` come by themselves ([`crate::conditional`]). `PUT`, `PATCH`, `DELETE` of a
//!   thing with a revision: take `IfMatch` and answer with `Revision`. `POST`: `Idempotency-Key` comes by itself.
//! - A route not given to `Api::route` cannot exist; the test `matrix` walks all of them with every role.
//! - Operation ids are unique over all areas (`listProfiles`, not `list`).

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
pub mod master_key;
pub mod oidc;
pub mod ownership;
pub mod people;
pub mod places;
mod plan_signature;
pub mod policies;
pub mod profiles;
pub mod protocols;
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
        .merge(alerts::routes())
        .merge(inventory::routes())
        .merge(scans::routes())
        .merge(ownership::routes())
        .merge(transparency::routes())
        .merge(watches::routes())
        .merge(history::routes())
        .merge(series::routes())
        .merge(servers::routes())
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

/// Returns the credential store for pages of this process. Browsers send the requests of these pages, so that the layer that
/// rejects web pages is left out. An unsafe request needs the CSRF token of its session instead.
pub(crate) fn console_credential_router(context: &Context) -> Router {
    credhub::router(context)
}

/// Returns the operations of the credential store's listener.
pub(crate) fn credential_operations() -> Vec<NonApiOperation> {
    let mut all = credhub::face().operations("");
    all.extend(vault::face().operations("/v1"));
    all
}

/// Returns the routes that are also served without TLS: CRLs, OCSP, http-01 responses.
pub(crate) fn public() -> Router<State> {
    protocols::public()
}
