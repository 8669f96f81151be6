//! Replays: the proxy sends a recent request again on behalf of its client, under the current policy and with the current values of
//! the credentials.
//!
//! The proxy does not keep the query, header and body of a request. So it can replay only requests without query and body, and sets
//! the header itself.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use http_relay::access_log::{Original, Replay};
use http_relay::client::{Client, Credential};
use http_relay::client_body::ClientBody;
use http_relay::clock::now;
use http_relay::target::{Origin, Target};
use hyper::Request;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::http::uri::{Authority, PathAndQuery, Uri};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;
use x509::HostOrIp;

use crate::connection_context::ConnectionContext;
use crate::policy::Action as Decided;
use crate::proxy::Proxy;
use crate::recent::RecentRequest;
use crate::rules::Action;

/// Timeout of a replay, including the body of its response. The proxy does not read the rest of the response after the timeout.
pub const REPLAY_WITHIN: Duration = Duration::from_secs(30);
/// `User-Agent` of a replay. Some servers require one.
const USER_AGENT_VALUE: &str = "bulla-replay";

/// Sends recent requests of a proxy again, once the proxy [runs](crate::Running::serve_replays). Clones share the proxy.
#[derive(Clone, Default)]
pub struct Replays(Arc<Mutex<Weak<Proxy>>>);

impl std::fmt::Debug for Replays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replays")
    }
}

/// The request that a replay would send, and the decision of the current policy about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReplayPlan {
    /// HTTP method of the original request.
    pub method: String,
    /// Complete URL, without a query.
    pub url: String,
    /// Identity of the client, if the policy has one for it.
    pub identity: Option<Arc<str>>,
    /// Decision of the policy; `None` without a policy.
    pub decision: Option<&'static str>,
    /// Name of the policy rule that decides, if one does.
    pub policy_rule: Option<Arc<str>>,
    /// Names of the credentials that are injected, never their values.
    pub credentials: Vec<String>,
}

/// Reason why a request cannot be replayed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// The proxy has no request with this number, or no longer keeps it.
    #[error("the recent requests of the proxy have no request {0}")]
    NotFound(String),
    /// No proxy runs in this process, or the proxy keeps no requests.
    #[error("no proxy that keeps requests runs in this process")]
    NotRunning,
    /// The entry has no HTTP request: its connection was tunneled or rejected.
    #[error("this entry has no HTTP request to replay: the connection was passed through or rejected")]
    NoRequest,
    /// The proxy does not keep all that a replay of this request needs: for example, the request had a query or a body. Contains
    /// the reason.
    #[error("{0}")]
    Incomplete(&'static str),
    /// The client now has no identity, or another identity than in the original request. Contains the current identity.
    #[error("the client has another identity now: {}", .0.as_deref().unwrap_or("none"))]
    OtherIdentity(Option<Arc<str>>),
    /// The client may no longer use the proxy, or can authenticate only on its own connection.
    #[error("the client may no longer use the proxy: {0}")]
    Client(&'static str),
    /// The proxy does not intercept connections to the host.
    #[error("the rules of the proxy no longer intercept connections to this host")]
    NotIntercepted,
    /// The policy denies the replay. Contains the rule that decided, if one did.
    #[error("the policy denies the request: {}", .0.as_deref().map_or("no rule allows it".to_owned(), |rule| format!("rule {rule}")))]
    Denied(Option<Arc<str>>),
    /// A rule of the policy would hold the replay for an approval. Contains the name of the rule.
    #[error("{} of the policy holds this request for approval: only the client can send a request that is held", .0.as_deref().map_or("a rule".to_owned(), |rule| format!("rule {rule}")))]
    Held(Option<Arc<str>>),
    /// The permission service does not permit a leaf certificate for the host.
    #[error("the permission service does not permit this host")]
    NotPermitted,
    /// The replay failed before a response began.
    #[error("no response began within {} s", REPLAY_WITHIN.as_secs())]
    NoResponse,
}

/// A replay that passed the checks of the client, the rules and the policy.
struct Prepared {
    plan: ReplayPlan,
    request: Request<ClientBody>,
    context: ConnectionContext,
}

impl Replays {
    /// Replays requests of `proxy` from now on.
    pub(crate) fn connect(&self, proxy: Weak<Proxy>) {
        *self.0.lock() = proxy;
    }

    /// Returns the request that a replay of the request `id` would send, and the decision about it.
    ///
    /// # Errors
    /// [`ReplayError`]
    #[crate::boxed]
    pub async fn plan(&self, id: u64) -> Result<ReplayPlan, ReplayError> {
        Ok(self.proxy()?.prepare(id).await?.plan)
    }

    /// Sends the request `id` again, for the person `by`. Returns the new request, once its response has ended. The body of the response
    /// is read and discarded.
    ///
    /// # Errors
    /// [`ReplayError`]
    #[crate::boxed]
    pub async fn replay(&self, id: u64, by: &str) -> Result<RecentRequest, ReplayError> {
        let proxy = self.proxy()?;
        let Prepared { mut request, context, .. } = proxy.prepare(id).await?;
        let origin = &context.origin;
        if origin.server.is_some() && proxy.permits_target(&origin.target, &context.client).await.is_err() {
            return Err(ReplayError::NotPermitted);
        }
        let replay = Replay { of: id, by: by.into() };
        request.extensions_mut().insert(replay.clone());
        let sent = async {
            let mut body = std::pin::pin!(proxy.exchange(request, &context).await.into_body());
            while let Some(Ok(_)) = body.frame().await {}
        };
        // The timeout drops the future, with the same effect as a client that disconnects.
        let _ = tokio::time::timeout(REPLAY_WITHIN, Box::pin(sent)).await;
        let recent = proxy.options.recent.as_ref().ok_or(ReplayError::NotRunning)?;
        recent.replayed(&replay).ok_or(ReplayError::NoResponse)
    }

    fn proxy(&self) -> Result<Arc<Proxy>, ReplayError> {
        self.0.lock().upgrade().ok_or(ReplayError::NotRunning)
    }
}

impl Proxy {
    async fn prepare(&self, id: u64) -> Result<Prepared, ReplayError> {
        let recent = self.options.recent.as_ref().ok_or(ReplayError::NotRunning)?;
        let (stored, original) = recent.original(id).ok_or(ReplayError::NotFound(id.to_string()))?;
        let Original { client, incomplete, .. } = original.ok_or(ReplayError::NoRequest)?;
        if let Some(reason) = incomplete {
            return Err(ReplayError::Incomplete(reason));
        }
        self.check_client(&client)?;
        let (request, context) = request_of(&stored, client).ok_or(ReplayError::NoRequest)?;
        let target = &context.origin.target;
        let name = context.origin.server.as_ref().unwrap_or(&target.name);
        match self.action_of(target, name).await {
            Action::Tunnel if context.origin.server.is_some() => return Err(ReplayError::NotIntercepted),
            Action::Reject => return Err(ReplayError::NotIntercepted),
            _ => {}
        }
        let foreseen = self.foresee(&context, &request, name);
        if foreseen.identity != stored.identity {
            return Err(ReplayError::OtherIdentity(foreseen.identity));
        }
        let policy_rule = foreseen.decision.as_ref().and_then(|decision| decision.rule.clone());
        let decision = foreseen.decision.map(|decision| decision.action);
        match decision {
            Some(Decided::Hold) => return Err(ReplayError::Held(policy_rule)),
            Some(action) if !action.permits() => return Err(ReplayError::Denied(policy_rule)),
            _ => {}
        }
        let plan = ReplayPlan {
            method: stored.method.clone(),
            url: stored.url(),
            identity: foreseen.identity,
            decision: decision.map(Decided::name),
            policy_rule,
            credentials: foreseen.credentials,
        };
        Ok(Prepared { plan, request, context })
    }

    /// Checks that the client could still authenticate, as far as the proxy can determine this without a connection of the client.
    fn check_client(&self, client: &Client) -> Result<(), ReplayError> {
        let reason = match &client.credential {
            _ if !self.permits_network(client) => "its network is not in proxy.clients",
            Credential::Certificate(_) => {
                "it authenticated by a certificate, which only its own connection can present"
            }
            Credential::Jwt(token) if token.expires <= now().0 => "its token has expired",
            _ if client.ended().now_or_never().is_some() => "its password or token was removed or changed",
            _ => return Ok(()),
        };
        Err(ReplayError::Client(reason))
    }
}

/// Returns the request to send, with the context of a simulated connection of its client.
fn request_of(stored: &RecentRequest, client: Client) -> Option<(Request<ClientBody>, ConnectionContext)> {
    let is_tls = stored.scheme? == "https";
    let name = HostOrIp::parse(&stored.host).ok()?;
    let target = Target { name: name.clone(), port: stored.port?, redirected: false };
    let uri: Uri = stored.url().parse().ok()?;
    let host = uri.authority().map(Authority::as_str)?.to_owned();
    // Inside TLS, the URI of a request has only the path.
    let uri = match is_tls {
        true => uri.path_and_query().map_or("/", PathAndQuery::as_str).parse().ok()?,
        false => uri,
    };
    let request = Request::builder()
        .method(stored.method.as_str())
        .uri(uri)
        .header(HOST, host)
        .header(ACCEPT, "*/*")
        .header(USER_AGENT, USER_AGENT_VALUE)
        .body(ClientBody::empty())
        .ok()?;
    let origin = Origin {
        target,
        server: is_tls.then_some(name),
        tls: None,
        http2: false,
        absolute_form: !is_tls,
        may_be_local: client.is_local(),
    };
    let origin = Arc::new(origin);
    Some((request, ConnectionContext { origin, client, mirrored: None, tunnels: TaskTracker::new() }))
}
