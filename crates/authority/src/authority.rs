//! The certification authority that all protocols and jobs use.

use std::sync::Arc;
use std::time::Duration;

use shared::Shared;
use store::{Clock, Store};
use uuid::Uuid;

use crate::ca_keys::{CaKey, CaKeys, LocalCaKeys, PurposeSigner, SigningPurpose};
use crate::client_certificate::StatusCache;
use crate::crl::PublishedCrls;
use crate::figures::{Counters, Figures};
use crate::issue::Issuing;
use crate::keystore::KeyStore;
use crate::ocsp::Responders;
use crate::profile::Profiles;
use crate::teams::TeamDirectory;
use crate::tree::CaCache;

/// The certification authority of a cluster. Clones are cheap and share the caches and the issuing queue.
#[derive(Clone)]
pub struct Authority {
    inner: Shared<AuthorityState>,
}

/// Options of the certification authority. The defaults suit a single machine.
#[derive(Clone, Debug)]
pub struct AuthorityOptions {
    /// URL prefix of CRLs, OCSP and CA certificates, without a trailing slash. The scheme is plain HTTP: clients need these
    /// documents before they can check an HTTPS server's certificate (RFC 5280 section 8).
    pub base_url: String,
    /// Lifetime of a CRL, from thisUpdate to nextUpdate. A new CRL is issued after half of this time, or earlier after a
    /// revocation.
    pub crl_lifetime: Duration,
    /// Number of CRL shards among which the certificates of a CA are distributed; 0 for a single CRL. A certificate stays in its
    /// shard, so the option may be increased at any time.
    pub crl_shards: u32,
    /// Whether delta CRLs (RFC 5280 section 5.2.4) are issued in addition to full ones.
    pub delta_crls: bool,
    /// Lifetime of an OCSP response. A new response is signed after half of this time.
    pub ocsp_lifetime: Duration,
    /// Lifetime of a delegated OCSP responder certificate. Choose a short one, because clients do not check the revocation of this
    /// certificate (RFC 6960 section 4.2.2.2.1). A new certificate is issued after half of this time.
    pub ocsp_responder_lifetime: Duration,
    /// Maximum size in bytes of the cache of OCSP responses.
    pub ocsp_cache_bytes_max: u64,
    /// Lifetime of cached profiles and CAs. A change by another node takes effect on this node after this time at the latest.
    pub cache_lifetime: Duration,
    /// Private suffixes that count as public suffixes, such as `corp`. No certificate is issued for the suffix itself or for a
    /// wildcard directly below it. Lower case.
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
            // About 100,000 responses: a response signed with P-256 has about 600 bytes.
            ocsp_cache_bytes_max: 64 << 20,
            cache_lifetime: Duration::from_secs(5),
            private_suffixes: Vec::new(),
        }
    }
}

/// Reason why the certification authority cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The base URL is invalid. The operator must correct it.
    #[error("base_url is {text:?}: give http://HOST or http://HOST:PORT, optionally with a path: {reason}")]
    BaseUrl {
        /// The URL as configured.
        text: String,
        /// Reason why the URL is invalid.
        reason: &'static str,
    },
}

struct AuthorityState {
    store: Store,
    keystore: KeyStore,
    ca_keys: Arc<dyn CaKeys>,
    /// Keys of CAs whose key pair is a credential. They are always used in this process, and the credential store can export them.
    credential_keys: LocalCaKeys,
    clock: Clock,
    options: AuthorityOptions,
    node: Uuid,
    cas: CaCache,
    profiles: Profiles,
    issuing: Issuing,
    crls: PublishedCrls,
    responders: Responders,
    client_statuses: Arc<StatusCache>,
    teams: TeamDirectory,
    counters: Counters,
}

impl Authority {
    /// Opens the certification authority with its database and keys. Reads nothing yet. Call [`Authority::run`] for the background
    /// work: creation of CRLs and responder certificates, and revocations by other nodes.
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
        Self::open_with_keys(store, keystore, ca_keys, clock, options)
    }

    /// Opens the certification authority like [`Authority::open`], but accesses the CA keys through `ca_keys`, for example in a
    /// signer process.
    ///
    /// # Errors
    /// [`OpenError::BaseUrl`].
    pub fn open_with_keys(
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
            cas: CaCache::default(),
            crls: PublishedCrls::default(),
            responders: Responders::new(options.ocsp_cache_bytes_max),
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
        Ok(Self { inner: Shared::new(inner) })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn keystore(&self) -> &KeyStore {
        &self.inner.keystore
    }

    /// Returns access to the CA keys, in this process or in a separate signer process.
    #[must_use]
    pub fn ca_keys(&self) -> &dyn CaKeys {
        &*self.inner.ca_keys
    }

    /// Returns a signer that uses a CA key for one purpose only.
    pub(crate) fn signing<'a>(&'a self, key: CaKey<'a>, purpose: SigningPurpose<'a>) -> PurposeSigner<'a> {
        let keys: &dyn CaKeys = match key {
            CaKey::Of(ca) if ca.credential.is_some() => &self.inner.credential_keys,
            CaKey::Of(_) | CaKey::New(_) => &*self.inner.ca_keys,
        };
        PurposeSigner { keys, key, purpose }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Returns the identifier of this process, used as the holder of leases.
    pub(crate) fn node(&self) -> Uuid {
        self.inner.node
    }

    pub(crate) fn cas_cache(&self) -> &CaCache {
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

    /// Returns the cache of revocation statuses of client certificates.
    pub(crate) fn client_statuses(&self) -> &Arc<StatusCache> {
        &self.inner.client_statuses
    }

    /// Returns the directory of the objects that each team owns.
    #[must_use]
    pub fn teams(&self) -> &TeamDirectory {
        &self.inner.teams
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Returns the authority's counters since startup, for metrics.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.inner.counters.figures(self.inner.responders.answered())
    }

    /// Returns the options with which this authority was opened.
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

/// Rejects a base URL that clients could not fetch. Issued certificates contain this URL and cannot be changed.
fn check_base_url(text: &str) -> Result<(), OpenError> {
    let refuse = |reason| Err(OpenError::BaseUrl { text: text.to_owned(), reason });
    let Ok(uri) = text.parse::<http::Uri>() else { return refuse("not a URL") };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return refuse(
                "https is not allowed, because clients would have to validate the certificate of the server that \
             they query",
            );
        }
        _ => return refuse("the scheme is missing"),
    }
    if uri.host().is_none_or(str::is_empty) {
        return refuse("the host is missing");
    }
    if uri.query().is_some() || text.contains('#') {
        return refuse("a query or fragment is not allowed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_base_url;

    #[test]
    fn base_url_must_be_plain_http_with_a_host() {
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
