//! Splits a run over many endpoints into parts that nodes share, each with its own lease: a crashed node costs the time of one
//! part.
//!
//! The node that holds the run splits it, scans parts like every other node, and ends the run once all parts have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::chain;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::claims::{LEASE, Node};
use super::outcome::{Findings, RunInterruption};
use super::{WatchSpec, Watches, in_us};
use crate::tables;
use crate::tables::watch_parts::{PARTS_MAX, PartRow};
use crate::tables::watches::WatchRow;

/// Interval of checks for the results of other nodes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Result of one part of a split scan run, stored as JSON for the node that holds the run.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct PartResult {
    /// Number of endpoints by the severity of their worst finding.
    findings: Findings,
    /// The error, if the part failed.
    error: Option<String>,
}

/// Returns the number of parts for this many endpoints. 1 means that the run is not split.
pub(super) fn parts_of(endpoints: u64, part_endpoints: u64) -> u64 {
    endpoints.div_ceil(part_endpoints.max(1)).clamp(1, PARTS_MAX)
}

/// Returns the number of targets before a part, and the number of targets in it.
fn range(endpoints: u64, part: &PartRow) -> (usize, usize) {
    let size = endpoints.div_ceil(part.parts.max(1));
    ((part.part * size) as usize, size as usize)
}

impl Watches {
    /// Scans the parts of a run together with other nodes, and returns the findings of all parts.
    pub(super) async fn scan_parts(
        &self,
        scan: Uuid,
        row: &WatchRow,
        parts: u64,
        node: &Node,
        stop: &CancellationToken,
    ) -> Result<Findings, RunInterruption> {
        let store = &self.0.store;
        tables::WatchParts::of(store).split_run(row.id, scan, parts).await?;
        loop {
            let now_us = self.0.clock.now_us();
            let until_us = now_us.saturating_add(in_us(LEASE));
            let claimed =
                tables::WatchParts::of(store).claim(node.id, Some(scan), now_us, until_us, 1).await?;
            if let Some(part) = claimed.first() {
                self.scan_and_store_part(*part, row, node, stop).await;
            } else if let Some(findings) =
                combined_findings(&tables::WatchParts::of(store).results(scan).await?)?
            {
                return Ok(findings);
            } else {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
            }
            if stop.is_cancelled() {
                return Err(RunInterruption::Cancelled);
            }
        }
    }

    /// Scans a part of another node's run.
    pub(super) async fn scan_claimed_part(&self, part: PartRow, node: Node, stop: CancellationToken) {
        match tables::Watches::of(&self.0.store).get(part.watch).await {
            Ok(Some(row)) => self.scan_and_store_part(part, &row, &node, &stop).await,
            // The watch was deleted, and its parts with it.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "a part of a watch run could not be started; it is claimed again \
                 when its lease expires"
                )
            }
        }
    }

    /// Scans a claimed part and stores its result. If the lease was lost meanwhile, the part belongs to another node.
    async fn scan_and_store_part(
        &self,
        part: PartRow,
        row: &WatchRow,
        node: &Node,
        stop: &CancellationToken,
    ) {
        let lease = node.parts.hold(part, stop);
        let ended = match self.scan_part(&part, row, &lease.stop).await {
            Ok(findings) => PartResult { findings, error: None },
            Err(RunInterruption::Cancelled) => return,
            Err(RunInterruption::Failed(why)) => PartResult { error: Some(why), ..PartResult::default() },
        };
        let result = serde_json::to_string(&ended).unwrap_or_default();
        if let Err(error) = tables::WatchParts::of(&self.0.store).end(&part, node.id, &result).await {
            tracing::warn!(error = chain(&error), "the result of a part of a watch run was not stored");
        }
    }

    async fn scan_part(
        &self,
        part: &PartRow,
        row: &WatchRow,
        stop: &CancellationToken,
    ) -> Result<Findings, RunInterruption> {
        let spec: WatchSpec = serde_json::from_str(&row.settings.spec)
            .map_err(|error| RunInterruption::Failed(chain(&error)))?;
        let endpoints =
            self.0.environment.targets(&spec).map_err(RunInterruption::Failed)?.expected().unwrap_or(0);
        self.scan_range(part.scan, &spec, Some(range(endpoints, part)), part.claims > 1, stop).await
    }
}

/// Returns the findings of all parts when all parts have ended, or an error as soon as one part has failed. Returns an
/// interruption if the parts no longer exist: another node has ended the run, or its watch was deleted.
fn combined_findings(results: &[Option<String>]) -> Result<Option<Findings>, RunInterruption> {
    if results.is_empty() {
        return Err(RunInterruption::Cancelled);
    }
    let (mut findings, mut open) = (BTreeMap::new(), false);
    for result in results {
        let Some(result) = result else {
            open = true;
            continue;
        };
        let ended: PartResult =
            serde_json::from_str(result).map_err(|error| RunInterruption::Failed(chain(&error)))?;
        if let Some(why) = ended.error {
            return Err(RunInterruption::Failed(why));
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
    fn run_finishes_after_all_parts_and_fails_if_one_failed() {
        let ended = |text: &str| Some(text.to_owned());
        let high = r#"{"findings":{"high":2},"error":null}"#;
        assert!(matches!(combined_findings(&[ended(high), None]), Ok(None)));
        let Ok(Some(all)) = combined_findings(&[ended(high), ended(high)]) else { panic!("both have ended") };
        assert_eq!(all, BTreeMap::from([("high".to_owned(), 4)]));
        assert!(
            matches!(combined_findings(&[]), Err(RunInterruption::Cancelled)),
            "nothing is not everything"
        );
        let failed = combined_findings(&[None, ended(r#"{"error":"no CA file"}"#)]);
        assert!(matches!(failed, Err(RunInterruption::Failed(why)) if why == "no CA file"));
    }
}
