//! Certification authorities, what they issued, and its revocation.

mod issued;
mod problems;
mod revocations;
mod tree;

use crate::routing::Api;

pub(crate) fn routes() -> Api {
    tree::routes().merge(issued::routes()).merge(revocations::routes())
}
