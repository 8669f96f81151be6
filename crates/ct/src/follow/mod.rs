//! Follows a static-ct log: reads every entry once, verifies it against the log's signed checkpoints, and matches it against the
//! watched domains.
//!
//! All data is verified before it is used: the entries of a tile hash to the tile above, and so on up to the root that the log has
//! signed. A new checkpoint must be consistent with the previous one. If a check fails, the follower raises an [`Alarm`] and its
//! position does not advance.
//!
//! The follower needs no other state than the [`LogPosition`]. If the caller stores the position together with the matches of each
//! step, no match is lost or reported twice, even after a crash.

mod error;
mod fetch;
mod options;
mod position;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use outbound::http::Client;
use outbound::rate::PacerCounts;
use parking_lot::Mutex;
use store::Clock;
use tokio::sync::mpsc;

use self::error::wrong_tile;
use self::fetch::LogClient;
use self::tree::Tree;
use super::domains::DomainSet;
use super::entry::{Entries, Entry};
use super::issuance::Issuance;
use super::merkle::Hash;
use super::names::{Reading, names};
use super::note::{Checkpoint, LogKey};
use super::tile::{Edge, TILE_WIDTH, TileId};

pub use error::FollowError;
pub use options::{FollowOptions, StartPosition};
pub use position::{Alarm, LogPosition};

/// Approximate maximum of certificate bytes in the matches of one step. A step that exceeds the maximum ends after the current
/// tile. If every entry of a log matched, 64 tiles would have 30 MB of matches.
const MATCHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Age at which a checkpoint is fetched again even if there are still many entries to read. Monitors fetch the signed tree heads
/// of RFC 6962 logs at this interval.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// A log entry that matches a watched domain.
#[derive(Clone, Debug)]
pub struct MatchedEntry {
    /// Index of the entry in the log.
    pub index: u64,
    /// Time at which the log accepted the entry, milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: u64,
    /// The certificate or precertificate in the entry.
    pub issuance: Issuance,
    /// Numbers of the watched domains in the [`DomainSet`], sorted.
    pub domains: Vec<u32>,
    /// SHA-256 of the issuer certificates, nearest first; [`Follower::issuer`] fetches them.
    pub chain: Vec<Hash>,
}

/// Result of one step of a follower: the matches and the next position.
#[derive(Clone, Debug)]
pub struct Step {
    /// Position of the next step; must be stored together with the matches.
    pub position: LogPosition,
    /// Matches in log order.
    pub matches: Vec<MatchedEntry>,
    /// Number of entries read.
    pub entries: u64,
    /// Number of read entries that do not parse completely. They are searched for names nevertheless.
    pub unreadable: u64,
    /// Number of log entries not read yet. The newest entries are read last, so that a value above a few thousand delays their
    /// check.
    pub behind: u64,
    /// Whether the next step can read more immediately.
    pub more: bool,
    /// Age of the newest checkpoint if it exceeds the maximum merge delay: the log has stopped, or serves an old checkpoint.
    pub stale: Option<Duration>,
}

/// Follower of one log. Create one instance for each log.
#[derive(Debug)]
pub struct Follower {
    key: LogKey,
    source: LogClient,
    options: FollowOptions,
    clock: Clock,
    /// Right edge of the last tree, about a hundred hashes per level; all steps of one checkpoint need it.
    edge: Mutex<Option<Edge>>,
}

/// A result reported by [`Follower::run`].
#[derive(Debug)]
pub struct FollowResult {
    /// Log ID (RFC 6962 section 3.2).
    pub log_id: Hash,
    /// Result of the step, or the reason of its failure.
    pub step: Result<Step, FollowError>,
}

impl Follower {
    /// Creates a follower of the log with `key`, read at `monitoring_url` through `http`.
    #[must_use]
    pub fn new(
        key: LogKey,
        monitoring_url: &str,
        http: Client,
        options: FollowOptions,
        clock: Clock,
    ) -> Self {
        let source = LogClient::new(monitoring_url, http, &options, clock.clone());
        Self { key, source, options, clock, edge: Mutex::new(None) }
    }

    /// Returns the log's name and key.
    #[must_use]
    pub fn key(&self) -> &LogKey {
        &self.key
    }

    /// Returns counters of requests and throttling, and the request rate that the rate limiter has learned.
    #[must_use]
    pub fn pacer_counts(&self) -> PacerCounts {
        self.source.pacer_counts()
    }

    /// Continues from `position`: fetches a checkpoint if the last one is old or almost completely read, then reads, verifies and
    /// matches at most [`FollowOptions::tiles_per_step`] tiles.
    ///
    /// # Errors
    /// [`FollowError`]; the call can be repeated with the same position.
    ///
    /// # Cancellation
    /// Dropping the future discards the entries read since `position`.
    #[crate::boxed]
    pub async fn step(
        &self,
        position: Option<&LogPosition>,
        domains: &DomainSet,
    ) -> Result<Step, FollowError> {
        let mut position = match position {
            None => self.begin().await?,
            Some(position) if self.needs_checkpoint(position) => self.advance(position).await?,
            Some(position) => position.clone(),
        };
        let read = self.read(&position, domains).await?;
        position.next += read.entries;
        self.update_waiting_since(&mut position);
        let age = self.age(&position);
        Ok(Step {
            matches: read.matches,
            entries: read.entries,
            unreadable: read.unreadable,
            behind: position.behind(),
            more: !self.due(&position).is_empty(),
            stale: (age > self.options.merge_delay).then_some(age),
            position,
        })
    }

    /// Runs steps forever and passes each result to `sender`. Pauses for `every` between steps, or longer if the error requires it.
    /// Does not pause while there is more to read. Ends when the receiver was dropped.
    ///
    /// # Cancellation
    /// Dropping the future stops the follower; the last reported step is valid.
    #[crate::boxed]
    pub async fn run(
        &self,
        mut position: Option<LogPosition>,
        domains: Arc<DomainSet>,
        every: Duration,
        sender: mpsc::Sender<FollowResult>,
    ) {
        loop {
            let step = self.step(position.as_ref(), &domains).await;
            let pause = match &step {
                Ok(step) if step.more => Duration::ZERO,
                Ok(_) | Err(FollowError::Alarm(_)) => every,
                Err(FollowError::Unavailable { retry_after, .. }) => every.max(*retry_after),
            };
            if let Ok(step) = &step {
                position = Some(step.position.clone());
            }
            if sender.send(FollowResult { log_id: *self.key.log_id(), step }).await.is_err() {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns an issuer certificate, DER, by its SHA-256 in a match's chain.
    ///
    /// # Errors
    /// [`FollowError::Unavailable`], also if the served certificate has another hash.
    #[crate::boxed]
    pub async fn issuer(&self, fingerprint: &Hash) -> Result<Vec<u8>, FollowError> {
        Ok(self.source.issuer(fingerprint).await?)
    }

    /// Returns whether to fetch a checkpoint. A follower that is far behind can continue without a new one, but fetches one at intervals
    /// to know how far behind it is.
    fn needs_checkpoint(&self, position: &LogPosition) -> bool {
        full_tiles(position) < self.options.tiles_per_step.max(1) as u64
            || self.age(position) > CHECKPOINT_EVERY
    }

    /// Returns the age of the position's checkpoint.
    fn age(&self, position: &LogPosition) -> Duration {
        let age = self.now_ms().saturating_sub_unsigned(position.timestamp_ms);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_us().div_euclid(1_000)
    }

    /// Fetches the newest checkpoint and verifies its signature.
    async fn checkpoint(&self) -> Result<(Checkpoint, String), FollowError> {
        let note = self.source.checkpoint().await?;
        match self.key.verify(&note) {
            Ok(checkpoint) => Ok((checkpoint, String::from_utf8_lossy(&note).into_owned())),
            Err(error) => Err(alarm(Alarm::BadCheckpoint { reason: error.to_string() })),
        }
    }

    async fn begin(&self) -> Result<LogPosition, FollowError> {
        let (checkpoint, note) = self.checkpoint().await?;
        let next = match self.options.start {
            StartPosition::Head => checkpoint.size,
            StartPosition::Beginning => 0,
        };
        let Checkpoint { size, root, timestamp_ms } = checkpoint;
        let position = LogPosition { size, root, timestamp_ms, note, next, waiting_since_ms: None };
        // Verifies the tree against its root before the follower starts with it.
        Tree::open(&self.source, &position, &self.edge).await?;
        Ok(position)
    }

    /// Returns the position with the newest checkpoint, which must be consistent with the previous one.
    async fn advance(&self, position: &LogPosition) -> Result<LogPosition, FollowError> {
        let (checkpoint, note) = self.checkpoint().await?;
        let forked = || alarm(Alarm::Forked { old: position.note.clone(), new: note.clone() });
        if checkpoint.size == position.size {
            if checkpoint.root != position.root {
                return Err(forked());
            }
            let newer = checkpoint.timestamp_ms > position.timestamp_ms;
            return Ok(if newer { position.at(&checkpoint, &note) } else { position.clone() });
        }
        let larger = checkpoint.size > position.size;
        // A later checkpoint must not have fewer entries.
        if larger != (checkpoint.timestamp_ms > position.timestamp_ms)
            && checkpoint.timestamp_ms != position.timestamp_ms
        {
            let (old, new) = if larger { (&note, &position.note) } else { (&position.note, &note) };
            let (from, to) = (checkpoint.size.max(position.size), checkpoint.size.min(position.size));
            return Err(alarm(Alarm::RolledBack { old: old.clone(), new: new.clone(), from, to }));
        }
        if larger {
            let next = position.at(&checkpoint, &note);
            let mut tree = Tree::open(&self.source, &next, &self.edge).await?;
            return if tree.root_at(position.size).await? == position.root {
                Ok(next)
            } else {
                Err(forked())
            };
        }
        // Caches may serve an older checkpoint. It contains no new entries, but must belong to the same tree.
        let mut tree = Tree::open(&self.source, position, &self.edge).await?;
        if tree.root_at(checkpoint.size).await? == checkpoint.root {
            Ok(position.clone())
        } else {
            Err(forked())
        }
    }

    /// Reads entries that the position's checkpoint covers.
    async fn read(&self, position: &LogPosition, domains: &DomainSet) -> Result<ReadTiles, FollowError> {
        let ids = self.due(position);
        let mut read = ReadTiles::default();
        if ids.is_empty() {
            return Ok(read);
        }
        let mut tree = Tree::open(&self.source, position, &self.edge).await?;
        for id in &ids {
            tree.verify_ancestors(*id).await?;
        }
        let tree = &tree;
        let at_once = self.options.tiles_at_once.max(1);
        let tiles = futures_util::stream::iter(ids).map(|id| self.read_tile(id, tree, position, domains));
        let mut tiles = std::pin::pin!(tiles.buffered(at_once));
        while let Some(tile) = tiles.try_next().await? {
            read.take(tile);
            if read.bytes > MATCHED_BYTES_MAX {
                break;
            }
        }
        Ok(read)
    }

    /// Returns the tiles to read: full ones, and the partial one when its entries have waited long enough.
    fn due(&self, position: &LogPosition) -> Vec<TileId> {
        let first = position.next / TILE_WIDTH;
        let tiles_max = self.options.tiles_per_step.max(1);
        let all = (first..first + tiles_max as u64).map_while(|index| TileId::at(0, index, position.size));
        all.filter(|id| id.is_full() || self.is_partial_due(position))
            .filter(|id| end(*id) > position.next)
            .collect()
    }

    fn is_partial_due(&self, position: &LogPosition) -> bool {
        let wait_max = i64::try_from(self.options.partial_wait_max.as_millis()).unwrap_or(i64::MAX);
        let waited = position.waiting_since_ms.map_or(0, |since| self.now_ms().saturating_sub(since));
        waited >= wait_max
    }

    fn update_waiting_since(&self, position: &mut LogPosition) {
        let waiting = position.behind() > 0 && full_tiles(position) == 0;
        position.waiting_since_ms = match position.waiting_since_ms {
            _ if !waiting => None,
            Some(since) => Some(since),
            None => Some(self.now_ms()),
        };
    }

    /// Reads, verifies and matches the entries of one tile from the position on. A tile that fails verification is fetched a second time.
    async fn read_tile(
        &self,
        id: TileId,
        tree: &Tree<'_>,
        position: &LogPosition,
        domains: &DomainSet,
    ) -> Result<ReadTiles, FollowError> {
        let mut reason = String::new();
        for _ in 0..2 {
            let bytes = self.source.entries(id).await?;
            match parse_tile_entries(&bytes, id) {
                Ok((entries, hashes)) if tree.is_proven(id, &hashes) => {
                    return Ok(matched(id, &entries, position.next, domains));
                }
                Ok(_) => "the entries do not hash to the tree".clone_into(&mut reason),
                Err(error) => reason = error,
            }
        }
        Err(wrong_tile(id.data_path(), reason, &position.note))
    }
}

/// The content of one or more tiles.
#[derive(Default)]
struct ReadTiles {
    matches: Vec<MatchedEntry>,
    entries: u64,
    unreadable: u64,
    bytes: usize,
}

impl ReadTiles {
    fn take(&mut self, tile: Self) {
        self.matches.extend(tile.matches);
        self.entries += tile.entries;
        self.unreadable += tile.unreadable;
        self.bytes += tile.bytes;
    }
}

/// Parses the entries of a tile and computes their hashes. Returns as many as the tile's width, even if more are served.
fn parse_tile_entries(bytes: &[u8], id: TileId) -> Result<(Vec<Entry<'_>>, Vec<Hash>), String> {
    let width = usize::from(id.width);
    let entries: Result<Vec<_>, _> = Entries::new(bytes).take(width).collect();
    let entries = entries.map_err(|error| error.to_string())?;
    if entries.len() != width {
        return Err(format!("{} entries instead of {width}", entries.len()));
    }
    let hashes = entries.iter().map(Entry::leaf_hash).collect();
    Ok((entries, hashes))
}

/// Returns the entries from `next` on that match a watched domain.
fn matched(id: TileId, entries: &[Entry<'_>], next: u64, domains: &DomainSet) -> ReadTiles {
    let mut read = ReadTiles::default();
    let first = id.index * TILE_WIDTH;
    for (index, entry) in (first..).zip(entries).skip_while(|(index, _)| *index < next) {
        let mut found = BTreeSet::new();
        let reading = names(entry.logged.hashed(), |name| {
            domains.matches(name, |id| {
                found.insert(id);
            });
        });
        read.entries += 1;
        read.unreadable += u64::from(reading != Reading::Whole);
        if !found.is_empty() {
            let issuance = Issuance::from_logged(entry.logged);
            read.bytes += entry.logged.der().len();
            read.matches.push(MatchedEntry {
                index,
                timestamp_ms: entry.timestamp_ms,
                issuance,
                domains: found.into_iter().collect(),
                chain: entry.chain.to_vec(),
            });
        }
    }
    read
}

/// Returns the index after the last entry of a tile.
fn end(id: TileId) -> u64 {
    id.index * TILE_WIDTH + u64::from(id.width)
}

/// Returns the number of full tiles with unread entries.
fn full_tiles(position: &LogPosition) -> u64 {
    (position.size / TILE_WIDTH).saturating_sub(position.next / TILE_WIDTH)
}

fn alarm(alarm: Alarm) -> FollowError {
    FollowError::Alarm(Box::new(alarm))
}
