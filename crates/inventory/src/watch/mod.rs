//! Watches: scans that a running server makes by itself, when they are due.
//!
//! [`Watches`] keeps them and, in [`Watches::run`], makes their runs. Any number of nodes may: a run belongs to who holds
//! its lease. A node that stops gives its runs back, a node that dies loses them when their leases end, and anyone who takes
//! a run up goes on with its scan, leaving out the endpoints already stored. A run over many endpoints is cut into parts,
//! which nodes share in the same way.

mod claims;
mod news;
mod outcome;
mod parts;
mod run;
mod runner;
mod schedule;
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
use store::{AuditEvent, Clock, Cursor, Page, Store, StoreError, audit, emit, new_event};
use uuid::Uuid;

pub use news::TOLD_AT_ONCE;
pub use runner::Runner;

use crate::history::Samples;
use crate::sources::Observer;
use crate::tables;
use crate::tables::watch_parts::RunProgress;
use crate::tables::watches::{
    WATCHES_MAX, WatchInsertion, WatchRow, WatchSettings, WatchTimes, delete_watch, insert_watch,
    update_watch, want_watch,
};

/// The shortest interval: below it a scan would hardly be over before the next.
pub const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// The longest interval: a year.
pub const INTERVAL_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Targets of one watch, as they are written: they are one row's text.
pub const TARGETS_MAX: usize = 10_000;
/// Bytes of one target: a network with a dozen server names fits. Of a source's name too.
pub const TARGET_BYTES_MAX: usize = 1_024;
/// Names of sources of one watch.
pub const SOURCES_MAX: usize = 1_000;
/// Endpoints that the targets of one watch stand for: a sixteenth of the IPv4 network 10.0.0.0/8. What is larger is
/// better several watches, whose runs nodes share.
pub const ENDPOINTS_MAX: u64 = 1_048_576;
/// Characters of a name.
pub const NAME_MAX: usize = 64;

/// Runs at once on a node: each has an engine, a writer and its descriptors; more gain nothing that a scan's own
/// concurrency does not.
const AT_ONCE: usize = 2;

/// Endpoints of a part of a run: some ten seconds of one node, so that what a dead one was at is soon made up for; and
/// 64 parts are the largest watch.
const PART_ENDPOINTS: u64 = 16_384;

/// Targets and options of a watch.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchSpec {
    /// As `bulla scan` takes them, but of the network only: no files, no lists, no standard input.
    pub targets: Vec<String>,
    /// Clouds and clusters, by name, by provider, or `all` ([`CloudSettings::named`](clouds::CloudSettings::named)).
    pub sources: Vec<String>,
    /// Ports for targets that name none, as `443,8443,9000-9010`.
    pub ports: Option<String>,
    /// Server names to ask for, each in turn, at targets that name none.
    pub server_names: Vec<String>,
    /// Protocol spoken before TLS at targets without a scheme.
    pub starttls: Option<String>,
    /// Whether every address of a name is an endpoint of its own.
    pub all_addresses: bool,
}

/// A watch to make, or what one shall be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewWatch {
    /// Unique: ASCII letters, digits, `.`, `_` and `-`, at most [`NAME_MAX`].
    pub name: String,
    /// The same characters; may be empty.
    pub group: String,
    /// Targets and options of the scan.
    pub spec: WatchSpec,
    /// From one run to the next.
    pub interval: Duration,
    /// How much later a run may begin; at most the interval.
    pub jitter: Duration,
    /// Whether runs begin.
    pub enabled: bool,
}

/// How far a run under way has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Progress of the run.
    pub done: RunProgress,
    /// Endpoints that are looked at in all; `None` when that is not known beforehand.
    pub expected: Option<u64>,
}

/// What a run needs and a watch does not say: resolver, trust and limits of this process.
pub trait Kit: Send + Sync + 'static {
    /// The targets of a spec; refuses what is not understood or not of the network.
    ///
    /// # Errors
    /// What is wrong, for people.
    fn targets(&self, spec: &WatchSpec) -> Result<Targets, String>;

    /// A scanner for a spec.
    ///
    /// # Errors
    /// What is wrong, for people.
    fn scanner(&self, spec: &WatchSpec) -> Result<Scanner, String>;

    /// Refuses sources that this process is not told how to reach: any, unless a kit says otherwise.
    ///
    /// # Errors
    /// What is wrong, for people.
    fn check_sources(&self, spec: &WatchSpec) -> Result<(), String> {
        if spec.sources.is_empty() { Ok(()) } else { Err("no clouds or clusters are configured".to_owned()) }
    }

    /// The sources of a spec, ready to be listed; `store` has what they call unchanged.
    ///
    /// # Errors
    /// What is wrong, for people.
    fn clouds<'a>(
        &'a self,
        spec: &'a WatchSpec,
        store: &'a Store,
    ) -> BoxFuture<'a, Result<Option<Clouds>, String>> {
        let _ = store;
        std::future::ready(self.check_sources(spec).map(|()| None)).boxed()
    }

    /// What the scan was asked for, JSON, as the inventory keeps it with every scan.
    fn asked(&self, spec: &WatchSpec) -> String;

    /// What the inventory's columns do not say of an observation, a JSON object.
    fn detail(&self, observation: &Observation) -> String;
}

/// Sources ready to be listed, and who judges what they keep.
pub struct Clouds {
    /// Each once.
    pub sources: Vec<Arc<dyn CloudSource>>,
    /// By the rules of the watch's looks.
    pub observer: Observer,
}

/// Bounds of the runs on this node.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Runs at once; at least 1.
    pub at_once: usize,
    /// How long a database may be away before a run is given up.
    pub patience: Duration,
    /// Endpoints of a part: a run over more is cut into parts that nodes share.
    pub part_endpoints: u64,
    /// Samples of the runs' durations.
    pub samples: Option<Samples>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            at_once: AT_ONCE,
            patience: store::WriterOptions::default().patience,
            part_endpoints: PART_ENDPOINTS,
            samples: None,
        }
    }
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The database's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Caller: correct the named value.
    #[error("{0}")]
    Invalid(String),
    /// There is none.
    #[error("watch {0}")]
    Unknown(String),
    /// Caller: choose another name.
    #[error("another watch is called {0}")]
    Taken(String),
    /// Operator: remove some, or put targets together.
    #[error("there are {WATCHES_MAX} watches already")]
    Full,
    /// Caller: another request changed it first; read it again.
    #[error("another request changed the watch: read it again")]
    Changed,
    /// Caller: resume it first, or wait for the run's end.
    #[error("the watch is paused, or a run is under way")]
    NotNow,
}

/// The watches of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Watches(Arc<WatchService>);

struct WatchService {
    store: Store,
    clock: Clock,
    kit: Box<dyn Kit>,
    options: WatchOptions,
}

impl Watches {
    /// Opens them; nothing runs before [`Watches::run`].
    pub fn new(store: Store, clock: Clock, kit: impl Kit, options: WatchOptions) -> Self {
        Self(Arc::new(WatchService { store, clock, kit: Box::new(kit), options }))
    }

    /// A page of the watches, by name.
    ///
    /// # Errors
    /// Those of the database; a cursor of another listing.
    #[crate::boxed]
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WatchRow>, WatchError> {
        Ok(tables::Watches::of(&self.0.store).page(after, limit).await?)
    }

    /// A watch by its identity or name.
    ///
    /// # Errors
    /// [`WatchError::Unknown`]; those of the database.
    #[crate::boxed]
    pub async fn get(&self, named: &str) -> Result<WatchRow, WatchError> {
        let found = match named.parse::<Uuid>() {
            Ok(id) => tables::Watches::of(&self.0.store).get(id).await?,
            Err(_) => tables::Watches::of(&self.0.store).named(named).await?,
        };
        found.ok_or_else(|| WatchError::Unknown(named.to_owned()))
    }

    /// Makes a watch; its first run is due at once, as far as it is enabled.
    ///
    /// # Errors
    /// [`WatchError::Invalid`], [`WatchError::Taken`], [`WatchError::Full`]; those of the database.
    #[crate::boxed]
    pub async fn create(&self, new: &NewWatch, actor: &str) -> Result<WatchRow, WatchError> {
        let settings = self.checked(new)?;
        let (id, at_us) = (Uuid::now_v7(), self.0.clock.now_us());
        let times = WatchTimes { planned_at_us: at_us, next_run_at_us: at_us };
        let event = self.event(actor, "watch.create", id, details(new));
        let made = self
            .0
            .store
            .write("watch_create", move |tx| {
                async move {
                    let made = insert_watch(tx, id, &settings, times, at_us).await?;
                    if made == WatchInsertion::Made {
                        audit(tx, vec![event]).await?;
                    }
                    Ok(made)
                }
                .boxed()
            })
            .await?;
        match made {
            WatchInsertion::Made => self.get(&id.to_string()).await,
            WatchInsertion::Taken => Err(WatchError::Taken(new.name.clone())),
            WatchInsertion::Full => Err(WatchError::Full),
        }
    }

    /// Changes a watch, if its revision is still that of the caller. A run in progress keeps its settings.
    ///
    /// # Errors
    /// [`WatchError::Invalid`], [`WatchError::Taken`], [`WatchError::Changed`]; those of the database.
    #[crate::boxed]
    pub async fn update(&self, row: &WatchRow, new: &NewWatch, actor: &str) -> Result<WatchRow, WatchError> {
        let settings = self.checked(new)?;
        let event = self.event(actor, "watch.update", row.id, details(new));
        self.change(row, settings, event).await
    }

    /// Pauses a watch, as it was read. A run under way goes on to its end.
    ///
    /// # Errors
    /// [`WatchError::Changed`]; those of the database.
    #[crate::boxed]
    pub async fn pause(&self, row: &WatchRow, actor: &str) -> Result<WatchRow, WatchError> {
        self.set_enabled(row, false, actor).await
    }

    /// Resumes a watch, as it was read.
    ///
    /// # Errors
    /// [`WatchError::Changed`]; those of the database.
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

    /// How far the runs under way of these watches have come, by watch: one statement.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Endpoints that a run will scan; unknown for clouds before their listing.
    fn expected(&self, row: &WatchRow) -> Option<u64> {
        let spec: WatchSpec = serde_json::from_str(&row.settings.spec).ok()?;
        if spec.sources.is_empty() { self.0.kit.targets(&spec).ok()?.expected() } else { None }
    }

    /// Removes a watch, and ends what was told of its endpoints. What its scans found stays; a run under way is cancelled at
    /// the next look at its lease.
    ///
    /// # Errors
    /// [`WatchError::Unknown`]; those of the database.
    #[crate::boxed]
    pub async fn delete(&self, row: &WatchRow, actor: &str) -> Result<(), WatchError> {
        let id = row.id;
        // Before, so that a crash leaves nothing told without a watch; after, for what a run under way has told meanwhile.
        self.tell_of_unseen(row, None).await?;
        let event = self.event(actor, "watch.delete", id, json!({"name": row.settings.name}));
        let removed = Event::WatchRemoved(WatchRemoved { name: row.settings.name.clone() });
        let removed = new_event(self.0.clock.now_us(), format!("watch/{id}"), &removed);
        let gone = self.0.store.write("watch_delete", move |tx| {
            async move {
                let gone = delete_watch(tx, id).await?;
                if gone {
                    audit(tx, vec![event]).await?;
                    emit(tx, vec![removed]).await?;
                }
                Ok(gone)
            }
            .boxed()
        });
        if !gone.await? {
            return Err(WatchError::Unknown(row.settings.name.clone()));
        }
        Ok(self.tell_of_unseen(row, None).await?)
    }

    /// Makes a watch due now. The planned times stay as they are.
    ///
    /// # Errors
    /// [`WatchError::NotNow`] when it is paused or runs; those of the database.
    #[crate::boxed]
    pub async fn run_now(&self, row: &WatchRow, actor: &str) -> Result<(), WatchError> {
        let (id, at_us) = (row.id, self.0.clock.now_us());
        let event = self.event(actor, "watch.run", id, json!({"name": row.settings.name}));
        let wanted = self.0.store.write("watch_run", move |tx| {
            async move {
                let wanted = want_watch(tx, id, at_us).await?;
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
                "a name has 1 to {NAME_MAX} letters, digits, '.', '_' or '-', and is no UUID"
            ));
        }
        if !is_name(&new.group) {
            return invalid(format!("a group has at most {NAME_MAX} letters, digits, '.', '_' or '-'"));
        }
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&new.interval) {
            let (least, most) = (INTERVAL_MIN.as_secs(), INTERVAL_MAX.as_secs());
            return invalid(format!("the interval is {least} to {most} seconds"));
        }
        if new.jitter > new.interval {
            return invalid("the jitter is at most the interval".to_owned());
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
            return Err("a watch has at least one target or source".to_owned());
        }
        if spec.targets.len() > TARGETS_MAX {
            return Err(format!("a watch has at most {TARGETS_MAX} targets"));
        }
        if spec.targets.iter().any(|target| target.len() > TARGET_BYTES_MAX) {
            return Err(format!("a target has at most {TARGET_BYTES_MAX} octets"));
        }
        let endpoints = self.0.kit.targets(spec)?.expected();
        if endpoints.is_none_or(|endpoints| endpoints > ENDPOINTS_MAX) {
            return Err(format!(
                "the targets stand for more than {ENDPOINTS_MAX} endpoints: make several watches"
            ));
        }
        Ok(())
    }

    fn check_sources(&self, spec: &WatchSpec) -> Result<(), String> {
        if spec.sources.len() > SOURCES_MAX {
            return Err(format!(
                "a watch has at most {SOURCES_MAX} sources; a provider's word or all stands for many"
            ));
        }
        if spec.sources.iter().any(|source| source.is_empty() || source.len() > TARGET_BYTES_MAX) {
            return Err(format!("a source has 1 to {TARGET_BYTES_MAX} octets"));
        }
        self.0.kit.check_sources(spec)
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
