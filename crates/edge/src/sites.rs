//! Chooses the certificate by server name: exact names first, then wildcards, then the default.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyless::client::Client;
use keys::KeyRef;
use s2n_tls::cert_chain::{self, CertificateChain};
use s2n_tls::config::Builder;
use s2n_tls::error::Error;
use s2n_tls::security::Policy;
use x509::UnixTime;

use super::certificate::CertificateFile;
use super::client_auth::ClientAuthenticator;
use super::metrics::EdgeMetrics;
use super::signing::{RemoteKey, RemoteSigning};
use super::site::Site;
use super::staples::Staples;
use super::tickets::TicketSecrets;

/// Security policy of s2n-tls: TLS 1.2 and 1.3 with forward secrecy and authenticated encryption. Key exchange: X25519MLKEM768 if
/// the client supports it, else X25519, which is cheaper than P-256. Apart from the order of curves, this was the library's
/// default on 2025-10-14.
const POLICY: &str = "ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09";

/// Maximum delay, in seconds, before the library closes a connection after a protocol error. The delay hides the time of a failed
/// decryption, which matters only for cipher suites that are disabled here. A longer delay would occupy connection slots.
const BLINDING_MAX_S: u32 = 3;

/// Reason why no certificate can be chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SiteSelectionError {
    /// No certificate matches the server name.
    UnknownName,
    /// The client sent no server name, and there is no default certificate.
    NoName,
}

/// Shared inputs for building the TLS configuration of each site.
pub(super) struct SiteContext<'a> {
    pub(super) client: &'a Client,
    pub(super) tickets: &'a TicketSecrets,
    pub(super) staples: &'a Staples,
    pub(super) clients: Option<&'a ClientAuthenticator>,
    pub(super) sign_timeout: Duration,
    pub(super) metrics: &'a EdgeMetrics,
    pub(super) now: UnixTime,
}

/// All sites, by server name.
#[derive(Default)]
pub(super) struct Sites {
    exact: HashMap<String, Arc<Site>>,
    /// Sites of `*.NAME` certificates, by NAME.
    wildcard: HashMap<String, Arc<Site>>,
    default: Option<Arc<Site>>,
    unknown_names_get_default: bool,
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sites")
            .field("exact", &self.exact.len())
            .field("wildcard", &self.wildcard.len())
            .finish_non_exhaustive()
    }
}

/// One chain for each key type, as indexes into a list of files.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
struct ChainPair {
    rsa: Option<usize>,
    ecdsa: Option<usize>,
}

impl Sites {
    /// Builds the sites of these files. If two files have the same name and key type, a valid chain takes precedence over an
    /// invalid one, then the newer chain.
    ///
    /// # Errors
    /// Errors of the TLS library.
    pub(super) fn build(
        files: &[Arc<CertificateFile>],
        default: Option<&str>,
        unknown_names_get_default: bool,
        with: &SiteContext<'_>,
    ) -> Result<Self, Error> {
        let mut order: Vec<&Arc<CertificateFile>> = files.iter().collect();
        // Sort the best file last, so that it overwrites the others. The name makes the order the same on every terminator.
        order.sort_by_key(|file| (file.is_valid(with.now), file.not_before, file.not_after, &file.name));
        let mut by_name: HashMap<&str, ChainPair> = HashMap::new();
        for (at, file) in order.iter().enumerate() {
            for name in &file.names {
                by_name.entry(name).or_default().put(at, file);
            }
        }
        let mut built: HashMap<ChainPair, Arc<Site>> = HashMap::new();
        let mut site = |pair: ChainPair| {
            if let Some(site) = built.get(&pair) {
                return Ok::<_, Error>(Arc::clone(site));
            }
            let files: Vec<&CertificateFile> = pair.indices().map(|at| order[at].as_ref()).collect();
            let site = Arc::new(build_site(&files, with)?);
            built.insert(pair, Arc::clone(&site));
            Ok(site)
        };
        let mut sites = Self { unknown_names_get_default, ..Self::default() };
        for (name, pair) in by_name {
            match name.strip_prefix("*.") {
                Some(parent) => sites.wildcard.insert(parent.to_owned(), site(pair)?),
                None => sites.exact.insert(name.to_owned(), site(pair)?),
            };
        }
        if let Some(at) = order.iter().position(|file| Some(file.name.as_str()) == default) {
            let mut pair = ChainPair::default();
            pair.put(at, order[at]);
            sites.default = Some(site(pair)?);
        }
        Ok(sites)
    }

    /// Returns the site for a server name.
    pub(super) fn choose(&self, name: Option<&str>) -> Result<&Arc<Site>, SiteSelectionError> {
        let Some(name) = name else { return self.default.as_ref().ok_or(SiteSelectionError::NoName) };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let below = || self.wildcard.get(name.split_once('.')?.1);
        let found = self.exact.get(&name).or_else(below);
        let default = || self.default.as_ref().filter(|_| self.unknown_names_get_default);
        found.or_else(default).ok_or(SiteSelectionError::UnknownName)
    }
}

impl ChainPair {
    fn put(&mut self, at: usize, file: &CertificateFile) {
        match file.kind.rsa_bits() {
            Some(_) => self.rsa = Some(at),
            None => self.ecdsa = Some(at),
        }
    }

    fn indices(self) -> impl Iterator<Item = usize> {
        // ECDSA first: a signature costs a twentieth of an RSA signature.
        [self.ecdsa, self.rsa].into_iter().flatten()
    }
}

/// Builds the configuration of a site.
fn build_site(files: &[&CertificateFile], with: &SiteContext<'_>) -> Result<Site, Error> {
    let mut builder = Builder::new();
    builder.with_system_certs(false)?;
    builder.set_security_policy(&policy()?)?;
    builder.set_max_blinding_delay(BLINDING_MAX_S)?;
    let chains = files.iter().map(|file| chain(file, with)).collect::<Result<Vec<_>, Error>>()?;
    builder.set_default_chains(chains)?;
    builder.set_private_key_callback(RemoteSigning::new(with.sign_timeout, with.metrics.clone()))?;
    // A ticket must resume sessions only for the names of this site.
    let names: BTreeSet<&str> = files.iter().flat_map(|file| &file.names).map(String::as_str).collect();
    match with.clients {
        // No tickets with client certificates: a ticket contains no client identity, and resumption skips the revocation check.
        Some(clients) => clients.add_to(&mut builder)?,
        None => with.tickets.add_to(&mut builder, &names, SystemTime::now())?,
    }
    let names = common_names(files);
    let trace = files.iter().find_map(|file| file.trace);
    let files = files.iter().map(|file| file.name.clone()).collect();
    Ok(Site { config: builder.build()?, files, names, trace })
}

/// Returns the TLS policy for a connection before its certificate is chosen.
pub(super) fn policy() -> Result<Policy, Error> {
    Policy::from_version(POLICY)
}

/// Returns the names that all files have in common, because it is not known which certificate a client received.
fn common_names(files: &[&CertificateFile]) -> BTreeSet<String> {
    let Some((first, others)) = files.split_first() else { return BTreeSet::new() };
    let is_common = |name: &&String| others.iter().all(|file| file.names.contains(name));
    first.names.iter().filter(is_common).cloned().collect()
}

/// Builds a chain with its remote key.
fn chain(file: &CertificateFile, with: &SiteContext<'_>) -> Result<CertificateChain<'static>, Error> {
    let mut builder = cert_chain::Builder::new()?;
    builder.load_public_pem(&file.pem)?;
    if let Some(staple) = with.staples.of(file, with.now) {
        builder.set_ocsp_data(&staple)?;
    }
    let key = with.client.key(&file.spki);
    let key = key.ok_or_else(|| {
        Error::application("the key service does not have the key of this certificate".into())
    })?;
    builder.set_application_context(RemoteKey { key: Arc::new(key) as KeyRef, trace: file.trace })?;
    builder.build()
}
