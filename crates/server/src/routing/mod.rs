//! How routes are registered: each with what it needs, so that none exists without.

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
pub use face::FaceOperation;
pub(crate) use face::{Face, OnPath};
pub use need::{Access, FaceNeed, Need};

/// A route as registered.
#[derive(Clone, Debug)]
pub struct RouteInfo {
    /// The area it belongs to: its tag in the API's description.
    pub area: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path as a template.
    pub path: String,
    /// The permission that a caller needs.
    pub need: Need,
    /// Whether a permission in a narrower scope lets in.
    pub scoped: bool,
    /// Whether a session needs a recent proof of who its person is.
    pub recent_proof: bool,
}

/// The routes of an area, and how they are put together.
pub struct Api {
    area: &'static str,
    parts: Vec<(&'static str, Access, UtoipaMethodRouter<State>)>,
}

impl Api {
    /// An area without routes. Its name is its tag in the API's description.
    #[must_use]
    pub fn area(area: &'static str) -> Self {
        Self { area, parts: Vec::new() }
    }

    /// Adds what `routes!(handler)` made. Handlers given together need the same.
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

    /// Every route guarded, with its description.
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
                methods.route_layer(from_fn_with_state(guard, guard::guarded))
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

/// Adds what every operation has in common: its tag, its permission, how to authenticate, and the refusals.
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
        let reach = if access.scoped { "in the scope of what is reached" } else { "in scope `any`" };
        note(operation, format!("Needs the permission `{permission}` {reach}."));
    }
    if recent_proof {
        let minutes = PROOF_LIFETIME.as_secs() / 60;
        let text = format!(
            "A session must have signed in or been confirmed within the last {minutes} minutes \
             (`reauthentication-required`); tokens and client certificates need not."
        );
        note(operation, text);
    }
    let responses = &mut operation.responses.responses;
    for (status, response) in responses.iter_mut() {
        // OpenAPI wants a description of each; a doc comment of the body's type may have given one.
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            response.description = meaning(status).to_owned();
        }
    }
    // A range for generated clients and linters that look for one; the default is what is left, 5xx.
    for status in ["4XX", "default"] {
        responses.entry(status.to_owned()).or_insert_with(|| {
            let content =
                ContentBuilder::new().schema(Some(RefOr::Ref(Ref::from_schema_name("Problem")))).build();
            let refusal = ResponseBuilder::new()
                .description("A refusal, as a problem document (RFC 9457)")
                .content(MEDIA_TYPE, content);
            RefOr::T(refusal.build())
        });
    }
}

/// Adds a paragraph to the description.
fn note(operation: &mut Operation, note: String) {
    operation.description = Some(match operation.description.take() {
        Some(text) if !text.is_empty() => format!("{text}\n\n{note}"),
        _ => note,
    });
}

/// What a status says where nothing more is known (RFC 9110 section 15).
fn meaning(status: &str) -> &'static str {
    match status {
        "201" => "Created",
        "202" => "Accepted: the work goes on",
        "204" => "Done; the response has no body",
        "303" => "The address in `Location` has it",
        "304" => "Not modified since the `ETag` that was given",
        _ => "Done",
    }
}
