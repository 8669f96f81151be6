//! A run over many endpoints is cut into parts that nodes share, each under a lease of its own: a node that dies costs
//! the run one part's time.
//!
//! Anyone who holds the run cuts it, makes parts as any other node does, and ends the run once all parts have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::chain;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::claims::{LEASE, Node};
use super::outcome::{Findings, Unfinished};
use super::{WatchSpec, Watches, in_us};
use crate::tables;
use crate::tables::watch_parts::{PARTS_MAX, PartRow};
use crate::tables::watches::WatchRow;

/// Between two looks at what other nodes still do.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a part ended, as stored.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct PartResult {
    /// Endpoints by the severity of their worst finding.
    findings: Findings,
    /// The error.
    error: Option<String>,
}

/// How many parts so many endpoints make; one is no cut at all.
pub(super) fn parts_of(endpoints: u64, part_endpoints: u64) -> u64 {
    endpoints.div_ceil(part_endpoints.max(1)).clamp(1, PARTS_MAX)
}

/// Targets left out before a part, and those that are its own.
fn range(endpoints: u64, part: &PartRow) -> (usize, usize) {
    let size = endpoints.div_ceil(part.parts.max(1));
    ((part.part * size) as usize, size as usize)
}

impl Watches {
    /// Makes a run together with anyone who else has room, and answers the findings of all parts.
    pub(super) async fn make_parts(
        &self,
        scan: Uuid,
        row: &WatchRow,
        parts: u64,
        node: &Node,
        stop: &CancellationToken,
    ) -> Result<Findings, Unfinished> {
        let store = &self.0.store;
        tables::WatchParts::of(store).cut(row.id, scan, parts).await?;
        loop {
            let now_us = self.0.clock.now_us();
            let until_us = now_us.saturating_add(in_us(LEASE));
            let claimed =
                tables::WatchParts::of(store).claim(node.id, Some(scan), now_us, until_us, 1).await?;
            if let Some(part) = claimed.first() {
                self.make_part(*part, row, node, stop).await;
            } else if let Some(findings) = all_of(&tables::WatchParts::of(store).results(scan).await?)? {
                return Ok(findings);
            } else {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
            if stop.is_cancelled() {
                return Err(Unfinished::Cancelled);
            }
        }
    }

    /// Makes a part of another node's run.
    pub(super) async fn make_claimed_part(&self, part: PartRow, node: Node, stop: CancellationToken) {
        match tables::Watches::of(&self.0.store).get(part.watch).await {
            Ok(Some(row)) => self.make_part(part, &row, &node, &stop).await,
            // Its parts are gone with it.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = chain(&error), "a part of a watch's run is left to its lease")
            }
        }
    }

    /// Makes a claimed part and notes how it ended. One that was lost meanwhile is somebody else's.
    async fn make_part(&self, part: PartRow, row: &WatchRow, node: &Node, stop: &CancellationToken) {
        let held = node.parts.hold(part, stop);
        let ended = match self.scan_part(&part, row, &held.stop).await {
            Ok(findings) => PartResult { findings, error: None },
            Err(Unfinished::Cancelled) => return,
            Err(Unfinished::Failed(why)) => PartResult { error: Some(why), ..PartResult::default() },
        };
        let result = serde_json::to_string(&ended).unwrap_or_default();
        if let Err(error) = tables::WatchParts::of(&self.0.store).end(&part, node.id, &result).await {
            tracing::warn!(error = chain(&error), "the end of a part of a watch's run was not stored");
        }
    }

    async fn scan_part(
        &self,
        part: &PartRow,
        row: &WatchRow,
        stop: &CancellationToken,
    ) -> Result<Findings, Unfinished> {
        let spec: WatchSpec =
            serde_json::from_str(&row.settings.spec).map_err(|error| Unfinished::Failed(chain(&error)))?;
        let endpoints = self.0.kit.targets(&spec).map_err(Unfinished::Failed)?.expected().unwrap_or(0);
        self.scan_range(part.scan, &spec, Some(range(endpoints, part)), part.claims > 1, stop).await
    }
}

/// The findings of all parts together, once all have ended; an error as soon as one has failed. Where there is none any more,
/// the run was ended by somebody else, or its watch was removed.
fn all_of(results: &[Option<String>]) -> Result<Option<Findings>, Unfinished> {
    if results.is_empty() {
        return Err(Unfinished::Cancelled);
    }
    let (mut findings, mut open) = (BTreeMap::new(), false);
    for result in results {
        let Some(result) = result else {
            open = true;
            continue;
        };
        let ended: PartResult =
            serde_json::from_str(result).map_err(|error| Unfinished::Failed(chain(&error)))?;
        if let Some(why) = ended.error {
            return Err(Unfinished::Failed(why));
        }
        for (severity, count) in ended.findings {
            *findings.entry(severity).or_insert(0) += count;
        }
    }
    Ok((!open).then_some(findings))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(part: u64, parts: u64) -> PartRow {
        PartRow { scan: Uuid::nil(), part, parts, watch: Uuid::nil(), claims: 1 }
    }

    proptest! {
        #[test]
        fn parts_cover_every_target_once(endpoints in 0_u64..5_000, size in 1_u64..400) {
            let parts = parts_of(endpoints, size);
            prop_assert!((1..=PARTS_MAX).contains(&parts));
            let all: Vec<u64> = (0..endpoints).collect();
            let mut covered: Vec<u64> = Vec::new();
            for number in 0..parts {
                let (skip, take) = range(endpoints, &part(number, parts));
                covered.extend(all.iter().skip(skip).take(take));
            }
            prop_assert_eq!(covered, all);
        }
    }

    #[test]
    fn all_parts_must_have_ended_and_none_may_have_failed() {
        let ended = |text: &str| Some(text.to_owned());
        let high = r#"{"findings":{"high":2},"error":null}"#;
        assert!(matches!(all_of(&[ended(high), None]), Ok(None)));
        let Ok(Some(all)) = all_of(&[ended(high), ended(high)]) else { panic!("both have ended") };
        assert_eq!(all, BTreeMap::from([("high".to_owned(), 4)]));
        assert!(matches!(all_of(&[]), Err(Unfinished::Cancelled)), "nothing is not everything");
        let failed = all_of(&[None, ended(r#"{"error":"no CA file"}"#)]);
        assert!(matches!(failed, Err(Unfinished::Failed(why)) if why == "no CA file"));
    }
}
