//! Access to the held and recent requests of the proxy in this process. A held request waits for approval.

use std::time::Duration;

use api::proxy::{HeldApprovalView, HeldRequestView, ReplayPlanView};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

/// Maximum time for which an approval also applies to later, equal requests.
pub(crate) const APPROVAL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Filter of the recent requests of the proxy.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecentQuery {
    /// Name of an identity or user, or address of a client.
    pub identity: Option<String>,
    /// Text that the host contains.
    pub host: Option<String>,
    /// Only requests that the proxy refused.
    pub denied: Option<bool>,
    /// Maximum number of requests; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Access to the requests of the proxy in this process. For a proxy in another process, use the control socket of that proxy.
pub trait ProxyRequests: Send + Sync {
    /// Returns the requests that wait for approval, longest wait first.
    fn held(&self) -> Vec<HeldRequestView>;

    /// Returns a held request with the rule that would allow it; `None` if no request with this ID is held.
    fn held_one(&self, id: &str) -> Option<HeldRequestView>;

    /// Approves a held request as `by`. With `remember` (at most 24 hours), equal requests are approved for that time as well.
    ///
    /// # Errors
    /// [`NotHeld`]
    fn approve(&self, id: &str, remember: Option<Duration>, by: &str) -> Result<HeldApprovalView, NotHeld>;

    /// Rejects a held request as `by`. The client gets the reason.
    ///
    /// # Errors
    /// [`NotHeld`]
    fn reject(&self, id: &str, reason: Option<String>, by: &str) -> Result<HeldRequestView, NotHeld>;

    /// Returns recent requests, newest first; `None` if the proxy keeps no recent requests.
    fn recent(&self, query: &RecentQuery) -> Option<Vec<Value>>;

    /// Returns the completed recent requests as a HAR 1.2 log, newest first; `None` if the proxy keeps no recent requests.
    fn recent_har(&self, query: &RecentQuery) -> Option<Value>;

    /// Returns a recent request with the rule that would allow it; `None` if the proxy no longer keeps this request.
    fn recent_one(&self, id: &str) -> Option<Value>;

    /// Returns the request that a replay of a recent request would send, or the reason why a replay is refused.
    fn replay_plan<'a>(&'a self, id: &'a str) -> BoxFuture<'a, ReplayPlanView>;

    /// Sends a recent request again with the identity of its client, on behalf of the user `by`. Returns the new request when its
    /// response has ended, or after 30 seconds.
    ///
    /// # Errors
    /// [`NotReplayed`]
    fn replay<'a>(&'a self, id: &'a str, by: &'a str) -> BoxFuture<'a, Result<Value, NotReplayed>>;
}

/// The reason why a request cannot be replayed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct NotReplayed(pub String);

/// No request with the ID is held: it was approved or rejected, its deadline has passed, or its client has closed the connection.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct NotHeld(pub String);
