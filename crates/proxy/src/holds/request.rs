//! A held request, and the rule that would allow it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use x509::Fingerprint;

use crate::policy::{Policy, PolicyRuleText, PolicyText, SessionProtocol, normalised};

/// Method of a tunnel that waits for approval.
const CONNECT: &str = "CONNECT";
/// Port that a rule applies to by default.
const USUAL_PORT: u16 = 443;

/// A request that waits for an approval, without its header, query and body.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HeldRequest {
    /// Id, for `bulla proxy approve`.
    pub id: String,
    /// The client, as in the audit log: `identity:NAME`, `user:NAME` or `address:IP`.
    pub client: String,
    /// Identity of the client, if it has one.
    pub identity: Option<String>,
    /// The name under which the client authenticated, if it did.
    #[serde(default)]
    pub user: Option<String>,
    /// Method; `CONNECT` for a tunnel.
    pub method: String,
    /// URL without query; `HOST:PORT` for a tunnel.
    pub url: String,
    /// Verified host of the connection, never an unverified `Host` header.
    pub host: String,
    /// TCP port of the host.
    pub port: u16,
    /// Path; empty for a tunnel. At most 2,048 bytes.
    pub path: String,
    /// The rule that holds the request.
    pub rule: String,
    /// Names of the credentials that the request gets if it is approved, by the rules at its arrival; never their values.
    #[serde(default)]
    pub credentials: Vec<String>,
    /// Arrival time of the request.
    pub since: Timestamp,
    /// Time at which the proxy refuses the request if there is no decision.
    pub deadline: Timestamp,
}

/// Reason why no policy rule can be written that allows exactly this request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoRule {
    /// The path is ambiguous, or too long for a rule.
    #[error("no rule can be written for this path: the path is ambiguous, or longer than 1,024 bytes")]
    Path,
    /// The path contains `*`, which is a wildcard in rules.
    #[error("the path contains `*`, which is a wildcard in rules")]
    Wildcard,
}

impl HeldRequest {
    /// Returns a rule that allows this request: for its identity, host, port, method and path.
    ///
    /// # Errors
    /// [`NoRule`]
    pub fn allowing_rule(&self) -> Result<PolicyRuleText, NoRule> {
        let Self { host, port, method, path, .. } = self;
        let identity = self.identity.as_deref();
        let request = AllowedRequest { identity, host, port: *port, method, path };
        request.rule(format!("approved-{}", self.id))
    }
}

/// A request from which a policy rule is generated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowedRequest<'a> {
    pub(crate) identity: Option<&'a str>,
    /// Verified host.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Method; `CONNECT` for a tunnel.
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

impl AllowedRequest<'_> {
    /// Returns a rule with this name that allows the request.
    ///
    /// # Errors
    /// [`NoRule`]
    pub(crate) fn rule(&self, name: String) -> Result<PolicyRuleText, NoRule> {
        let is_tunnel = self.method == CONNECT;
        if let Some(protocol) = SessionProtocol::of_method(self.method) {
            return Ok(self.session_rule(name, protocol));
        }
        let path = match is_tunnel {
            true => Vec::new(),
            false if self.path.contains('*') => return Err(NoRule::Wildcard),
            false => vec![normalised(self.path).map_err(|_| NoRule::Path)?.into_owned()],
        };
        let rule = PolicyRuleText {
            name,
            identities: self.identity.into_iter().map(str::to_owned).collect(),
            host: vec![self.host.to_owned()],
            port: Some(self.port).filter(|port| *port != USUAL_PORT).into_iter().collect(),
            method: if is_tunnel { Vec::new() } else { vec![self.method.to_owned()] },
            path,
            ..PolicyRuleText::default()
        };
        // Compiled without identity names, because the compiler rejects names that the policy does not define.
        let unnamed = PolicyRuleText { identities: Vec::new(), ..rule.clone() };
        let text = PolicyText { rules: vec![unnamed], ..PolicyText::default() };
        Policy::compile(&text).map(|_| rule).map_err(|_| NoRule::Path)
    }

    /// Returns a rule that allows a session with the database.
    fn session_rule(&self, name: String, protocol: SessionProtocol) -> PolicyRuleText {
        PolicyRuleText {
            name,
            identities: self.identity.into_iter().map(str::to_owned).collect(),
            host: vec![self.host.to_owned()],
            port: Some(self.port).filter(|port| *port != protocol.usual_port()).into_iter().collect(),
            database: vec![self.path.trim_start_matches('/').to_owned()],
            ..PolicyRuleText::default()
        }
    }
}

/// Identifies equal requests: client, user, rule, method, scheme, host, port and the exact path. A remembered approval applies to
/// all requests with the same key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct HoldKey(Fingerprint);

impl HoldKey {
    /// Creates the key of a request. `url` is complete, without the query. Users of one identity have different keys: otherwise a
    /// user who approves another user's request would also approve their own requests.
    pub(crate) fn new(client: (&str, Option<&str>), rule: &str, method: &str, url: &str) -> Self {
        // The parts are escaped and quoted, so that their boundaries are unambiguous.
        Self(Fingerprint::of(format!("{client:?} {rule:?} {method:?} {url:?}").as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_request(method: &str, host: &str, port: u16, path: &str) -> HeldRequest {
        HeldRequest {
            id: "0a1b2c3d4e".into(),
            client: "identity:ci".into(),
            identity: Some("ci".into()),
            user: None,
            method: method.into(),
            url: format!("https://{host}:{port}{path}"),
            host: host.into(),
            port,
            path: path.into(),
            rule: "deploy".into(),
            credentials: Vec::new(),
            since: Timestamp::UNIX_EPOCH,
            deadline: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn allowing_rule_names_exactly_the_held_request() {
        let rule = held_request("POST", "a.example", 8443, "/x/%41").allowing_rule().unwrap();
        assert_eq!(
            (rule.host, rule.port, rule.method),
            (vec!["a.example".to_owned()], vec![8443], vec!["POST".to_owned()])
        );
        assert_eq!((rule.path, rule.identities), (vec!["/x/A".to_owned()], vec!["ci".to_owned()]));
        assert!(held_request("GET", "a.example", 443, "/").allowing_rule().unwrap().port.is_empty());
        let session = held_request("POSTGRESQL", "a.example", 5432, "/shop").allowing_rule().unwrap();
        assert!(session.database == ["shop"] && session.port.is_empty() && session.method.is_empty());
        let redis = held_request("REDIS", "a.example", 6379, "/0").allowing_rule().unwrap();
        assert!(redis.database == ["0"] && redis.port.is_empty() && redis.method.is_empty());
        let tunnel = held_request("CONNECT", "a.example", 443, "").allowing_rule().unwrap();
        assert!(tunnel.method.is_empty() && tunnel.path.is_empty());
        for (path, error) in [("/a*", NoRule::Wildcard), ("/a/../b", NoRule::Path), ("/a%2fb", NoRule::Path)]
        {
            assert_eq!(held_request("GET", "a.example", 443, path).allowing_rule(), Err(error), "{path}");
        }
        assert_eq!(
            held_request("GET", "a.example", 443, &format!("/{}", "a".repeat(1_024))).allowing_rule(),
            Err(NoRule::Path)
        );
    }
}
