//! Routes: profiles.

use crate::api::Api;

pub(crate) fn routes() -> Api {
    Api::area("profiles")
}
