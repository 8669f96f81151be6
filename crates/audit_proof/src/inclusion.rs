//! Inclusion proofs: a line is in a segment, and a signed head names this segment or a later one.

use api::audit::{InclusionProof, SegmentHead, SegmentLine, SignedHead};
use x509::Fingerprint;
use x509::merkle::{self, Hash};

use crate::segment;

/// Builds the proof that line `index` is in a segment. `None` when the segment has no such line, or a line is malformed.
///
/// `later`: the heads of all later segments, in order.
#[must_use]
pub fn prove(
    head: SegmentHead,
    lines: &[&str],
    index: usize,
    later: Vec<SegmentHead>,
) -> Option<InclusionProof> {
    let line: SegmentLine = serde_json::from_str(lines.get(index)?).ok()?;
    let leaves: Vec<Hash> = lines.iter().map(|line| merkle::leaf_hash(line.as_bytes())).collect();
    let subtree = |height: u32, at: u64| {
        let from = usize::try_from(at << height).ok()?;
        leaves.get(from..from + (1 << height)).map(merkle::root_of)
    };
    let path = merkle::inclusion_proof(index as u64, leaves.len() as u64, &subtree)?;
    let path = path.into_iter().map(|hash| Fingerprint::from_bytes(hash).to_string()).collect();
    Some(InclusionProof { segment: head, index: index as u64, line, path, later })
}

/// Checks a proof against `key` (a DER SubjectPublicKeyInfo) or, without one, the keys in the segment heads. Also checks the proof
/// against signed heads, whose signatures the caller has verified.
///
/// # Errors
/// A description of the fault.
pub fn check(proof: &InclusionProof, stored_heads: &[SignedHead], key: Option<&[u8]>) -> Result<(), String> {
    let leaf = merkle::leaf_hash(segment::line_text(&proof.line).as_bytes());
    let hash = |text: &String| {
        text.parse::<Fingerprint>()
            .map(|hash| *hash.as_bytes())
            .map_err(|_| format!("{text:?} is not a hash"))
    };
    let path = proof.path.iter().map(hash).collect::<Result<Vec<_>, _>>()?;
    let number = proof.segment.segment;
    if !merkle::verify_inclusion(&leaf, proof.index, proof.segment.lines, &path, &hash(&proof.segment.root)?)
    {
        return Err(format!("the line is not in segment {number}"));
    }
    segment::check_signature(&proof.segment, key)?;
    let mut before = &proof.segment;
    for next in &proof.later {
        if let Some(fault) = segment::break_between(Some(before), next) {
            return Err(fault);
        }
        segment::check_signature(next, key)?;
        before = next;
    }
    stored_heads.iter().try_for_each(|head| check_head(proof, head))
}

/// Checks whether a signed head names the segment of the proof, or one that continues it.
fn check_head(proof: &InclusionProof, head: &SignedHead) -> Result<(), String> {
    let (number, sequence) = (proof.segment.segment, head.sequence);
    let all = std::iter::once(&proof.segment).chain(&proof.later);
    match all.clone().find(|segment| segment.segment == head.segments) {
        Some(found) if segment::hash(found).to_string() == head.segment => Ok(()),
        Some(_) => Err(format!("signed head {sequence} has another hash for segment {}", head.segments)),
        None if head.segments < number => {
            Err(format!("signed head {sequence} is older than segment {number}: give a later head"))
        }
        None => {
            Err(format!("signed head {sequence} names segment {}, which is not in the proof", head.segments))
        }
    }
}
