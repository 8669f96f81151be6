//! What a log serves, fetched: bounded, unpacked, tried again where that can help.

use std::io::Read as _;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::StatusCode;
use outbound::Deadline;
use outbound::http::{Client, Reply};
use outbound::rate::Paced;
use store::Clock;

use super::options::FollowOptions;
use crate::entry::DATA_TILE_OCTETS_MAX;
use crate::gate::Gate;
use crate::merkle::{Hash, sha256};
use crate::note::NOTE_OCTETS_MAX;
use crate::tile::{TILE_OCTETS, TileId, hashes};

/// Tries of one request, the first included. What fails three times in a row is told, with the moment to come back.
const TRIES: u32 = 3;
/// Bytes of the longest issuer certificate read; logs take 64 kB to 512 kB for all of a submission.
const ISSUER_OCTETS_MAX: usize = 128 * 1024;

/// Why something was not fetched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum FetchError {
    /// The log has no such thing.
    Missing(String),
    /// Temporarily unavailable.
    Unavailable {
        /// What happened.
        reason: String,
        /// When to come back.
        retry_after: Duration,
    },
}

/// A client of one log, below its monitoring prefix.
#[derive(Debug)]
pub(super) struct LogClient {
    http: Client,
    /// With a slash at the end.
    base: String,
    gate: Gate,
    answer_limit: Duration,
    clock: Clock,
}

impl LogClient {
    pub(super) fn new(monitoring_url: &str, http: Client, options: &FollowOptions, clock: Clock) -> Self {
        let base = format!("{}/", monitoring_url.trim_end_matches('/'));
        // One place more than tiles: a checkpoint does not wait for them.
        let gate = Gate::new(options.pace, options.tiles_at_once + 1, options.patience);
        Self { http, base, gate, answer_limit: options.answer_limit, clock }
    }

    pub(super) fn paced(&self) -> Paced {
        self.gate.paced()
    }

    pub(super) async fn checkpoint(&self) -> Result<Vec<u8>, FetchError> {
        self.get("checkpoint", NOTE_OCTETS_MAX).await
    }

    /// At least `id.width` hashes of a tile: the full one where the partial one is gone.
    pub(super) async fn hashes(&self, id: TileId) -> Result<Vec<Hash>, FetchError> {
        let (octets, id) = self.tile(id, TileId::path, TILE_OCTETS).await?;
        hashes(&octets, id.width).ok_or_else(|| FetchError::Unavailable {
            reason: format!("{} has {} octets", id.path(), octets.len()),
            retry_after: Duration::ZERO,
        })
    }

    /// The entries of a tile, at least `id.width` of them, unread.
    pub(super) async fn entries(&self, id: TileId) -> Result<Vec<u8>, FetchError> {
        self.tile(id, TileId::data_path, DATA_TILE_OCTETS_MAX).await.map(|(octets, _)| octets)
    }

    /// An issuer's certificate, DER, by its SHA-256.
    pub(super) async fn issuer(&self, fingerprint: &Hash) -> Result<Vec<u8>, FetchError> {
        let name = x509::Fingerprint::from_bytes(*fingerprint);
        let der = self.get(&format!("issuer/{name}"), ISSUER_OCTETS_MAX).await?;
        if sha256(&der) == *fingerprint {
            return Ok(der);
        }
        let reason = format!("issuer/{name} is another certificate");
        Err(FetchError::Unavailable { reason, retry_after: Duration::ZERO })
    }

    /// A partial tile may be gone once there is a full one (static-ct-api, "Partial Tiles").
    async fn tile(
        &self,
        id: TileId,
        path: fn(TileId) -> String,
        most: usize,
    ) -> Result<(Vec<u8>, TileId), FetchError> {
        match self.get(&path(id), most).await {
            Ok(octets) => Ok((octets, id)),
            Err(FetchError::Missing(_)) if !id.is_full() => {
                Ok((self.get(&path(id.full()), most).await?, id.full()))
            }
            Err(error) => Err(error),
        }
    }

    async fn get(&self, path: &str, most: usize) -> Result<Vec<u8>, FetchError> {
        let url = format!("{}{path}", self.base);
        let mut last = FetchError::Missing(path.to_owned());
        for _ in 0..TRIES {
            match self.attempt(&url, path, most).await {
                // Whether there is time to wait is the gate's to say, at the next turn.
                Err(FetchError::Unavailable { reason, retry_after }) => {
                    last = FetchError::Unavailable { reason, retry_after };
                }
                done => return done,
            }
        }
        Err(last)
    }

    async fn attempt(&self, url: &str, path: &str, most: usize) -> Result<Vec<u8>, FetchError> {
        let unavailable = |reason: String, retry_after| FetchError::Unavailable {
            reason: format!("{path}: {reason}"),
            retry_after,
        };
        let turn =
            self.gate.enter().await.map_err(|wait| unavailable("it is not to be asked".to_owned(), wait))?;
        let deadline = Deadline::within(self.answer_limit);
        let reply = match self.http.get(url, &[("accept-encoding", "gzip, identity")], most, deadline).await {
            Ok(reply) => reply,
            Err(error) => return Err(unavailable(error.to_string(), turn.failed(None))),
        };
        let told = reply.retry_after(self.clock.now_seconds());
        match reply.status {
            StatusCode::OK => match unpacked(reply, most) {
                Ok(octets) => {
                    turn.answered();
                    Ok(octets)
                }
                Err(reason) => Err(unavailable(reason, turn.failed(told))),
            },
            // Object stores say 403 of what is not there to those who may not list.
            StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN => {
                turn.answered();
                Err(FetchError::Missing(path.to_owned()))
            }
            StatusCode::TOO_MANY_REQUESTS => Err(unavailable("throttled".to_owned(), turn.throttled(told))),
            status => Err(unavailable(status.to_string(), turn.failed(told))),
        }
    }
}

/// The body without its Content-Encoding: static-ct-api lets logs pack with gzip unasked.
fn unpacked(reply: Reply, most: usize) -> Result<Vec<u8>, String> {
    match reply.header("content-encoding") {
        None | Some("identity") => Ok(reply.body.to_vec()),
        Some("gzip" | "x-gzip") => {
            let mut out = Vec::new();
            // One byte more than allowed tells that there is more.
            let mut limited = GzDecoder::new(&reply.body[..]).take(most as u64 + 1);
            limited.read_to_end(&mut out).map_err(|error| format!("cannot be unpacked: {error}"))?;
            if out.len() > most { Err(format!("over {most} octets unpacked")) } else { Ok(out) }
        }
        Some(other) => Err(format!("packed in a way nobody asked for: {other}")),
    }
}
