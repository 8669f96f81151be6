//! Which certificate is presented for which name: exact names first, then wildcards, then the default.

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
use super::client_auth::ClientGuard;
use super::metrics::EdgeMetrics;
use super::signing::{RemoteKey, RemoteSigning};
use super::site::Site;
use super::staples::Staples;
use super::tickets::TicketSecrets;

/// TLS 1.2 and 1.3, forward secrecy and authenticated encryption only, X25519MLKEM768 for who has it, else X25519, which costs less than
/// P-256. But for that order of curves it is the library's default of 2025-10-14.
const POLICY: &str = "ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09";

/// What the library may wait before it closes on a peer that broke the protocol. Its purpose, to hide how long a decryption took,
/// is that of cipher suites that are not spoken here; connections are held for it.
const BLINDING_MAX_S: u32 = 3;

/// Why no certificate is presented.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NoSite {
    /// No certificate is for the name.
    UnknownName,
    /// No name was asked for, and there is no default.
    NoName,
}

/// What sites are built with.
pub(super) struct SiteContext<'a> {
    pub(super) client: &'a Client,
    pub(super) tickets: &'a TicketSecrets,
    pub(super) staples: &'a Staples,
    pub(super) clients: Option<&'a ClientGuard>,
    pub(super) sign_timeout: Duration,
    pub(super) metrics: &'a EdgeMetrics,
    pub(super) now: UnixTime,
}

/// All of them.
#[derive(Default)]
pub(super) struct Sites {
    exact: HashMap<String, Arc<Site>>,
    /// By what stands after the star and its dot.
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

/// One chain of each kind of signature; places in a list of files.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
struct ChainPair {
    rsa: Option<usize>,
    ecdsa: Option<usize>,
}

impl Sites {
    /// Of these files. Of two for one name and kind of signature, a valid one counts before one that is not, then the newer.
    ///
    /// # Errors
    /// Those of the library.
    pub(super) fn build(
        files: &[Arc<CertificateFile>],
        default: Option<&str>,
        unknown_names_get_default: bool,
        with: &SiteContext<'_>,
    ) -> Result<Self, Error> {
        let mut order: Vec<&Arc<CertificateFile>> = files.iter().collect();
        // The best last, so that it is what stays; the name makes it the same for everybody.
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
            let files: Vec<&CertificateFile> = pair.places().map(|at| order[at].as_ref()).collect();
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

    /// The site for a server name.
    pub(super) fn choose(&self, name: Option<&str>) -> Result<&Arc<Site>, NoSite> {
        let Some(name) = name else { return self.default.as_ref().ok_or(NoSite::NoName) };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let below = || self.wildcard.get(name.split_once('.')?.1);
        let found = self.exact.get(&name).or_else(below);
        let default = || self.default.as_ref().filter(|_| self.unknown_names_get_default);
        found.or_else(default).ok_or(NoSite::UnknownName)
    }
}

impl ChainPair {
    fn put(&mut self, at: usize, file: &CertificateFile) {
        match file.kind.rsa_bits() {
            Some(_) => self.rsa = Some(at),
            None => self.ecdsa = Some(at),
        }
    }

    fn places(self) -> impl Iterator<Item = usize> {
        // ECDSA first: it costs a twentieth.
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
    // A ticket opens only for the names it was given for.
    let names: BTreeSet<&str> = files.iter().flat_map(|file| &file.names).map(String::as_str).collect();
    match with.clients {
        // A ticket would not say who the client is, nor ask whether its certificate was revoked meanwhile.
        Some(clients) => clients.add_to(&mut builder)?,
        None => with.tickets.add_to(&mut builder, &names, SystemTime::now())?,
    }
    let names = common_names(files);
    let files = files.iter().map(|file| file.name.clone()).collect();
    Ok(Site { config: builder.build()?, files, names })
}

/// What a connection begins with, before it is known which certificate is wanted.
pub(super) fn policy() -> Result<Policy, Error> {
    Policy::from_version(POLICY)
}

/// Those of all, as it is not known which of them a client was shown.
fn common_names(files: &[&CertificateFile]) -> BTreeSet<String> {
    let Some((first, others)) = files.split_first() else { return BTreeSet::new() };
    let is_common = |name: &&String| others.iter().all(|file| file.names.contains(name));
    first.names.iter().filter(is_common).cloned().collect()
}

/// A chain with its key.
fn chain(file: &CertificateFile, with: &SiteContext<'_>) -> Result<CertificateChain<'static>, Error> {
    let mut builder = cert_chain::Builder::new()?;
    builder.load_public_pem(&file.pem)?;
    if let Some(staple) = with.staples.of(file, with.now) {
        builder.set_ocsp_data(&staple)?;
    }
    let key = with.client.key(&file.spki);
    let key = key.ok_or_else(|| Error::application("the key service signs with no such key".into()))?;
    builder.set_application_context(RemoteKey(Arc::new(key) as KeyRef))?;
    builder.build()
}
