//! Executes one run of a watch: scans its targets, records the observations in the inventory, and stores the result.

use std::time::Duration;

use clouds::{LIST_LIMIT, Listed};
use events::{Event, WatchCounts, WatchRun};
use futures_util::FutureExt;
use scan::{KnownEndpoints, Observation, Run};
use serde_json::json;
use store::{NewEvent, ScanState, StoreError, emit, new_event};
use telemetry::chain;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::claims::{Node, RunClaim};
use super::news::Budget;
use super::outcome::{Findings, RunInterruption};
use super::parts::parts_of;
use super::{Clouds, WatchSpec, Watches, schedule, spans};
use crate::record::observed;
use crate::recording::{Recording, ScanEnd};
use crate::sources::{CloudRun, keep, observe, source_states};
use crate::tables;
use crate::tables::watches::{WatchEnd, WatchOutcome, WatchRow, end_watch, set_watch_scan, watch};

/// Maximum failed parts of sources that the result of a run describes. Further ones are only counted.
const FAILURES_SHOWN: usize = 10;

/// Parts of sources that a run could not list or read.
#[derive(Default)]
struct IncompleteSources {
    count: u64,
    first: Vec<String>,
    /// Additional data that could not be read; the certificates are complete.
    not_read: Vec<String>,
}

impl Watches {
    /// Executes a claimed run. If its end cannot be stored, the lease expires and another node continues.
    pub(super) async fn run_claimed(
        &self,
        claim: RunClaim,
        row: WatchRow,
        node: Node,
        stop: CancellationToken,
    ) {
        let name = row.settings.name.clone();
        let scan = row.run.as_ref().and_then(|run| run.scan);
        let scan_result = match scan {
            Some(scan) => Ok((scan, true)),
            None => self.assign_scan(claim).await.map(|scan| (scan, false)),
        };
        let (scan, scan_result) = match scan_result {
            Ok((scan, resumed)) => (Some(scan), self.scan_remaining(scan, resumed, &row, &node, &stop).await),
            Err(find_unfinished_scan) => (None, Err(find_unfinished_scan)),
        };
        let ended = match scan_result {
            Ok(counts) => self.end(claim, scan, Ok(counts)).await,
            Err(RunInterruption::Cancelled) => self.abandon_without_watch(claim, scan).await,
            Err(RunInterruption::Failed(why)) => {
                tracing::warn!(watch = name, error = why, "a watch run failed");
                self.abandon(scan).await;
                self.end(claim, scan, Err(why)).await
            }
        };
        if let Err(error) = ended {
            tracing::warn!(watch = name, error = chain(&error), "the end of a watch run was not stored");
        }
    }

    /// Marks the scan as incomplete if its watch no longer exists, because no node will continue it. Changes nothing if another
    /// node has claimed the run.
    async fn abandon_without_watch(&self, claim: RunClaim, scan: Option<Uuid>) -> Result<(), StoreError> {
        if tables::Watches::of(&self.0.store).get(claim.id).await?.is_none() {
            self.abandon(scan).await;
        }
        Ok(())
    }

    /// Marks a scan as incomplete. If this fails, the scan is shown as running, like after a crash.
    async fn abandon(&self, scan: Option<Uuid>) {
        let Some(scan) = scan else { return };
        let at_us = self.0.clock.now_us();
        if let Err(error) =
            store::Scans::of(&self.0.store).finish(scan, at_us, ScanState::Interrupted, "{}").await
        {
            tracing::debug!(%scan, error = chain(&error), "an unfinished scan could not be marked");
        }
    }

    /// Assigns a new scan to the run; fails if another node has the run.
    async fn assign_scan(&self, claim: RunClaim) -> Result<Uuid, RunInterruption> {
        let scan = Uuid::now_v7();
        let RunClaim { id, node, claims } = claim;
        let filled =
            self.0.store.write("watch_fill", move |tx| set_watch_scan(tx, id, node, claims, scan).boxed());
        if filled.await? { Ok(scan) } else { Err(RunInterruption::Cancelled) }
    }

    /// Scans all targets that the scan has not covered yet, and lists all sources; returns the counters as JSON.
    async fn scan_remaining(
        &self,
        scan: Uuid,
        resumed: bool,
        row: &WatchRow,
        node: &Node,
        stop: &CancellationToken,
    ) -> Result<WatchCounts, RunInterruption> {
        let (store, environment) = (&self.0.store, &self.0.environment);
        let spec: WatchSpec = serde_json::from_str(&row.settings.spec)
            .map_err(|error| RunInterruption::Failed(chain(&error)))?;
        store::Scans::of(store)
            .begin(scan, self.0.clock.now_us(), &environment.scan_parameters(&spec))
            .await?;
        if resumed {
            store::Scans::of(store).resume(scan).await?;
        }
        let endpoints = environment.targets(&spec).map_err(RunInterruption::Failed)?.expected().unwrap_or(0);
        let parts = parts_of(endpoints, self.0.options.part_endpoints);
        let scanning = async {
            match parts {
                1 => self.scan_range(scan, &spec, None, resumed, stop).await,
                _ => self.scan_parts(scan, row, parts, node, stop).await,
            }
        };
        let (mut budget, ended) = (Budget::default(), stop.child_token());
        let seen = async {
            let _ends_notices = ended.clone().drop_guard();
            tokio::try_join!(scanning, self.list_clouds(scan, &spec, stop))
        };
        let (seen, ()) = tokio::join!(seen, self.notify_during_run(scan, row, &mut budget, &ended));
        let (mut findings, (cloud_findings, not_listed)) = seen?;
        for (severity, count) in cloud_findings {
            *findings.entry(severity).or_insert(0) += count;
        }
        let untold = self.put_notices(scan, row, not_listed.count == 0, budget, stop).await?;
        if stop.is_cancelled() {
            return Err(RunInterruption::Cancelled);
        }
        let Some(stored) = store::Scans::of(store).get(scan).await? else {
            return Err(RunInterruption::Failed(format!("scan {scan} no longer exists")));
        };
        let counts = WatchCounts {
            endpoints: stored.observations,
            answered: stored.answered,
            changed: stored.changes,
            new_certificates: stored.new_certificates,
            worst_findings: findings,
            untold,
            parts,
            not_listed: not_listed.count,
            not_listed_first: not_listed.first,
            not_read_first: not_listed.not_read,
        };
        let summary = json!({"watch": row.settings.name, "counts": counts}).to_string();
        let ended_at_us = self.0.clock.now_us();
        store::Scans::of(store).finish(scan, ended_at_us, ScanState::Finished, &summary).await?;
        // The duration is recorded only for runs that this node began: others include waiting times.
        if let (false, Some(samples), Some(run)) = (resumed, &self.0.options.samples, &row.run) {
            let took =
                Duration::from_micros(ended_at_us.saturating_sub(run.began_at_us).max(0).unsigned_abs());
            if spec.sources.is_empty() {
                samples.scanned(stored.observations, took);
            } else if not_listed.count == 0 {
                samples.listed(stored.observations, took);
            }
        }
        Ok(counts)
    }

    /// Scans all targets, or a range of targets, given by the number to skip and the number to scan. With `resumed`, skips targets
    /// that the scan has already covered.
    pub(super) async fn scan_range(
        &self,
        scan: Uuid,
        spec: &WatchSpec,
        range: Option<(usize, usize)>,
        resumed: bool,
        stop: &CancellationToken,
    ) -> Result<Findings, RunInterruption> {
        let (environment, mut known) = (&self.0.environment, KnownEndpoints::default());
        if resumed {
            known.observed = observed(&self.0.store, scan).await?;
        }
        let targets = environment.targets(spec).map_err(RunInterruption::Failed)?;
        let (skip, take) = range.unwrap_or((0, usize::MAX));
        let scanner = environment.scanner(spec).map_err(RunInterruption::Failed)?;
        let looking = stop.child_token();
        let _ended = looking.clone().drop_guard();
        // All targets were validated when the watch was created, so there are no refusals.
        let Run { observations, refused, progress } =
            scanner.start(Box::new(targets.skip(skip).take(take)), known, looking.clone());
        drop(refused);
        let findings = self.gather(scan, observations, &looking, stop).await;
        if let Some(samples) = &self.0.options.samples {
            samples.probes(&progress.snapshot());
        }
        findings
    }

    /// Lists clouds and clusters, and stores their states after the observations.
    async fn list_clouds(
        &self,
        scan: Uuid,
        spec: &WatchSpec,
        stop: &CancellationToken,
    ) -> Result<(Findings, IncompleteSources), RunInterruption> {
        let store = &self.0.store;
        let clouds = self.0.environment.clouds(spec, store).await.map_err(RunInterruption::Failed)?;
        let Some(Clouds { sources, observer }) = clouds else { return Ok(Default::default()) };
        let states = source_states(store, &sources).await?;
        let listing = stop.child_token();
        let _ended = listing.clone().drop_guard();
        let CloudRun { observations, ended } =
            observe(sources, states, LIST_LIMIT, observer, listing.clone());
        let findings = self.gather(scan, observations, &listing, stop).await?;
        let listed = match ended.await {
            Ok(listed) => listed.map_err(|error| RunInterruption::Failed(chain(&error)))?,
            Err(error) => return Err(RunInterruption::Failed(chain(&error))),
        };
        keep(store, &listed, self.0.clock.now_us()).await?;
        let mut not_listed = IncompleteSources::default();
        for failure in listed.iter().flat_map(Listed::failures) {
            not_listed.count += 1;
            if not_listed.first.len() < FAILURES_SHOWN {
                not_listed.first.push(failure);
            }
        }
        not_listed.not_read = listed.iter().flat_map(Listed::remark_texts).take(FAILURES_SHOWN).collect();
        Ok((findings, not_listed))
    }

    /// Records observations. Returns the number of endpoints by the severity of their worst finding. `probing` stops the scan or
    /// listing.
    async fn gather(
        &self,
        scan: Uuid,
        mut observations: mpsc::Receiver<Observation>,
        probing: &CancellationToken,
        stop: &CancellationToken,
    ) -> Result<Findings, RunInterruption> {
        let (store, options) = (self.0.store.clone(), &self.0.options);
        let mut recording = Recording::start(store, scan, options.retry_timeout, options.samples.as_ref());
        let mut findings = Findings::new();
        while let Some(observation) = observations.recv().await {
            if let Some(severity) = observation.severity() {
                *findings.entry(severity.name().to_owned()).or_insert(0) += 1;
            }
            let detail = self.0.environment.detail(&observation);
            if !recording.record(&observation, detail, stop.cancelled()).await {
                probing.cancel();
                break;
            }
        }
        if stop.is_cancelled() {
            // The node that continues the run repeats the probes whose observations were not stored.
            drop(recording.finish(ScanEnd::Interrupted).await);
            return Err(RunInterruption::Cancelled);
        }
        match recording.finish(ScanEnd::Complete).await {
            Ok(_) => Ok(findings),
            Err(error) => Err(RunInterruption::Failed(chain(&error))),
        }
    }

    /// Ends the run, writes its event and plans the next run, in one transaction. Does nothing when another node has the run.
    async fn end(
        &self,
        claim: RunClaim,
        scan: Option<Uuid>,
        result: Result<WatchCounts, String>,
    ) -> Result<(), StoreError> {
        let ended_at_us = self.0.clock.now_us();
        let write = self.0.store.write("watch_end", move |tx| {
            async move {
                let Some(row) = watch(tx, claim.id).await? else { return Ok(None) };
                let (settings, planned) = (&row.settings, row.times.planned_at_us);
                let (interval, jitter) = (settings.interval_us, settings.jitter_us);
                let outcome = if result.is_ok() { WatchOutcome::Finished } else { WatchOutcome::Failed };
                let end = WatchEnd {
                    scan,
                    ended_at_us,
                    outcome,
                    error: result.as_ref().err().cloned(),
                    // Members in alphabetical order, as in the event.
                    counts: result.as_ref().ok().map(|counts| json!(counts).to_string()),
                    times: schedule::next(claim.id, planned, interval, jitter, ended_at_us),
                };
                let is_end = end_watch(tx, claim.id, claim.node, claim.claims, &end).await?;
                if is_end {
                    emit(tx, vec![end_event(&row, &end, result.ok())]).await?;
                }
                Ok(is_end.then_some((row.settings.name, end)))
            }
            .boxed()
        });
        if let Some((watch, end)) = write.await? {
            spans::watch_ended(&watch, &end);
        }
        Ok(())
    }
}

fn end_event(row: &WatchRow, end: &WatchEnd, counts: Option<WatchCounts>) -> NewEvent {
    let (name, group) = (row.settings.name.clone(), row.settings.group.clone());
    let run = WatchRun { name, group, scan: end.scan, error: end.error.clone(), counts };
    let event = if run.error.is_some() { Event::WatchFailed(run) } else { Event::WatchFinished(run) };
    new_event(end.ended_at_us, format!("watch/{}", row.id), &event)
}
