//! Authentication: determines the caller of a request.

use std::net::IpAddr;
use std::sync::Arc;

use authority::{ClientCertificateError, ClientCertificates, PresentedChain, VerifiedClient};
use enrollment::{AGENT_PROFILE, NODE_PROFILE};
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, Uri};

use crate::access::secret;
use crate::access::session::unpack_chain;
use crate::access::{AccessControl, Caller, TOKEN_PREFIX};
use crate::peer::{Peer, address};
use crate::problem::Problem;

/// Name of the session cookie. The prefix binds the cookie to this host and to TLS (RFC 6265bis section 4.1.3.2).
pub const SESSION_COOKIE: &str = "__Host-bulla";

/// The header with the CSRF token, required for unsafe requests with a session. Other sites cannot read the token.
pub const CSRF_HEADER: &str = "x-csrf-token";

/// Maximum length of a credential, in bytes.
const CREDENTIAL_MAX: usize = 256;

/// Maximum length, in bytes, of a fingerprint or name that maps a certificate to an identity.
const MATCHER_MAX: usize = 1_024;

/// Maximum names of a client certificate that are looked up, in one lookup together with the fingerprint.
const NAMES_MAX: usize = 7;

/// `Retry-After` in seconds when the revocation status of a client certificate is unavailable.
const STATUS_RETRY_SECONDS: u64 = 1;

/// An authenticator of another component for bearer tokens with their own prefix.
pub trait Authenticate: Send + Sync {
    /// Returns the prefix of the tokens; not `bulla_`.
    fn prefix(&self) -> &'static str;

    /// Returns the caller with this token.
    ///
    /// # Errors
    /// 401 for an invalid or expired token.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Problem>>;
}

/// The components whose bearer tokens are accepted.
pub(crate) type Authenticators = Vec<Arc<dyn Authenticate>>;

/// Authenticates requests by their credentials.
pub(crate) struct Authentication {
    access: AccessControl,
    others: Authenticators,
    clients: ClientCertificates,
}

impl Authentication {
    pub(crate) fn new(access: AccessControl, others: Authenticators, clients: ClientCertificates) -> Self {
        Self { access, others, clients }
    }

    /// Returns the verified client certificate of the connection; `None` if the client sent none.
    ///
    /// # Errors
    /// 401 for a revoked or invalid certificate, 403 for a cross-site request by a browser.
    pub(crate) async fn client(&self, parts: &Parts) -> Result<Option<VerifiedClient>, Problem> {
        let Some(peer) = parts.extensions.get::<Peer>() else { return Ok(None) };
        let client = self.clients.verify(peer).await?;
        if client.is_some() {
            check_site(&parts.method, &parts.uri, &parts.headers)?;
        }
        Ok(client)
    }

    /// Returns the caller. A request with an invalid credential fails, even if the request also has a valid credential.
    ///
    /// # Errors
    /// 401 without a valid credential; 403 when an unsafe request with a session lacks its CSRF token.
    pub(crate) async fn caller(&self, parts: &Parts) -> Result<Caller, Problem> {
        if let Some(token) = bearer(&parts.headers)? {
            if token.starts_with(TOKEN_PREFIX) {
                return self.access.token(secret::token_hash(token)).await;
            }
            for other in &self.others {
                if token.starts_with(other.prefix()) {
                    return other.authenticate(token).await;
                }
            }
            return Err(Problem::unauthenticated("this is not a Bulla token"));
        }
        if let Some(cookie) = cookie(&parts.headers, SESSION_COOKIE) {
            check_site(&parts.method, &parts.uri, &parts.headers)?;
            let caller = self.session(cookie, address(parts)).await?;
            check_csrf(&parts.method, &parts.headers, cookie)?;
            return Ok(caller);
        }
        match self.client(parts).await? {
            Some(client) => self.by_certificate(client).await,
            None => Err(Problem::unauthenticated("this request needs an authenticated caller")),
        }
    }

    /// Returns the caller of the session with this cookie. A session that was requested with a client certificate is valid only
    /// while this certificate is valid.
    ///
    /// # Errors
    /// 401 when the session has ended, or when the credential that requested the session is no longer valid.
    pub(crate) async fn session(&self, cookie: &str, address: IpAddr) -> Result<Caller, Problem> {
        let caller = self.access.session(secret::session_hash(cookie)).await?;
        let Some(session) = caller.session().filter(|session| session.chain.is_some()).cloned() else {
            return Ok(caller);
        };
        let ended = || {
            Problem::unauthenticated("the client certificate of this session no longer maps to an identity")
        };
        let chain = session.chain.as_deref().and_then(unpack_chain).ok_or_else(ended)?;
        let peer = Peer { client_certificate: PresentedChain::new(chain), ..Peer::at(address) };
        let client = self.clients.verify(&peer).await?.ok_or_else(ended)?;
        let certificate_caller = self.caller_by_certificate(client).await?;
        if certificate_caller.id() != caller.id() {
            return Err(ended());
        }
        Ok(certificate_caller.with_session(Some(Arc::new(session))))
    }

    /// Returns the caller whose identity the connection's certificate is mapped to.
    ///
    /// # Errors
    /// 401 if no identity is mapped to the certificate.
    pub(crate) async fn by_certificate(&self, client: VerifiedClient) -> Result<Caller, Problem> {
        Ok(self.caller_by_certificate(client.clone()).await?.with_client_certificate(client))
    }

    /// Returns the caller whose identity this certificate is mapped to.
    ///
    /// # Errors
    /// 401 if no identity is mapped to the certificate.
    async fn caller_by_certificate(&self, client: VerifiedClient) -> Result<Caller, Problem> {
        let certificate = client.certificate();
        let fingerprint = format!("sha256:{}", certificate.fingerprint);
        let mut keys = vec![secret::certificate_hash(&fingerprint)];
        let named = self.names_identify(client.profile()).await?;
        if named {
            let names = certificate.subject_alt_names.iter().filter_map(authority::principal::name_mark);
            keys.extend(names.take(NAMES_MAX).map(|name| certificate_name_key(&name, client.profile())));
        }
        // Cached under separate keys, so that access by a name ends immediately when names no longer identify callers.
        let hash = secret::hash(&[if named { "leaf" } else { "leaf without names" }, &fingerprint]);
        self.access.certificate(hash, keys, client).await
    }

    /// Returns whether the names in a client certificate identify its caller. `profile` is the profile of a certificate that Bulla
    /// issued. It is `None` for an external CA that the operator trusts: names in certificates of such a CA always identify
    /// callers.
    async fn names_identify(&self, profile: Option<&str>) -> Result<bool, Problem> {
        match profile {
            // The built-in profiles of agents and nodes: the server assigns the names in their certificates.
            None | Some(AGENT_PROFILE | NODE_PROFILE) => Ok(true),
            Some(profile) => Ok(self.clients.names_identify(profile).await?),
        }
    }
}

/// Returns the lookup key of a certificate name. Requesters choose the names in certificates of a profile. Such a name therefore
/// identifies a caller only together with the profile that the identity configures.
fn certificate_name_key(name: &str, profile: Option<&str>) -> [u8; 32] {
    match profile {
        // The built-in profiles of agents and nodes: the server assigns the names in their certificates.
        None | Some(AGENT_PROFILE | NODE_PROFILE) => secret::certificate_hash(name),
        Some(profile) => secret::profiled_certificate_hash(profile, name),
    }
}

/// Returns the bearer token, if the request has an `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(Problem::unauthenticated("the request has more than one Authorization header"));
    }
    let text = value.to_str().ok().filter(|text| text.len() <= CREDENTIAL_MAX);
    let token = text.and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    token
        .map(Some)
        .ok_or_else(|| Problem::unauthenticated("the Authorization header does not contain a bearer token"))
}

/// Returns the value of a cookie, if it is present exactly once.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut found = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    let value = found.next().filter(|value| !value.is_empty() && value.len() <= 4_096)?;
    // With two cookies of one name, an attacker may have planted one of them, and the genuine one is unknown.
    found.next().is_none().then_some(value)
}

/// Checks the CSRF token of an unsafe request. A browser sends the session cookie automatically, but only pages of this server know
/// the token.
fn check_csrf(method: &Method, headers: &HeaderMap, cookie: &str) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let given = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    if given.is_some_and(|given| secret::same(given, &secret::csrf_of(cookie))) {
        return Ok(());
    }
    Err(Problem::forbidden(
        "in a session, each request other than GET and HEAD needs the header X-CSRF-Token of this session",
    )
    .hint("GET /api/v1/auth/me returns the token"))
}

/// Rejects unsafe cross-site requests, because browsers send cookies and client certificates automatically. Programs other than
/// browsers send no site headers, and are accepted.
pub(crate) fn check_site(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let other_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    // In HTTP/2 the host is in the URI.
    let host = text("host").or_else(|| uri.authority().map(Authority::as_str)).unwrap_or_default();
    let other_origin = text("origin").is_some_and(|origin| {
        origin.strip_prefix("https://").is_none_or(|origin| !origin.eq_ignore_ascii_case(host))
    });
    if other_site || other_origin {
        return Err(Problem::forbidden("the request comes from a page of another site"));
    }
    Ok(())
}

/// Checks that a request to start or renew a session comes from a page of this server, by `Sec-Fetch-Site` or `Origin`. Without
/// this check another site could sign a browser in as another user.
pub(crate) fn check_own_page(parts: &Parts) -> Result<(), Problem> {
    check_site(&parts.method, &parts.uri, &parts.headers)?;
    let own = parts.headers.contains_key("origin")
        || parts.headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin");
    if own {
        return Ok(());
    }
    Err(Problem::forbidden(
        "a session can be started only from a page of this server: the request has no Origin header",
    )
    .hint("send the header `Origin: https://HOST` of this server; programs use an API token instead"))
}

impl From<ClientCertificateError> for Problem {
    fn from(error: ClientCertificateError) -> Self {
        match error {
            ClientCertificateError::Store(error) => {
                tracing::warn!(%error, "cannot check whether a client certificate is revoked");
                Self::unavailable("the database is busy or does not answer", STATUS_RETRY_SECONDS)
            }
            other => Self::unauthenticated(other.to_string()),
        }
    }
}

/// Normalizes the text that maps a certificate to an identity, for comparison; `None` for an invalid text.
pub(crate) fn certificate_matcher(text: &str) -> Option<String> {
    let (kind, value) = text.split_once(':')?;
    if value.is_empty() || value.len() > MATCHER_MAX || value.chars().any(|c| c.is_control() || c == ' ') {
        return None;
    }
    match kind {
        "sha256" => {
            let hex = value.replace(':', "").to_ascii_lowercase();
            let good = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            good.then(|| format!("sha256:{hex}"))
        }
        "dns" | "email" => Some(format!("{kind}:{}", value.to_ascii_lowercase())),
        "uri" => Some(format!("uri:{value}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use authority::principal::name_mark;
    use x509::GeneralName;

    use super::*;
    use http::HeaderValue;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn malformed_and_repeated_bearer_tokens_are_rejected() {
        assert_eq!(bearer(&headers(&[])).unwrap(), None);
        assert_eq!(bearer(&headers(&[("authorization", "bearer  bulla_x")])).unwrap(), Some("bulla_x"));
        for bad in ["Basic YTpi", "Bearer", "bulla_x", &format!("Bearer {}", "x".repeat(300))] {
            assert!(bearer(&headers(&[("authorization", bad)])).is_err(), "{bad}");
        }
        let twice = headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
        assert!(bearer(&twice).is_err());
    }

    #[test]
    fn session_cookie_is_read_only_if_present_exactly_once() {
        let one = headers(&[("cookie", "a=1; __Host-bulla=secret; b=2")]);
        assert_eq!(cookie(&one, SESSION_COOKIE), Some("secret"));
        assert_eq!(cookie(&headers(&[("cookie", "x__Host-bulla=secret")]), SESSION_COOKIE), None);
        let two = headers(&[("cookie", "__Host-bulla=a"), ("cookie", "__Host-bulla=b")]);
        assert_eq!(cookie(&two, SESSION_COOKIE), None);
    }

    #[test]
    fn unsafe_methods_require_the_csrf_token_of_the_session() {
        let good = secret::csrf_of("secret");
        let with = |token: &str| headers(&[("x-csrf-token", token)]);
        assert!(check_csrf(&Method::GET, &headers(&[]), "secret").is_ok());
        assert!(check_csrf(&Method::POST, &with(&good), "secret").is_ok());
        assert!(check_csrf(&Method::POST, &headers(&[]), "secret").is_err());
        assert!(check_csrf(&Method::DELETE, &with(&secret::csrf_of("other")), "secret").is_err());
        // Unknown methods count as unsafe.
        assert!(check_csrf(&Method::OPTIONS, &headers(&[]), "secret").is_err());
    }

    #[test]
    fn cross_site_unsafe_requests_are_rejected() {
        let any = Uri::from_static("/");
        let post = |of: &[(&'static str, &str)]| check_site(&Method::POST, &any, &headers(of)).is_ok();
        assert!(post(&[]));
        assert!(post(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://a.example"),
            ("host", "A.example")
        ]));
        assert!(post(&[("sec-fetch-site", "none")]));
        // HTTP/2 has no Host header.
        let (origin, uri) =
            (headers(&[("origin", "https://a.example")]), Uri::from_static("https://a.example/x"));
        assert!(check_site(&Method::POST, &uri, &origin).is_ok());
        assert!(check_site(&Method::POST, &Uri::from_static("https://b.example/x"), &origin).is_err());
        assert!(check_site(&Method::POST, &any, &origin).is_err());
        for bad in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "https://evil.example"), ("host", "a.example")],
            &[("origin", "http://a.example"), ("host", "a.example")],
            &[("origin", "null"), ("host", "a.example")],
        ] {
            assert!(!post(bad), "{bad:?}");
            assert!(check_site(&Method::GET, &any, &headers(bad)).is_ok());
        }
    }

    #[test]
    fn certificate_matchers_are_normalized_and_invalid_ones_rejected() {
        let hex = "AB".repeat(32);
        assert_eq!(
            certificate_matcher(&format!("sha256:{hex}")).unwrap(),
            format!("sha256:{}", hex.to_lowercase())
        );
        assert_eq!(certificate_matcher("dns:A.Example").unwrap(), "dns:a.example");
        assert_eq!(certificate_matcher("uri:spiffe://a/B").unwrap(), "uri:spiffe://a/B");
        for bad in ["", "dns:", "a.example", "sha256:abcd", "sha1:00", "dns:a b", "ip:10.0.0.1"] {
            assert_eq!(certificate_matcher(bad), None, "{bad}");
        }
    }

    #[test]
    fn certificate_names_are_normalized_for_matching() {
        let dns = GeneralName::Dns("Agent.Example".to_owned());
        assert_eq!(name_mark(&dns).unwrap(), "dns:agent.example");
        let uri = GeneralName::Uri("spiffe://a/B".to_owned());
        assert_eq!(name_mark(&uri).unwrap(), "uri:spiffe://a/B");
        assert_eq!(name_mark(&GeneralName::Directory("CN=x".to_owned())), None);
    }
}
