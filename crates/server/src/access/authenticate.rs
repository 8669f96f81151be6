//! From a request to its caller.

use http::request::Parts;

use crate::access::Caller;
use crate::problem::Problem;
use crate::state::State;

/// The session's cookie. The prefix binds it to this host and to TLS (RFC 6265bis section 4.1.3.2).
pub(crate) const SESSION_COOKIE: &str = "__Host-bulla";

/// Who asks.
///
/// # Errors
/// 401 when nobody has shown who they are.
pub(crate) async fn authenticate(_: &State, _: &Parts) -> Result<Caller, Problem> {
    Err(Problem::unauthenticated("this needs an authenticated caller"))
}
