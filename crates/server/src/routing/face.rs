//! Operations of listeners other than the API's. One table registers each operation with its required permission, so that no
//! operation lacks a permission. The authorization matrix is generated from the same table.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter};
use http::Method;

use super::endpoint::{Endpoint, endpoint};
use super::need::NonApiAccess;

/// A registered operation of a listener other than the API's, with its required permission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NonApiOperation {
    /// HTTP method of the operation.
    pub method: Method,
    /// Path template of the operation.
    pub path: String,
    /// The permission that a caller needs.
    pub need: NonApiAccess,
}

type PathResponseFuture = std::pin::Pin<Box<dyn Future<Output = axum::response::Response> + Send>>;

/// The operations of one path, by HTTP method.
pub(crate) struct PathOperations<S>(Vec<(Method, NonApiAccess, Endpoint<S>)>);

impl<S: Clone + Send + Sync + 'static> PathOperations<S> {
    /// Creates an empty set of operations.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn on<H, T>(mut self, method: Method, need: NonApiAccess, handler: H) -> Self
    where
        H: Handler<T, S, Future = PathResponseFuture>,
    {
        self.0.push((method, need, endpoint(handler)));
        self
    }

    fn methods(&self) -> MethodRouter<S> {
        self.0.iter().fold(MethodRouter::new(), |router, (method, _, endpoint)| {
            // Every method is one of the nine that the framework knows.
            match MethodFilter::try_from(method.clone()) {
                Ok(filter) => router.on(filter, endpoint.clone()),
                Err(_) => router.fallback(endpoint.clone()),
            }
        })
    }
}

macro_rules! by_method {
    ($($name:ident: $method:ident),*) => {
        impl<S: Clone + Send + Sync + 'static> PathOperations<S> {
            $(pub(crate) fn $name<H, T>(self, need: NonApiAccess, handler: H) -> Self
            where
                H: Handler<T, S, Future = PathResponseFuture>,
            {
                self.on(Method::$method, need, handler)
            })*
        }
    };
}

by_method!(get: GET, post: POST, put: PUT, patch: PATCH, delete: DELETE);

/// The operations of a listener, by path.
pub(crate) struct OperationTable<S>(Vec<(String, PathOperations<S>)>);

impl<S: Clone + Send + Sync + 'static> OperationTable<S> {
    /// Creates a set without operations.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn route(mut self, path: &str, operations: PathOperations<S>) -> Self {
        self.0.push((path.to_owned(), operations));
        self
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the dispatch table, with `prefix` before each path.
    pub(crate) fn operations(&self, prefix: &str) -> Vec<NonApiOperation> {
        let all = self.0.iter().flat_map(|(path, operations)| {
            operations.0.iter().map(move |(method, need, _)| NonApiOperation {
                method: method.clone(),
                path: format!("{prefix}{path}"),
                need: *need,
            })
        });
        all.collect()
    }

    /// Returns a router with a route for each path.
    pub(crate) fn router(&self) -> Router<S> {
        self.0
            .iter()
            .fold(Router::new(), |router, (path, operations)| router.route(path, operations.methods()))
    }

    /// Returns a router with two routes for each path: without and with a trailing slash.
    pub(crate) fn router_with_slashes(&self) -> Router<S> {
        self.0.iter().fold(Router::new(), |router, (path, operations)| {
            router.route(path, operations.methods()).route(&format!("{path}/"), operations.methods())
        })
    }
}
