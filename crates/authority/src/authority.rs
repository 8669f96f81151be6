//! The handle on the certification authority: what every protocol and job asks.

use std::sync::Arc;
use std::time::Duration;

use store::{Clock, Store};
use uuid::Uuid;

use crate::ca_keys::{CaKey, CaKeys, LocalCaKeys, Purpose, PurposeSigner};
use crate::client_certificate::Statuses;
use crate::crl::PublishedCrls;
use crate::figures::{Counters, Figures};
use crate::issue::Issuing;
use crate::keystore::KeyStore;
use crate::ocsp::Responders;
use crate::profile::Profiles;
use crate::teams::TeamDirectory;
use crate::tree::Cas;

/// The certification authority of a cluster. Cheap to clone; the clones share caches and the issuing queue.
#[derive(Clone)]
pub struct Authority {
    inner: Arc<AuthorityState>,
}

/// How the authority works; the default suits one machine.
#[derive(Clone, Debug)]
pub struct AuthorityOptions {
    /// Where CRLs, OCSP and issuer certificates are served, without a slash at the end: plain HTTP, because a client
    /// must be able to check the certificate of an HTTPS server (RFC 5280 section 8).
    pub base_url: String,
    /// How long a CRL is valid, thisUpdate to nextUpdate. A new one is made at half of it, or when a revocation wants it.
    pub crl_lifetime: Duration,
    /// CRLs the certificates of one CA are spread over; 0: one CRL with all. A certificate keeps the number it was
    /// issued with, so the number may be raised at any time.
    pub crl_shards: u32,
    /// Whether delta CRLs (RFC 5280 section 5.2.4) are made beside the full ones.
    pub delta_crls: bool,
    /// How long an OCSP response is valid. A new one is signed when half of it is over.
    pub ocsp_lifetime: Duration,
    /// How long a delegated OCSP responder's certificate is valid (RFC 6960 section 4.2.2.2.1: short, as it is not
    /// checked for revocation). A new one is made at half of it.
    pub ocsp_responder_lifetime: Duration,
    /// Memory for pre-produced OCSP responses, bytes.
    pub ocsp_cache_octets: u64,
    /// How long this node may act on a cached profile or CA after another node has changed it.
    pub cache_lifetime: Duration,
    /// Suffixes that count as those of whole registries, as `corp`: no certificate is issued for one itself, nor for a wildcard right
    /// below it. Lower case.
    pub private_suffixes: Vec<String>,
}

impl Default for AuthorityOptions {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            base_url: "http://localhost".to_owned(),
            crl_lifetime: 2 * DAY,
            crl_shards: 0,
            delta_crls: true,
            ocsp_lifetime: DAY / 2,
            ocsp_responder_lifetime: 14 * DAY,
            // A response of P-256 has some 600 bytes: a hundred thousand of them.
            ocsp_cache_octets: 64 << 20,
            cache_lifetime: Duration::from_secs(5),
            private_suffixes: Vec::new(),
        }
    }
}

/// Why the authority cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Operator: correct the address.
    #[error("base_url is {text:?}: give http://HOST or http://HOST:PORT, optionally with a path: {reason}")]
    BaseUrl {
        /// The text as the caller wrote it.
        text: String,
        /// The error.
        reason: &'static str,
    },
}

struct AuthorityState {
    store: Store,
    keystore: KeyStore,
    ca_keys: Arc<dyn CaKeys>,
    /// The keys of CAs that credentials are, which the credential store hands out.
    credential_keys: LocalCaKeys,
    clock: Clock,
    options: AuthorityOptions,
    node: Uuid,
    cas: Cas,
    profiles: Profiles,
    issuing: Issuing,
    crls: PublishedCrls,
    responders: Responders,
    client_statuses: Arc<Statuses>,
    teams: TeamDirectory,
    counters: Counters,
}

impl Authority {
    /// Opens the authority over its database and keys. Nothing is read yet; [`Authority::run`] does the work that comes
    /// by itself (CRLs, responder certificates, what other nodes have revoked).
    ///
    /// # Errors
    /// [`OpenError::BaseUrl`].
    pub fn open(
        store: Store,
        keystore: KeyStore,
        clock: Clock,
        options: AuthorityOptions,
    ) -> Result<Self, OpenError> {
        let ca_keys = Arc::new(LocalCaKeys::new(keystore.clone()));
        Self::open_over(store, keystore, ca_keys, clock, options)
    }

    /// [`Authority::open`] with the CA keys held by `ca_keys`, such as a signer process.
    ///
    /// # Errors
    /// [`OpenError::BaseUrl`].
    pub fn open_over(
        store: Store,
        keystore: KeyStore,
        ca_keys: Arc<dyn CaKeys>,
        clock: Clock,
        mut options: AuthorityOptions,
    ) -> Result<Self, OpenError> {
        check_base_url(&options.base_url)?;
        while options.base_url.ends_with('/') {
            options.base_url.pop();
        }
        let inner = AuthorityState {
            issuing: Issuing::start(&store),
            profiles: Profiles::default(),
            cas: Cas::default(),
            crls: PublishedCrls::default(),
            responders: Responders::new(options.ocsp_cache_octets),
            client_statuses: Arc::default(),
            teams: TeamDirectory::new(store.clone()),
            counters: Counters::default(),
            node: Uuid::new_v4(),
            credential_keys: LocalCaKeys::new(keystore.clone()),
            store,
            keystore,
            ca_keys,
            clock,
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The database.
    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Keys at rest.
    pub(crate) fn keystore(&self) -> &KeyStore {
        &self.inner.keystore
    }

    /// The private keys of the house's CAs.
    #[must_use]
    pub fn ca_keys(&self) -> &dyn CaKeys {
        &*self.inner.ca_keys
    }

    /// A CA key, for one purpose.
    pub(crate) fn signing<'a>(&'a self, key: CaKey<'a>, purpose: Purpose<'a>) -> PurposeSigner<'a> {
        let keys: &dyn CaKeys = match key {
            CaKey::Of(ca) if ca.credential.is_some() => &self.inner.credential_keys,
            CaKey::Of(_) | CaKey::New(_) => &*self.inner.ca_keys,
        };
        PurposeSigner { keys, key, purpose }
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// This process, as the holder of leases.
    pub(crate) fn node(&self) -> Uuid {
        self.inner.node
    }

    /// CAs in memory.
    pub(crate) fn cas_cache(&self) -> &Cas {
        &self.inner.cas
    }

    pub(crate) fn profiles_cache(&self) -> &Profiles {
        &self.inner.profiles
    }

    pub(crate) fn issuing(&self) -> &Issuing {
        &self.inner.issuing
    }

    pub(crate) fn crls(&self) -> &PublishedCrls {
        &self.inner.crls
    }

    pub(crate) fn responders(&self) -> &Responders {
        &self.inner.responders
    }

    /// Which client certificates are revoked.
    pub(crate) fn client_statuses(&self) -> &Arc<Statuses> {
        &self.inner.client_statuses
    }

    /// The objects of each team.
    #[must_use]
    pub fn teams(&self) -> &TeamDirectory {
        &self.inner.teams
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Counters since this process opened the authority.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.inner.counters.figures(self.inner.responders.answered())
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &AuthorityOptions {
        &self.inner.options
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("base_url", &self.inner.options.base_url).finish_non_exhaustive()
    }
}

/// Certificates carry this address for years, so what no client could fetch is refused now.
fn check_base_url(text: &str) -> Result<(), OpenError> {
    let refuse = |reason| Err(OpenError::BaseUrl { text: text.to_owned(), reason });
    let Ok(uri) = text.parse::<http::Uri>() else { return refuse("it is no URL") };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return refuse("https would have clients check the certificate of the server that they ask");
        }
        _ => return refuse("the scheme is missing"),
    }
    if uri.host().is_none_or(str::is_empty) {
        return refuse("the host is missing");
    }
    if uri.query().is_some() || text.contains('#') {
        return refuse("it ends at the path");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_base_url;

    #[test]
    fn a_base_url_is_plain_http_with_a_host() {
        for good in
            ["http://pki.example", "http://pki.example:8080/", "http://pki.example/a/b", "http://[::1]:80"]
        {
            assert!(check_base_url(good).is_ok(), "{good}");
        }
        for bad in
            ["", "pki.example", "https://pki.example", "http://", "http://a?b=c", "http://a/#b", "ftp://a"]
        {
            assert!(check_base_url(bad).is_err(), "{bad}");
        }
    }
}
