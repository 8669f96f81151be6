//! The monitor: a server's part in Certificate Transparency, as RFC 6962 section 5.4 calls anyone who watches logs for the
//! certificates of its own domains.
//!
//! [`Monitor`] keeps the watched domains and, in [`Monitor::run`], asks search services, follows logs, judges what they
//! tell, and says when one of them is behind. Any number of nodes on one database may: a question belongs to who holds
//! its lease, so does a log, and one node at a time judges.
//!
//! What it finds wrong goes into the outbox as events: `ct.unexpected_issuance`, `ct.log_inconsistent`, `ct.behind`, and
//! what ends each.

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
use super::ledger::{GRACE, settle};
use super::merkle::Hash;
use super::search::SearchService;
use crate::tables;
use crate::tables::{
    CT_DOMAINS_MAX, CtDomainInsertion, CtDomainRow, CtDomainSettings, CtFilter, CtIssuanceRow, CtLogRow,
    CtSearchRow, ct_issuance, delete_ct_domain, delete_ct_log, insert_ct_domain, seed_ct_searches,
    update_ct_domain, want_ct_searches,
};

/// What a domain's list of services calls the logs that are followed.
pub const LOGS: &str = "logs";
/// Words that name allowed issuers, of one domain.
pub const ALLOWED_MAX: usize = 64;
/// Bytes of one of them: a distinguished name fits.
pub const ALLOWED_BYTES_MAX: usize = 256;
/// Bytes of why an issuance is expected or seen to.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Logs that step at once on a node: each may hold some megabytes of tiles ([`FollowOptions::tiles_at_once`]).
const STEPS_AT_ONCE: usize = 4;
/// Domains read at a time.
const PAGE: usize = 1_000;

/// How the monitor goes about it.
#[derive(Clone, Debug)]
pub struct MonitorOptions {
    /// From one question about a domain to the next, at least: services that ask for more are given more. A tenth is
    /// added by hash, so that domains that were added together are not asked for together.
    pub poll_every: Duration,
    /// How long an issuance waits for its verdict: see [`GRACE`].
    pub grace: Duration,
    /// From one checkpoint of a log to the next.
    pub checkpoint_every: Duration,
    /// For how long a service or a log may fail, or lag, before it is told.
    pub behind_after: Duration,
    /// How logs are followed; the merge delay is each log's own.
    pub follow: FollowOptions,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self {
            poll_every: Duration::from_secs(3_600),
            grace: GRACE,
            checkpoint_every: Duration::from_secs(60),
            // A service's bad night is none of ours; a day's blindness is.
            behind_after: Duration::from_secs(6 * 3_600),
            follow: FollowOptions::default(),
        }
    }
}

/// A domain to watch, or how one shall be watched.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NewDomain {
    /// A registered domain.
    pub name: String,
    /// Issuers that may issue for the domain.
    pub rule: IssuerRule,
    /// Which services watch it, [`LOGS`] among them; empty: all.
    pub services: Vec<String>,
    /// Whether the client certificate is requested and matched.
    pub enabled: bool,
}

/// A person's review of an issuance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Review {
    /// It is ours, and so are its renewals.
    Expected,
    /// It is not, and has been seen to.
    Acknowledged,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The database's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Caller: correct the named value.
    #[error("{0}")]
    Invalid(String),
    /// There is none.
    #[error("there is no {0}")]
    Unknown(String),
    /// Caller: change the existing watch instead.
    #[error("{0} is watched already")]
    Taken(String),
    /// Operator: remove some.
    #[error("{CT_DOMAINS_MAX} domains are watched already")]
    Full,
    /// Caller: another request changed it first; read it again.
    #[error("another request changed it: read it again")]
    Changed,
    /// Caller: resume it first, or wait.
    #[error("{0} is paused, or its questions are under way")]
    NotNow(String),
    /// Caller: it has its verdict.
    #[error("the issuance is expected already, or has been seen to")]
    Decided,
}

/// The monitor of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Monitor(Arc<MonitorState>);

struct MonitorState {
    store: Store,
    clock: Clock,
    services: Vec<Arc<SearchService>>,
    http: Client,
    lists: LogLists,
    options: MonitorOptions,
    watched: RwLock<Arc<Watched>>,
    /// Questions were made due here.
    wake: Notify,
    steps: Semaphore,
    counters: Mutex<Counters>,
}

/// The watched domains, as last read.
struct Watched {
    /// Revisions at which the rules were read.
    stamp: (i64, i64, i64),
    /// All that are enabled.
    all: DomainSet,
    /// Those among them that logs are followed for.
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
        Self(Arc::new(MonitorState {
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
        tokio::join!(self.ask(&stop), self.follow(&stop), self.judge(&stop));
    }

    /// Counters of this process, and the state of searches and logs.
    #[must_use]
    pub fn figures(&self) -> MonitorFigures {
        self.0.counters.lock().figures(self.0.watched.read().all.len())
    }

    /// The names of those that can watch a domain.
    #[must_use]
    pub fn services(&self) -> Vec<&str> {
        let searches = self.0.services.iter().map(|service| service.name());
        let logs = (!self.0.lists.is_empty()).then_some(LOGS);
        searches.chain(logs).collect()
    }

    /// A page of the watched domains, by name.
    ///
    /// # Errors
    /// Those of the database; a cursor of another listing.
    #[crate::boxed]
    pub async fn domains(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtDomainRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).domains(after, limit).await?)
    }

    /// A watched domain.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; those of the database.
    #[crate::boxed]
    pub async fn domain(&self, name: &str) -> Result<CtDomainRow, MonitorError> {
        let row = tables::Ct::of(&self.0.store).domain(&name.to_ascii_lowercase()).await?;
        row.ok_or_else(|| MonitorError::Unknown(format!("watched domain {name}")))
    }

    /// Where each service was left for a domain.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn searches_of(&self, domain: &str) -> Result<Vec<CtSearchRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).searches_of(domain).await?)
    }

    /// A page of where services were left, by domain and service.
    ///
    /// # Errors
    /// Those of the database; a cursor of another listing.
    #[crate::boxed]
    pub async fn searches(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtSearchRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).searches(after, limit).await?)
    }

    /// Every log that was ever followed, by name.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn logs(&self) -> Result<Vec<CtLogRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).logs().await?)
    }

    /// A page of issuances, the newest found first.
    ///
    /// # Errors
    /// Those of the database; a cursor of another listing.
    #[crate::boxed]
    pub async fn issuances(
        &self,
        filter: &CtFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtIssuanceRow>, MonitorError> {
        Ok(tables::Ct::of(&self.0.store).issuances(filter, after, limit).await?)
    }

    /// An issuance, the watched domains it was found for, and its certificate or precertificate, where it is kept.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; those of the database.
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

    /// Watches a domain; its first questions are due at once.
    ///
    /// # Errors
    /// [`MonitorError::Invalid`], [`MonitorError::Taken`], [`MonitorError::Full`]; those of the database.
    #[crate::boxed]
    pub async fn watch(&self, new: &NewDomain, actor: &str) -> Result<CtDomainRow, MonitorError> {
        let name = watchable(&new.name)?;
        let settings = self.checked(new)?;
        let at_us = self.0.clock.now_us();
        let event = self.audited(actor, "ct.watch", format!("ct-domain/{name}"), details(new));
        let services = self.searching();
        let made = {
            let name = name.clone();
            self.0.store.write("ct_watch", move |tx| {
                async move {
                    let made = insert_ct_domain(tx, &name, &settings, at_us).await?;
                    if made == CtDomainInsertion::Made {
                        for service in &services {
                            seed_ct_searches(tx, service, Some(&name), at_us).await?;
                        }
                        audit(tx, vec![event]).await?;
                    }
                    Ok(made)
                }
                .boxed()
            })
        };
        match made.await? {
            CtDomainInsertion::Made => self.changed_here(&name).await,
            CtDomainInsertion::There => Err(MonitorError::Taken(name)),
            CtDomainInsertion::Full => Err(MonitorError::Full),
        }
    }

    /// Changes how a domain is watched, as it was read. Its name stays.
    ///
    /// # Errors
    /// [`MonitorError::Invalid`], [`MonitorError::Changed`]; those of the database.
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

    /// Pauses a domain, as it was read. Questions under way go on to their end.
    ///
    /// # Errors
    /// [`MonitorError::Changed`]; those of the database.
    #[crate::boxed]
    pub async fn pause(&self, row: &CtDomainRow, actor: &str) -> Result<CtDomainRow, MonitorError> {
        self.set_enabled(row, false, actor).await
    }

    /// Resumes a domain, as it was read.
    ///
    /// # Errors
    /// [`MonitorError::Changed`]; those of the database.
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
        let services = self.searching();
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
        if changed.await? { self.changed_here(&row.name).await } else { Err(MonitorError::Changed) }
    }

    async fn changed_here(&self, name: &str) -> Result<CtDomainRow, MonitorError> {
        self.0.wake.notify_waiters();
        self.domain(name).await
    }

    /// Stops watching a domain. Issuances stay; unexpected ones need no decision any longer.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; those of the database.
    #[crate::boxed]
    pub async fn unwatch(&self, row: &CtDomainRow, actor: &str) -> Result<(), MonitorError> {
        let name = row.name.clone();
        let event = self.audited(actor, "ct.unwatch", format!("ct-domain/{name}"), json!({}));
        let gone = self.0.store.write("ct_unwatch", move |tx| {
            async move {
                let gone = delete_ct_domain(tx, &name).await?;
                if gone {
                    audit(tx, vec![event]).await?;
                }
                Ok(gone)
            }
            .boxed()
        });
        if gone.await? { Ok(()) } else { Err(MonitorError::Unknown(format!("watched domain {}", row.name))) }
    }

    /// Makes a domain's questions due now.
    ///
    /// # Errors
    /// [`MonitorError::NotNow`] when it is paused or nobody is to be asked; those of the database.
    #[crate::boxed]
    pub async fn ask_now(&self, row: &CtDomainRow, actor: &str) -> Result<(), MonitorError> {
        let (name, at_us) = (row.name.clone(), self.0.clock.now_us());
        if !row.enabled {
            return Err(MonitorError::NotNow(name));
        }
        let event = self.audited(actor, "ct.run", format!("ct-domain/{name}"), json!({}));
        let wanted = self.0.store.write("ct_run", move |tx| {
            async move {
                let wanted = want_ct_searches(tx, &name, at_us).await?;
                if wanted > 0 {
                    audit(tx, vec![event]).await?;
                }
                Ok(wanted)
            }
            .boxed()
        });
        if wanted.await? == 0 {
            return Err(MonitorError::NotNow(row.name.clone()));
        }
        self.0.wake.notify_waiters();
        Ok(())
    }

    /// Says of an issuance that it is expected, or that it has been seen to. Its alert ends.
    ///
    /// # Errors
    /// [`MonitorError::Invalid`] for a reason that is none, [`MonitorError::Unknown`], [`MonitorError::Decided`]; those
    /// of the database.
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
            return Err(MonitorError::Invalid(format!("a reason has 1 to {REASON_BYTES_MAX} octets")));
        }
        let at_us = self.0.clock.now_us();
        let decision =
            Decision { by: actor.to_owned(), reason: reason.to_owned(), at: at_us.div_euclid(1_000_000) };
        let told = CtIssuanceDecision { detail: reason.to_owned() };
        let (verdict, action, told) = match review {
            Review::Expected => {
                let told = Event::CtIssuanceExpected(CtIssuanceExpected::Decided(told));
                (Verdict::Accepted(decision), "ct.expect", told)
            }
            Review::Acknowledged => {
                (Verdict::Acknowledged(decision), "ct.acknowledge", Event::CtIssuanceAcknowledged(told))
            }
        };
        let subject = format!("ct-issuance/{id}");
        let event = self.audited(actor, action, subject.clone(), json!({"reason": reason}));
        let told = new_event(at_us, subject, &told);
        let decided = self.0.store.write("ct_decide", move |tx| {
            async move {
                let moved = settle(tx, &[id], &verdict).await?;
                if !moved.is_empty() {
                    audit(tx, vec![event]).await?;
                    emit(tx, vec![told]).await?;
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

    /// Forgets a log's place, whatever it was: it is followed from its present end. For a log that has forked and shall
    /// be trusted all the same, or is no more.
    ///
    /// # Errors
    /// [`MonitorError::Unknown`]; those of the database.
    #[crate::boxed]
    pub async fn forget_log(&self, log_id: Hash, actor: &str) -> Result<(), MonitorError> {
        let subject = log_subject(&log_id);
        let event = self.audited(actor, "ct.forget_log", subject.clone(), json!({}));
        let told = [
            Event::CtLogConsistent(CtLogConsistent::Forgotten(CtForgotten {})),
            Event::CtCaughtUp(CtLagEnded::Forgotten(CtForgotten {})),
        ];
        let told = told.map(|event| new_event(self.0.clock.now_us(), subject.clone(), &event));
        let gone = self.0.store.write("ct_forget_log", move |tx| {
            async move {
                let gone = delete_ct_log(tx, log_id).await?;
                if gone {
                    audit(tx, vec![event]).await?;
                    emit(tx, told.to_vec()).await?;
                }
                Ok(gone)
            }
            .boxed()
        });
        if gone.await? { Ok(()) } else { Err(MonitorError::Unknown("such log".to_owned())) }
    }

    /// The names of the search services.
    fn searching(&self) -> Vec<String> {
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
            return invalid(format!(
                "at most {ALLOWED_MAX} issuers, of 1 to {ALLOWED_BYTES_MAX} octets each"
            ));
        }
        if new.rule.trust_allowed && allowed.is_empty() {
            return invalid("issuers can be trusted only where they are named".to_owned());
        }
        let there = self.services();
        if let Some(unknown) = new.services.iter().find(|name| !there.contains(&name.as_str())) {
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return invalid(format!("nobody called {unknown:?} is configured; there are: {there}"));
        }
        let mut services = new.services.clone();
        services.sort_unstable();
        services.dedup();
        Ok(CtDomainSettings { rule: json!(new.rule).to_string(), enabled: new.enabled, services })
    }

    /// The watched domains, read again where they have changed.
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

/// What became a public suffix since it was stored is left out.
fn compiled(names: &[String]) -> DomainSet {
    let seed = super::gate::random();
    let fit = names.iter().map(String::as_str).filter(|name| {
        let fits = DomainSet::compile([*name], 0).is_ok();
        if !fits {
            tracing::warn!(domain = name, "a watched domain has become a public suffix and is left out");
        }
        fits
    });
    DomainSet::compile(fit, seed).unwrap_or_else(|_| DomainSet::none())
}

/// The name a domain is watched under.
fn watchable(name: &str) -> Result<String, MonitorError> {
    let invalid = |why: String| MonitorError::Invalid(why);
    let set = DomainSet::compile([name], 0).map_err(|error| invalid(error.to_string()))?;
    let name = set.domain(0).unwrap_or_default().to_owned();
    match registered_domain(&name) {
        Some(registered) if registered != name => {
            Err(invalid(format!("{name} is below the registered domain {registered}: watch that")))
        }
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
