//! The Merkle tree of RFC 6962 section 2.1: hashes, roots, proofs.
//!
//! Functions that need the hash of a subtree call a function of the caller, which can read the hash from stored tiles.

use aws_lc_rs::digest::{Context, SHA256, digest};

/// A SHA-256 hash, as in every CT log.
pub type Hash = [u8; 32];

/// Maximum hashes of a proof. A tree of 2⁶⁴ leaves has 64 levels, and a consistency proof has one hash more.
pub const PROOF_MAX: usize = 65;

/// Computes the hash of a leaf: SHA-256(0x00 ‖ leaf).
#[must_use]
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    leaf_hash_of(&[leaf])
}

/// Computes the same hash as [`leaf_hash`], for a leaf given in parts.
#[must_use]
pub fn leaf_hash_of(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(&[0]);
    parts.iter().for_each(|part| context.update(part));
    to_hash(context.finish().as_ref())
}

/// Computes the hash of a node: SHA-256(0x01 ‖ left ‖ right).
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [0; 65];
    bytes[0] = 1;
    bytes[1..33].copy_from_slice(left);
    bytes[33..].copy_from_slice(right);
    sha256(&bytes)
}

/// Returns the root of an empty tree: SHA-256 of the empty string.
#[must_use]
pub fn empty_root() -> Hash {
    sha256(&[])
}

/// Computes the SHA-256 of `bytes`, without the prefix byte of leaf and node hashes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Hash {
    to_hash(digest(&SHA256, bytes).as_ref())
}

fn to_hash(digest: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest);
    hash
}

/// Computes the root over `hashes`: hashes of leaves, or of perfect subtrees of the same size. The last subtree may be smaller.
#[must_use]
pub fn root_of(hashes: &[Hash]) -> Hash {
    // Joins neighbours level by level. An unpaired node moves up unchanged. The tree is therefore split at the largest power of
    // two, as RFC 6962 requires.
    let Some(first) = hashes.first() else { return empty_root() };
    if hashes.len() == 1 {
        return *first;
    }
    let mut level: Vec<Hash> = join(hashes);
    while level.len() > 1 {
        level = join(&level);
    }
    level[0]
}

fn join(hashes: &[Hash]) -> Vec<Hash> {
    let (pairs, rest) = hashes.as_chunks::<2>();
    pairs.iter().map(|[left, right]| node_hash(left, right)).chain(rest.iter().copied()).collect()
}

/// Returns the largest power of two that is less than `n`. `n` must be at least 2.
fn split(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

/// Function that returns the hash of a perfect subtree with 2^`height` leaves. `index` counts such subtrees from the left. Returns
/// `None` if the hash is unknown.
pub type Subtree<'a> = &'a dyn Fn(u32, u64) -> Option<Hash>;

/// Computes the hash over the leaves `from..to` of a tree or proof. `from` must be a multiple of the smallest power of two that is
/// not below the number of leaves. `None` if a subtree is unknown.
fn range_hash(from: u64, to: u64, subtree: Subtree<'_>) -> Option<Hash> {
    let count = to - from;
    if count == 0 {
        return Some(empty_root());
    }
    if count.is_power_of_two() {
        let height = count.trailing_zeros();
        return subtree(height, from >> height);
    }
    let k = split(count);
    Some(node_hash(&range_hash(from, from + k, subtree)?, &range_hash(from + k, to, subtree)?))
}

/// Computes the root of the first `size` leaves.
#[must_use]
pub fn root_at(size: u64, subtree: Subtree<'_>) -> Option<Hash> {
    range_hash(0, size, subtree)
}

/// Creates the inclusion proof of leaf `index` in the tree of `size` leaves (RFC 6962 section 2.1.1). `None` if there is no such
/// leaf or a subtree is unknown.
#[must_use]
pub fn inclusion_proof(index: u64, size: u64, subtree: Subtree<'_>) -> Option<Vec<Hash>> {
    if index >= size {
        return None;
    }
    let (mut from, mut to) = (0, size);
    let mut path = Vec::new();
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            path.push(range_hash(middle, to, subtree)?);
            to = middle;
        } else {
            path.push(range_hash(from, middle, subtree)?);
            from = middle;
        }
    }
    path.reverse();
    Some(path)
}

/// Verifies that the tree with `size` leaves and root `root` has `leaf` at `index` (RFC 9162 section 2.1.3.2).
#[must_use]
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    if index >= size || proof.len() > PROOF_MAX {
        return false;
    }
    let (mut position, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if position & 1 == 1 || position == last {
            hash = node_hash(sibling, &hash);
            // A node without a right neighbour moves up until it is a right node.
            while position & 1 == 0 && position != 0 {
                (position, last) = (position >> 1, last >> 1);
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        (position, last) = (position >> 1, last >> 1);
    }
    last == 0 && hash == *root
}

/// Creates the proof that the tree of `new` leaves extends the tree of its first `old` leaves (RFC 6962 section 2.1.2). `None` if
/// `old` is 0 or above `new`, or a subtree is unknown.
#[must_use]
pub fn consistency_proof(old: u64, new: u64, subtree: Subtree<'_>) -> Option<Vec<Hash>> {
    if old == 0 || old > new {
        return None;
    }
    let (mut from, mut to) = (0, new);
    let mut path = Vec::new();
    // Descends to the subtree whose last leaf is the last leaf of the old tree.
    while old < to {
        let middle = from + split(to - from);
        if old <= middle {
            path.push(range_hash(middle, to, subtree)?);
            to = middle;
        } else {
            path.push(range_hash(from, middle, subtree)?);
            from = middle;
        }
    }
    if from > 0 {
        path.push(range_hash(from, to, subtree)?);
    }
    path.reverse();
    Some(path)
}

/// Verifies that the tree with `new_root` extends the tree with `old_root` (RFC 9162 section 2.1.4.2). Every tree extends an empty
/// one.
#[must_use]
pub fn verify_consistency(old: (u64, &Hash), new: (u64, &Hash), proof: &[Hash]) -> bool {
    let ((old, old_root), (new, new_root)) = (old, new);
    if old > new || proof.len() > PROOF_MAX {
        return false;
    }
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    if old == 0 {
        return proof.is_empty() && *old_root == empty_root();
    }
    let (mut position, mut last) = (old - 1, new - 1);
    while position & 1 == 1 {
        (position, last) = (position >> 1, last >> 1);
    }
    // If the old tree is a perfect subtree of the new one, the first node is the old root itself.
    let (start, rest) = if old.is_power_of_two() {
        (*old_root, proof)
    } else {
        match proof.split_first() {
            Some((first, rest)) => (*first, rest),
            None => return false,
        }
    };
    let (mut old_hash, mut new_hash) = (start, start);
    for sibling in rest {
        if last == 0 {
            return false;
        }
        if position & 1 == 1 || position == last {
            old_hash = node_hash(sibling, &old_hash);
            new_hash = node_hash(sibling, &new_hash);
            while position & 1 == 0 && position != 0 {
                (position, last) = (position >> 1, last >> 1);
            }
        } else {
            new_hash = node_hash(&new_hash, sibling);
        }
        (position, last) = (position >> 1, last >> 1);
    }
    last == 0 && old_hash == *old_root && new_hash == *new_root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Literal implementation of RFC 6962 section 2.1.
    fn mth(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [one] => *one,
            more => {
                let (left, right) = more.split_at(split(more.len() as u64) as usize);
                node_hash(&mth(left), &mth(right))
            }
        }
    }

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|n| leaf_hash(&n.to_be_bytes())).collect()
    }

    fn subtree_of(leaves: &[Hash]) -> impl Fn(u32, u64) -> Option<Hash> + '_ {
        |height, index| {
            let from = (index << height) as usize;
            leaves.get(from..from + (1 << height)).map(mth)
        }
    }

    #[test]
    fn tree_matches_the_reference_implementation() {
        // Test vectors of the reference code of RFC 9162 and of Google: leaves, and the roots of the first n leaves.
        let leaves: [&[u8]; 8] = [
            &[],
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f],
        ];
        let hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
        for (size, root) in [
            (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
            (2, "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
            (3, "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
            (7, "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"),
            (8, "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
        ] {
            assert_eq!(
                crate::Fingerprint::from_bytes(root_of(&hashes[..size])).to_string(),
                root,
                "{size} leaves"
            );
        }
    }

    proptest! {
        #[test]
        fn tree_root_matches_its_definition(count in 0_usize..600) {
            let all = leaves(count);
            prop_assert_eq!(root_of(&all), mth(&all));
            prop_assert_eq!(root_at(count as u64, &subtree_of(&all)), Some(mth(&all)));
        }

        #[test]
        fn inclusion_proof_is_accepted_and_altered_ones_rejected(count in 1_usize..300, at: prop::sample::Index, flip: prop::sample::Index) {
            let all = leaves(count);
            let index = at.index(count);
            let (size, root) = (count as u64, mth(&all));
            let mut proof = inclusion_proof(index as u64, size, &subtree_of(&all)).unwrap();
            prop_assert!(verify_inclusion(&all[index], index as u64, size, &proof, &root));
            prop_assert!(!verify_inclusion(&leaf_hash(b"other"), index as u64, size, &proof, &root));
            prop_assert!(!verify_inclusion(&all[index], size, size, &proof, &root));
            if !proof.is_empty() {
                let bit = flip.index(proof.len());
                proof[bit][0] ^= 1;
                prop_assert!(!verify_inclusion(&all[index], index as u64, size, &proof, &root));
                proof.pop();
                prop_assert!(!verify_inclusion(&all[index], index as u64, size, &proof, &root));
            }
        }

        #[test]
        fn consistency_proof_is_accepted_and_a_fork_rejected(count in 1_usize..300, at: prop::sample::Index) {
            let all = leaves(count);
            let old = at.index(count) + 1;
            let (old_root, new_root) = (mth(&all[..old]), mth(&all));
            let proof = consistency_proof(old as u64, count as u64, &subtree_of(&all)).unwrap();
            prop_assert!(verify_consistency((old as u64, &old_root), (count as u64, &new_root), &proof));
            let mut forked = all.clone();
            forked[old - 1] = leaf_hash(b"other");
            let (fork, proof) = (mth(&forked), consistency_proof(old as u64, count as u64, &subtree_of(&forked)).unwrap());
            prop_assert!(!verify_consistency((old as u64, &old_root), (count as u64, &fork), &proof));
        }

        #[test]
        fn random_proofs_are_rejected(
            leaf: Hash, index: u64, size: u64, old: u64, proof in prop::collection::vec(any::<Hash>(), 0..70),
            root: Hash, other: Hash,
        ) {
            prop_assert!(!verify_inclusion(&leaf, index, size, &proof, &root) || size == 1);
            prop_assert!(!verify_consistency((old, &root), (size, &other), &proof) || root == other);
        }
    }
}
