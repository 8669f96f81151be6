//! Type-erased handlers.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::MethodRouter;
use utoipa::__dev::{SchemaReferences, Tags};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{HttpMethod, Operation, Paths};
use utoipa::openapi::schema::Schema;
use utoipa_axum::PathItemExt;
use utoipa_axum::router::UtoipaMethodRouter;

use crate::state::State;

/// The future of a handler's response.
type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A type-erased handler. The framework compiles its code around a handler once for each handler type, and there are hundreds of
/// handlers. With this single type, the code is compiled once.
pub(crate) struct Endpoint<S>(Arc<dyn Fn(Request, S) -> ResponseFuture + Send + Sync>);

impl<S> Clone for Endpoint<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Send + Sync + 'static> Handler<(), S> for Endpoint<S> {
    type Future = ResponseFuture;

    fn call(self, request: Request, state: S) -> ResponseFuture {
        (self.0)(request, state)
    }
}

/// Erases the type of a handler. A call costs one additional indirection and no allocation.
pub(crate) fn endpoint<H, T, S>(handler: H) -> Endpoint<S>
where
    H: Handler<T, S, Future = ResponseFuture>,
    S: 'static,
{
    Endpoint(Arc::new(move |request, state| handler.clone().call(request, state)))
}

/// Converts a documented handler for [`Api::route`](super::Api::route); see the macro [`routes`].
pub(crate) fn described<P, H, T>(handler: H) -> UtoipaMethodRouter<State>
where
    P: utoipa::Path + SchemaReferences + for<'t> Tags<'t>,
    H: Handler<T, State, Future = ResponseFuture>,
{
    let mut schemas = Vec::new();
    P::schemas(&mut schemas);
    registered((P::path(), P::methods(), P::operation(), P::tags()), schemas, endpoint(handler))
}

fn registered(
    (path, methods, mut operation, tags): (String, Vec<HttpMethod>, Operation, Vec<&str>),
    schemas: Vec<(String, RefOr<Schema>)>,
    endpoint: Endpoint<State>,
) -> UtoipaMethodRouter<State> {
    if !tags.is_empty() {
        operation.tags.get_or_insert_default().extend(tags.into_iter().map(str::to_owned));
    }
    let router = methods
        .iter()
        .fold(MethodRouter::new(), |router, method| router.on(method.to_method_filter(), endpoint.clone()));
    let mut paths = Paths::new();
    paths.add_path_operation(path, methods, operation);
    (schemas, paths, router)
}

/// Converts a handler with `#[utoipa::path]`, including its description, for [`Api::route`](super::Api::route).
macro_rules! routes {
    ($handler:ident) => {
        utoipa_axum::paste! { $crate::routing::described::<[<__path_ $handler>], _, _>($handler) }
    };
}

pub(crate) use routes;
