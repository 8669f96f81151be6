//! The proxy of a server process: held requests, and replays of recent requests.

use serde::{Deserialize, Serialize};

/// A request that the proxy holds until a person approves or rejects it. The headers, the query and the body of the request are not
/// included.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = HeldRequest))]
pub struct HeldRequestView {
    /// Identifier of the held request, used in `/api/v1/proxy/held/{id}`.
    #[cfg_attr(feature = "schemas", schema(example = "0a1b2c3d4e"))]
    pub id: String,
    /// The client, as in the proxy's audit log: `identity:NAME`, `user:NAME` or `address:IP`.
    #[cfg_attr(feature = "schemas", schema(example = "identity:ci"))]
    pub client: String,
    /// Identity of the client, if it has one.
    pub identity: Option<String>,
    /// The name under which the client authenticated, if any.
    pub user: Option<String>,
    /// Method; `CONNECT` for a tunnel.
    pub method: String,
    /// URL without query; `HOST:PORT` for a tunnel.
    #[cfg_attr(feature = "schemas", schema(example = "https://api.github.com/repos/acme/shop/releases"))]
    pub url: String,
    /// The rule of the policy that holds the request.
    pub rule: String,
    /// Names of the credentials that the request gets if it is approved; never their values.
    #[serde(default)]
    pub credentials: Vec<String>,
    /// Arrival of the request, RFC 3339.
    pub since: String,
    /// Time at which the proxy refuses the request if there is no decision, RFC 3339.
    pub deadline: String,
    /// A rule for the configuration file (TOML) that allows such requests. Present only in the response of `GET
    /// /api/v1/proxy/held/{id}`. Absent if no rule can name the request exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowing_rule: Option<String>,
}

/// An approval of a held request.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ApproveHeldBody {
    /// Duration in seconds for which equal requests are also approved: requests of the same client and user, with the same rule,
    /// method, host, port and path. Query, headers and body may differ. When absent, only this request is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schema(minimum = 1, maximum = 86_400, example = 3600))]
    pub for_s: Option<u64>,
}

/// A rejection of a held request.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RejectHeldBody {
    /// Reason that the client receives in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schema(max_length = 1000, example = "not on Fridays"))]
    pub reason: Option<String>,
}

/// Response to the approval of a held request.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = HeldApproval))]
pub struct HeldApprovalView {
    /// The request that was approved.
    pub request: HeldRequestView,
    /// Number of requests that are sent now: the approved request, and equal requests that also waited for approval.
    pub sent: usize,
}

/// The request that a replay of a recent request would send under the current rules.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = ReplayPlan))]
pub struct ReplayPlanView {
    /// Reason why the request cannot be replayed; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// HTTP method of the replay.
    pub method: Option<String>,
    /// URL of the replay.
    pub url: Option<String>,
    /// Client identity under which the replay is sent.
    pub identity: Option<String>,
    /// Decision of the policy: `allow` or `log`; null without a policy.
    pub decision: Option<String>,
    /// The rule of the policy that decides.
    pub policy_rule: Option<String>,
    /// Names of the credentials that the proxy injects; never their values.
    #[serde(default)]
    pub credentials: Vec<String>,
}
