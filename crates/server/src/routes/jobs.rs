//! Routes: jobs.

use crate::api::Api;

pub(crate) fn routes() -> Api {
    Api::area("jobs")
}
