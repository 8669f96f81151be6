//! A log's tree at one checkpoint, with tiles that are verified against it.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::error::{FollowError, wrong_tile};
use super::fetch::LogClient;
use super::position::LogPosition;
use crate::merkle::Hash;
use crate::tile::{Edge, TILE_WIDTH, TileId, TreeEdgeError, ancestors, is_below};

/// Maximum cached full tiles above level 0. One tile of level 1 covers 65,536 entries; a log of 2³² entries has about 65,000 of
/// them, which a follower reads in order.
const VERIFIED_TILES_MAX: usize = 64;

/// The tree at one checkpoint.
pub(super) struct Tree<'s> {
    source: &'s LogClient,
    note: &'s str,
    edge: Edge,
    /// Verified full tiles by level and index.
    verified_tiles: HashMap<(u8, u64), Vec<Hash>>,
}

impl<'s> Tree<'s> {
    /// Fetches the tiles at the right edge of the tree and verifies them against the root, unless `edge_cache` contains them. Tiles that fail
    /// verification are fetched a second time.
    pub(super) async fn open(
        source: &'s LogClient,
        at: &'s LogPosition,
        edge_cache: &Mutex<Option<Edge>>,
    ) -> Result<Self, FollowError> {
        let remembered = edge_cache.lock().clone();
        if let Some(edge) = remembered.filter(|edge| edge.size() == at.size && edge.root() == at.root) {
            return Ok(Self { source, note: &at.note, edge, verified_tiles: HashMap::new() });
        }
        let mut may_retry = true;
        loop {
            let tiles = fetch_all(source, Edge::ids(at.size)).await?;
            match Edge::verified(at.size, &at.root, tiles) {
                Ok(edge) => {
                    *edge_cache.lock() = Some(edge.clone());
                    return Ok(Self { source, note: &at.note, edge, verified_tiles: HashMap::new() });
                }
                Err(TreeEdgeError::Root) if may_retry => may_retry = false,
                Err(error) => {
                    let path = Edge::ids(at.size).last().map_or_else(String::new, |id| id.path());
                    return Err(wrong_tile(path, error.to_string(), &at.note));
                }
            }
        }
    }

    /// Returns the root of the first `size` leaves of this tree.
    pub(super) async fn root_at(&mut self, size: u64) -> Result<Hash, FollowError> {
        let mut tiles = Vec::new();
        for id in Edge::ids(size) {
            // Uses the tile's width in this tree.
            let id = TileId::at(id.level, id.index, self.edge.size()).unwrap_or(id);
            tiles.push(self.tile(id).await?);
        }
        Edge::of(size, tiles)
            .map(|edge| edge.root())
            .map_err(|error| wrong_tile(String::new(), error.to_string(), self.note))
    }

    /// Returns the verified hashes of a tile of this tree.
    async fn tile(&mut self, id: TileId) -> Result<Vec<Hash>, FollowError> {
        self.verify_ancestors(id).await?;
        if let Some(verified_tile) = self.verified_tile(id) {
            return Ok(verified_tile.to_vec());
        }
        let tile = self.fetch_verified_tile(id).await?;
        if id.level > 0 {
            self.store_verified(id, tile.clone());
        }
        Ok(tile)
    }

    /// Fetches and verifies the tiles above a tile, as [`Tree::is_proven`] requires.
    pub(super) async fn verify_ancestors(&mut self, id: TileId) -> Result<(), FollowError> {
        for above in ancestors(id, self.edge.size()).into_iter().rev() {
            if self.verified_tile(above).is_none() {
                let tile = self.fetch_verified_tile(above).await?;
                self.store_verified(above, tile);
            }
        }
        Ok(())
    }

    /// Returns whether `tile` contains the hashes of the tile `id`. The tiles above `id` must already be verified.
    pub(super) fn is_proven(&self, id: TileId, tile: &[Hash]) -> bool {
        if !id.is_full() {
            return self.edge.partial(id.level).is_some_and(|edge| edge == tile);
        }
        let parent = TileId::at(id.level + 1, id.index / TILE_WIDTH, self.edge.size());
        parent
            .and_then(|parent| self.verified_tile(parent))
            .is_some_and(|parent| is_below(tile, id.index, parent))
    }

    /// Fetches a full tile whose parent is verified. A tile that fails verification is fetched a second time.
    async fn fetch_verified_tile(&self, id: TileId) -> Result<Vec<Hash>, FollowError> {
        for _ in 0..2 {
            let tile = self.source.hashes(id).await?;
            if self.is_proven(id, &tile) {
                return Ok(tile);
            }
        }
        Err(wrong_tile(id.path(), "the tile does not hash to the tile above it".to_owned(), self.note))
    }

    fn verified_tile(&self, id: TileId) -> Option<&[Hash]> {
        if id.is_full() {
            self.verified_tiles.get(&(id.level, id.index)).map(Vec::as_slice)
        } else {
            self.edge.partial(id.level)
        }
    }

    fn store_verified(&mut self, id: TileId, tile: Vec<Hash>) {
        if self.verified_tiles.len() >= VERIFIED_TILES_MAX {
            // Entries are read in order, so the lowest tile is no longer needed.
            if let Some(oldest) = self.verified_tiles.keys().min().copied() {
                self.verified_tiles.remove(&oldest);
            }
        }
        self.verified_tiles.insert((id.level, id.index), tile);
    }
}

/// Fetches tiles concurrently, at most one per level.
async fn fetch_all(source: &LogClient, ids: Vec<TileId>) -> Result<Vec<Vec<Hash>>, FollowError> {
    let tiles = ids.into_iter().map(|id| source.hashes(id));
    Ok(futures_util::future::try_join_all(tiles).await?)
}
