//! Metrics of the estate: certificate expiry, runs of watches, and drift. The metrics are read from the inventory at an interval,
//! not at each scrape, and the number of time series is bounded. So neither scrapers nor a large estate cause much load.

use std::collections::HashSet;
use std::fmt::{Debug, Error, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inventory::history::{History, SeriesStatus as Measurement, Verdict};
use inventory::tables::watches::WatchRow;
use lifecycle::tables::managed::{ManagedFilter, ManagedOrder};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use store::{Clock, InventoryFilter, PrunedSoFar, Store, StoreError};
use tokio_util::sync::CancellationToken;
use x509::Fingerprint;

use super::metrics::gauge;

/// Interval between two reads: Prometheus' usual interval. Each read fetches three pages of rows.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of endpoints and managed certificates in the metrics, earliest expiry first. Later expiries are not urgent, and a
/// time series for each of a million certificates would overload Prometheus.
const SOONEST_MAX: usize = 500;
/// Maximum number of watches in the metrics: the first ones in the order of their names.
const WATCHES_MAX: usize = 1_000;
/// Maximum characters of a subject or name in a label.
const LABEL_MAX: usize = 128;

/// Labels of the expiry metrics of one certificate.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CertificateLabels {
    /// The name of the managed certificate, or the subject.
    name: String,
    issuer: String,
    /// The first 16 hexadecimal digits of the certificate's SHA-256.
    fingerprint: String,
    /// Source of the certificate: `managed` or `found`.
    source: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WatchLabel {
    watch: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct NoLabels {}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SeriesLabel {
    series: &'static str,
}

/// Start and end of a certificate's validity, Unix time.
#[derive(Clone, Copy)]
struct Validity {
    not_before: f64,
    not_after: f64,
}

impl Validity {
    fn of(not_before_us: i64, not_after_us: i64) -> Self {
        Self { not_before: not_before_us as f64 / 1e6, not_after: not_after_us as f64 / 1e6 }
    }
}

/// Certificates, watches and counters for the metrics, as last read from the database.
#[derive(Default)]
struct EstateSnapshot {
    certificates: Vec<(CertificateLabels, Validity)>,
    not_deployed: u64,
    watches: Vec<WatchRow>,
    observations: PrunedSoFar,
    now_us: i64,
}

/// The estate for metrics. Scrapes read a snapshot, which is refreshed at an interval.
#[derive(Clone)]
pub(super) struct Estate {
    store: Store,
    clock: Clock,
    history: History,
    snapshot: Arc<Mutex<EstateSnapshot>>,
}

impl Estate {
    pub(super) fn new(store: Store, clock: Clock, history: History) -> Self {
        Self { store, clock, history, snapshot: Arc::default() }
    }

    /// Reads the estate until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("estate");
        loop {
            match self.read().await {
                Ok(snapshot) => *self.snapshot() = snapshot,
                Err(error) => {
                    tracing::warn!(%error, "cannot compute the metrics of the estate; the previous values are reported")
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(REFRESH_INTERVAL) => {}
            }
        }
    }

    fn snapshot(&self) -> MutexGuard<'_, EstateSnapshot> {
        // Code that holds the lock does not panic, so the content is always consistent.
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self) -> Result<EstateSnapshot, StoreError> {
        let watches = inventory::tables::Watches::of(&self.store).page(None, WATCHES_MAX).await?.rows;
        let now_us = self.clock.now_us();
        let not_deployed = lifecycle::tables::Managed::of(&self.store).undeployed().await?;
        let observations = store::Inventory::of(&self.store).pruned_so_far().await?;
        let certificates = self.certificates().await?;
        Ok(EstateSnapshot { certificates, not_deployed, watches, observations, now_us })
    }

    /// Encodes three gauges for each measured series: its current value, the ratio to its value in the last seven days, and whether
    /// the series drifts.
    fn drifts(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let measured = self.history.seen();
        let of = |get: fn(&Measurement) -> Option<f64>| {
            let label = |one: &Measurement| SeriesLabel { series: one.judgement.series.name() };
            measured.iter().filter_map(|one| Some((label(one), get(one)?))).collect()
        };
        gauge(
            encoder,
            "bulla_drift_value",
            "Current value of a series: a median, or the fraction of failed calls",
            of(|one| one.judgement.value),
        )?;
        gauge(
            encoder,
            "bulla_drift_ratio",
            "Current value of a series divided by its value in the last seven days",
            of(|one| one.judgement.ratio()),
        )?;
        gauge(
            encoder,
            "bulla_drift",
            "Whether a series deviates too far from its previous value, 0 or 1",
            of(|one| Some(f64::from(u8::from(one.judgement.verdict == Verdict::Drifting)))),
        )
    }

    /// Returns the certificates that expire first: managed certificates, then certificates at endpoints. A managed certificate that
    /// is also at an endpoint is returned once.
    async fn certificates(&self) -> Result<Vec<(CertificateLabels, Validity)>, StoreError> {
        let (mut all, mut visited) = (Vec::new(), HashSet::new());
        let managed = ManagedFilter::default();
        let managed = lifecycle::tables::Managed::of(&self.store)
            .page(&managed, ManagedOrder::Expiry.into(), None, SOONEST_MAX)
            .await?;
        for row in managed.rows.into_iter().map(|view| view.row) {
            // Prefer the certificate that is served, if this was verified.
            let fingerprint = row.served.map(|served| served.fingerprint).or(row.fingerprint);
            if let Some(fingerprint) = fingerprint.filter(|one| visited.insert(*one)) {
                let labels = labels(&row.name, &row.issuer, fingerprint, "managed");
                let begins_us = row.served.map_or(row.not_before_us, |served| served.not_before_us);
                all.push((labels, Validity::of(begins_us, row.ends_at_us())));
            }
        }
        let answering = InventoryFilter { answering: Some(true), ..InventoryFilter::default() };
        let found = store::Inventory::of(&self.store).page(&answering, None, SOONEST_MAX).await?;
        for leaf in found.rows.into_iter().filter_map(|row| row.leaf) {
            if visited.insert(leaf.sha256) {
                let labels = labels(&leaf.subject, &leaf.issuer, leaf.sha256, "found");
                all.push((labels, Validity::of(leaf.not_before_us, leaf.not_after_us)));
            }
        }
        Ok(all)
    }
}

fn labels(name: &str, issuer: &str, sha256: [u8; 32], source: &'static str) -> CertificateLabels {
    let short = |text: &str| text.chars().take(LABEL_MAX).collect();
    let fingerprint = Fingerprint::from_bytes(sha256).to_string().chars().take(16).collect();
    CertificateLabels { name: short(name), issuer: short(issuer), fingerprint, source }
}

impl Debug for Estate {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Estate").finish_non_exhaustive()
    }
}

impl Collector for Estate {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.drifts(&mut encoder)?;
        let seen = self.snapshot();
        gauge(
            &mut encoder,
            "bulla_certificate_not_after_seconds",
            "End of validity of the certificates that expire soonest, Unix time",
            seen.certificates.iter().map(|(labels, one)| (labels.clone(), one.not_after)).collect(),
        )?;
        gauge(
            &mut encoder,
            "bulla_certificate_not_before_seconds",
            "Start of validity of the certificates that expire soonest, Unix time",
            seen.certificates.iter().map(|(labels, one)| (labels.clone(), one.not_before)).collect(),
        )?;
        gauge(
            &mut encoder,
            "bulla_certificates_not_deployed",
            "Managed certificates whose newest version is not deployed to every target",
            vec![(NoLabels {}, seen.not_deployed as f64)],
        )?;
        gauge(
            &mut encoder,
            "bulla_inventory_observations",
            "Stored observations of endpoints",
            vec![(NoLabels {}, seen.observations.stored as f64)],
        )?;
        gauge(
            &mut encoder,
            "bulla_inventory_pruned_observations",
            "Observations that the retention has removed since the database was created",
            vec![(NoLabels {}, seen.observations.removed as f64)],
        )?;
        let of = |get: fn(&WatchRow, i64) -> Option<f64>| {
            let label = |row: &WatchRow| WatchLabel { watch: row.settings.name.clone() };
            seen.watches.iter().filter_map(|row| Some((label(row), get(row, seen.now_us)?))).collect()
        };
        gauge(
            &mut encoder,
            "bulla_watch_last_run_timestamp_seconds",
            "Time at which a watch's last run ended",
            of(|row, _| Some(row.last.as_ref()?.ended_at_us as f64 / 1e6)),
        )?;
        gauge(
            &mut encoder,
            "bulla_watch_last_run_duration_seconds",
            "Duration of a watch's last run",
            of(|row, _| row.last.as_ref().map(|last| (last.ended_at_us - last.began_at_us) as f64 / 1e6)),
        )?;
        gauge(
            &mut encoder,
            "bulla_watch_last_run_failed",
            "Whether a watch's last run failed, 0 or 1",
            of(|row, _| row.last.as_ref().map(|last| f64::from(u8::from(last.error.is_some())))),
        )?;
        gauge(
            &mut encoder,
            "bulla_watch_lag_seconds",
            "Delay of a run of a watch that is due but has not started",
            of(|row, now_us| {
                let due = row.settings.enabled && row.run.is_none() && row.times.next_run_at_us <= now_us;
                Some(if due { (now_us - row.times.next_run_at_us) as f64 / 1e6 } else { 0.0 })
            }),
        )
    }
}
