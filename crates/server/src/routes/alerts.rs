//! Routes: alerts.

use crate::api::Api;

pub(crate) fn routes() -> Api {
    Api::area("alerts")
}
