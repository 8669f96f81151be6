//! Watches: scans that a server repeats on a schedule.
//!
//! [`Watches`] manages the watches; [`Watches::run`] executes the due ones. Any number of nodes can share the work: a run belongs
//! to the node that holds its lease. A node that shuts down releases its runs; the leases of a crashed node expire. The next node
//! continues the scan and skips the endpoints already stored. A run over many endpoints is split into parts, which nodes share in
//! the same way.

mod claims;
mod news;
mod outcome;
mod parts;
mod run;
mod runner;
mod schedule;
mod spans;
mod tell;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clouds::CloudSource;
use events::{Event, WatchRemoved};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use scan::{Observation, Scanner, Targets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::Shared;
use store::{AuditEvent, Clock, Cursor, Page, Store, StoreError, audit, emit, new_event};
use uuid::Uuid;

pub use news::NOTICES_MAX;
pub use runner::Runner;

use crate::history::Samples;
use crate::sources::Observer;
use crate::tables;
use crate::tables::watch_parts::RunProgress;
use crate::tables::watches::{
    WATCHES_MAX, WatchInsertion, WatchRow, WatchSettings, WatchTimes, delete_watch, insert_watch,
    set_watch_due, update_watch,
};

/// Minimum interval of a watch. With a shorter interval, most scans would still run when the next one is due.
pub const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Maximum interval of a watch: one year.
pub const INTERVAL_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Maximum targets of one watch, as configured: they are stored in one row.
pub const TARGETS_MAX: usize = 10_000;
/// Maximum bytes of a target: a network with a dozen server names fits. Also the limit of source names.
pub const TARGET_BYTES_MAX: usize = 1_024;
/// Maximum source names of one watch.
pub const SOURCES_MAX: usize = 1_000;
/// Maximum endpoints of one watch: a sixteenth of the network 10.0.0.0/8. Larger networks should be split into several watches,
/// whose runs nodes share.
pub const ENDPOINTS_MAX: u64 = 1_048_576;
/// Maximum characters of a watch name.
pub const NAME_MAX: usize = 64;

/// Maximum concurrent runs on a node. Each has an engine, a writer and sockets. More runs would not be faster, because a scan is
/// concurrent itself.
const AT_ONCE: usize = 2;

/// Number of endpoints in a part: about ten seconds of work for one node, so that the work of a crashed node is repeated quickly.
/// 64 parts cover the largest watch.
const PART_ENDPOINTS: u64 = 16_384;

/// Targets and options of a watch.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchSpec {
    /// Targets in the syntax of `bulla scan`, but network targets only: no files, lists or standard input.
    pub targets: Vec<String>,
    /// Clouds and clusters by name, by provider, or `all` ([`CloudSettings::named`](clouds::CloudSettings::named)).
    pub sources: Vec<String>,
    /// Ports of targets without a port, such as `443,8443,9000-9010`.
    pub ports: Option<String>,
    /// Server names for targets without one; each is requested separately.
    pub server_names: Vec<String>,
    /// STARTTLS protocol of targets without a scheme.
    pub starttls: Option<String>,
    /// Whether every address of a name is a separate endpoint.
    pub all_addresses: bool,
}

/// A watch to create, or the new settings of an existing watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewWatch {
    /// Unique name: ASCII letters, digits, `.`, `_` and `-`, at most [`NAME_MAX`].
    pub name: String,
    /// Group name, with the same limits as `name`; may be empty.
    pub group: String,
    /// Targets and options of the scan.
    pub spec: WatchSpec,
    /// Interval between runs.
    pub interval: Duration,
    /// Maximum delay of a run; at most the interval.
    pub jitter: Duration,
    /// Whether the watch is enabled; false: paused.
    pub enabled: bool,
}

/// Progress of a run, with the total number of endpoints if it is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Stored observations, and parts that are claimed or have ended.
    pub done: RunProgress,
    /// Total number of endpoints; `None` when it is not known in advance.
    pub expected: Option<u64>,
}

/// Process-wide dependencies of runs: resolver, trust and limits.
pub trait ScanEnvironment: Send + Sync + 'static {
    /// Parses the targets of a spec; rejects targets that are invalid or not on the network.
    ///
    /// # Errors
    /// A human-readable description.
    fn targets(&self, spec: &WatchSpec) -> Result<Targets, String>;

    /// Creates a scanner for a spec.
    ///
    /// # Errors
    /// A human-readable description.
    fn scanner(&self, spec: &WatchSpec) -> Result<Scanner, String>;

    /// Rejects sources that this process has no configuration for; the default implementation rejects all.
    ///
    /// # Errors
    /// A human-readable description.
    fn check_sources(&self, spec: &WatchSpec) -> Result<(), String> {
        if spec.sources.is_empty() { Ok(()) } else { Err("no clouds or clusters are configured".to_owned()) }
    }

    /// Prepares the sources of a spec for listing; `store` contains their unchanged certificates.
    ///
    /// # Errors
    /// A human-readable description.
    fn clouds<'a>(
        &'a self,
        spec: &'a WatchSpec,
        store: &'a Store,
    ) -> BoxFuture<'a, Result<Option<Clouds>, String>> {
        let _ = store;
        std::future::ready(self.check_sources(spec).map(|()| None)).boxed()
    }

    /// Waits for `pause` between two passes that send notices during a run.
    fn between_notices(&self, pause: Duration) -> BoxFuture<'_, ()> {
        tokio::time::sleep(pause).boxed()
    }

    /// Returns the parameters of the scan as JSON, which the inventory stores with every scan.
    fn scan_parameters(&self, spec: &WatchSpec) -> String;

    /// Returns the data of an observation that has no column in the inventory, as a JSON object.
    fn detail(&self, observation: &Observation) -> String;
}

/// Prepared sources, and the observer that judges their certificates.
pub struct Clouds {
    /// The sources, without duplicates.
    pub sources: Vec<Arc<dyn CloudSource>>,
    /// The observer, with the rules of the watch's scans.
    pub observer: Observer,
}

/// Limits of the runs on this node.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Maximum concurrent runs; at least 1.
    pub at_once: usize,
    /// Time for which the database may be unavailable before a run fails.
    pub retry_timeout: Duration,
    /// Number of endpoints in a part. A run with more endpoints is split into parts, which nodes share.
    pub part_endpoints: u64,
    /// Samples of the runs' durations.
    pub samples: Option<Samples>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            at_once: AT_ONCE,
            retry_timeout: store::WriterOptions::default().retry_timeout,
            part_endpoints: PART_ENDPOINTS,
            samples: None,
        }
    }
}

/// Reason why a request to the watches failed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A database error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request is invalid. Caller: correct the named value.
    #[error("{0}")]
    Invalid(String),
    /// The watch does not exist.
    #[error("there is no watch {0}")]
    Unknown(String),
    /// Another watch has the name. Caller: choose another name.
    #[error("another watch is called {0}")]
    Taken(String),
    /// There are too many watches. Operator: remove some, or combine targets.
    #[error("there are {WATCHES_MAX} watches already: remove or combine some")]
    Full,
    /// Another request changed the watch first. Caller: read it again.
    #[error("another request changed the watch: read it again")]
    Changed,
    /// The watch is paused or running. Caller: resume it, or wait for the run's end.
    #[error("the watch is paused, or a run is in progress")]
    NotNow,
}

/// Manages the watches of a cluster, and runs them on this node. Cheap to clone.
#[derive(Clone)]
pub struct Watches(Shared<WatchService>);

struct WatchService {
    store: Store,
    clock: Clock,
    environment: Box<dyn ScanEnvironment>,
    options: WatchOptions,
}

impl Watches {
    /// Creates the watches of `store`; no run starts before [`Watches::run`].
    pub fn new(store: Store, clock: Clock, environment: impl ScanEnvironment, options: WatchOptions) -> Self {
        Self(Shared::new(WatchService { store, clock, environment: Box::new(environment), options }))
    }

    /// Returns a page of the watches, in the order of their names.
    ///
    /// # Errors
    /// Database errors; a cursor of another listing.
    #[crate::boxed]
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WatchRow>, WatchError> {
        Ok(tables::Watches::of(&self.0.store).page(after, limit).await?)
    }

    /// Returns a watch by its id or name.
    ///
    /// # Errors
    /// [`WatchError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn get(&self, named: &str) -> Result<WatchRow, WatchError> {
        let found = match named.parse::<Uuid>() {
            Ok(id) => tables::Watches::of(&self.0.store).get(id).await?,
            Err(_) => tables::Watches::of(&self.0.store).named(named).await?,
        };
        found.ok_or_else(|| WatchError::Unknown(named.to_owned()))
    }

    /// Creates a watch; if it is enabled, its first run is due immediately.
    ///
    /// # Errors
    /// [`WatchError::Invalid`], [`WatchError::Taken`], [`WatchError::Full`]; database errors.
    #[crate::boxed]
    pub async fn create(&self, new: &NewWatch, actor: &str) -> Result<WatchRow, WatchError> {
        let settings = self.checked(new)?;
        let (id, at_us) = (Uuid::now_v7(), self.0.clock.now_us());
        let times = WatchTimes { planned_at_us: at_us, next_run_at_us: at_us };
        let event = self.event(actor, "watch.create", id, details(new));
        let inserted = self
            .0
            .store
            .write("watch_create", move |tx| {
                async move {
                    let inserted = insert_watch(tx, id, &settings, times, at_us).await?;
                    if inserted == WatchInsertion::Made {
                        audit(tx, vec![event]).await?;
                    }
                    Ok(inserted)
                }
                .boxed()
            })
            .await?;
        match inserted {
            WatchInsertion::Made => self.get(&id.to_string()).await,
            WatchInsertion::Taken => Err(WatchError::Taken(new.name.clone())),
            WatchInsertion::Full => Err(WatchError::Full),
        }
    }

    /// Changes a watch, unless it changed since it was read. A run in progress keeps its settings.
    ///
    /// # Errors
    /// [`WatchError::Invalid`], [`WatchError::Taken`], [`WatchError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn update(&self, row: &WatchRow, new: &NewWatch, actor: &str) -> Result<WatchRow, WatchError> {
        let settings = self.checked(new)?;
        let event = self.event(actor, "watch.update", row.id, details(new));
        self.change(row, settings, event).await
    }

    /// Pauses a watch, unless it changed since it was read. A run in progress continues to its end.
    ///
    /// # Errors
    /// [`WatchError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn pause(&self, row: &WatchRow, actor: &str) -> Result<WatchRow, WatchError> {
        self.set_enabled(row, false, actor).await
    }

    /// Resumes a watch, unless it changed since it was read.
    ///
    /// # Errors
    /// [`WatchError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn resume(&self, row: &WatchRow, actor: &str) -> Result<WatchRow, WatchError> {
        self.set_enabled(row, true, actor).await
    }

    async fn set_enabled(&self, row: &WatchRow, enabled: bool, actor: &str) -> Result<WatchRow, WatchError> {
        let settings = WatchSettings { enabled, ..row.settings.clone() };
        let action = if enabled { "watch.resume" } else { "watch.pause" };
        let event = self.event(actor, action, row.id, json!({"name": settings.name}));
        self.change(row, settings, event).await
    }

    async fn change(
        &self,
        row: &WatchRow,
        settings: WatchSettings,
        event: AuditEvent,
    ) -> Result<WatchRow, WatchError> {
        let (id, revision, at_us) = (row.id, row.revision, self.0.clock.now_us());
        let (name, times) = (settings.name.clone(), schedule::changed(row, &settings, at_us));
        let changed = self.0.store.write("watch_change", move |tx| {
            async move {
                let changed = update_watch(tx, id, revision, &settings, times, at_us).await?;
                if changed {
                    audit(tx, vec![event]).await?;
                }
                Ok(changed)
            }
            .boxed()
        });
        match changed.await {
            Ok(true) => self.get(&id.to_string()).await,
            Ok(false) => Err(WatchError::Changed),
            Err(StoreError::Conflict { .. }) => Err(WatchError::Taken(name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a map from the IDs of these watches to the progress of their current runs. One statement.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn progress(&self, rows: &[WatchRow]) -> Result<HashMap<Uuid, Progress>, WatchError> {
        let scans: HashMap<Uuid, &WatchRow> =
            rows.iter().filter_map(|row| Some((row.run.as_ref()?.scan?, row))).collect();
        let now_us = self.0.clock.now_us();
        let found =
            tables::WatchParts::of(&self.0.store).progress(scans.keys().copied().collect(), now_us).await?;
        let of = |(scan, done): (Uuid, RunProgress)| {
            let row = scans.get(&scan)?;
            Some((row.id, Progress { done, expected: self.expected(row) }))
        };
        Ok(found.into_iter().filter_map(of).collect())
    }

    /// Returns the number of endpoints of a run; `None` for clouds, whose number is not known before their listing.
    fn expected(&self, row: &WatchRow) -> Option<u64> {
        let spec: WatchSpec = serde_json::from_str(&row.settings.spec).ok()?;
        if spec.sources.is_empty() { self.0.environment.targets(&spec).ok()?.expected() } else { None }
    }

    /// Deletes a watch, and ends the alerts about its endpoints. Its scan results stay; a run in progress is cancelled when its
    /// lease is next checked.
    ///
    /// # Errors
    /// [`WatchError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn delete(&self, row: &WatchRow, actor: &str) -> Result<(), WatchError> {
        let id = row.id;
        // Alerts are ended before the deletion, so that a crash leaves no alert without a watch. They are ended again after it,
        // because a run in progress may have opened new alerts.
        self.notify_unseen(row, None).await?;
        let event = self.event(actor, "watch.delete", id, json!({"name": row.settings.name}));
        let removed = Event::WatchRemoved(WatchRemoved { name: row.settings.name.clone() });
        let removed = new_event(self.0.clock.now_us(), format!("watch/{id}"), &removed);
        let deleted = self.0.store.write("watch_delete", move |tx| {
            async move {
                let deleted = delete_watch(tx, id).await?;
                if deleted {
                    audit(tx, vec![event]).await?;
                    emit(tx, vec![removed]).await?;
                }
                Ok(deleted)
            }
            .boxed()
        });
        if !deleted.await? {
            return Err(WatchError::Unknown(row.settings.name.clone()));
        }
        Ok(self.notify_unseen(row, None).await?)
    }

    /// Makes a watch due now. Its planned times do not change.
    ///
    /// # Errors
    /// [`WatchError::NotNow`] when it is paused or running; database errors.
    #[crate::boxed]
    pub async fn run_now(&self, row: &WatchRow, actor: &str) -> Result<(), WatchError> {
        let (id, at_us) = (row.id, self.0.clock.now_us());
        let event = self.event(actor, "watch.run", id, json!({"name": row.settings.name}));
        let wanted = self.0.store.write("watch_run", move |tx| {
            async move {
                let wanted = set_watch_due(tx, id, at_us).await?;
                if wanted {
                    audit(tx, vec![event]).await?;
                }
                Ok(wanted)
            }
            .boxed()
        });
        if wanted.await? { Ok(()) } else { Err(WatchError::NotNow) }
    }

    fn event(&self, actor: &str, action: &'static str, id: Uuid, details: Value) -> AuditEvent {
        AuditEvent {
            at_us: self.0.clock.now_us(),
            actor: actor.to_owned(),
            action,
            resource: format!("watch/{id}"),
            details,
        }
    }

    fn checked(&self, new: &NewWatch) -> Result<WatchSettings, WatchError> {
        let invalid = |why: String| Err(WatchError::Invalid(why));
        if new.name.is_empty() || !is_name(&new.name) || new.name.parse::<Uuid>().is_ok() {
            return invalid(format!(
                "a name must have 1 to {NAME_MAX} letters, digits, '.', '_' or '-', and must not be a UUID"
            ));
        }
        if !is_name(&new.group) {
            return invalid(format!("a group has at most {NAME_MAX} letters, digits, '.', '_' or '-'"));
        }
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&new.interval) {
            let (least, most) = (INTERVAL_MIN.as_secs(), INTERVAL_MAX.as_secs());
            return invalid(format!("the interval must be from {least} to {most} seconds"));
        }
        if new.jitter > new.interval {
            return invalid("the jitter must not exceed the interval".to_owned());
        }
        self.check_targets(&new.spec).map_err(WatchError::Invalid)?;
        self.check_sources(&new.spec).map_err(WatchError::Invalid)?;
        Ok(WatchSettings {
            name: new.name.clone(),
            group: new.group.clone(),
            spec: json!(new.spec).to_string(),
            interval_us: in_us(new.interval),
            jitter_us: in_us(new.jitter),
            enabled: new.enabled,
        })
    }

    fn check_targets(&self, spec: &WatchSpec) -> Result<(), String> {
        if spec.targets.is_empty() && spec.sources.is_empty() {
            return Err("a watch needs at least one target or source".to_owned());
        }
        if spec.targets.len() > TARGETS_MAX {
            return Err(format!("a watch has at most {TARGETS_MAX} targets"));
        }
        if spec.targets.iter().any(|target| target.len() > TARGET_BYTES_MAX) {
            return Err(format!("a target has at most {TARGET_BYTES_MAX} bytes"));
        }
        let endpoints = self.0.environment.targets(spec)?.expected();
        if endpoints.is_none_or(|endpoints| endpoints > ENDPOINTS_MAX) {
            return Err(format!(
                "the targets expand to more than {ENDPOINTS_MAX} endpoints: create several watches"
            ));
        }
        Ok(())
    }

    fn check_sources(&self, spec: &WatchSpec) -> Result<(), String> {
        if spec.sources.len() > SOURCES_MAX {
            return Err(format!(
                "a watch has at most {SOURCES_MAX} sources; a provider's name or `all` selects many sources"
            ));
        }
        if spec.sources.iter().any(|source| source.is_empty() || source.len() > TARGET_BYTES_MAX) {
            return Err(format!("a source must have 1 to {TARGET_BYTES_MAX} bytes"));
        }
        self.0.environment.check_sources(spec)
    }
}

fn details(new: &NewWatch) -> Value {
    json!({"name": new.name, "targets": new.spec.targets.len(), "sources": new.spec.sources, "interval_s": new.interval.as_secs(),
        "enabled": new.enabled})
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn in_us(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}
