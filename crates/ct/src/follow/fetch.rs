//! Fetches resources from a log: limits their size, decompresses them, and retries temporary failures.

use std::io::Read as _;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::StatusCode;
use outbound::Deadline;
use outbound::http::{Client, Reply};
use outbound::rate::PacerCounts;
use store::Clock;

use super::options::FollowOptions;
use crate::entry::DATA_TILE_BYTES_MAX;
use crate::gate::Gate;
use crate::merkle::{Hash, sha256};
use crate::note::NOTE_BYTES_MAX;
use crate::tile::{TILE_BYTES, TileId, hashes};

/// Maximum attempts per request. After three failures in a row, the error is returned with the time of the next attempt.
const TRIES: u32 = 3;
/// Longest accepted issuer certificate in bytes; logs accept 64 kB to 512 kB for a whole submission.
const ISSUER_BYTES_MAX: usize = 128 * 1024;

/// Reason why a resource of a log could not be fetched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum FetchError {
    /// The log does not have the resource.
    Missing(String),
    /// The log is temporarily unavailable.
    Unavailable {
        /// Description of the failure.
        reason: String,
        /// Time until the next attempt.
        retry_after: Duration,
    },
}

/// HTTP client of one log, below its monitoring prefix.
#[derive(Debug)]
pub(super) struct LogClient {
    http: Client,
    /// The monitoring prefix, with a trailing slash.
    base: String,
    gate: Gate,
    answer_limit: Duration,
    clock: Clock,
}

impl LogClient {
    pub(super) fn new(monitoring_url: &str, http: Client, options: &FollowOptions, clock: Clock) -> Self {
        let base = format!("{}/", monitoring_url.trim_end_matches('/'));
        // Permits one more concurrent request than tiles, so that a checkpoint request does not wait for tiles.
        let gate = Gate::new(options.pace, options.tiles_at_once + 1, options.wait_max);
        Self { http, base, gate, answer_limit: options.answer_limit, clock }
    }

    pub(super) fn pacer_counts(&self) -> PacerCounts {
        self.gate.pacer_counts()
    }

    pub(super) async fn checkpoint(&self) -> Result<Vec<u8>, FetchError> {
        self.get("checkpoint", NOTE_BYTES_MAX).await
    }

    /// Returns at least `id.width` hashes of a tile. Fetches the full tile if the partial one no longer exists.
    pub(super) async fn hashes(&self, id: TileId) -> Result<Vec<Hash>, FetchError> {
        let (bytes, id) = self.tile(id, TileId::path, TILE_BYTES).await?;
        hashes(&bytes, id.width).ok_or_else(|| FetchError::Unavailable {
            reason: format!("{} has {} bytes", id.path(), bytes.len()),
            retry_after: Duration::ZERO,
        })
    }

    /// Returns the unparsed data tile with at least `id.width` entries.
    pub(super) async fn entries(&self, id: TileId) -> Result<Vec<u8>, FetchError> {
        self.tile(id, TileId::data_path, DATA_TILE_BYTES_MAX).await.map(|(bytes, _)| bytes)
    }

    /// Returns an issuer certificate, DER, by its SHA-256.
    pub(super) async fn issuer(&self, fingerprint: &Hash) -> Result<Vec<u8>, FetchError> {
        let name = x509::Fingerprint::from_bytes(*fingerprint);
        let der = self.get(&format!("issuer/{name}"), ISSUER_BYTES_MAX).await?;
        if sha256(&der) == *fingerprint {
            return Ok(der);
        }
        let reason = format!("the certificate at issuer/{name} has another SHA-256 fingerprint");
        Err(FetchError::Unavailable { reason, retry_after: Duration::ZERO })
    }

    /// Fetches a tile. A log may delete a partial tile once the full tile exists (static-ct-api, "Partial Tiles").
    async fn tile(
        &self,
        id: TileId,
        path: fn(TileId) -> String,
        bytes_max: usize,
    ) -> Result<(Vec<u8>, TileId), FetchError> {
        match self.get(&path(id), bytes_max).await {
            Ok(bytes) => Ok((bytes, id)),
            Err(FetchError::Missing(_)) if !id.is_full() => {
                Ok((self.get(&path(id.full()), bytes_max).await?, id.full()))
            }
            Err(error) => Err(error),
        }
    }

    async fn get(&self, path: &str, bytes_max: usize) -> Result<Vec<u8>, FetchError> {
        let url = format!("{}{path}", self.base);
        let mut last = FetchError::Missing(path.to_owned());
        for _ in 0..TRIES {
            match self.attempt(&url, path, bytes_max).await {
                // The next attempt checks whether the wait exceeds the limit.
                Err(FetchError::Unavailable { reason, retry_after }) => {
                    last = FetchError::Unavailable { reason, retry_after };
                }
                done => return done,
            }
        }
        Err(last)
    }

    async fn attempt(&self, url: &str, path: &str, bytes_max: usize) -> Result<Vec<u8>, FetchError> {
        let unavailable = |reason: String, retry_after| FetchError::Unavailable {
            reason: format!("{path}: {reason}"),
            retry_after,
        };
        let permit = self
            .gate
            .enter()
            .await
            .map_err(|wait| unavailable("requests to the log are paused by backoff".to_owned(), wait))?;
        let deadline = Deadline::within(self.answer_limit);
        let reply =
            match self.http.get(url, &[("accept-encoding", "gzip, identity")], bytes_max, deadline).await {
                Ok(reply) => reply,
                Err(error) => return Err(unavailable(error.to_string(), permit.failed(None))),
            };
        let requested_delay = reply.retry_after(self.clock.now_seconds());
        match reply.status {
            StatusCode::OK => match decompress_body(reply, bytes_max) {
                Ok(bytes) => {
                    permit.answered();
                    Ok(bytes)
                }
                Err(reason) => Err(unavailable(reason, permit.failed(requested_delay))),
            },
            // Object stores return 403 for missing objects to clients that are not permitted to list the bucket.
            StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN => {
                permit.answered();
                Err(FetchError::Missing(path.to_owned()))
            }
            StatusCode::TOO_MANY_REQUESTS => {
                Err(unavailable("throttled".to_owned(), permit.throttled(requested_delay)))
            }
            status => Err(unavailable(status.to_string(), permit.failed(requested_delay))),
        }
    }
}

/// Returns the body without its Content-Encoding: static-ct-api lets logs send gzip without negotiation.
fn decompress_body(reply: Reply, bytes_max: usize) -> Result<Vec<u8>, String> {
    match reply.header("content-encoding") {
        None | Some("identity") => Ok(reply.body.to_vec()),
        Some("gzip" | "x-gzip") => {
            let mut out = Vec::new();
            // Reading one byte more than the limit detects a longer body.
            let mut limited = GzDecoder::new(&reply.body[..]).take(bytes_max as u64 + 1);
            limited.read_to_end(&mut out).map_err(|error| format!("cannot be decompressed: {error}"))?;
            if out.len() > bytes_max {
                Err(format!("more than {bytes_max} bytes after decompression"))
            } else {
                Ok(out)
            }
        }
        Some(other) => Err(format!("unexpected content encoding {other}")),
    }
}
