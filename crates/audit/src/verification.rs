//! Verification of chains, segments and signed heads by the server.

use std::collections::BTreeMap;

use api::audit::{InclusionProof, SegmentHead, SignedHead};
use audit_proof::{head, inclusion, segment};
use store::{AuditBounds, AuditVerification};

use crate::error::AuditError;
use crate::log::AuditLog;
use crate::retention::read_head;
use crate::signing;
use crate::tables::Segments;

/// Number of segment heads read at a time: 0.5 KB each.
const SEGMENTS_PAGE: usize = 1_000;
/// Maximum number of signed heads that are compared with the chains, newest first. This covers one year, and takes 50 MB with
/// sixteen chains.
const COMPARED_MAX: u64 = 50_000;
/// Maximum number of walks over a chain. A segment that is sealed during a walk requires another one.
const ATTEMPTS: usize = 3;

/// Result of [`AuditLog::verify`].
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Verified chains and their faults.
    pub chains: AuditVerification,
    /// Number of segments whose heads were checked.
    pub segments: u64,
    /// Number of segments whose lines were checked, too.
    pub opened: u64,
    /// Number of checked signed heads.
    pub signed_heads: u64,
}

impl AuditLog {
    /// Verifies all chains, segments and signed heads, and compares them with each other.
    ///
    /// # Errors
    /// Database errors. A broken chain is a result, not an error.
    #[crate::boxed]
    pub async fn verify(&self) -> Result<Verified, AuditError> {
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let (verified, newest) = self.verify_once().await?;
            let sealed = Segments::of(&self.parts.store).newest().await?.map_or(0, |row| row.number);
            // Rows of events that were sealed during the walk are missing.
            if verified.chains.faults.is_empty() || sealed == newest || left == 0 {
                return Ok(verified);
            }
        }
    }

    async fn verify_once(&self) -> Result<(Verified, i64), AuditError> {
        let mut verified = Verified::default();
        let mut faults = Vec::new();
        let heads = self.verify_heads(&mut verified, &mut faults).await?;
        let mut bounds = AuditBounds::default();
        let newest = self.verify_segments(&heads, &mut bounds, &mut verified, &mut faults).await?;
        bounds.points = heads.points.iter().map(|(position, hash)| (*position, *hash.as_bytes())).collect();
        for (shard, (last, _)) in &bounds.starts {
            bounds.points.retain(|(of, position), _| of != shard || position > last);
        }
        let chains = self.parts.store.audit_verify_within(&bounds).await?;
        faults.extend(chains.faults);
        verified.chains = AuditVerification { faults, ..chains };
        Ok((verified, newest))
    }

    async fn verify_heads(
        &self,
        verified: &mut Verified,
        faults: &mut Vec<String>,
    ) -> Result<SignedPoints, AuditError> {
        let mut found = SignedPoints::default();
        let Some(newest) = self.newest_head().await? else { return Ok(found) };
        let (_, spki) = self.public_key().await?;
        let mut before: Option<SignedHead> = None;
        loop {
            let number = before.as_ref().map_or(0, |head| head.sequence);
            let page = self.heads_after(number).await?;
            if page.is_empty() {
                return Ok(found);
            }
            for next in &page {
                if let Err(error) = head::check(next, Some(&spki)) {
                    faults.push(format!("signed head {}: {error}", next.sequence));
                }
                match &before {
                    Some(before) => faults.extend(head::break_between(before, next)),
                    None if next.sequence != 1 => faults.push("signed head 1 is missing".to_owned()),
                    None => {}
                }
                if before.as_ref().is_some_and(|before| next.sequence != before.sequence + 1) {
                    faults.push(format!("the signed head before head {} is missing", next.sequence));
                }
                if next.segments > 0 {
                    found.segments.insert(next.segments, (next.sequence, next.segment.clone()));
                }
                before = Some(next.clone());
                verified.signed_heads += 1;
            }
            let is_compared = |head: &&SignedHead| head.sequence + COMPARED_MAX > newest.sequence;
            found.points.extend(signing::chain_points(page.iter().filter(is_compared))?);
        }
    }

    /// Verifies the segments. Returns the number of the newest.
    async fn verify_segments(
        &self,
        signed: &SignedPoints,
        bounds: &mut AuditBounds,
        verified: &mut Verified,
        faults: &mut Vec<String>,
    ) -> Result<i64, AuditError> {
        let (mut before, mut key): (Option<SegmentHead>, _) = (None, None);
        loop {
            let number = before.as_ref().map_or(0, |head| head.segment.cast_signed());
            let page = Segments::of(&self.parts.store).after(number, SEGMENTS_PAGE).await?;
            if page.is_empty() {
                let missing = signed.segments.range(number.unsigned_abs() + 1..).next();
                faults.extend(missing.map(|(segment, (head, _))| {
                    format!("segment {segment} of signed head {head} is missing")
                }));
                return Ok(number);
            }
            if key.is_none() {
                key = Some(self.public_key().await?.1);
            }
            for row in page {
                let head = read_head(row.number, &row.head)?;
                faults.extend(segment::check_signature(&head, key.as_deref()).err());
                faults.extend(segment::break_between(before.as_ref(), &head));
                let start = bounds.starts.get(&head.shard).copied().unwrap_or((0, [0; 32]));
                if head.first != start.0 + 1 || head.before != db::hex(&start.1) {
                    faults.push(format!("segment {} does not continue chain {}", row.number, head.shard));
                }
                if let Some((sequence, hash)) = signed.segments.get(&head.segment)
                    && *hash != segment::hash(&head).to_string()
                {
                    faults.push(format!("segment {} does not match signed head {sequence}", row.number));
                }
                if row.pruned_at_us.is_none() {
                    faults.extend(self.verify_lines(&head, signed).await?);
                    verified.opened += 1;
                }
                let after = head.after.parse::<x509::Fingerprint>();
                let after = after.map_err(|_| AuditError::Damaged(format!("segment {}", row.number)))?;
                bounds.starts.insert(head.shard, (head.last, *after.as_bytes()));
                verified.segments += 1;
                before = Some(head);
            }
        }
    }

    async fn verify_lines(
        &self,
        head: &SegmentHead,
        signed: &SignedPoints,
    ) -> Result<Option<String>, AuditError> {
        let text = match self.segment(head.segment).await {
            Ok((_, text)) => text,
            // The segment was pruned meanwhile.
            Err(AuditError::Pruned(_)) => return Ok(None),
            Err(error @ (AuditError::Damaged(_) | AuditError::Sealed { .. })) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        let points = match segment::check_lines(head, text.lines()) {
            Ok(points) => points,
            Err(fault) => return Ok(Some(fault)),
        };
        let other = points.iter().find(|point| {
            signed.points.get(&(point.shard, point.sequence)).is_some_and(|hash| *hash != point.hash)
        });
        Ok(other.map(|point| {
            format!("segment {}: event {} does not match a signed head", head.segment, point.sequence)
        }))
    }

    /// Proves that a line is in a segment. Lines are counted from 0.
    ///
    /// # Errors
    /// [`AuditError::NoLine`]; errors of [`AuditLog::segment`].
    #[crate::boxed]
    pub async fn prove(&self, number: u64, line: u64) -> Result<InclusionProof, AuditError> {
        let (head, text) = self.segment(number).await?;
        let (mut later, mut after) = (Vec::new(), number.cast_signed());
        loop {
            let page = Segments::of(&self.parts.store).after(after, SEGMENTS_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for row in &page {
                later.push(read_head(row.number, &row.head)?);
            }
        }
        let lines: Vec<&str> = text.lines().collect();
        let proof = usize::try_from(line).ok().and_then(|index| inclusion::prove(head, &lines, index, later));
        proof.ok_or(AuditError::NoLine { segment: number, line })
    }
}

/// Chain hashes and segment hashes that signed heads attest. The verification compares the log with them.
#[derive(Default)]
struct SignedPoints {
    points: BTreeMap<(i64, i64), x509::Fingerprint>,
    /// By segment number: the number of the signed head that names the segment, and the segment's hash.
    segments: BTreeMap<u64, (u64, String)>,
}
