//! Routes: oidc.

use crate::api::Api;

pub(crate) fn routes() -> Api {
    Api::area("oidc")
}
