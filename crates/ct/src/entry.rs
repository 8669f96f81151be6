//! Log entries in the format of data tiles (c2sp.org/static-ct-api, "Log entries"; RFC 6962 section 3.4).

use super::merkle::{Hash, leaf_hash_of};
use super::tile::TILE_WIDTH;

/// Longest accepted data tile, uncompressed: 256 entries of 256 KiB, the largest entry that log software accepts (Tessera's limit).
/// A typical tile has about 1 MB. With a smaller limit, an attacker who fills a tile with large certificates could blind the
/// monitors of the log.
pub const DATA_TILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A log entry: a certificate or precertificate, its timestamp and its issuer chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// Time at which the log accepted the entry, milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: u64,
    /// The logged certificate.
    pub logged: LoggedCertificate<'a>,
    /// The `leaf_index` extension: index of the entry in the log.
    pub leaf_index: Option<u64>,
    /// SHA-256 of each issuer certificate in the submitted chain, nearest issuer first.
    pub chain: &'a [[u8; 32]],
    /// The TimestampedEntry: the MerkleTreeLeaf without its first two bytes.
    timestamped: &'a [u8],
}

/// The certificate or precertificate in a log entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoggedCertificate<'a> {
    /// A certificate in DER.
    Certificate(&'a [u8]),
    /// A precertificate: a commitment to issue the certificate.
    Precertificate {
        /// The tbsCertificate without the poison extension. The final tbsCertificate also contains SCTs.
        tbs: &'a [u8],
        /// SHA-256 of the issuer's SubjectPublicKeyInfo.
        issuer_key_hash: &'a [u8; 32],
        /// The precertificate as submitted.
        precertificate: &'a [u8],
    },
}

impl<'a> LoggedCertificate<'a> {
    /// Returns the certificate or precertificate, DER.
    #[must_use]
    pub fn der(self) -> &'a [u8] {
        match self {
            Self::Certificate(der) | Self::Precertificate { precertificate: der, .. } => der,
        }
    }

    /// Returns the part that the log signs as part of the leaf: the certificate, or the `tbs` of a precertificate.
    #[must_use]
    pub fn hashed(self) -> &'a [u8] {
        match self {
            Self::Certificate(der) => der,
            Self::Precertificate { tbs, .. } => tbs,
        }
    }
}

/// Error of a malformed data tile.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("entry {at} of the data tile: {what}")]
pub struct EntryError {
    /// Index of the entry in the tile, from 0.
    pub at: u16,
    /// Description of the error.
    pub what: &'static str,
}

/// Iterator over the entries of a data tile. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    at: u16,
}

impl<'a> Entries<'a> {
    /// Reads the entries of `tile`, at most 256.
    #[must_use]
    pub fn new(tile: &'a [u8]) -> Self {
        Self { rest: tile, at: 0 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.at;
        let read = if u64::from(at) == TILE_WIDTH { Err("over 256 entries") } else { entry(&mut self.rest) };
        self.at = at.saturating_add(1);
        Some(read.map_err(|what| {
            self.rest = &[];
            EntryError { at, what }
        }))
    }
}

impl Entry<'_> {
    /// Returns the hash of the entry's MerkleTreeLeaf (RFC 6962 section 3.4).
    #[must_use]
    pub fn leaf_hash(&self) -> Hash {
        // version v1, leaf type timestamped_entry
        leaf_hash_of(&[&[0, 0], self.timestamped])
    }
}

/// Parses a TileLeaf.
fn entry<'a>(input: &mut &'a [u8]) -> Result<Entry<'a>, &'static str> {
    const X509_ENTRY: [u8; 2] = [0, 0];
    const PRECERT_ENTRY: [u8; 2] = [0, 1];
    let start = *input;
    let timestamp_ms = u64::from_be_bytes(*chunk::<8>(input)?);
    let kind = *chunk::<2>(input)?;
    let (issuer_key_hash, signed) = match kind {
        X509_ENTRY => (None, vector::<3>(input)?),
        PRECERT_ENTRY => (Some(chunk::<32>(input)?), vector::<3>(input)?),
        _ => return Err("unknown entry type"),
    };
    let leaf_index = leaf_index(vector::<2>(input)?)?;
    let timestamped = &start[..start.len() - input.len()];
    let logged = match issuer_key_hash {
        None => LoggedCertificate::Certificate(signed),
        Some(issuer_key_hash) => LoggedCertificate::Precertificate {
            tbs: signed,
            issuer_key_hash,
            precertificate: vector::<3>(input)?,
        },
    };
    let (chain, rest) = vector::<2>(input)?.as_chunks::<32>();
    if !rest.is_empty() {
        return Err("the chain is not a list of fingerprints");
    }
    Ok(Entry { timestamp_ms, logged, leaf_index, chain, timestamped })
}

/// Returns the leaf_index in CtExtensions and skips other extensions.
fn leaf_index(mut extensions: &[u8]) -> Result<Option<u64>, &'static str> {
    const LEAF_INDEX: u8 = 0;
    let mut index = None;
    while let Some((kind, rest)) = extensions.split_first() {
        extensions = rest;
        let data = vector::<2>(&mut extensions)?;
        if *kind != LEAF_INDEX {
            continue;
        }
        let bytes: [u8; 5] = data.try_into().map_err(|_| "leaf_index does not have 40 bits")?;
        if index.replace(bytes.iter().fold(0, |n, b| (n << 8) | u64::from(*b))).is_some() {
            return Err("more than one leaf_index");
        }
    }
    Ok(index)
}

const TRUNCATED: &str = "the entry is truncated";

fn chunk<'a, const N: usize>(input: &mut &'a [u8]) -> Result<&'a [u8; N], &'static str> {
    let (chunk, rest) = input.split_first_chunk::<N>().ok_or(TRUNCATED)?;
    *input = rest;
    Ok(chunk)
}

/// Parses a vector with a length prefix of `N` bytes (RFC 8446 section 3.4).
fn vector<'a, const N: usize>(input: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = chunk::<N>(input)?.iter().fold(0_usize, |n, b| (n << 8) | usize::from(*b));
    let (vector, rest) = input.split_at_checked(length).ok_or(TRUNCATED)?;
    *input = rest;
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(
        timestamp: u64,
        precert: Option<(&[u8], &[u8])>,
        der: &[u8],
        index: u64,
        chain: usize,
    ) -> Vec<u8> {
        let mut out = timestamp.to_be_bytes().to_vec();
        let long = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend(&(bytes.len() as u32).to_be_bytes()[1..]);
            out.extend(bytes);
        };
        match precert {
            None => {
                out.extend([0, 0]);
                long(&mut out, der);
            }
            Some((tbs, _)) => {
                out.extend([0, 1]);
                out.extend([5; 32]);
                long(&mut out, tbs);
            }
        }
        out.extend([0, 8, 0, 0, 5]);
        out.extend(&index.to_be_bytes()[3..]);
        if let Some((_, precertificate)) = precert {
            long(&mut out, precertificate);
        }
        out.extend(((chain * 32) as u16).to_be_bytes());
        out.extend(std::iter::repeat_n(7, chain * 32));
        out
    }

    proptest! {
        #[test]
        fn data_tile_entries_round_trip(
            timestamp: u64, der: Vec<u8>, tbs: Vec<u8>, precertificate: Vec<u8>, index in 0_u64..1 << 40,
            chain in 0_usize..5,
        ) {
            let mut tile = write(timestamp, None, &der, index, chain);
            tile.extend(write(timestamp, Some((&tbs, &precertificate)), &[], index, chain));
            let entries: Vec<_> = Entries::new(&tile).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(entries.len(), 2);
            prop_assert_eq!(entries[0].logged, LoggedCertificate::Certificate(&der));
            let LoggedCertificate::Precertificate { tbs: read, precertificate: submitted, .. } = entries[1].logged else {
                return Err(TestCaseError::fail("a precertificate"));
            };
            prop_assert_eq!((read, submitted), (&tbs[..], &precertificate[..]));
            for entry in &entries {
                prop_assert_eq!((entry.timestamp_ms, entry.leaf_index), (timestamp, Some(index)));
                prop_assert_eq!(entry.chain, vec![[7; 32]; chain]);
            }
            // The leaf contains everything up to the extensions.
            let leaf_end = tile.len() - write(timestamp, Some((&tbs, &precertificate)), &[], index, chain).len()
                - 2 - 32 * chain;
            let leaf = [&[0, 0], &tile[..leaf_end]].concat();
            prop_assert_eq!(entries[0].leaf_hash(), crate::merkle::leaf_hash(&leaf));
        }

        #[test]
        fn arbitrary_bytes_parse_to_a_bounded_number_of_entries(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            prop_assert!(Entries::new(&bytes).count() <= 257);
        }

        #[test]
        fn truncated_data_tile_is_rejected(der: Vec<u8>, at: prop::sample::Index) {
            let tile = write(1, None, &der, 3, 1);
            let cut = &tile[..at.index(tile.len() - 1) + 1];
            prop_assert!(Entries::new(cut).any(|entry| entry.is_err()));
        }
    }

    #[test]
    fn data_tile_is_limited_to_256_entries() {
        let tile = write(1, None, b"x", 3, 0).repeat(257);
        let read: Vec<_> = Entries::new(&tile).collect();
        assert_eq!(read.len(), 257);
        assert_eq!(read[256], Err(EntryError { at: 256, what: "over 256 entries" }));
    }
}
