//! Credentials: the tree of paths, one credential, its value on request, and changes.

mod change;
mod one;
mod tree;
mod value;

use axum::Router;

use crate::api::Api;

pub(crate) fn routes() -> Router<Api> {
    Router::new().merge(tree::routes()).merge(one::routes()).merge(value::routes()).merge(change::routes())
}
