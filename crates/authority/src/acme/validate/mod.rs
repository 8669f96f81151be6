//! Validation of identifiers: one attempt with one method. [`super::work`] schedules attempts and retries.

pub(crate) mod caa;
mod dns01;
mod guard;
mod hosts;
mod http01;
mod issue_value;
mod persist;
mod proof;
mod resolver;
mod tls_alpn01;

use std::sync::Arc;

use outbound::dial;
use outbound::resolve::{Families, Resolver};

use super::identifier::Identifier;
use super::options::{AcmeOptions, Method, ValidationOptions};
use super::problem::Kind;
use guard::AddressFilter;
use hosts::Hosts;
use http01::Http01;
use persist::Terms;
use resolver::Dns;

pub(crate) use proof::{Failure, Proven, ValidationRequest};

/// Reason why domain validation cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The resolver configuration of the machine is invalid.
    #[error("cannot set up the DNS resolver: {0}")]
    Resolver(#[from] outbound::resolve::ResolveError),
    /// The HTTP client cannot be created.
    #[error("cannot set up the HTTP client: {0}")]
    Http(#[from] reqwest::Error),
    /// The TLS client cannot be configured.
    #[error("cannot set up the TLS client: {0}")]
    Tls(#[from] rustls::Error),
}

pub(crate) struct Validator {
    options: ValidationOptions,
    identities: Vec<String>,
    hash_prefix: String,
    plain_account: bool,
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
        // The usable address families are detected once, at startup. A later change needs a restart.
        let hosts = Arc::new(Hosts {
            resolver,
            guard: AddressFilter::new(&validation),
            families: Families::usable(),
        });
        let ports = (validation.http_port, validation.https_port);
        Ok(Self {
            identities: options.caa_identities.clone(),
            hash_prefix: account_hash_prefix(&options.base_url),
            plain_account: options.dns_persist_plain_account,
            dns: Dns::new(&validation.name_servers),
            http: Http01::new(hosts.clone(), ports, validation.attempt_timeout())?,
            tls: tls_alpn01::config()?,
            options: validation,
            hosts,
        })
    }

    /// Makes one validation attempt, including the CAA check.
    pub(crate) async fn prove(&self, question: &ValidationRequest, now_us: i64) -> Result<Proven, Failure> {
        let limit = self.options.attempt_timeout();
        let trying = async {
            let proven = self.method(question, now_us).await?;
            self.caa(question).await?;
            Ok(proven)
        };
        tokio::time::timeout(limit, trying).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs_f32();
            Err(Failure::transient(Kind::Connection, format!("timeout: no response within {seconds} s")))
        })
    }

    /// Checks only CAA. IP addresses have no CAA records.
    pub(crate) async fn caa(&self, question: &ValidationRequest) -> Result<(), Failure> {
        match &question.identifier {
            Identifier::Dns(host) => {
                caa::check(&self.dns, host, caa::CaaQuery::of(question, &self.identities)).await
            }
            Identifier::Ip(_) => Ok(()),
        }
    }

    async fn method(&self, question: &ValidationRequest, now_us: i64) -> Result<Proven, Failure> {
        match (question.method, &question.identifier) {
            (None, _) => Ok(Proven::default()),
            (Some(Method::Http01), identifier) => self.http.prove(identifier, question).await,
            (Some(Method::TlsAlpn01), identifier) => self.tls_alpn01(identifier, question).await,
            (Some(Method::Dns01), Identifier::Dns(host)) => dns01::dns01(&self.dns, host, question).await,
            (Some(Method::DnsAccount01), Identifier::Dns(host)) => {
                dns01::dns_account01(&self.dns, host, question).await
            }
            (Some(Method::DnsPersist01), Identifier::Dns(host)) => {
                let terms = Terms {
                    identities: &self.identities,
                    hash_prefix: &self.hash_prefix,
                    plain_account: self.plain_account,
                };
                persist::persist(&self.dns, host, question, terms, now_us).await
            }
            (Some(method), Identifier::Ip(_)) => Err(Failure::permanent(
                Kind::Malformed,
                format!("an IP address cannot be validated with {}", method.name()),
            )),
        }
    }

    async fn tls_alpn01(
        &self,
        identifier: &Identifier,
        question: &ValidationRequest,
    ) -> Result<Proven, Failure> {
        let (port, limit) = (self.options.https_port, self.options.attempt_timeout());
        let addresses = match identifier {
            Identifier::Ip(address) => self.hosts.allowed(&identifier.value(), vec![*address])?,
            Identifier::Dns(host) => self.hosts.resolve_allowed(host, limit).await?,
        };
        let connected = dial::race(&addresses, port, limit).await.map_err(|attempts| {
            let why = attempts
                .first()
                .map_or("no address".to_owned(), |first| format!("{}: {}", first.address, first.error));
            Failure::transient(
                Kind::Connection,
                format!("cannot connect to port {port} of {identifier}: {why}"),
            )
        })?;
        let endpoint = format!("port {port} of {identifier} at {}", connected.address);
        tls_alpn01::prove(self.tls.clone(), connected.stream, identifier, question, &endpoint).await
    }
}

/// Returns the prefix of hashed account URIs (draft-ietf-acme-dns-persist-02 section 4.1).
pub(crate) fn account_hash_prefix(base_url: &str) -> String {
    format!("{base_url}/acme/account-hash/")
}
