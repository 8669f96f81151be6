//! A static-ct log, followed: every entry read once, held against the log's signed checkpoints, and matched against the
//! watched domains.
//!
//! What is read is proven before it counts: a tile's entries hash to the tile above them, that one to the next, the
//! uppermost to the root that the log has signed. A new checkpoint must go on from the one before. Where one of these
//! does not hold there is an [`Alarm`], and the place stays where it was.
//!
//! The follower keeps nothing between steps that it could not do without: the [`LogPosition`] is all, and anyone who stores it
//! together with a step's matches loses none and sees none twice, whenever the process ends.

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
use outbound::rate::Paced;
use parking_lot::Mutex;
use store::Clock;
use tokio::sync::mpsc;

use self::error::wrong;
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
pub use options::{FollowOptions, Start};
pub use position::{Alarm, LogPosition};

/// Bytes of certificates in one step's matches, about: a step that has more ends with the tile it is at. A log of
/// nothing but our own certificates would give 30 MB in 64 tiles.
const MATCHED_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// A checkpoint older than this is asked for again even while there is much to read: as often as monitors ask logs of the
/// old kind for their signed tree head.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// An entry that names a watched domain.
#[derive(Clone, Debug)]
pub struct Match {
    /// Which entry of the log.
    pub index: u64,
    /// When the log took it in, milliseconds since 1970 UTC.
    pub timestamp_ms: u64,
    /// The issuance.
    pub issuance: Issuance,
    /// The watched domains, by their numbers in the [`DomainSet`], sorted.
    pub domains: Vec<u32>,
    /// SHA-256 of the issuers' certificates, nearest first: [`Follower::issuer`] fetches them.
    pub chain: Vec<Hash>,
}

/// What one step did.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where to go on: to be stored with the matches.
    pub place: LogPosition,
    /// The matches, in the log's order.
    pub matches: Vec<Match>,
    /// Entries read.
    pub entries: u64,
    /// Entries among them that do not parse whole; names were searched for in them all the same.
    pub unreadable: u64,
    /// Entries in the log that have not been read: over some thousands the follower is blind for what is in them.
    pub behind: u64,
    /// Whether another step would read on at once.
    pub more: bool,
    /// How long ago the newest checkpoint was signed, where that is longer than the merge delay: the log stands still,
    /// or somebody shows us an old one.
    pub stale: Option<Duration>,
}

/// One log's follower. Build it once.
#[derive(Debug)]
pub struct Follower {
    key: LogKey,
    source: LogClient,
    options: FollowOptions,
    clock: Clock,
    /// The edge of the last tree, a hundred hashes a level: every step of one checkpoint needs it.
    edge: Mutex<Option<Edge>>,
}

/// What [`Follower::run`] tells.
#[derive(Debug)]
pub struct Followed {
    /// The log (RFC 6962 section 3.2).
    pub log_id: Hash,
    /// What a step did, or why it did nothing.
    pub step: Result<Step, FollowError>,
}

impl Follower {
    /// A follower of the log with `key`, read at `monitoring_url` over `http`.
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

    /// The log's name and key.
    #[must_use]
    pub fn key(&self) -> &LogKey {
        &self.key
    }

    /// Counters of requests and throttling, and the learnt rate.
    #[must_use]
    pub fn paced(&self) -> Paced {
        self.source.paced()
    }

    /// Goes on from `place`: asks for a checkpoint when the last one is old or nearly read, reads and proves at most
    /// [`FollowOptions::tiles_a_step`] tiles, matches.
    ///
    /// # Errors
    /// [`FollowError`]; nothing is lost, the same place may be given again.
    ///
    /// # Cancellation
    /// Dropping the future gives up what was read since the place.
    #[crate::boxed]
    pub async fn step(&self, place: Option<&LogPosition>, domains: &DomainSet) -> Result<Step, FollowError> {
        let mut place = match place {
            None => self.begin().await?,
            Some(place) if self.wants_checkpoint(place) => self.advance(place).await?,
            Some(place) => place.clone(),
        };
        let read = self.read(&place, domains).await?;
        place.next += read.entries;
        self.note_waiting(&mut place);
        let age = self.age(&place);
        Ok(Step {
            matches: read.matches,
            entries: read.entries,
            unreadable: read.unreadable,
            behind: place.behind(),
            more: !self.due(&place).is_empty(),
            stale: (age > self.options.merge_delay).then_some(age),
            place,
        })
    }

    /// Steps without end, `every` apart unless there is more to read or the log names a time, and gives each to
    /// `tell`. Ends when nobody takes them any more.
    ///
    /// # Cancellation
    /// Dropping the future stops it; the last step told is good.
    #[crate::boxed]
    pub async fn run(
        &self,
        mut place: Option<LogPosition>,
        domains: Arc<DomainSet>,
        every: Duration,
        tell: mpsc::Sender<Followed>,
    ) {
        loop {
            let step = self.step(place.as_ref(), &domains).await;
            let pause = match &step {
                Ok(step) if step.more => Duration::ZERO,
                Ok(_) | Err(FollowError::Alarm(_)) => every,
                Err(FollowError::Unavailable { retry_after, .. }) => every.max(*retry_after),
            };
            if let Ok(step) = &step {
                place = Some(step.place.clone());
            }
            if tell.send(Followed { log_id: *self.key.log_id(), step }).await.is_err() {
                return;
            }
            tokio::select! {
                () = tell.closed() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// An issuer's certificate, DER, by its SHA-256 in a match's chain.
    ///
    /// # Errors
    /// [`FollowError::Unavailable`], also when what is served has another hash.
    #[crate::boxed]
    pub async fn issuer(&self, fingerprint: &Hash) -> Result<Vec<u8>, FollowError> {
        Ok(self.source.issuer(fingerprint).await?)
    }

    /// Far behind, what there is to read is known; how far behind is not, without a look now and then.
    fn wants_checkpoint(&self, place: &LogPosition) -> bool {
        full_tiles(place) < self.options.tiles_a_step.max(1) as u64 || self.age(place) > CHECKPOINT_EVERY
    }

    /// How long ago the place's checkpoint was signed.
    fn age(&self, place: &LogPosition) -> Duration {
        let age = self.now_ms().saturating_sub_unsigned(place.timestamp_ms);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_us().div_euclid(1_000)
    }

    /// The newest checkpoint, signed by the log.
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
            Start::Head => checkpoint.size,
            Start::Beginning => 0,
        };
        let Checkpoint { size, root, timestamp_ms } = checkpoint;
        let place = LogPosition { size, root, timestamp_ms, note, next, waiting_since_ms: None };
        // A tree that does not hash to its root is not begun with.
        Tree::open(&self.source, &place, &self.edge).await?;
        Ok(place)
    }

    /// The place with the newest checkpoint, which must go on from the one before.
    async fn advance(&self, place: &LogPosition) -> Result<LogPosition, FollowError> {
        let (checkpoint, note) = self.checkpoint().await?;
        let forked = || alarm(Alarm::Forked { old: place.note.clone(), new: note.clone() });
        if checkpoint.size == place.size {
            if checkpoint.root != place.root {
                return Err(forked());
            }
            let newer = checkpoint.timestamp_ms > place.timestamp_ms;
            return Ok(if newer { place.at(&checkpoint, &note) } else { place.clone() });
        }
        let larger = checkpoint.size > place.size;
        // Of two checkpoints the later one has no fewer entries.
        if larger != (checkpoint.timestamp_ms > place.timestamp_ms)
            && checkpoint.timestamp_ms != place.timestamp_ms
        {
            let (old, new) = if larger { (&note, &place.note) } else { (&place.note, &note) };
            let (from, to) = (checkpoint.size.max(place.size), checkpoint.size.min(place.size));
            return Err(alarm(Alarm::RolledBack { old: old.clone(), new: new.clone(), from, to }));
        }
        if larger {
            let next = place.at(&checkpoint, &note);
            let mut tree = Tree::open(&self.source, &next, &self.edge).await?;
            return if tree.root_at(place.size).await? == place.root { Ok(next) } else { Err(forked()) };
        }
        // An older checkpoint, as caches serve: no news, but it must be of the same tree.
        let mut tree = Tree::open(&self.source, place, &self.edge).await?;
        if tree.root_at(checkpoint.size).await? == checkpoint.root {
            Ok(place.clone())
        } else {
            Err(forked())
        }
    }

    /// Reads what is to be read below the place's checkpoint.
    async fn read(&self, place: &LogPosition, domains: &DomainSet) -> Result<ReadTiles, FollowError> {
        let ids = self.due(place);
        let mut read = ReadTiles::default();
        if ids.is_empty() {
            return Ok(read);
        }
        let mut tree = Tree::open(&self.source, place, &self.edge).await?;
        for id in &ids {
            tree.prove_above(*id).await?;
        }
        let tree = &tree;
        let at_once = self.options.tiles_at_once.max(1);
        let tiles = futures_util::stream::iter(ids).map(|id| self.read_tile(id, tree, place, domains));
        let mut tiles = std::pin::pin!(tiles.buffered(at_once));
        while let Some(tile) = tiles.try_next().await? {
            read.take(tile);
            if read.octets > MATCHED_OCTETS_MAX {
                break;
            }
        }
        Ok(read)
    }

    /// The tiles to read: full ones, and the partial one when its entries have waited long enough.
    fn due(&self, place: &LogPosition) -> Vec<TileId> {
        let first = place.next / TILE_WIDTH;
        let most = self.options.tiles_a_step.max(1);
        let all = (first..first + most as u64).map_while(|index| TileId::at(0, index, place.size));
        all.filter(|id| id.is_full() || self.partial_is_due(place))
            .filter(|id| end(*id) > place.next)
            .collect()
    }

    fn partial_is_due(&self, place: &LogPosition) -> bool {
        let patience = i64::try_from(self.options.partial_patience.as_millis()).unwrap_or(i64::MAX);
        let waited = place.waiting_since_ms.map_or(0, |since| self.now_ms().saturating_sub(since));
        waited >= patience
    }

    fn note_waiting(&self, place: &mut LogPosition) {
        let waiting = place.behind() > 0 && full_tiles(place) == 0;
        place.waiting_since_ms = match place.waiting_since_ms {
            _ if !waiting => None,
            Some(since) => Some(since),
            None => Some(self.now_ms()),
        };
    }

    /// Entries of one tile from the place on, proven and matched. Served wrongly it is asked for once more.
    async fn read_tile(
        &self,
        id: TileId,
        tree: &Tree<'_>,
        place: &LogPosition,
        domains: &DomainSet,
    ) -> Result<ReadTiles, FollowError> {
        let mut reason = String::new();
        for _ in 0..2 {
            let octets = self.source.entries(id).await?;
            match entries_of(&octets, id) {
                Ok((entries, hashes)) if tree.is_proven(id, &hashes) => {
                    return Ok(matched(id, &entries, place.next, domains));
                }
                Ok(_) => "its entries do not hash to the tree".clone_into(&mut reason),
                Err(error) => reason = error,
            }
        }
        Err(wrong(id.data_path(), reason, &place.note))
    }
}

/// The content of one or more tiles.
#[derive(Default)]
struct ReadTiles {
    matches: Vec<Match>,
    entries: u64,
    unreadable: u64,
    octets: usize,
}

impl ReadTiles {
    fn take(&mut self, tile: Self) {
        self.matches.extend(tile.matches);
        self.entries += tile.entries;
        self.unreadable += tile.unreadable;
        self.octets += tile.octets;
    }
}

/// The entries of a tile and their hashes: as many as its width, though more may be served.
fn entries_of(octets: &[u8], id: TileId) -> Result<(Vec<Entry<'_>>, Vec<Hash>), String> {
    let width = usize::from(id.width);
    let entries: Result<Vec<_>, _> = Entries::new(octets).take(width).collect();
    let entries = entries.map_err(|error| error.to_string())?;
    if entries.len() != width {
        return Err(format!("{} entries where there are {width}", entries.len()));
    }
    let hashes = entries.iter().map(Entry::leaf_hash).collect();
    Ok((entries, hashes))
}

/// The entries from `next` on that name a watched domain.
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
            read.octets += entry.logged.der().len();
            read.matches.push(Match {
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

/// One past the last entry of a tile.
fn end(id: TileId) -> u64 {
    id.index * TILE_WIDTH + u64::from(id.width)
}

/// Full tiles with entries that have not been read.
fn full_tiles(place: &LogPosition) -> u64 {
    (place.size / TILE_WIDTH).saturating_sub(place.next / TILE_WIDTH)
}

fn alarm(alarm: Alarm) -> FollowError {
    FollowError::Alarm(Box::new(alarm))
}
