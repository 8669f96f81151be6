//! Simulated static-ct log (c2sp.org/static-ct-api) with configurable faults.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::RwLock;
use x509::der;

use super::http::{CtCounts, Page, Quota, Server, Trouble};
use super::paper::IssuedPair;
use super::tree::{Hash, leaf_hash, root, sha256, tile};
use crate::FleetError;

/// Options of a simulated log: rate limit, delay, and the treatment of tiles.
#[derive(Clone, Debug)]
pub struct CtLogOptions {
    /// Rate limit of requests.
    pub quota: Quota,
    /// Delay before every response.
    pub latency: Duration,
    /// Whether data tiles are always sent with gzip, as the specification allows.
    pub gzip: bool,
    /// Whether a partial tile is deleted once the full tile exists.
    pub drop_partials: bool,
}

impl Default for CtLogOptions {
    fn default() -> Self {
        Self { quota: Quota::default(), latency: Duration::ZERO, gzip: true, drop_partials: true }
    }
}

/// A running simulated log. Stops when dropped.
pub struct CtLog {
    server: Server,
    state: Arc<RwLock<State>>,
    spki: Vec<u8>,
    submission_url: String,
}

struct State {
    key: EcdsaKeyPair,
    origin: String,
    entries: Vec<Stored>,
    /// Leaf hashes of the entries.
    leaves: Vec<Hash>,
    /// The signed note that is currently served.
    checkpoint: String,
    size: usize,
    issuers: HashMap<String, Vec<u8>>,
    gzip: bool,
    drop_partials: bool,
    /// Milliseconds since 1970-01-01 UTC; advances by at least one with each checkpoint.
    clock_ms: u64,
}

#[derive(Clone)]
struct Stored {
    /// The encoded TimestampedEntry.
    timestamped: Vec<u8>,
    /// The rest of the entry in a data tile.
    extra: Vec<u8>,
}

impl CtLog {
    /// Starts an empty log with a signed empty tree.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn start(options: &CtLogOptions) -> Result<Self, FleetError> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| FleetError::Sign)?;
        let spki = der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[1, 2, 840, 10_045, 2, 1]).oid(&[1, 2, 840, 10_045, 3, 1, 7]);
                });
                w.bits(key.public_key().as_ref());
            });
        });
        let state = Arc::new(RwLock::new(State {
            key,
            origin: "ct.fleet.example/2026".to_owned(),
            entries: Vec::new(),
            leaves: Vec::new(),
            checkpoint: String::new(),
            size: 0,
            issuers: HashMap::new(),
            gzip: options.gzip,
            drop_partials: options.drop_partials,
            clock_ms: (crate::clock::now().0.max(0) as u64) * 1_000,
        }));
        state.write().sign(0)?;
        let served = state.clone();
        let server = Server::start(options.quota, options.latency, move |request| {
            served.read().serve(request.uri.path())
        })
        .await?;
        Ok(Self { server, state, spki, submission_url: "https://ct.fleet.example/2026/".to_owned() })
    }

    /// Returns the monitoring prefix, with a trailing slash.
    #[must_use]
    pub fn monitoring_url(&self) -> String {
        format!("http://{}/", self.server.address)
    }

    /// Returns the submission prefix, from which the origin is derived.
    #[must_use]
    pub fn submission_url(&self) -> &str {
        &self.submission_url
    }

    /// Returns the log's key, a DER SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Returns a log list, version 3, that contains this log.
    #[must_use]
    pub fn log_list(&self) -> String {
        serde_json::json!({
            "version": "1.0", "log_list_timestamp": "2026-11-21T00:00:00Z",
            "operators": [{ "name": "Fleet", "email": [], "logs": [], "tiled_logs": [{
                "description": "Fleet 2026", "log_id": STANDARD.encode(sha256(&self.spki)),
                "key": STANDARD.encode(&self.spki), "mmd": 60, "state": {"usable": {"timestamp": "2026-01-01T00:00:00Z"}},
                "submission_url": self.submission_url, "monitoring_url": self.monitoring_url(),
            }]}],
        })
        .to_string()
    }

    /// Adds a precertificate; it is visible after [`CtLog::publish`].
    pub fn add_precertificate(&self, pair: &IssuedPair) {
        let mut signed = pair.issuer_key_hash.to_vec();
        signed.extend(with_length::<3>(&pair.tbs));
        let extra = [with_length::<3>(&pair.precertificate), chain_of(&pair.issuer)].concat();
        self.state.write().add([0, 1], &signed, extra, &pair.issuer);
    }

    /// Adds a certificate; it is visible after [`CtLog::publish`].
    pub fn add_certificate(&self, pair: &IssuedPair) {
        self.add_raw_certificate(&pair.certificate, &pair.issuer);
    }

    /// Adds arbitrary bytes as a certificate.
    pub fn add_raw_certificate(&self, der: &[u8], issuer: &[u8]) {
        self.state.write().add([0, 0], &with_length::<3>(der), chain_of(issuer), issuer);
    }

    /// Signs a tree with all added entries.
    ///
    /// # Errors
    /// [`FleetError::Sign`].
    pub fn publish(&self) -> Result<(), FleetError> {
        let mut state = self.state.write();
        let size = state.entries.len();
        state.sign(size)
    }

    /// Returns the number of entries in the served tree.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state.read().size as u64
    }

    /// Advances the log's clock.
    pub fn advance_clock(&self, by: Duration) {
        self.state.write().clock_ms += by.as_millis() as u64;
    }

    /// Simulates a fork: replaces entry `at` and signs a tree of the same size.
    ///
    /// # Errors
    /// [`FleetError::Sign`].
    ///
    /// # Panics
    /// When there is no such entry.
    pub fn fork(&self, at: usize) -> Result<(), FleetError> {
        let mut state = self.state.write();
        let mut forged = state.entries[at].clone();
        forged.timestamped[7] ^= 1;
        state.leaves[at] = forged.leaf_hash();
        state.entries[at] = forged;
        let size = state.entries.len();
        state.sign(size)
    }

    /// Simulates a rollback: signs a later checkpoint of a smaller tree.
    ///
    /// # Errors
    /// [`FleetError::Sign`].
    pub fn roll_back(&self, size: usize) -> Result<(), FleetError> {
        let mut state = self.state.write();
        state.entries.truncate(size);
        state.leaves.truncate(size);
        state.sign(size)
    }

    /// Returns the currently served checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> String {
        self.state.read().checkpoint.clone()
    }

    /// Serves an earlier checkpoint again, like a stale cache.
    pub fn serve_stale(&self, checkpoint: &str) {
        self.state.write().checkpoint = checkpoint.to_owned();
    }

    /// Queues faults: one for each of the next requests.
    pub fn trouble(&self, troubles: &[Trouble]) {
        self.server.trouble(troubles);
    }

    /// Returns the counters of connections, requests and throttled requests.
    #[must_use]
    pub fn counts(&self) -> CtCounts {
        self.server.counts()
    }

    /// Stops the log and waits until its tasks have ended.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

impl Stored {
    fn leaf_hash(&self) -> Hash {
        leaf_hash(&[&[0, 0], &self.timestamped[..]].concat())
    }
}

impl State {
    fn add(&mut self, kind: [u8; 2], signed: &[u8], extra: Vec<u8>, issuer: &[u8]) {
        let index = self.entries.len() as u64;
        // leaf_index, the only extension.
        let extensions = [&[0, 8, 0, 0, 5][..], &index.to_be_bytes()[3..]].concat();
        let timestamped = [&self.clock_ms.to_be_bytes()[..], &kind, signed, &extensions].concat();
        let stored = Stored { timestamped, extra };
        self.leaves.push(stored.leaf_hash());
        self.entries.push(stored);
        self.issuers.insert(HEXLOWER.encode(&sha256(issuer)), issuer.to_vec());
    }

    fn sign(&mut self, size: usize) -> Result<(), FleetError> {
        self.clock_ms += 1;
        self.size = size;
        let root = root(&self.leaves[..size]);
        let timestamp = self.clock_ms.to_be_bytes();
        let head = [&[0, 1][..], &timestamp, &(size as u64).to_be_bytes(), &root].concat();
        let signature = self.key.sign(&SystemRandom::new(), &head).map_err(|_| FleetError::Sign)?;
        let log_id = sha256(&der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[1, 2, 840, 10_045, 2, 1]).oid(&[1, 2, 840, 10_045, 3, 1, 7]);
                });
                w.bits(self.key.public_key().as_ref());
            });
        }));
        let key_id = sha256(&[self.origin.as_bytes(), &[b'\n', 5], &log_id].concat());
        let signed = [&key_id[..4], &timestamp, &[4, 3], &with_length::<2>(signature.as_ref())].concat();
        self.checkpoint = format!(
            "{origin}\n{size}\n{}\n\n— {origin} {}\n",
            STANDARD.encode(root),
            STANDARD.encode(signed),
            origin = self.origin
        );
        Ok(())
    }

    fn serve(&self, path: &str) -> Page {
        let missing = || Page::status(404, "not found\n");
        if path == "/checkpoint" {
            return Page::ok("text/plain; charset=utf-8", self.checkpoint.clone().into_bytes());
        }
        if let Some(hash) = path.strip_prefix("/issuer/") {
            let found = self.issuers.get(hash);
            return found.map_or_else(missing, |der| Page::ok("application/pkix-cert", der.clone()));
        }
        let Some((level, tile)) = path.strip_prefix("/tile/").and_then(|rest| rest.split_once('/')) else {
            return missing();
        };
        self.serve_tile(level, tile).unwrap_or_else(missing)
    }

    fn serve_tile(&self, level: &str, tile_path: &str) -> Option<Page> {
        let (index, width) = parse_tile(tile_path)?;
        let height = if level == "data" { 0 } else { level.parse().ok()? };
        // Only tiles of the served tree exist; a partial tile that has become full is deleted if the log is configured so.
        let hashes = (self.size as u64).checked_shr(8 * height)?;
        let available = hashes.checked_sub(index.checked_mul(256)?)?.min(256);
        if width > available || (self.drop_partials && width < 256 && available == 256) {
            return None;
        }
        if level != "data" {
            let hashes = tile(&self.leaves[..self.size], height, index, width)?;
            return Some(Page::ok("application/octet-stream", hashes.concat()));
        }
        let first = usize::try_from(index * 256).ok()?;
        let entries = self.entries.get(first..first + width as usize)?;
        let body: Vec<u8> =
            entries.iter().flat_map(|entry| [&entry.timestamped[..], &entry.extra].concat()).collect();
        let mut page = Page::ok("application/octet-stream", body);
        if self.gzip {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(&page.body).ok()?;
            page.body = packer.finish().ok()?;
            page.headers.push(("content-encoding", "gzip".to_owned()));
        }
        Some(page)
    }
}

/// Parses `x001/x234/067.p/5` into index and width.
fn parse_tile(path: &str) -> Option<(u64, u64)> {
    let (number, width) = match path.split_once(".p/") {
        Some((number, width)) => (number, width.parse().ok().filter(|width| (1..256).contains(width))?),
        None => (path, 256),
    };
    let parts: Vec<&str> = number.split('/').collect();
    let (last, above) = parts.split_last()?;
    let digits = above.iter().map(|part| part.strip_prefix('x')).chain([Some(*last)]);
    let mut index = 0_u64;
    for part in digits {
        let part = part.filter(|part| part.len() == 3)?;
        index = index.checked_mul(1_000)?.checked_add(part.parse().ok()?)?;
    }
    Some((index, width))
}

fn chain_of(issuer: &[u8]) -> Vec<u8> {
    with_length::<2>(&sha256(issuer))
}

/// Encodes a vector with a length prefix of `N` bytes (RFC 8446 section 3.4).
fn with_length<const N: usize>(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_be_bytes()[8 - N..], bytes].concat()
}
