//! Chains of managed certificates, synced from the server to the terminator's folder.
//!
//! The terminator presents the chains in the folder even if the server is unavailable, also at startup. Files that this module did
//! not write are left unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::certificates::{CertificateFilter, CertificateView, KeyLocationBody};
use api::listing::{Listing, PageQuery};
use cli::connection::Client;
use cli::exit::{Exit, Outcome, Problem};
use futures_util::{StreamExt, stream};
use keys::{Scheme, Signer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use telemetry::spans::{Span, TraceParent};
use uuid::Uuid;

/// File that lists the files that this module wrote, each with the fingerprint of its certificate.
const INDEX: &str = "inventory.json";
/// Rows per page: the maximum of the server.
const PAGE_ROWS: u32 = 500;
/// Number of chains fetched concurrently.
const FETCHED_AT_ONCE: usize = 8;
/// Timeout of the signature that proves that the key service has the key.
const SIGNED_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of managed certificates per terminator. The terminator accepts the same number of files.
const CERTIFICATES_MAX: usize = 100_000;

/// The folder, and the selection of certificates that it mirrors.
pub(crate) struct Mirror {
    client: Client,
    keys: keyless::client::Client,
    folder: PathBuf,
    filter: CertificateFilter,
    /// SHA-256 fingerprint of the certificate in each written file, by file name. The fingerprint is empty while the file does not
    /// exist.
    written: BTreeMap<String, String>,
    /// Files that are not up to date yet, each with the reason.
    postponed: BTreeMap<String, String>,
}

/// Changes made by a sync with the server.
#[derive(Debug, Default)]
pub(crate) struct SyncReport {
    /// Whether any file was written or removed.
    pub(crate) changed: bool,
    /// Files that are postponed to the next sync, each with the reason. Each file is reported once.
    pub(crate) postponed: Vec<(String, String)>,
}

/// A chain of a managed certificate that the terminator presents.
struct ManagedChain {
    id: Uuid,
    file: String,
    fingerprint: String,
}

impl Mirror {
    /// Creates a mirror of the certificates with this tag (`NAME=VALUE`), or of all certificates. Creates a missing folder. A chain
    /// is written only after the key service has signed for it, so that the terminator never presents a certificate without a
    /// usable key.
    pub(crate) fn new(
        client: Client,
        keys: keyless::client::Client,
        folder: &Path,
        tag: &str,
    ) -> Outcome<Self> {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let index = folder.join(INDEX);
        let written = match std::fs::read(&index) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(&index, &error))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(&index, &error)),
        };
        let tag = Some(tag.to_owned()).filter(|tag| !tag.is_empty());
        let filter = CertificateFilter { tag, ..CertificateFilter::default() };
        Ok(Self { client, keys, folder: folder.to_owned(), filter, written, postponed: BTreeMap::new() })
    }

    /// Returns whether the folder has chains of an earlier sync.
    pub(crate) fn has_chains(&self) -> bool {
        self.written.values().any(|fingerprint| !fingerprint.is_empty())
    }

    /// Updates the folder to match the server's list of certificates.
    pub(crate) async fn sync(&mut self) -> Outcome<SyncReport> {
        let wanted = self.wanted().await?;
        let is_other = |wanted: &&ManagedChain| self.written.get(&wanted.file) != Some(&wanted.fingerprint);
        let missing: Vec<&ManagedChain> = wanted.values().filter(is_other).collect();
        let removed: Vec<String> =
            self.written.keys().filter(|file| !wanted.contains_key(*file)).cloned().collect();
        if missing.is_empty() && removed.is_empty() {
            self.postponed.clear();
            return Ok(SyncReport::default());
        }
        // Record the names before the files exist, so that files left by a crash are known to be ours.
        for wanted in &missing {
            self.written.entry(wanted.file.clone()).or_default();
        }
        self.save()?;
        let mut changed = !removed.is_empty();
        let mut postponed = BTreeMap::new();
        let (client, keys) = (&self.client, &self.keys);
        // Futures are lazy: a fetch starts when it is polled.
        let fetches: Vec<_> = missing.into_iter().map(|wanted| fetch(client, keys, wanted)).collect();
        let mut fetched = std::pin::pin!(stream::iter(fetches).buffer_unordered(FETCHED_AT_ONCE));
        while let Some((wanted, chain)) = fetched.next().await {
            match chain {
                Ok(chain) => {
                    let named = format!("Managed certificate: {}\n", wanted.id).into_bytes();
                    put(&self.folder.join(&wanted.file), &[named, chain].concat())?;
                    self.written.insert(wanted.file.clone(), wanted.fingerprint.clone());
                    changed = true;
                }
                Err(why) => drop(postponed.insert(wanted.file.clone(), why)),
            }
        }
        for file in removed {
            match std::fs::remove_file(self.folder.join(&file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(&self.folder.join(&file), &error));
                }
                _ => drop(self.written.remove(&file)),
            }
        }
        self.save()?;
        let is_new = |(file, _): &(&String, &String)| !self.postponed.contains_key(*file);
        let newly_postponed =
            postponed.iter().filter(is_new).map(|(file, why)| (file.clone(), why.clone())).collect();
        self.postponed = postponed;
        Ok(SyncReport { changed, postponed: newly_postponed })
    }

    fn save(&self) -> Outcome<()> {
        let index = serde_json::to_vec_pretty(&self.written).unwrap_or_default();
        put(&self.folder.join(INDEX), &index)
    }

    /// Returns the chains to present, by file name. Skips these certificates:
    ///
    /// - archived certificates,
    /// - certificates whose key is on an agent,
    /// - certificates whose current version is missing or revoked.
    async fn wanted(&self) -> Outcome<BTreeMap<String, ManagedChain>> {
        let mut wanted = BTreeMap::new();
        let mut page = PageQuery { limit: Some(PAGE_ROWS), ..PageQuery::default() };
        loop {
            let listing: Listing<CertificateView> =
                self.client.fetch("/api/v1/certificates", &page.of(&self.filter)).await?;
            for one in listing.items.into_iter().filter_map(wanted_of) {
                wanted.insert(one.file.clone(), one);
            }
            if wanted.len() > CERTIFICATES_MAX {
                return Err(Problem::usage(format_args!("more than {CERTIFICATES_MAX} certificates"))
                    .hint("select some of them: edge.inventory_tag"));
            }
            if listing.next.is_none() {
                return Ok(wanted);
            }
            page.cursor = listing.next;
        }
    }
}

async fn fetch<'a>(
    client: &Client,
    keys: &keyless::client::Client,
    wanted: &'a ManagedChain,
) -> (&'a ManagedChain, Result<Vec<u8>, String>) {
    let began_us = telemetry::spans::now_us();
    let chain = fetch_signable_chain(client, keys, wanted.id).await;
    // Add only successful attempts to the certificate's trace: attempts repeat until the key service has the key.
    if chain.is_ok() {
        let root = TraceParent::of_object(wanted.id.as_u128());
        let own = root.child(telemetry::spans::random_id());
        let span = Span::new(own, root.parent(), "edge certificate", began_us, telemetry::spans::now_us());
        telemetry::spans::emit(vec![span.with("bulla.fingerprint", &wanted.fingerprint)]);
    }
    (wanted, chain)
}

/// Returns the current chain of a certificate, if the key service signs for it.
async fn fetch_signable_chain(
    client: &Client,
    keys: &keyless::client::Client,
    id: Uuid,
) -> Result<Vec<u8>, String> {
    let path = format!("/api/v1/certificates/{id}/chain");
    let chain = client.get_bytes(&path, &()).await.map_err(|problem| problem.message)?;
    check_key_available(keys, &chain).await?;
    Ok(chain)
}

/// Checks whether the key service signs for the leaf. The error is the reason why not.
async fn check_key_available(keys: &keyless::client::Client, chain: &[u8]) -> Result<(), String> {
    let (_, der) = x509::pem::certificates(chain).next().ok_or("the file has no certificate")?;
    let leaf = x509::Certificate::parse(&der).map_err(|error| error.to_string())?;
    let key = keys.key(&leaf.public_key.spki).ok_or("TLS does not support keys of its type")?;
    let scheme = Scheme::of(key.key_type()).ok_or("TLS does not support keys of its type")?;
    let input = scheme.input(b"bulla edge: whether there is such a key").ok_or("unsupported digest")?;
    let signed = key.sign_digest(scheme, &input, Instant::now() + SIGNED_WITHIN).await;
    signed.map(drop).map_err(|error| error.to_string())
}

fn wanted_of(row: CertificateView) -> Option<ManagedChain> {
    let current = row.current.filter(|current| !current.revoked)?;
    if row.status == "archived" || matches!(row.key_location, KeyLocationBody::Agent { .. }) {
        return None;
    }
    Some(ManagedChain {
        id: row.id,
        file: format!("{}.pem", file_stem(&row.name)),
        fingerprint: current.fingerprint,
    })
}

/// Converts a name to a file name. Characters other than letters, digits and `-_.` are percent-encoded, and so is a leading dot.
fn file_stem(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    let stem = utf8_percent_encode(name, ESCAPED).to_string();
    match stem.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => stem,
    }
}

/// Writes a file atomically, so that no reader sees a partial file.
fn put(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).map_err(|error| failed(&new, &error))?;
    std::fs::rename(&new, path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Exit::Machine, format_args!("{}: {error}", path.display())).hint(
        "check --certificates, or edge.certificates: the terminator writes the server's certificates there",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::certificates::CurrentView;

    #[test]
    fn certificate_names_are_escaped_into_safe_file_names() {
        for (name, stem) in [
            ("www.example.org", "www.example.org"),
            ("*.example.org", "%2A.example.org"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
            ("a b%", "a%20b%25"),
            ("ä", "%C3%A4"),
        ] {
            assert_eq!(file_stem(name), stem);
        }
    }

    #[test]
    fn edge_skips_revoked_archived_pending_and_agent_key_certificates() {
        let agent = KeyLocationBody::Agent { agent: Uuid::nil() };
        let row = |status: &str, key_location: KeyLocationBody, revoked: Option<bool>| {
            let mut row: CertificateView = serde_json::from_value(serde_json::json!({
                "id": Uuid::nil(), "name": "a", "names": [], "status": status, "profile": "web", "issuer": "internal",
                "tags": {}, "key_location": key_location, "key_type": "p256", "targets": [], "auto_renew": true,
                "must_staple": false, "notes": "", "failures": 0, "revision": 1,
                "created_at": "2026-11-01T00:00:00Z", "updated_at": "2026-11-01T00:00:00Z",
            }))
            .unwrap();
            row.current = revoked.map(|revoked| CurrentView {
                fingerprint: "ff".to_owned(),
                not_before: "2026-11-01T00:00:00Z".to_owned(),
                not_after: "2026-12-01T00:00:00Z".to_owned(),
                revoked,
            });
            row
        };
        let of_server = KeyLocationBody::Server;
        assert!(wanted_of(row("active", of_server, Some(false))).is_some());
        assert!(
            wanted_of(row("failed", KeyLocationBody::KeyService, Some(false))).is_some(),
            "what it has holds"
        );
        assert!(wanted_of(row("active", agent, Some(false))).is_none());
        assert!(wanted_of(row("active", of_server, Some(true))).is_none());
        assert!(wanted_of(row("archived", of_server, Some(false))).is_none());
        assert!(wanted_of(row("pending", of_server, None)).is_none());
    }
}
