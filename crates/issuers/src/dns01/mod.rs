//! Publication of dns-01 records (RFC 8555 section 8.4): in the right zone, verified at its servers, and removed afterwards.

mod config;
mod hook;
mod lookup;
mod publisher;
mod rfc2136;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use callout::HttpConfig;
use futures_util::future::{FutureExt, TryFutureExt};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use outbound::resolve::Resolver;
use shared::Shared;

use self::lookup::Dns;
use crate::error::IssuerError;
use crate::host_policy::HostPolicy;

pub use config::{Dns01Config, Propagation, PublisherConfig, TsigAlgorithm};
pub use publisher::{PublishError, Publisher, TxtRecord};

/// Maximum number of concurrent changes. Name servers apply them one after the other anyway.
const CHANGES_AT_ONCE: usize = 4;

/// Checks whether a configured name server may be connected to.
fn guarded(host: &HostPolicy, server: SocketAddr) -> Result<(), IssuerError> {
    host.guard.address(server.ip()).map_err(|error| IssuerError::misconfigured(format!("dns01: {error}")))
}

/// Publisher of the records of dns-01 challenges, which waits until the records are visible. Clones share their state.
#[derive(Clone, Debug)]
pub struct Solver(Shared<SolverParts>);

#[derive(Debug)]
struct SolverParts {
    publisher: Box<dyn Publisher>,
    dns: Dns,
    propagation: Propagation,
    ttl: u32,
}

impl Solver {
    /// Creates a solver from its configuration.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`].
    pub fn new(
        config: &Dns01Config,
        http: &HttpConfig,
        resolver: &Resolver,
        host: &HostPolicy,
    ) -> Result<Self, IssuerError> {
        let publisher: Box<dyn Publisher> = match &config.publisher {
            PublisherConfig::Rfc2136 { server, zone, tsig_name, tsig_algorithm, tsig_secret } => {
                guarded(host, *server)?;
                let zone = zone.as_deref();
                Box::new(rfc2136::Rfc2136::new(*server, zone, tsig_name, *tsig_algorithm, tsig_secret)?)
            }
            PublisherConfig::Exec { program, seconds, argv: _ } => {
                Box::new(hook::Program::new(&host.programs, program, *seconds)?)
            }
            PublisherConfig::Webhook { url, secret } => {
                Box::new(hook::Service::new(url, secret, http, resolver)?)
            }
        };
        let propagation = &config.propagation;
        propagation
            .resolvers
            .iter()
            .chain(&propagation.servers)
            .try_for_each(|server| guarded(host, *server))?;
        Ok(Self(Shared::new(SolverParts {
            publisher,
            dns: Dns::new(config.propagation.resolvers.clone(), resolver.clone(), host.guard),
            propagation: config.propagation.clone(),
            ttl: config.ttl,
        })))
    }

    /// Publishes the records, following aliases, and waits until every authoritative server returns them. Each record is added to
    /// `placed` before it is sent, so that [`Solver::remove`] can remove every record that may exist.
    ///
    /// # Errors
    /// [`IssuerError::Unproven`] with the name of the record.
    #[crate::boxed]
    pub async fn present(
        &self,
        records: &[TxtRecord],
        placed: &mut Vec<TxtRecord>,
        deadline: Instant,
    ) -> Result<(), IssuerError> {
        for record in records {
            let name = self.0.dns.canonical(&record.name, deadline).await;
            placed.push(TxtRecord { name, value: record.value.clone() });
        }
        let failed = |record: &TxtRecord, error: PublishError| IssuerError::Unproven {
            name: record.name.clone(),
            reason: format!("the TXT record could not be published: {error}"),
        };
        let send = |record| self.0.publisher.publish(record, self.0.ttl, deadline);
        let sending: Vec<_> =
            placed.iter().map(|record| send(record).map_err(|e| failed(record, e)).boxed()).collect();
        let () = stream::iter(sending).buffer_unordered(CHANGES_AT_ONCE).try_collect().await?;
        self.wait(placed, deadline).await
    }

    /// Tries to remove all records, and deletes removed ones from `placed`. Logs the remaining records.
    #[crate::boxed]
    pub async fn remove(&self, placed: &mut Vec<TxtRecord>, deadline: Instant) {
        let removing: Vec<_> =
            placed.iter().map(|record| self.0.publisher.remove(record, deadline)).collect();
        let results: Vec<_> = stream::iter(removing).buffered(CHANGES_AT_ONCE).collect().await;
        for (record, result) in placed.iter().zip(&results) {
            if let Err(error) = result {
                tracing::warn!(name = %record.name, %error, "a dns-01 record could not be removed");
            }
        }
        let mut removed = results.into_iter().map(|result| result.is_ok());
        placed.retain(|_| !removed.next().unwrap_or(false));
    }

    async fn wait(&self, records: &[TxtRecord], deadline: Instant) -> Result<(), IssuerError> {
        let propagation = &self.0.propagation;
        if !propagation.check {
            return Ok(());
        }
        let wait_end = Instant::now() + Duration::from_secs(propagation.wait_seconds.into());
        let until = deadline.min(wait_end);
        let pause = Duration::from_millis(propagation.interval_ms.clamp(50, 60_000).into());
        for record in records {
            self.wait_until_visible(record, until, pause).await?;
        }
        Ok(())
    }

    /// Waits until every authoritative server has the record.
    async fn wait_until_visible(
        &self,
        record: &TxtRecord,
        until: Instant,
        pause: Duration,
    ) -> Result<(), IssuerError> {
        let unproven = |reason: String| IssuerError::Unproven { name: record.name.clone(), reason };
        let propagation = &self.0.propagation;
        let servers = match propagation.servers.as_slice() {
            [] => self
                .0
                .dns
                .authoritative_servers(&record.name, propagation.port, until)
                .await
                .map_err(|error| unproven(error.0))?,
            given => given.to_vec(),
        };
        let mut missing: Vec<SocketAddr> = servers;
        loop {
            let lookups: Vec<_> = missing
                .iter()
                .map(|server| self.0.dns.has_txt_record(*server, record, until).boxed())
                .collect();
            let visible: Vec<bool> = stream::iter(lookups).buffered(CHANGES_AT_ONCE).collect().await;
            let mut visible = visible.into_iter();
            missing.retain(|_| !visible.next().unwrap_or(false));
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() + pause >= until {
                let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
                return Err(unproven(format!(
                    "these name servers do not have the TXT record: {}",
                    names.join(", ")
                )));
            }
            tokio::time::sleep(pause).await;
        }
    }
}
