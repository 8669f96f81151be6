//! The Merkle tree of RFC 6962 section 2.1, fully in memory and written for simplicity. It shares no code with the log follower
//! that it tests.

use aws_lc_rs::digest::{SHA256, digest};

pub(crate) type Hash = [u8; 32];

pub(crate) fn sha256(bytes: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

pub(crate) fn leaf_hash(leaf: &[u8]) -> Hash {
    sha256(&[&[0], leaf].concat())
}

/// Computes the Merkle tree hash (MTH in RFC 6962) over leaf hashes.
pub(crate) fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => sha256(&[]),
        [one] => *one,
        more => {
            let half = more.len().next_power_of_two() / 2;
            let (left, right) = more.split_at(half);
            sha256(&[&[1][..], &root(left), &root(right)].concat())
        }
    }
}

/// Returns the hashes of the tile with number `index` at `level`, at most `width`, in the tree of these leaves.
pub(crate) fn tile(leaves: &[Hash], level: u32, index: u64, width: u64) -> Option<Vec<Hash>> {
    let span = 256_u64.checked_pow(level)?;
    let first = index.checked_mul(256)?;
    let hash = |at: u64| {
        let from = usize::try_from(at.checked_mul(span)?).ok()?;
        let to = from.checked_add(usize::try_from(span).ok()?)?;
        leaves.get(from..to).map(root)
    };
    (first..first + width).map(hash).collect()
}
