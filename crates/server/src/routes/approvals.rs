//! Routes: approvals.

use crate::api::Api;

pub(crate) fn routes() -> Api {
    Api::area("approvals")
}
