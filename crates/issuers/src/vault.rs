//! Issuers that use the PKI secrets engine of HashiCorp Vault or OpenBao.

use std::time::{Duration, Instant};

use callout::{HttpClient, Reply, Request, excerpt};
use futures_util::future::{BoxFuture, FutureExt};
use keys::Secret;
use outbound::resolve::Resolver;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Clock;
use tokio::sync::Mutex;
use x509::crl::Reason;
use x509::{Certificate, GeneralName, UnixTime, pem};

use crate::config::{IssuerKind, VaultAuth, VaultConfig};
use crate::delivery::{DeliveredChain, parse_pem_chain};
use crate::error::IssuerError;
use crate::host_policy::HostPolicy;
use crate::issuer::Issuer;
use crate::order::Order;
use crate::readable_files::ReadableFiles;

/// Timeout of a request outside an order.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A token is renewed after its lifetime divided by this number: after half of its lifetime.
const RENEW_PARTS: i64 = 2;
/// Minimum lifetime in seconds of a token that is worth renewing.
const LIFE_MIN: i64 = 10;
const SECOND_US: i64 = 1_000_000;

/// An issuer that uses one role of a Vault PKI mount.
pub(crate) struct Vault {
    config: VaultConfig,
    http: HttpClient,
    clock: Clock,
    files: ReadableFiles,
    session: Mutex<Option<Session>>,
}

/// A token and its renewal time.
#[derive(Clone)]
struct Session {
    token: Secret,
    /// Time in µs from which to renew the token or log in again. `None` for a token without expiry.
    renew_at_us: Option<i64>,
    renewable: bool,
}

#[derive(Deserialize)]
struct VaultResponse<T> {
    data: Option<T>,
    auth: Option<Auth>,
}

#[derive(Deserialize)]
struct Auth {
    client_token: Secret,
    #[serde(default)]
    lease_duration: i64,
    #[serde(default)]
    renewable: bool,
}

#[derive(Deserialize)]
struct TokenFacts {
    #[serde(default)]
    ttl: i64,
    #[serde(default)]
    renewable: bool,
}

#[derive(Deserialize)]
struct Signed {
    certificate: String,
    #[serde(default)]
    issuing_ca: String,
    #[serde(default)]
    ca_chain: Option<Vec<String>>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault")
            .field("url", &self.config.url)
            .field("mount", &self.config.mount)
            .finish_non_exhaustive()
    }
}

impl Vault {
    pub(crate) fn new(
        config: &VaultConfig,
        clock: Clock,
        resolver: &Resolver,
        host: &HostPolicy,
    ) -> Result<Self, IssuerError> {
        if let VaultAuth::Kubernetes { token_file, .. } = &config.auth {
            host.files.check(token_file)?;
        }
        let http = HttpClient::new(&config.http, resolver)?;
        http.guard().url(&config.url).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        let auth_mount = match &config.auth {
            VaultAuth::Token { .. } => "token",
            VaultAuth::AppRole { mount, .. } | VaultAuth::Kubernetes { mount, .. } => mount,
        };
        for path in [&config.mount, &config.role, auth_mount] {
            check_path(path)?;
        }
        let files = host.files.clone();
        Ok(Self { config: config.clone(), http, clock, files, session: Mutex::default() })
    }

    fn url(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.config.url.trim_end_matches('/'))
    }

    async fn send(
        &self,
        request: Request<'_>,
        token: Option<&Secret>,
        deadline: Instant,
    ) -> Result<Reply, IssuerError> {
        let mut request = request.header("x-vault-request", "true");
        if let Some(namespace) = &self.config.namespace {
            request = request.header("x-vault-namespace", namespace.as_str());
        }
        if let Some(token) = token {
            request = request.header("x-vault-token", token.expose());
        }
        let reply = self.http.send(request, deadline, "waiting for Vault").await?;
        if reply.status.is_success() {
            return Ok(reply);
        }
        Err(error_of(&reply, UnixTime(self.clock.now_seconds())))
    }

    /// Sends a request with the token. Logs in again once if Vault rejects the token.
    async fn call(
        &self,
        make_request: impl Fn() -> RepeatableRequest,
        deadline: Instant,
    ) -> Result<Reply, IssuerError> {
        let token = self.token(deadline).await?;
        let request = make_request();
        match self.send(request.request(), Some(&token), deadline).await {
            Err(IssuerError::Denied { .. }) if !matches!(self.config.auth, VaultAuth::Token { .. }) => {
                *self.session.lock().await = None;
                let token = self.token(deadline).await?;
                self.send(request.request(), Some(&token), deadline).await
            }
            other => other,
        }
    }

    /// Returns the token, and renews or fetches it when due. Holds the lock during the request, so that concurrent calls send only
    /// one.
    async fn token(&self, deadline: Instant) -> Result<Secret, IssuerError> {
        let mut session = self.session.lock().await;
        if let Some(known) = &*session {
            if known.renew_at_us.is_none_or(|at| self.clock.now_us() < at) {
                return Ok(known.token.clone());
            }
            if known.renewable
                && let Ok(renewed) = self.renew(&known.token, deadline).await
            {
                *session = Some(renewed.clone());
                return Ok(renewed.token);
            }
        }
        let fresh = self.log_in(deadline).await?;
        let token = fresh.token.clone();
        *session = Some(fresh);
        Ok(token)
    }

    async fn renew(&self, token: &Secret, deadline: Instant) -> Result<Session, IssuerError> {
        let url = self.url("auth/token/renew-self");
        let reply = self.send(Request::post_json(&url, &json!({})), Some(token), deadline).await;
        let reply = reply.inspect_err(|error| tracing::warn!(%error, "the Vault token was not renewed"))?;
        self.parse_session(&reply)
    }

    async fn log_in(&self, deadline: Instant) -> Result<Session, IssuerError> {
        let (mount, body) = match &self.config.auth {
            VaultAuth::Token { token } => return self.lookup_token(token, deadline).await,
            VaultAuth::AppRole { mount, role_id, secret_id } => {
                (mount, json!({ "role_id": role_id, "secret_id": secret_id.expose() }))
            }
            VaultAuth::Kubernetes { mount, role, token_file } => {
                let jwt = self.files.read(token_file).await?;
                (mount, json!({ "role": role, "jwt": jwt.trim() }))
            }
        };
        let url = self.url(&format!("auth/{mount}/login"));
        match self.send(Request::post_json(&url, &body), None, deadline).await {
            Ok(reply) => self.parse_session(&reply),
            // Vault rejects a login with status 400.
            Err(IssuerError::Refused { reason }) => Err(IssuerError::Denied { reason }),
            Err(error) => Err(error),
        }
    }

    /// Looks up the configured token.
    async fn lookup_token(&self, token: &Secret, deadline: Instant) -> Result<Session, IssuerError> {
        let url = self.url("auth/token/lookup-self");
        let reply = self.send(Request::get(&url), Some(token), deadline).await?;
        let facts: VaultResponse<TokenFacts> = reply.json()?;
        let facts = facts
            .data
            .ok_or_else(|| IssuerError::unavailable("Vault returned no information about the token"))?;
        Ok(self.session(token.clone(), facts.ttl, facts.renewable))
    }

    fn parse_session(&self, reply: &Reply) -> Result<Session, IssuerError> {
        let answer: VaultResponse<Value> = reply.json()?;
        let auth = answer.auth.ok_or_else(|| IssuerError::unavailable("Vault returned no token"))?;
        Ok(self.session(auth.client_token, auth.lease_duration, auth.renewable))
    }

    fn session(&self, token: Secret, life: i64, renewable: bool) -> Session {
        let wait = (life.max(LIFE_MIN) / RENEW_PARTS).saturating_mul(SECOND_US);
        let renew_at_us = (life > 0).then(|| self.clock.now_us().saturating_add(wait));
        Session { token, renew_at_us, renewable }
    }

    async fn sign(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let role = order.profile.as_deref().unwrap_or(&self.config.role);
        check_path(role)?;
        let url = self.url(&format!("{}/sign/{role}", self.config.mount));
        let body = sign_request(order);
        let reply = self.call(|| RepeatableRequest::post(url.clone(), body.clone()), order.deadline).await?;
        let answer: VaultResponse<Signed> = reply.json()?;
        let signed = answer.data.ok_or_else(|| IssuerError::unavailable("Vault returned no certificate"))?;
        let above =
            signed.ca_chain.filter(|chain| !chain.is_empty()).unwrap_or_else(|| vec![signed.issuing_ca]);
        let mut chain = parse_pem_chain(signed.certificate.as_bytes())?;
        for pem in above.iter().filter(|pem| !pem.is_empty()) {
            chain.extend(parse_pem_chain(pem.as_bytes())?);
        }
        Ok(DeliveredChain { chain })
    }

    async fn revoke_serial(&self, certificate: &Certificate) -> Result<(), IssuerError> {
        let bytes = certificate.serial.content();
        let bytes = bytes.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(bytes);
        let serial: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let url = self.url(&format!("{}/revoke", self.config.mount));
        let body = json!({ "serial_number": serial.join(":") });
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        self.call(|| RepeatableRequest::post(url.clone(), body.clone()), deadline).await.map(drop)
    }

    async fn check_service(&self) -> Result<String, IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let url = self.url(&format!("{}/ca/pem", self.config.mount));
        let reply = self.call(|| RepeatableRequest::get(url.clone()), deadline).await?;
        let ca = parse_pem_chain(&reply.body)?.first().and_then(|der| Certificate::parse(der).ok());
        let name = ca.map_or_else(|| "an unreadable issuer".to_owned(), |ca| ca.subject.text);
        Ok(format!("logged in; mount {} issues as {name}", self.config.mount))
    }

    async fn ensure_token(&self) -> Result<(), IssuerError> {
        self.token(Instant::now() + REQUEST_TIMEOUT).await.map(drop)
    }
}

/// A request that can be sent twice.
struct RepeatableRequest {
    url: String,
    body: Option<Value>,
}

impl RepeatableRequest {
    fn post(url: String, body: Value) -> Self {
        Self { url, body: Some(body) }
    }

    fn get(url: String) -> Self {
        Self { url, body: None }
    }

    fn request(&self) -> Request<'_> {
        self.body.as_ref().map_or_else(|| Request::get(&self.url), |body| Request::post_json(&self.url, body))
    }
}

/// Builds the signing request. The request contains the names in addition to the CSR, for roles that do not take the names from the
/// CSR.
fn sign_request(order: &Order) -> Value {
    let (mut dns, mut ip, mut uri) = (Vec::new(), Vec::new(), Vec::new());
    for name in &order.names {
        match name {
            GeneralName::Dns(name) | GeneralName::Email(name) => dns.push(name.clone()),
            GeneralName::Ip(address) => ip.push(address.to_string()),
            GeneralName::Uri(name) => uri.push(name.clone()),
            _ => {}
        }
    }
    let pem = pem::encode("CERTIFICATE REQUEST", &order.csr_der);
    let common_name = dns.iter().find(|name| name.len() <= 64).or(ip.first()).cloned();
    let mut body = json!({
        "csr": pem,
        "format": "pem",
        "alt_names": dns.join(","),
        "ip_sans": ip.join(","),
        "uri_sans": uri.join(","),
        "exclude_cn_from_sans": true,
    });
    if let Some(name) = common_name {
        body["common_name"] = json!(name);
    }
    if let Some(seconds) = order.lifetime_seconds {
        body["ttl"] = json!(format!("{seconds}s"));
    }
    body
}

/// Checks a path of Vault's API. Mounts may contain slashes, but no path may leave its prefix.
pub(crate) fn check_path(path: &str) -> Result<(), IssuerError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let climbs = path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if path.is_empty() || climbs || !path.chars().all(plain) {
        return Err(IssuerError::misconfigured(format!("{path:?} is not a path of a Vault mount or role")));
    }
    Ok(())
}

fn error_of(reply: &Reply, now: UnixTime) -> IssuerError {
    #[derive(Deserialize)]
    struct Errors {
        #[serde(default)]
        errors: Vec<String>,
    }
    let parsed =
        serde_json::from_slice::<Errors>(&reply.body).ok().filter(|parsed| !parsed.errors.is_empty());
    let reason = parsed.map_or_else(|| reply.excerpt(), |parsed| excerpt(&parsed.errors.join("; ")));
    let reason = format!("{} {reason}", reply.status.as_u16());
    let retry_after = reply.retry_after(now);
    match reply.status.as_u16() {
        401 | 403 => IssuerError::Denied { reason },
        // The PKI engine returns 400 for an unknown role. No other status or code distinguishes this from a rejection.
        400 if reason.contains("unknown role") => misplaced(&reason),
        404 => misplaced(&reason),
        429 => IssuerError::RateLimited { retry_after, reason },
        500.. => IssuerError::Unavailable { reason, retry_after },
        _ => IssuerError::Refused { reason },
    }
}

fn misplaced(reason: &str) -> IssuerError {
    IssuerError::misconfigured(format!("{reason}: check mount and role"))
}

impl Issuer for Vault {
    fn kind(&self) -> IssuerKind {
        IssuerKind::Vault
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.sign(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        _: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.revoke_serial(certificate).boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        self.check_service().boxed()
    }

    fn upkeep<'a>(&'a self) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.ensure_token().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_traversal_or_special_characters_are_rejected() {
        for good in ["pki", "team-a/pki_int", "web.servers"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in ["", "/pki", "pki/", "a//b", "..", "a/../b", "a?b", "a#b", "a%2fb", "a b"] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }
}
