//! Validation with http-01 (RFC 8555 section 8.3).

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response, Url};

use super::{Failure, Hosts, Proven, ValidationRequest};
use crate::acme::identifier::Identifier;
use crate::acme::problem::Kind;

/// Maximum number of redirects to follow; the same as at Let's Encrypt.
const REDIRECTS_MAX: usize = 10;
/// Maximum number of body bytes to read; a key authorization has fewer than 100.
const BODY_MAX: usize = 8 * 1024;
/// Maximum number of bytes of an incorrect body that are quoted to the client.
const QUOTED_MAX: usize = 60;
const AGENT: &str = concat!("bulla/", env!("CARGO_PKG_VERSION"), " (ACME http-01)");

pub(crate) struct Http01 {
    client: Client,
    hosts: Arc<Hosts>,
    port: u16,
    https_port: u16,
}

impl Http01 {
    pub(crate) fn new(
        hosts: Arc<Hosts>,
        (port, https_port): (u16, u16),
        limit: Duration,
    ) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .dns_resolver(FilteredResolver { hosts: hosts.clone(), limit })
            .redirect(reqwest::redirect::Policy::none())
            // The validation proves control of the name over HTTP. HTTPS occurs only after a redirect, so its certificate is not
            // verified.
            .tls_danger_accept_invalid_certs(true)
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0)
            .user_agent(AGENT)
            .connect_timeout(limit)
            .build()?;
        Ok(Self { client, hosts, port, https_port })
    }

    /// Fetches and checks the key authorization.
    pub(crate) async fn prove(
        &self,
        identifier: &Identifier,
        question: &ValidationRequest,
    ) -> Result<Proven, Failure> {
        let host = match identifier {
            Identifier::Dns(name) => name.clone(),
            Identifier::Ip(IpAddr::V4(address)) => address.to_string(),
            Identifier::Ip(IpAddr::V6(address)) => format!("[{address}]"),
        };
        let port = if self.port == 80 { String::new() } else { format!(":{}", self.port) };
        let first = format!("http://{host}{port}/.well-known/acme-challenge/{}", question.token);
        let mut url = Url::parse(&first)
            .map_err(|error| Failure::permanent(Kind::Malformed, format!("{first}: {error}")))?;
        let mut proven = Proven::default();
        for _ in 0..=REDIRECTS_MAX {
            self.check(&url)?;
            let response =
                self.client.get(url.clone()).send().await.map_err(|error| failure(&url, &error))?;
            let address = response.remote_addr().map(|address| address.ip());
            if let Some(Err(what)) = address.map(|address| self.hosts.guard.check(address)) {
                return Err(Failure::permanent(Kind::Connection, format!("{url}: the address is {what}")));
            }
            proven.evidence.push(match address {
                Some(address) => format!("{url} at {address}"),
                None => url.to_string(),
            });
            if response.status().is_redirection() {
                url = target(&url, &response)?;
                continue;
            }
            self.check_body(&url, response, question).await?;
            return Ok(proven);
        }
        Err(Failure::permanent(Kind::Connection, format!("{first}: more than {REDIRECTS_MAX} redirects")))
    }

    /// Checks the scheme, the port and, if the host is an IP address, the address. Names are checked when they are resolved.
    fn check(&self, url: &Url) -> Result<(), Failure> {
        let refuse = |reason: &str| Err(Failure::permanent(Kind::Connection, format!("{url}: {reason}")));
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("redirects are followed to http and https only");
        }
        if !url.port_or_known_default().is_some_and(|port| port == self.port || port == self.https_port) {
            return refuse("redirects are followed to the standard ports only");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("redirects with credentials in the URL are not followed");
        }
        let host = url.host_str().unwrap_or_default();
        match host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
            .map(|ip| self.hosts.guard.check(ip))
        {
            Ok(Err(what)) => refuse(&format!("the address is {what}; validation does not connect to it")),
            _ => Ok(()),
        }
    }

    async fn check_body(
        &self,
        url: &Url,
        mut response: Response,
        question: &ValidationRequest,
    ) -> Result<(), Failure> {
        let wrong = |reason: String| Failure::transient(Kind::IncorrectResponse, format!("{url}: {reason}"));
        if response.status() != reqwest::StatusCode::OK {
            let status = response.status();
            return Err(Failure::transient(
                Kind::Unauthorized,
                format!("{url} returned status {status}, expected 200"),
            ));
        }
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| failure(url, &error))? {
            if body.len() + part.len() > BODY_MAX {
                return Err(wrong(format!("the response is longer than {BODY_MAX} bytes")));
            }
            body.extend_from_slice(&part);
        }
        let expected = question.key_authorization();
        if body.trim_ascii_end() == expected.as_bytes() {
            return Ok(());
        }
        let quoted = String::from_utf8_lossy(&body[..body.len().min(QUOTED_MAX)]).into_owned();
        Err(wrong(format!("the response starts with {quoted:?}, expected {expected:?}")))
    }
}

fn target(url: &Url, response: &Response) -> Result<Url, Failure> {
    let location =
        response.headers().get(reqwest::header::LOCATION).and_then(|location| location.to_str().ok());
    location.and_then(|location| url.join(location).ok()).ok_or_else(|| {
        Failure::permanent(Kind::Connection, format!("{url}: redirect without a valid Location header"))
    })
}

fn failure(url: &Url, error: &reqwest::Error) -> Failure {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    let mut last = error.to_string();
    while let Some(inner) = cause {
        if let Some(failure) = inner.downcast_ref::<Failure>() {
            return failure.clone();
        }
        last = inner.to_string();
        cause = inner.source();
    }
    Failure::transient(Kind::Connection, format!("{url}: {last}"))
}

/// DNS resolver of the HTTP client, which returns only allowed addresses.
struct FilteredResolver {
    hosts: Arc<Hosts>,
    limit: Duration,
}

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (hosts, limit) = (self.hosts.clone(), self.limit);
        Box::pin(async move {
            let addresses = hosts.resolve_allowed(name.as_str(), limit).await?;
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
