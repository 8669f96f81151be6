//! Registration of routes, each with its required permission, so that no route lacks a permission.

mod endpoint;
mod face;
mod guard;
mod need;
mod query;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use http::Method;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use crate::access::PROOF_LIFETIME;
use crate::problem::MEDIA_TYPE;
use crate::state::State;
use guard::Guard;
use query::QueryParameters;

pub(crate) use endpoint::{described, endpoint, routes};
pub use face::NonApiOperation;
pub(crate) use face::{OperationTable, PathOperations};
pub use need::{Access, Need, NonApiAccess};

/// A registered route of the API, with its requirements on the caller.
#[derive(Clone, Debug)]
pub struct RouteInfo {
    /// Area of the route: its OpenAPI tag.
    pub area: &'static str,
    /// HTTP method of the route.
    pub method: Method,
    /// Path template of the route.
    pub path: String,
    /// The permission that a caller needs.
    pub need: Need,
    /// Whether the permission in a narrower scope is sufficient.
    pub scoped: bool,
    /// Whether a session needs a recent proof of its user's identity.
    pub recent_proof: bool,
}

/// A builder for the routes of an area.
pub struct Api {
    area: &'static str,
    parts: Vec<(&'static str, Access, UtoipaMethodRouter<State>)>,
}

impl Api {
    /// Creates an area without routes. Its name is its OpenAPI tag.
    #[must_use]
    pub fn area(area: &'static str) -> Self {
        Self { area, parts: Vec::new() }
    }

    /// Adds routes created with `routes!(handler)`. Handlers in one call need the same permission.
    #[must_use]
    pub fn route(mut self, access: impl Into<Access>, routes: UtoipaMethodRouter<State>) -> Self {
        self.parts.push((self.area, access.into(), routes));
        self
    }

    /// Adds another area's routes.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// Returns every route with its guard, and their OpenAPI description.
    pub(crate) fn finish(self, state: &State, document: OpenApi) -> (Router<State>, OpenApi, Vec<RouteInfo>) {
        let mut router = OpenApiRouter::with_openapi(document);
        let mut infos = Vec::new();
        for (area, access, (schemas, mut paths, methods)) in self.parts {
            let mut query = QueryParameters::default();
            for (path, item) in &mut paths.paths {
                for (method, operation) in operations(item) {
                    let recent_proof = access.needs_recent_proof(&method);
                    describe(operation, area, access, recent_proof);
                    query.add(&method, operation);
                    let info = RouteInfo {
                        area,
                        method,
                        path: path.clone(),
                        need: access.need,
                        scoped: access.scoped,
                        recent_proof,
                    };
                    infos.push(info);
                }
            }
            let guard = Arc::new(Guard { state: state.clone(), access, query });
            let routes: UtoipaMethodRouter<State> = (schemas, paths, methods);
            let routes = routes.map(|methods| {
                let methods = match access.body_max {
                    Some(bytes) => methods.layer(DefaultBodyLimit::max(bytes)),
                    None => methods,
                };
                methods.route_layer(from_fn_with_state(guard, guard::enforce))
            });
            router = router.routes(routes);
        }
        let (router, document) = router.split_for_parts();
        (router, document, infos)
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
        (Method::PATCH, &mut item.patch),
        (Method::HEAD, &mut item.head),
        (Method::OPTIONS, &mut item.options),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds the common parts of an operation: its tag, its permission, the authentication, and the error responses.
fn describe(operation: &mut Operation, area: &'static str, access: Access, recent_proof: bool) {
    operation.tags = Some(vec![area.to_owned()]);
    let none: [&str; 0] = [];
    match access.need {
        Need::Nothing => operation.security = Some(Vec::new()),
        Need::Caller | Need::Permission(_) => {
            operation.security = Some(
                ["token", "session", "certificate"].map(|name| SecurityRequirement::new(name, none)).into(),
            );
        }
    }
    if let Need::Permission(permission) = access.need {
        let reach = if access.scoped { "in a scope that includes the object" } else { "in scope `any`" };
        note(operation, format!("Needs the permission `{permission}` {reach}."));
    }
    if recent_proof {
        let minutes = PROOF_LIFETIME.as_secs() / 60;
        let text = format!(
            "A session must have been signed in or confirmed within the last {minutes} minutes \
             (`reauthentication-required`); tokens and client certificates need no confirmation."
        );
        note(operation, text);
    }
    let responses = &mut operation.responses.responses;
    for (status, response) in responses.iter_mut() {
        // OpenAPI requires a description for each response; a doc comment of the body's type may already provide one.
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            response.description = meaning(status).to_owned();
        }
    }
    // A range for generated clients and linters that expect one; the default covers the rest, 5xx.
    for status in ["4XX", "default"] {
        responses.entry(status.to_owned()).or_insert_with(|| {
            let content =
                ContentBuilder::new().schema(Some(RefOr::Ref(Ref::from_schema_name("Problem")))).build();
            let refusal = ResponseBuilder::new()
                .description("An error, as a problem document (RFC 9457)")
                .content(MEDIA_TYPE, content);
            RefOr::T(refusal.build())
        });
    }
}

/// Adds a paragraph to the description of an operation.
fn note(operation: &mut Operation, note: String) {
    operation.description = Some(match operation.description.take() {
        Some(text) if !text.is_empty() => format!("{text}\n\n{note}"),
        _ => note,
    });
}

/// Returns the general meaning of a status code (RFC 9110 section 15).
fn meaning(status: &str) -> &'static str {
    match status {
        "201" => "Created",
        "202" => "Accepted: processing continues",
        "204" => "Done; the response has no body",
        "303" => "See the address in `Location`",
        "304" => "Not modified since the given `ETag`",
        _ => "Done",
    }
}
