//! The monitor: the role that RFC 6962 section 5.4 describes for a server that watches logs for certificates of its own domains.
//!
//! [`Monitor`] manages the watched domains. [`Monitor::run`] queries search services, follows logs, judges issuances, and reports
//! sources that lag. Any number of nodes can share one database: each search and each log belongs to the node that has its lease,
//! and one node at a time judges.
//!
//! Findings go to the outbox as events: `ct.unexpected_issuance`, `ct.log_inconsistent`, `ct.behind`, and the events that end them.

mod figures;
mod judging;
mod log_lists;
mod logs;
mod searches;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use events::{CtForgotten, CtIssuanceDecision, CtIssuanceExpected, CtLagEnded, CtLogConsistent, Event};
use futures_util::FutureExt;
use outbound::http::Client;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use shared::Shared;
use store::{AuditEvent, Clock, Cursor, Page, Store, StoreError, audit, emit, new_event};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use figures::{LogFigures, MonitorFigures, ServiceFigures};
pub use log_lists::LogLists;

use self::figures::Counters;
use super::domains::{DomainSet, registered_domain};
use super::follow::FollowOptions;
use super::issuance::{Decision, IssuerRule, Verdict};
use super::ledger::{GRACE, set_verdict};
use super::merkle::Hash;
use super::search::SearchService;
use crate::tables;
use crate::tables::{
    CT_DOMAINS_MAX, CtDomainInsertion, CtDomainRow, CtDomainSettings, CtFilter, CtIssuanceRow, CtLogRow,
    CtSearchRow, ct_issuance, delete_ct_domain, delete_ct_log, insert_ct_domain, make_ct_searches_due,
    seed_ct_searches, update_ct_domain,
};

/// Service name that represents all followed logs in a domain's list of services.
pub const LOGS: &str = "logs";
/// Maximum allowed issuers of one domain.
pub const ALLOWED_MAX: usize = 64;
/// Longest text of an allowed issuer in bytes: a distinguished name fits.
pub const ALLOWED_BYTES_MAX: usize = 256;
/// Longest reason in bytes for a decision on an issuance.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Maximum number of logs that run a step concurrently on a node. Each may take some megabytes of tiles
/// ([`FollowOptions::tiles_at_once`]).
const STEPS_AT_ONCE: usize = 4;
/// Domains on one page.
const PAGE: usize = 1_000;

/// Options of the Certificate Transparency monitor.
#[derive(Clone, Debug)]
pub struct MonitorOptions {
    /// Minimum interval between two searches for a domain; a service may require a longer one. A delay of up to a tenth of the
    /// interval is added. It is derived from a hash, so that domains that were added together are searched at different times.
    pub poll_every: Duration,
    /// Time for which an issuance waits for its verdict: see [`GRACE`].
    pub grace: Duration,
    /// Interval between two checkpoints of a log.
    pub checkpoint_every: Duration,
    /// Time for which a service or a log may fail or lag before an alert is raised.
    pub behind_after: Duration,
    /// Options for following logs; the merge delay comes from each log.
    pub follow: FollowOptions,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self {
            poll_every: Duration::from_secs(3_600),
            grace: GRACE,
            checkpoint_every: Duration::from_secs(60),
            // An outage of a service for less than six hours needs no alert.
            behind_after: Duration::from_secs(6 * 3_600),
            follow: FollowOptions::default(),
        }
    }
}

/// Configuration of a watched domain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NewDomain {
    /// The registered domain.
    pub name: String,
    /// Issuers that may issue for the domain.
    pub rule: IssuerRule,
    /// Services that watch the domain; may include [`LOGS`]. Empty: all.
    pub services: Vec<String>,
    /// Whether the domain is watched; false: paused.
    pub enabled: bool,
}

/// A person's decision on an issuance: expected or acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Review {
    /// The issuance is legitimate, and so are its renewals.
    Expected,
    /// The issuance is not legitimate, and a person has handled it.
    Acknowledged,
}

/// Reason why a request to the monitor failed.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// A database error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request is invalid. Caller: correct the named value.
    #[error("{0}")]
    Invalid(String),
    /// The domain, issuance or log does not exist.
    #[error("there is no {0}")]
    Unknown(String),
    /// The domain is already watched. Caller: change the existing entry instead.
    #[error("{0} is watched already")]
    Taken(String),
    /// Too many domains are watched. Operator: remove some.
    #[error("{CT_DOMAINS_MAX} domains are watched already: remove one first")]
    Full,
    /// Another request changed the domain first. Caller: read the domain again.
    #[error("another request changed the object: read it again")]
    Changed,
    /// The domain is paused, or its searches are in progress. Caller: resume it, or wait.
    #[error("cannot search for {0} now: the domain is paused, or its searches are already running")]
    NotNow(String),
    /// The issuance is expected or acknowledged, so no decision is needed.
    #[error("the issuance is already expected or acknowledged, so no decision is needed")]
    Decided,
}

/// The CT monitor of one node. Cheap to clone.
#[derive(Clone)]
pub struct Monitor(Shared<MonitorState>);

struct MonitorState {
    store: Store,
    clock: Clock,
    services: Vec<Arc<SearchService>>,
    http: Client,
    lists: LogLists,
    options: MonitorOptions,
    watched: RwLock<Arc<Watched>>,
    /// Notified when searches were made due on this node.
    wake: Notify,
    steps: Semaphore,
    counters: Mutex<Counters>,
}

/// The watched domains, as last read from the database.
struct Watched {
    /// Number of domains, sum of their revisions, and time of the last change, as read with the rules. If the stored values differ,
    /// the rules must be read again.
    stamp: (i64, i64, i64),
    /// All enabled domains.
    all: DomainSet,
    /// Enabled domains that are matched against logs.
    logs: DomainSet,
    /// Rules by domain.
    rules: HashMap<String, IssuerRule>,
}

impl Watched {
    fn rule(&self, domain: &str) -> IssuerRule {
        self.rules.get(domain).cloned().unwrap_or_default()
    }
}

impl Monitor {
    /// Opens the monitor. Sends no request before [`Monitor::run`].
    #[must_use]
    pub fn new(
        store: Store,
        clock: Clock,
        services: Vec<SearchService>,
        http: Client,
        lists: LogLists,
        options: MonitorOptions,
    ) -> Self {
        let watched = Watched {
            stamp: (-1, 0, 0),
            all: DomainSet::none(),
            logs: DomainSet::none(),
            rules: HashMap::new(),
        };
        Self(Shared::new(MonitorState {
            store,
            clock,
            services: services.into_iter().map(Arc::new).collect(),
            http,
            lists,
            options,
            watched: RwLock::new(Arc::new(watched)),
            wake: Notify::new(),
            steps: Semaphore::new(STEPS_AT_ONCE),
            counters: Mutex::default(),
        }))
    }

    /// Searches, follows logs and judges until `stop`; then releases its leases.
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("ct-monitor");
        tokio::join!(self.run_searches(&stop), self.follow(&stop), self.judge(&stop));
    }

    /// Returns counters of this process, and the state of searches and logs.
    #[must_use]
    pub fn figures(&self) -> MonitorFigures {
        self.0.counters.lock().figures(self.0.watched.read().all.len())
    }

    /// Returns the names of the sources that can watch a domain.
    #[must_use]
    pub fn services(&self) -> Vec<&str> {
        let searches = self.0.services.iter().map(|service| service.name());
        let logs = (!self.0.lists.is_empty()).then_some(LOGS);
        searches.chain(logs).collect()
    }

    /// Returns a page of the watched domains, sorted by name.
    ///
    /// # Errors
    /// Database errors; a cursor of another listing.
    #[crate::boxed]
    pub async fn domains(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtDomainRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).domains(after, limit).await?)
    }

    /// Returns a watched domain by its name.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn domain(&self, name: &str) -> Result<CtDomainRow, MonitorError> {
        let row = tables::Ct::of(&self.0.store).domain(&name.to_ascii_lowercase()).await?;
        row.ok_or_else(|| MonitorError::Unknown(format!("watched domain {name}")))
    }

    /// Returns the state of each service's search for a domain.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn searches_of(&self, domain: &str) -> Result<Vec<CtSearchRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).searches_of(domain).await?)
    }

    /// Returns a page of search states, sorted by domain and service.
    ///
    /// # Errors
    /// Database errors; a cursor of another listing.
    #[crate::boxed]
    pub async fn searches(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtSearchRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).searches(after, limit).await?)
    }

    /// Returns every log that was ever followed, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn logs(&self) -> Result<Vec<CtLogRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).logs().await?)
    }

    /// Returns a page of issuances, the most recently found first.
    ///
    /// # Errors
    /// Database errors; a cursor of another listing.
    #[crate::boxed]
    pub async fn issuances(
        &self,
        filter: &CtFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtIssuanceRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).issuances(filter, after, limit).await?)
    }

    /// Returns an issuance, the watched domains it matched, and its certificate or precertificate if stored.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn issuance(
        &self,
        id: Uuid,
    ) -> Result<(CtIssuanceRow, Vec<String>, Option<Vec<u8>>), MonitorError> {
        let store = &self.0.store;
        let row = tables::Ct::of(store).issuance(id).await?.ok_or_else(|| unknown_issuance(id))?;
        Ok((
            row,
            tables::Ct::of(store).issuance_domains(id).await?,
            tables::Ct::of(store).issuance_der(id).await?,
        ))
    }

    /// Starts watching a domain; its first searches are due immediately.
    ///
    /// # Errors
    /// [`MonitorError::Invalid`], [`MonitorError::Taken`], [`MonitorError::Full`]; database errors.
    #[crate::boxed]
    pub async fn watch(&self, new: &NewDomain, actor: &str) -> Result<CtDomainRow, MonitorError> {
        let name = canonical_domain(&new.name)?;
        let settings = self.checked(new)?;
        let at_us = self.0.clock.now_us();
        let event = self.audited(actor, "ct.watch", format!("ct-domain/{name}"), details(new));
        let services = self.service_names();
        let insertion = {
            let name = name.clone();
            self.0.store.write("ct_watch", move |tx| {
                async move {
                    let insertion = insert_ct_domain(tx, &name, &settings, at_us).await?;
                    if insertion == CtDomainInsertion::Made {
                        for service in &services {
                            seed_ct_searches(tx, service, Some(&name), at_us).await?;
                        }
                        audit(tx, vec![event]).await?;
                    }
                    Ok(insertion)
                }
                .boxed()
            })
        };
        match insertion.await? {
            CtDomainInsertion::Made => self.notify_and_reload(&name).await,
            CtDomainInsertion::Exists => Err(MonitorError::Taken(name)),
            CtDomainInsertion::Full => Err(MonitorError::Full),
        }
    }

    /// Changes the settings of a watched domain, unless the domain was changed since `row` was read. The name cannot be changed.
    ///
    /// # Errors
    /// [`MonitorError::Invalid`], [`MonitorError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn change(
        &self,
        row: &CtDomainRow,
        new: &NewDomain,
        actor: &str,
    ) -> Result<CtDomainRow, MonitorError> {
        let settings = self.checked(new)?;
        self.put(row, settings, "ct.update", details(new), actor).await
    }

    /// Pauses a domain, unless it changed since `row` was read. Searches in progress continue to their end.
    ///
    /// # Errors
    /// [`MonitorError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn pause(&self, row: &CtDomainRow, actor: &str) -> Result<CtDomainRow, MonitorError> {
        self.set_enabled(row, false, actor).await
    }

    /// Resumes a domain, unless it changed since `row` was read.
    ///
    /// # Errors
    /// [`MonitorError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn resume(&self, row: &CtDomainRow, actor: &str) -> Result<CtDomainRow, MonitorError> {
        self.set_enabled(row, true, actor).await
    }

    async fn set_enabled(
        &self,
        row: &CtDomainRow,
        enabled: bool,
        actor: &str,
    ) -> Result<CtDomainRow, MonitorError> {
        let (rule, services) = (row.rule.clone(), row.services.clone());
        let action = if enabled { "ct.resume" } else { "ct.pause" };
        self.put(row, CtDomainSettings { rule, enabled, services }, action, json!({}), actor).await
    }

    async fn put(
        &self,
        row: &CtDomainRow,
        settings: CtDomainSettings,
        action: &'static str,
        details: Value,
        actor: &str,
    ) -> Result<CtDomainRow, MonitorError> {
        let (name, revision, at_us) = (row.name.clone(), row.revision, self.0.clock.now_us());
        let event = self.audited(actor, action, format!("ct-domain/{name}"), details);
        let services = self.service_names();
        let changed = self.0.store.write("ct_change", move |tx| {
            async move {
                let changed = update_ct_domain(tx, &name, &settings, at_us, revision).await?;
                if changed {
                    for service in &services {
                        seed_ct_searches(tx, service, Some(&name), at_us).await?;
                    }
                    audit(tx, vec![event]).await?;
                }
                Ok(changed)
            }
            .boxed()
        });
        if changed.await? { self.notify_and_reload(&row.name).await } else { Err(MonitorError::Changed) }
    }

    async fn notify_and_reload(&self, name: &str) -> Result<CtDomainRow, MonitorError> {
        self.0.wake.notify_waiters();
        self.domain(name).await
    }

    /// Stops watching a domain. Its issuances stay in the database; unexpected ones no longer need a decision.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn unwatch(&self, row: &CtDomainRow, actor: &str) -> Result<(), MonitorError> {
        let name = row.name.clone();
        let event = self.audited(actor, "ct.unwatch", format!("ct-domain/{name}"), json!({}));
        let deleted = self.0.store.write("ct_unwatch", move |tx| {
            async move {
                let deleted = delete_ct_domain(tx, &name).await?;
                if deleted {
                    audit(tx, vec![event]).await?;
                }
                Ok(deleted)
            }
            .boxed()
        });
        if deleted.await? {
            Ok(())
        } else {
            Err(MonitorError::Unknown(format!("watched domain {}", row.name)))
        }
    }

    /// Makes a domain's searches due now.
    ///
    /// # Errors
    /// [`MonitorError::NotNow`] when the domain is paused or no search can be made due; database errors.
    #[crate::boxed]
    pub async fn run_searches_now(&self, row: &CtDomainRow, actor: &str) -> Result<(), MonitorError> {
        let (name, at_us) = (row.name.clone(), self.0.clock.now_us());
        if !row.enabled {
            return Err(MonitorError::NotNow(name));
        }
        let event = self.audited(actor, "ct.run", format!("ct-domain/{name}"), json!({}));
        let due = self.0.store.write("ct_run", move |tx| {
            async move {
                let due = make_ct_searches_due(tx, &name, at_us).await?;
                if due > 0 {
                    audit(tx, vec![event]).await?;
                }
                Ok(due)
            }
            .boxed()
        });
        if due.await? == 0 {
            return Err(MonitorError::NotNow(row.name.clone()));
        }
        self.0.wake.notify_waiters();
        Ok(())
    }

    /// Marks an issuance as expected or acknowledged. Its alert ends.
    ///
    /// # Errors
    /// [`MonitorError::Invalid`] for an invalid reason, [`MonitorError::Unknown`], [`MonitorError::Decided`]; database errors.
    #[crate::boxed]
    pub async fn decide(
        &self,
        id: Uuid,
        review: Review,
        reason: &str,
        actor: &str,
    ) -> Result<CtIssuanceRow, MonitorError> {
        let reason = reason.trim();
        if reason.is_empty() || reason.len() > REASON_BYTES_MAX {
            return Err(MonitorError::Invalid(format!("a reason must have 1 to {REASON_BYTES_MAX} bytes")));
        }
        let at_us = self.0.clock.now_us();
        let decision =
            Decision { by: actor.to_owned(), reason: reason.to_owned(), at: at_us.div_euclid(1_000_000) };
        let alert_event = CtIssuanceDecision { detail: reason.to_owned() };
        let (verdict, action, alert_event) = match review {
            Review::Expected => {
                let alert_event = Event::CtIssuanceExpected(CtIssuanceExpected::Decided(alert_event));
                (Verdict::Accepted(decision), "ct.expect", alert_event)
            }
            Review::Acknowledged => (
                Verdict::Acknowledged(decision),
                "ct.acknowledge",
                Event::CtIssuanceAcknowledged(alert_event),
            ),
        };
        let subject = format!("ct-issuance/{id}");
        let event = self.audited(actor, action, subject.clone(), json!({"reason": reason}));
        let alert_event = new_event(at_us, subject, &alert_event);
        let decided = self.0.store.write("ct_decide", move |tx| {
            async move {
                let moved = set_verdict(tx, &[id], &verdict).await?;
                if !moved.is_empty() {
                    audit(tx, vec![event]).await?;
                    emit(tx, vec![alert_event]).await?;
                }
                Ok((moved.len(), ct_issuance(tx, id).await?))
            }
            .boxed()
        });
        match decided.await? {
            (_, None) => Err(unknown_issuance(id)),
            (0, Some(_)) => Err(MonitorError::Decided),
            (_, Some(row)) => Ok(row),
        }
    }

    /// Deletes the stored position of a log, so that the log is followed from its current end. Use this for a log that no longer
    /// exists, or for a log that has forked but is to be trusted anyway.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn forget_log(&self, log_id: Hash, actor: &str) -> Result<(), MonitorError> {
        let subject = log_subject(&log_id);
        let event = self.audited(actor, "ct.forget_log", subject.clone(), json!({}));
        let alert_event = [
            Event::CtLogConsistent(CtLogConsistent::Forgotten(CtForgotten {})),
            Event::CtCaughtUp(CtLagEnded::Forgotten(CtForgotten {})),
        ];
        let alert_event = alert_event.map(|event| new_event(self.0.clock.now_us(), subject.clone(), &event));
        let deleted = self.0.store.write("ct_forget_log", move |tx| {
            async move {
                let deleted = delete_ct_log(tx, log_id).await?;
                if deleted {
                    audit(tx, vec![event]).await?;
                    emit(tx, alert_event.to_vec()).await?;
                }
                Ok(deleted)
            }
            .boxed()
        });
        if deleted.await? { Ok(()) } else { Err(MonitorError::Unknown("such log".to_owned())) }
    }

    fn service_names(&self) -> Vec<String> {
        self.0.services.iter().map(|service| service.name().to_owned()).collect()
    }

    fn audited(&self, actor: &str, action: &'static str, resource: String, details: Value) -> AuditEvent {
        AuditEvent { at_us: self.0.clock.now_us(), actor: actor.to_owned(), action, resource, details }
    }

    fn checked(&self, new: &NewDomain) -> Result<CtDomainSettings, MonitorError> {
        let invalid = |why: String| Err(MonitorError::Invalid(why));
        let allowed = &new.rule.allowed;
        let fits = |word: &String| !word.trim().is_empty() && word.len() <= ALLOWED_BYTES_MAX;
        if allowed.len() > ALLOWED_MAX || !allowed.iter().all(fits) {
            return invalid(format!("at most {ALLOWED_MAX} issuers, of 1 to {ALLOWED_BYTES_MAX} bytes each"));
        }
        if new.rule.trust_allowed && allowed.is_empty() {
            return invalid("trust_issuers needs a list of allowed issuers in `issuers`".to_owned());
        }
        let configured = self.services();
        if let Some(unknown) = new.services.iter().find(|name| !configured.contains(&name.as_str())) {
            let configured = if configured.is_empty() { "none".to_owned() } else { configured.join(", ") };
            return invalid(format!(
                "unknown CT search service {unknown:?}; configured services: {configured}"
            ));
        }
        let mut services = new.services.clone();
        services.sort_unstable();
        services.dedup();
        Ok(CtDomainSettings { rule: json!(new.rule).to_string(), enabled: new.enabled, services })
    }

    /// Returns the watched domains; reads them again if they have changed.
    async fn watched(&self) -> Result<Arc<Watched>, StoreError> {
        let stamp = tables::Ct::of(&self.0.store).domains_stamp().await?;
        let known = self.0.watched.read().clone();
        if known.stamp == stamp {
            return Ok(known);
        }
        let (mut all, mut logs, mut rules) = (Vec::new(), Vec::new(), HashMap::new());
        let mut after = None;
        loop {
            let page = tables::Ct::of(&self.0.store).domains(after.as_ref(), PAGE).await?;
            for row in page.rows {
                let rule: IssuerRule = serde_json::from_str(&row.rule).unwrap_or_default();
                if rule != IssuerRule::default() {
                    rules.insert(row.name.clone(), rule);
                }
                if !row.enabled {
                    continue;
                }
                if row.services.is_empty() || row.services.iter().any(|name| name == LOGS) {
                    logs.push(row.name.clone());
                }
                all.push(row.name);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let watched = Arc::new(Watched { stamp, all: compiled(&all), logs: compiled(&logs), rules });
        *self.0.watched.write() = Arc::clone(&watched);
        Ok(watched)
    }
}

/// Compiles the domains. Leaves out domains that have become public suffixes since they were stored.
fn compiled(names: &[String]) -> DomainSet {
    let seed = super::gate::random();
    let fit = names.iter().map(String::as_str).filter(|name| {
        let fits = DomainSet::compile([*name], 0).is_ok();
        if !fits {
            tracing::warn!(domain = name, "a watched domain has become a public suffix and is ignored");
        }
        fits
    });
    DomainSet::compile(fit, seed).unwrap_or_else(|_| DomainSet::none())
}

/// Returns the canonical form of a domain to watch.
fn canonical_domain(name: &str) -> Result<String, MonitorError> {
    let invalid = |why: String| MonitorError::Invalid(why);
    let set = DomainSet::compile([name], 0).map_err(|error| invalid(error.to_string()))?;
    let name = set.domain(0).unwrap_or_default().to_owned();
    match registered_domain(&name) {
        Some(registered) if registered != name => Err(invalid(format!(
            "{name} is below the registered domain {registered}: watch the registered domain"
        ))),
        _ => Ok(name),
    }
}

fn unknown_issuance(id: Uuid) -> MonitorError {
    MonitorError::Unknown(format!("issuance {id}"))
}

fn details(new: &NewDomain) -> Value {
    json!({"rule": new.rule, "services": new.services, "enabled": new.enabled})
}

fn log_subject(log_id: &Hash) -> String {
    format!("ct-log/{}", x509::Fingerprint::from_bytes(*log_id))
}

fn service_subject(service: &str) -> String {
    format!("ct-service/{service}")
}

fn in_us(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}
