//! Proof of control over a name: one try of one method. Who tries, how often and what follows stands in
//! [`super::work`].

pub(crate) mod caa;
mod dns01;
mod guard;
mod http01;
mod issue_value;
mod persist;
mod resolver;
mod tls_alpn01;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use outbound::dial;
use outbound::resolve::{Families, Resolver};

use super::identifier::Identifier;
use super::options::{AcmeOptions, Method, ValidationOptions};
use super::problem::{Kind, Problem};
use guard::Guard;
use http01::Http01;
use persist::Terms;
use resolver::Dns;

/// Addresses of one name tried.
const ADDRESSES_MAX: usize = 16;

/// What is to be proven, and by whom.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Without `*.`.
    pub(crate) identifier: Identifier,
    pub(crate) wildcard: bool,
    /// `None`: nothing, the profile trusts.
    pub(crate) method: Option<Method>,
    pub(crate) token: String,
    pub(crate) account_url: String,
    /// Of the account's keys: the present one, then earlier ones (which only `dns-persist-01` looks at).
    pub(crate) thumbprints: Vec<String>,
}

impl Question {
    /// RFC 8555 section 8.1.
    pub(crate) fn key_authorization(&self) -> String {
        format!("{}.{}", self.token, self.thumbprints.first().map_or("", String::as_str))
    }

    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self {
            identifier: Identifier::Dns(String::new()),
            wildcard: false,
            method: None,
            token: String::new(),
            account_url: String::new(),
            thumbprints: Vec::new(),
        }
    }
}

/// A proof.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proven {
    /// What was seen where, for the audit log.
    pub(crate) evidence: Vec<String>,
    /// Until when it may count, µs.
    pub(crate) until_us: Option<i64>,
}

impl Proven {
    fn by(evidence: String) -> Self {
        Self { evidence: vec![evidence], until_us: None }
    }
}

/// No proof.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    kind: Kind,
    detail: String,
    /// Whether another try may go differently.
    pub(crate) passing: bool,
}

impl Failure {
    fn passing(kind: Kind, detail: String) -> Self {
        Self { kind, detail, passing: true }
    }

    fn for_good(kind: Kind, detail: String) -> Self {
        Self { kind, detail, passing: false }
    }

    pub(crate) fn problem(&self) -> Problem {
        Problem::new(self.kind, self.detail.clone())
    }
}

/// Why validation cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The machine's resolver configuration.
    #[error("the resolver cannot be set up: {0}")]
    Resolver(#[from] outbound::resolve::ResolveError),
    /// The HTTP client.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] reqwest::Error),
    /// The TLS client.
    #[error("the TLS client cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

pub(crate) struct Validator {
    options: ValidationOptions,
    identities: Vec<String>,
    hash_prefix: String,
    plain: bool,
    hosts: Arc<Hosts>,
    dns: Dns,
    http: Http01,
    tls: Arc<rustls::ClientConfig>,
}

impl Validator {
    pub(crate) fn new(options: &AcmeOptions) -> Result<Self, SetupError> {
        let validation = options.validation.clone();
        let resolver = match &validation.name_servers[..] {
            [] => Resolver::system()?,
            servers => Resolver::with_upstreams(servers.to_vec()),
        };
        // Looked at once: routes come and go with restarts.
        let hosts =
            Arc::new(Hosts { resolver, guard: Guard::new(&validation), families: Families::usable() });
        let ports = (validation.http_port, validation.https_port);
        Ok(Self {
            identities: options.caa_identities.clone(),
            hash_prefix: account_hash_prefix(&options.base_url),
            plain: options.dns_persist_plain_account,
            dns: Dns::new(&validation.name_servers),
            http: Http01::new(hosts.clone(), ports, validation.try_limit())?,
            tls: tls_alpn01::config()?,
            options: validation,
            hosts,
        })
    }

    /// One try, the check of CAA included.
    pub(crate) async fn prove(&self, question: &Question, now_us: i64) -> Result<Proven, Failure> {
        let limit = self.options.try_limit();
        let trying = async {
            let proven = self.method(question, now_us).await?;
            self.caa(question).await?;
            Ok(proven)
        };
        tokio::time::timeout(limit, trying).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs_f32();
            Err(Failure::passing(Kind::Connection, format!("no answer within {seconds} s")))
        })
    }

    /// CAA alone; addresses have none.
    pub(crate) async fn caa(&self, question: &Question) -> Result<(), Failure> {
        match &question.identifier {
            Identifier::Dns(host) => {
                caa::check(&self.dns, host, caa::Wish::of(question, &self.identities)).await
            }
            Identifier::Ip(_) => Ok(()),
        }
    }

    async fn method(&self, question: &Question, now_us: i64) -> Result<Proven, Failure> {
        match (question.method, &question.identifier) {
            (None, _) => Ok(Proven::default()),
            (Some(Method::Http01), identifier) => self.http.prove(identifier, question).await,
            (Some(Method::TlsAlpn01), identifier) => self.tls_alpn01(identifier, question).await,
            (Some(Method::Dns01), Identifier::Dns(host)) => dns01::dns01(&self.dns, host, question).await,
            (Some(Method::DnsAccount01), Identifier::Dns(host)) => {
                dns01::dns_account01(&self.dns, host, question).await
            }
            (Some(Method::DnsPersist01), Identifier::Dns(host)) => {
                let terms =
                    Terms { identities: &self.identities, hash_prefix: &self.hash_prefix, plain: self.plain };
                persist::persist(&self.dns, host, question, terms, now_us).await
            }
            (Some(method), Identifier::Ip(_)) => Err(Failure::for_good(
                Kind::Malformed,
                format!("an address cannot be proven by {}", method.name()),
            )),
        }
    }

    async fn tls_alpn01(&self, identifier: &Identifier, question: &Question) -> Result<Proven, Failure> {
        let (port, limit) = (self.options.https_port, self.options.try_limit());
        let addresses = match identifier {
            Identifier::Ip(address) => self.hosts.allowed(&identifier.value(), vec![*address])?,
            Identifier::Dns(host) => self.hosts.reach(host, limit).await?,
        };
        let connected = dial::race(&addresses, port, limit).await.map_err(|attempts| {
            let why = attempts
                .first()
                .map_or("no address".to_owned(), |first| format!("{}: {}", first.address, first.error));
            Failure::passing(Kind::Connection, format!("port {port} of {identifier}: {why}"))
        })?;
        let place = format!("port {port} of {identifier} at {}", connected.address);
        tls_alpn01::prove(self.tls.clone(), connected.stream, identifier, question, &place).await
    }
}

/// What hashed account URIs begin with (draft-ietf-acme-dns-persist-02 section 4.1).
pub(crate) fn account_hash_prefix(base_url: &str) -> String {
    format!("{base_url}/acme/account-hash/")
}

/// Names to addresses that may be reached.
pub(crate) struct Hosts {
    resolver: Resolver,
    guard: Guard,
    families: Families,
}

impl Hosts {
    /// The addresses of a host.
    async fn reach(&self, host: &str, limit: Duration) -> Result<Vec<IpAddr>, Failure> {
        // With a final dot no search domain is tried: names in certificates are whole.
        let whole = format!("{host}.");
        let found = self.resolver.resolve(&whole, self.families, limit).await;
        let found = found
            .map_err(|error| Failure::passing(Kind::Dns, format!("the addresses of {host}: {error}")))?;
        self.allowed(host, found.addresses)
    }

    fn allowed(&self, host: &str, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, Failure> {
        let mut refused = None;
        let mut good = Vec::new();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.guard.check(address) {
                Ok(()) => good.push(address),
                Err(what) => refused = Some(format!("{address} is {what}")),
            }
        }
        if good.is_empty() {
            let why = refused.unwrap_or_else(|| "it has no address".to_owned());
            let detail = format!("{host} is not reached for validation: {why}");
            return Err(Failure::for_good(Kind::Connection, detail));
        }
        Ok(good)
    }
}
