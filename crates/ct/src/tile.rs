//! The Merkle tree in tiles (c2sp.org/static-ct-api, "Merkle Tree"). A tile has 256 hashes; above level 0, each is the root of a
//! full tile one level below.
//!
//! [`Edge`] contains the partial tiles at the tree's right edge, which are verified directly against a checkpoint's root. All other
//! tiles are verified from the top down: a full tile hashes to one entry of the tile above it.

use super::merkle::{Hash, empty_root, root_of};

/// Number of hashes in a full tile.
pub const TILE_WIDTH: u64 = 256;
/// Maximum levels of tiles: static-ct-api numbers them 0 to 5, enough for 2⁴⁸ leaves; leaf indices have 40 bits.
pub const LEVELS_MAX: u8 = 6;
/// Size of a full tile in bytes.
pub const TILE_BYTES: usize = 32 * TILE_WIDTH as usize;

/// Level, index and width of a tile.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TileId {
    /// Level of the tile; 0: leaf hashes.
    pub level: u8,
    /// Index in the level, from the left.
    pub index: u64,
    /// Number of hashes, 1 to 256; a tile with fewer than 256 is partial.
    pub width: u16,
}

impl TileId {
    /// Returns the tile with `index` at `level` in a tree of `size` leaves; `None` when it would be empty.
    #[must_use]
    pub fn at(level: u8, index: u64, size: u64) -> Option<Self> {
        let hashes = width_of_level(size, level);
        let width = hashes.checked_sub(index.checked_mul(TILE_WIDTH)?)?.min(TILE_WIDTH);
        (width > 0).then_some(Self { level, index, width: width as u16 })
    }

    /// Returns whether the tile is full.
    #[must_use]
    pub fn is_full(self) -> bool {
        u64::from(self.width) == TILE_WIDTH
    }

    /// Returns the full tile with the same level and index, which a log may serve once it has grown.
    #[must_use]
    pub fn full(self) -> Self {
        Self { width: TILE_WIDTH as u16, ..self }
    }

    /// Returns the path of the hash tile below the monitoring prefix: `tile/0/x001/234.p/5`.
    #[must_use]
    pub fn path(self) -> String {
        format!("tile/{}/{}", self.level, self.number())
    }

    /// Returns the path of the data tile below the monitoring prefix: `tile/data/x001/234.p/5`.
    #[must_use]
    pub fn data_path(self) -> String {
        format!("tile/data/{}", self.number())
    }

    /// Formats the index as path elements of three digits; all but the last have the prefix `x`.
    fn number(self) -> String {
        let mut elements = vec![format!("{:03}", self.index % 1_000)];
        let mut rest = self.index / 1_000;
        while rest > 0 {
            elements.push(format!("x{:03}", rest % 1_000));
            rest /= 1_000;
        }
        elements.reverse();
        let mut path = elements.join("/");
        if !self.is_full() {
            path.push_str(&format!(".p/{}", self.width));
        }
        path
    }
}

/// Splits bytes into hashes; `None` unless there are exactly `width`.
#[must_use]
pub fn hashes(bytes: &[u8], width: u16) -> Option<Vec<Hash>> {
    let (hashes, rest) = bytes.as_chunks::<32>();
    (rest.is_empty() && hashes.len() == usize::from(width)).then(|| hashes.to_vec())
}

/// Returns the number of hashes at `level` in a tree of `size` leaves.
fn width_of_level(size: u64, level: u8) -> u64 {
    size.checked_shr(8 * u32::from(level)).unwrap_or(0)
}

/// The partial tiles at the right edge of a tree, from level 0 up. A level whose last tile is full has no partial tile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Edge {
    size: u64,
    /// Partial tiles by level, at most [`LEVELS_MAX`].
    tiles: Vec<Vec<Hash>>,
}

/// Error for tiles that do not match the tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TreeEdgeError {
    /// The number or size of the tiles differs from [`Edge::ids`].
    #[error("the number or size of the tiles does not match the size of the tree")]
    Shape,
    /// The tiles do not hash to the root.
    #[error("the tiles do not hash to the checkpoint's root")]
    Root,
}

impl Edge {
    /// Returns the partial tiles at the right edge of a tree of `size` leaves.
    #[must_use]
    pub fn ids(size: u64) -> Vec<TileId> {
        let partial = |level| {
            let hashes = width_of_level(size, level);
            TileId::at(level, hashes / TILE_WIDTH, size)
        };
        (0..LEVELS_MAX).filter_map(partial).collect()
    }

    /// Verifies the edge of the tree of `size` leaves against `root`. `tiles` contains the tiles of [`Edge::ids`], in the same
    /// order. A tile that has grown in the meantime is accepted: its first hashes are unchanged.
    ///
    /// # Errors
    /// [`TreeEdgeError`]; a tree too high for tiles is [`TreeEdgeError::Shape`].
    pub fn verified(size: u64, root: &Hash, tiles: Vec<Vec<Hash>>) -> Result<Self, TreeEdgeError> {
        let edge = Self::of(size, tiles)?;
        if edge.root() == *root { Ok(edge) } else { Err(TreeEdgeError::Root) }
    }

    /// Returns the edge of a smaller tree from verified tiles of a larger one.
    ///
    /// # Errors
    /// [`TreeEdgeError::Shape`].
    pub fn of(size: u64, tiles: Vec<Vec<Hash>>) -> Result<Self, TreeEdgeError> {
        let ids = Self::ids(size);
        let too_high = width_of_level(size, LEVELS_MAX) > 0;
        if too_high || ids.len() != tiles.len() {
            return Err(TreeEdgeError::Shape);
        }
        let mut levels = vec![Vec::new(); usize::from(LEVELS_MAX)];
        for (id, mut tile) in ids.into_iter().zip(tiles) {
            if tile.len() < usize::from(id.width) {
                return Err(TreeEdgeError::Shape);
            }
            tile.truncate(id.width.into());
            levels[usize::from(id.level)] = tile;
        }
        Ok(Self { size, tiles: levels })
    }

    /// Returns the number of leaves of the tree.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the root of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut below: Option<Hash> = None;
        for tile in self.tiles.iter().filter(|tile| !tile.is_empty()) {
            // The hash of the lower levels is the last, smaller subtree of this level.
            let hashes: Vec<Hash> = tile.iter().copied().chain(below).collect();
            below = Some(root_of(&hashes));
        }
        below.unwrap_or_else(empty_root)
    }

    /// Returns the partial tile at `level`; `None` if the last tile is full.
    #[must_use]
    pub fn partial(&self, level: u8) -> Option<&[Hash]> {
        self.tiles.get(usize::from(level)).filter(|tile| !tile.is_empty()).map(Vec::as_slice)
    }
}

/// Returns the tiles above `id`, nearest first, up to the one on the edge of a tree of `size` leaves. Empty when `id` itself is
/// partial.
#[must_use]
pub fn ancestors(id: TileId, size: u64) -> Vec<TileId> {
    let mut above = Vec::new();
    let mut at = id;
    while at.is_full() {
        let Some(parent) = TileId::at(at.level + 1, at.index / TILE_WIDTH, size) else { break };
        above.push(parent);
        at = parent;
    }
    above
}

/// Returns whether the full tile with number `index` in its level matches its entry in `parent`, the tile above it.
#[must_use]
pub fn is_below(tile: &[Hash], index: u64, parent: &[Hash]) -> bool {
    let position = (index % TILE_WIDTH) as usize;
    tile.len() as u64 == TILE_WIDTH && parent.get(position).is_some_and(|hash| *hash == root_of(tile))
}

/// Returns the root of the perfect subtree of 2^`height` leaves with number `index`, for the proofs of [`super::merkle`]. `tile`
/// returns the hashes of a tile by level and index.
#[must_use]
pub fn subtree<'t>(
    height: u32,
    index: u64,
    tile: impl FnOnce(u8, u64) -> Option<&'t [Hash]>,
) -> Option<Hash> {
    let (level, within) = (height / 8, height % 8);
    let first = index.checked_mul(1 << within)?;
    let hashes = tile(u8::try_from(level).ok()?, first / TILE_WIDTH)?;
    let position = (first % TILE_WIDTH) as usize;
    hashes.get(position..position + (1 << within)).map(root_of)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::merkle::{
        consistency_proof, inclusion_proof, leaf_hash, root_at, verify_consistency, verify_inclusion,
    };

    /// The tiles of a tree, full and partial, and its leaf hashes.
    struct Tiles(HashMap<(u8, u64), Vec<Hash>>, Vec<Hash>);

    impl Tiles {
        fn of(size: usize) -> Self {
            let leaves: Vec<Hash> = (0..size).map(|n| leaf_hash(&n.to_be_bytes())).collect();
            let (mut tiles, mut hashes, mut level) = (HashMap::new(), leaves.clone(), 0);
            while !hashes.is_empty() {
                let mut above = Vec::new();
                for (index, tile) in (0..).zip(hashes.chunks(256)) {
                    tiles.insert((level, index), tile.to_vec());
                    if tile.len() == 256 {
                        above.push(root_of(tile));
                    }
                }
                (hashes, level) = (above, level + 1);
            }
            Self(tiles, leaves)
        }

        fn get(&self, level: u8, index: u64) -> Option<&[Hash]> {
            self.0.get(&(level, index)).map(Vec::as_slice)
        }

        fn edge(&self, size: usize, root: &Hash) -> Result<Edge, TreeEdgeError> {
            let tiles = Edge::ids(size as u64).into_iter().map(|id| self.0[&(id.level, id.index)].clone());
            Edge::verified(size as u64, root, tiles.collect())
        }
    }

    #[test]
    fn tile_paths_follow_the_specification() {
        let id = |level, index, width| TileId { level, index, width };
        assert_eq!(id(0, 0, 256).path(), "tile/0/000");
        assert_eq!(id(1, 1_234_067, 256).path(), "tile/1/x001/x234/067", "the example of the specification");
        assert_eq!(id(2, 1_000, 17).path(), "tile/2/x001/000.p/17");
        assert_eq!(id(0, 273, 112).data_path(), "tile/data/273.p/112");
    }

    #[test]
    fn edge_tiles_match_the_specification_example() {
        // 70,000 leaves: 273 full tiles and one of 112 hashes at level 0; one full tile and one of 17 at level 1; one of 1 at level
        // 2.
        let ids = Edge::ids(70_000);
        let tiles: Vec<_> = ids.iter().map(|id| (id.level, id.index, id.width)).collect();
        assert_eq!(tiles, [(0, 273, 112), (1, 1, 17), (2, 0, 1)]);
        let tiles: Vec<_> = Edge::ids(256).iter().map(|id| (id.level, id.index, id.width)).collect();
        assert_eq!(tiles, [(1, 0, 1)], "a full level 0 tile and a partial level 1 tile of width 1");
        assert!(Edge::ids(0).is_empty());
    }

    #[test]
    fn ancestors_of_a_full_tile_lead_to_the_tree_edge() {
        let id = TileId { level: 0, index: 3, width: 256 };
        let tiles: Vec<_> = ancestors(id, 70_000).iter().map(|id| (id.level, id.index, id.width)).collect();
        assert_eq!(tiles, [(1, 0, 256), (2, 0, 1)]);
        assert!(ancestors(TileId { level: 0, index: 273, width: 112 }, 70_000).is_empty());
    }

    #[test]
    fn tiles_authenticate_child_tiles_up_to_the_root() {
        let size = 66_000;
        let tiles = Tiles::of(size);
        let root = root_of(&tiles.1);
        let edge = tiles.edge(size, &root).unwrap();
        assert_eq!(edge.root(), root);
        assert_eq!(tiles.edge(size, &[7; 32]), Err(TreeEdgeError::Root));
        let (leaf, middle) = (tiles.get(0, 200).unwrap(), tiles.get(1, 0).unwrap());
        assert!(is_below(leaf, 200, middle) && is_below(middle, 0, edge.partial(2).unwrap()));
        let mut forged = leaf.to_vec();
        forged[17][3] ^= 1;
        assert!(!is_below(&forged, 200, middle));
        assert!(!is_below(leaf, 201, middle));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn edge_of_a_smaller_tree_hashes_to_its_root(size in 0_usize..1_500, larger in 0_usize..600) {
            let tiles = Tiles::of(size + larger);
            let root = root_of(&tiles.1[..size]);
            // Tiles of the grown tree are valid for the earlier tree.
            prop_assert!(tiles.edge(size, &root).is_ok());
        }

        #[test]
        fn inclusion_and_consistency_proofs_are_built_from_tiles(size in 1_u64..1_500, index: prop::sample::Index) {
            let tiles = Tiles::of(size as usize);
            let root = root_of(&tiles.1);
            let get = |height, index| subtree(height, index, |level, index| tiles.get(level, index));
            prop_assert_eq!(root_at(size, &get), Some(root));
            let index = index.index(size as usize) as u64;
            let proof = inclusion_proof(index, size, &get).unwrap();
            prop_assert!(verify_inclusion(&tiles.1[index as usize], index, size, &proof, &root));
            let old = index + 1;
            let proof = consistency_proof(old, size, &get).unwrap();
            prop_assert!(verify_consistency((old, &root_of(&tiles.1[..old as usize])), (size, &root), &proof));
        }

        #[test]
        fn tile_paths_are_unique(level in 0_u8..6, a in 0_u64..1 << 40, b in 0_u64..1 << 40, width in 1_u16..=256) {
            let id = |index| TileId { level, index, width };
            prop_assert_eq!(id(a).path() == id(b).path(), a == b);
        }
    }
}
