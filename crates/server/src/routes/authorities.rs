//! CAs, their certificates, and revocations.

mod issued;
mod problems;
mod publications;
mod revocations;
mod tree;

pub(crate) use issued::object_of;

use crate::routing::Api;

pub(crate) fn routes() -> Api {
    tree::routes().merge(issued::routes()).merge(revocations::routes()).merge(publications::routes())
}
