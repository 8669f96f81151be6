//! Converts observations to rows of the inventory.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use scan::Observation;
use scan::target::{CloudStore, Host, Protocol, ProtocolSource, Target};
use store::{EndpointKey, NewCertificate, NewObservation, Store, StoreError};
use uuid::Uuid;
use x509::{Certificate, Fingerprint, HostName};

/// Maximum rows of a page when all rows of a scan are read.
const PAGE_ROWS: usize = 1_000;

/// Maximum cached certificates. An intermediate in the cache is not converted again.
const CACHE_MAX: usize = 1_024;

/// A converter of observations to rows. Create one for each scan, because it caches the intermediates.
#[derive(Default)]
pub struct Recorder {
    cache: HashMap<Fingerprint, Arc<NewCertificate>>,
}

impl Recorder {
    /// Converts `observation` to a row. `detail` is a JSON object with the data that has no column.
    pub fn row(&mut self, observation: &Observation, detail: String) -> NewObservation {
        let session = observation.session.as_deref();
        NewObservation {
            endpoint: endpoint_key(observation),
            address: observation.address,
            observed_at_us: observation.at_us,
            outcome: observation.outcome,
            answered: !observation.chain.is_empty(),
            tls_version: session.and_then(|s| s.version),
            cipher_suite: session.and_then(|s| s.cipher),
            chain: observation
                .chain
                .iter()
                .enumerate()
                .map(|(index, certificate)| self.certificate(certificate, index > 0))
                .collect(),
            trust: observation.trust.as_ref().map_or("not-judged", |t| t.verdict).to_owned(),
            severity: observation.severity(),
            findings: serde_json::to_string(&observation.findings).unwrap_or_default(),
            detail,
        }
    }

    fn certificate(&mut self, certificate: &Arc<Certificate>, keep: bool) -> Arc<NewCertificate> {
        if let Some(known) = self.cache.get(&certificate.fingerprint) {
            return known.clone();
        }
        let row = Arc::new(NewCertificate::new(certificate, certificate.names()));
        if keep {
            if self.cache.len() >= CACHE_MAX {
                self.cache.clear();
            }
            self.cache.insert(certificate.fingerprint, row.clone());
        }
        row
    }
}

/// Returns the scan target of an inventory endpoint; `None` when this build does not support it.
#[must_use]
pub fn target(key: &EndpointKey) -> Option<Target> {
    if key.protocol == Protocol::File.name() {
        return Some(Target::file(Path::new(&key.host)));
    }
    if let Ok(store) = key.protocol.parse::<CloudStore>() {
        return Some(Target::resource(store, key.host.as_str().into()));
    }
    let host = match key.host.parse() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(HostName::parse(&key.host).ok()?),
    };
    let own_name = matches!(&host, Host::Name(name) if name.as_str() == key.server_name);
    let server_name = if own_name || key.server_name.is_empty() {
        None
    } else {
        Some(HostName::parse(&key.server_name).ok()?)
    };
    let protocol = Protocol::named(&key.protocol)?;
    Some(Target::new(host, key.port, protocol, ProtocolSource::Given, server_name))
}

/// Returns the key by which the scan engine identifies an inventory endpoint (see [`Target::identity`]).
#[must_use]
pub fn identity(key: &EndpointKey) -> Option<String> {
    let target = target(key)?;
    Some(match key.address.parse() {
        Ok(address) => target.identity_at(address),
        Err(_) => target.identity(),
    })
}

/// Returns the endpoints that `scan` has already observed, by [`identity`], for [`KnownEndpoints::observed`](scan::KnownEndpoints::observed). An
/// endpoint takes about 100 bytes.
///
/// # Errors
/// [`StoreError::UnknownScan`]; database errors.
#[crate::boxed]
pub async fn observed(store: &Store, scan: Uuid) -> Result<HashSet<String>, StoreError> {
    let mut identities = HashSet::new();
    let mut after = None;
    loop {
        let page = store::Scans::of(store).endpoints(scan, after.as_ref(), PAGE_ROWS).await?;
        identities.extend(page.rows.iter().filter_map(identity));
        after = page.next;
        if after.is_none() {
            return Ok(identities);
        }
    }
}

/// Returns the key of an observed endpoint in the inventory.
#[must_use]
pub fn endpoint_key(observation: &Observation) -> EndpointKey {
    let target = &observation.target;
    EndpointKey {
        host: target.host_text().to_owned(),
        port: target.port,
        protocol: target.protocol.name().to_owned(),
        server_name: target.sni().unwrap_or_default().to_owned(),
        address: match observation.address {
            Some(address) if observation.by_address => address.to_string(),
            _ => String::new(),
        },
    }
}
