//! The directory of agents: enrolment state, presence, groups, and pending work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::authority::keystore::KeyStore;
use enrollment::{Certify, CertifyError, IdentityHasher, TOKEN_RETENTION_US, TrustAnchors};
use futures_util::FutureExt;
use serde_json::json;
use shared::Shared;
use store::{AuditEvent, Clock, Cursor, Page, Store, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::presence::Presence;
use crate::tables;
use crate::tables::{AgentFilter, AgentGroupRow, AgentRow, SELECTOR_LABELS_MAX};
use crate::waiting::WaitingPolls;
use crate::work::{AgentJob, HostFacts, JOBS_MAX, JobResult, WAIT_SECONDS_MAX, WorkError, WorkSource};

/// Time without a poll after which an agent counts as offline: twice the longest duration of a poll (60 s and a margin of 30 s).
pub const OFFLINE_AFTER: Duration = Duration::from_secs(180);
/// Maximum number of labels of an agent or a token.
pub const LABELS_MAX: usize = 32;
/// Maximum bytes of a label's name or value.
const LABEL_MAX: usize = 128;
/// Interval at which the server checks, while polls wait, for work that other nodes created. Each check is one statement for all
/// waiting polls.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which agents' last-seen data is written. Each write is one statement.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Interval at which long expired tokens are deleted.
const PURGE_EVERY: Duration = Duration::from_secs(3_600);

/// Labels, sorted by name.
pub type Labels = BTreeMap<String, String>;

/// Reason why an operation on agents failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No object has this id or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// The request is invalid; the text says what to change.
    #[error("{0}")]
    Invalid(String),
    /// The name is already taken.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// The object was changed after the caller read it.
    #[error("another request changed the object: read it again")]
    Changed,
    /// The agent is retired.
    #[error("the agent is retired")]
    Retired,
    /// The presented certificate is not the agent's own.
    #[error("the key of the client certificate is not the key that the agent was enrolled with")]
    OtherKey,
    /// A target's sealed configuration cannot be decrypted.
    #[error("the passwords of the target cannot be decrypted: {0}")]
    Sealed(String),
    /// The agent's certificate could not be issued.
    #[error(transparent)]
    Certify(#[from] CertifyError),
    /// The source of jobs ([`WorkSource`]) failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The objects that [`Agents`] needs, such as database, key store, source of jobs and issuer of certificates.
pub struct AgentsParts {
    /// Database of agents.
    pub store: Store,
    /// Key store that seals the passwords of targets.
    pub keystore: KeyStore,
    /// Clock of the server.
    pub clock: Clock,
    /// Source of agents' jobs.
    pub work: Arc<dyn WorkSource>,
    /// Issuer of agents' certificates.
    pub certify: Arc<dyn Certify>,
    /// Function that derives a lookup key from the URI in an agent's certificate. By this key the server recognizes the
    /// certificate.
    pub identity: IdentityHasher,
    /// PEM trust anchors with which agents verify the server's certificate. Empty when the trust store of each host is enough.
    pub ca_pem: TrustAnchors,
}

/// The server's directory of agents, with their groups, targets and pending jobs. Clones share their state.
#[derive(Clone)]
pub struct Agents(Shared<DirectoryState>);

struct DirectoryState {
    parts: AgentsParts,
    waiting: WaitingPolls,
    presence: Presence,
}

/// Filter for listing agents by labels, presence and retirement.
#[derive(Clone, Debug, Default)]
pub struct AgentQuery {
    /// Labels that the agents must have.
    pub labels: Labels,
    /// `true` for online agents only, `false` for offline ones only.
    pub online: Option<bool>,
    /// Whether to include retired agents.
    pub retired: bool,
}

impl Agents {
    /// Creates the directory of agents. The caller must also run [`Agents::run`].
    #[must_use]
    pub fn new(parts: AgentsParts) -> Self {
        Self(Shared::new(DirectoryState {
            parts,
            waiting: WaitingPolls::default(),
            presence: Presence::default(),
        }))
    }

    pub(crate) fn parts(&self) -> &AgentsParts {
        &self.0.parts
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.parts.store
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.0.parts.clock.now_us()
    }

    /// Checks for work from other nodes and writes agents' last-seen data, until stopped.
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let every = |period| {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks
        };
        let (mut polls, mut writes, mut purges) =
            (every(POLL_INTERVAL), every(WRITE_EVERY), every(PURGE_EVERY));
        loop {
            let result = tokio::select! {
                () = stop.cancelled() => break,
                _ = polls.tick() => self.poll_for_work().await,
                _ = writes.tick() => self.store_last_seen().await,
                _ = purges.tick() => {
                    tables::Agents::of(self.store()).purge_tokens(self.now_us() - TOKEN_RETENTION_US).await.map(drop)
                }
            };
            if let Err(error) = result {
                tracing::warn!(%error, "the periodic maintenance of agents failed");
            }
        }
        self.0.waiting.wake_all();
        if let Err(error) = self.store_last_seen().await {
            tracing::warn!(%error, "the last-seen data of agents was not stored");
        }
    }

    async fn poll_for_work(&self) -> Result<(), StoreError> {
        if self.0.waiting.is_empty() {
            return Ok(());
        }
        let agents = tables::Agents::of(self.store()).agents_with_work(self.now_us()).await?;
        agents.into_iter().for_each(|agent| self.wake(agent));
        Ok(())
    }

    async fn store_last_seen(&self) -> Result<(), StoreError> {
        let seen = self.0.presence.take();
        if seen.is_empty() {
            return Ok(());
        }
        let work = seen.clone();
        let written = self
            .store()
            .write("agents_seen", move |tx| {
                async move { tables::set_agents_last_seen(tx, &work).await }.boxed()
            })
            .await;
        if written.is_err() {
            self.0.presence.requeue(seen);
        }
        written
    }

    /// Notifies a waiting poll of an agent on this node that there is work.
    pub fn wake(&self, agent: Uuid) {
        self.0.waiting.wake(agent);
    }

    /// Returns the agent's jobs, and waits up to `wait_seconds` if there are none. Sends one statement if there are jobs already.
    ///
    /// # Errors
    /// Errors of the source of work.
    ///
    /// # Cancellation
    /// Dropping the future may lose returned jobs. The next poll returns them again.
    #[crate::boxed]
    pub async fn poll(
        &self,
        agent: Uuid,
        facts: HostFacts,
        wait_seconds: u32,
    ) -> Result<Vec<AgentJob>, AgentError> {
        self.0.presence.seen(agent, self.now_us(), facts);
        let wait = Duration::from_secs(wait_seconds.min(WAIT_SECONDS_MAX).into());
        let deadline = tokio::time::Instant::now() + wait;
        let waiter = self.0.waiting.register(agent);
        loop {
            let woken = waiter.woken();
            let jobs = self.0.parts.work.jobs_for_agent(agent, JOBS_MAX).await?;
            if !jobs.is_empty() || tokio::time::timeout_at(deadline, woken).await.is_err() {
                return Ok(jobs);
            }
        }
    }

    /// Checks the signature of an agent's CSR and passes the CSR to the source of work.
    ///
    /// # Errors
    /// [`AgentError::Invalid`]; errors of the source of work.
    #[crate::boxed]
    pub async fn accept_csr(&self, agent: Uuid, job: Uuid, csr_pem: &str) -> Result<(), AgentError> {
        let request = x509::csr::CertificateRequest::from_pem_or_der(csr_pem.as_bytes())
            .map_err(|error| AgentError::Invalid(format!("the CSR cannot be parsed: {error}")))?;
        request
            .verify()
            .map_err(|error| AgentError::Invalid(format!("the CSR is not signed by its key: {error}")))?;
        let der = request.der.to_vec();
        Ok(self.0.parts.work.accept_csr(agent, job, der).await?)
    }

    /// Passes an agent's result of a job to the source of work.
    ///
    /// # Errors
    /// Errors of the source of work.
    #[crate::boxed]
    pub async fn finished(&self, agent: Uuid, job: Uuid, result: JobResult) -> Result<(), AgentError> {
        Ok(self.0.parts.work.finished(agent, job, result).await?)
    }

    /// Returns whether an agent counts as online now, by its last poll.
    #[must_use]
    pub fn is_online(&self, agent: &AgentRow) -> bool {
        agent.retired_at_us.is_none() && agent.last_seen_at_us >= self.online_cutoff_us()
    }

    fn online_cutoff_us(&self) -> i64 {
        self.now_us() - OFFLINE_AFTER.as_micros() as i64
    }

    /// Returns the agent with this id.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn agent(&self, id: Uuid) -> Result<AgentRow, AgentError> {
        tables::Agents::of(self.store()).get(id).await?.ok_or(AgentError::NotFound("agent"))
    }

    /// Lists agents, sorted by name.
    ///
    /// # Errors
    /// [`AgentError::Invalid`] for too many labels; database errors.
    #[crate::boxed]
    pub async fn list(
        &self,
        query: &AgentQuery,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentRow>, AgentError> {
        if query.labels.len() > SELECTOR_LABELS_MAX {
            return Err(AgentError::Invalid(format!("at most {SELECTOR_LABELS_MAX} labels can be selected")));
        }
        let from = self.online_cutoff_us();
        let filter = AgentFilter {
            labels: query.labels.clone().into_iter().collect(),
            retired: query.retired,
            seen_from_us: (query.online == Some(true)).then_some(from),
            seen_before_us: (query.online == Some(false)).then_some(from),
        };
        Ok(tables::Agents::of(self.store()).page(&filter, after, limit).await?)
    }

    /// Counts online and offline agents, for metrics.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn counts(&self) -> Result<tables::AgentCounts, AgentError> {
        Ok(tables::Agents::of(self.store()).counts(self.online_cutoff_us()).await?)
    }

    /// Changes an agent's name or labels.
    ///
    /// # Errors
    /// [`AgentError`].
    #[crate::boxed]
    pub async fn update(
        &self,
        id: Uuid,
        revision: i64,
        name: Option<String>,
        labels: Option<Labels>,
        actor: &str,
    ) -> Result<AgentRow, AgentError> {
        let before = self.agent(id).await?;
        let name = name.unwrap_or(before.name);
        check_name(&name)?;
        let labels = labels.unwrap_or_else(|| labels_of(&before.labels));
        check_labels(&labels)?;
        let event =
            self.event(actor, "agent.update", format!("agent/{id}"), json!({"name": name, "labels": labels}));
        let (named, text) = (name.clone(), json!(labels).to_string());
        let pairs: Vec<_> = labels.into_iter().collect();
        let done = self
            .store()
            .write("agent_update", move |tx| {
                async move {
                    let done = tables::update_agent(tx, id, revision, &named, &text, &pairs).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done {
            return self.agent(id).await;
        }
        let other = tables::Agents::of(self.store()).named(&name).await?;
        Err(if other.is_some_and(|other| other.id != id) {
            AgentError::NameTaken(name)
        } else {
            AgentError::Changed
        })
    }

    /// Retires an agent: it gets no more work, and the server rejects it from then on.
    ///
    /// # Errors
    /// [`AgentError`].
    #[crate::boxed]
    pub async fn retire(&self, id: Uuid, actor: &str) -> Result<(), AgentError> {
        self.agent(id).await?;
        // Delete the identity, too, although the retirement alone is enough.
        let identity = enrollment::identity_revision(self.store(), id).await?;
        let (at, event) =
            (self.now_us(), self.event(actor, "agent.retire", format!("agent/{id}"), json!({})));
        let done = self
            .store()
            .write("agent_retire", move |tx| {
                async move {
                    let done = tables::retire_agent(tx, id, at).await?;
                    if let (true, Some(revision)) = (done, identity) {
                        store::delete_identity(tx, id, revision).await?;
                    }
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        self.0.presence.forget(id);
        self.0.waiting.wake(id);
        if done { Ok(()) } else { Err(AgentError::Retired) }
    }

    /// Returns the group with this name.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn group(&self, name: &str) -> Result<AgentGroupRow, AgentError> {
        tables::Agents::of(self.store()).group(name).await?.ok_or(AgentError::NotFound("agent group"))
    }

    /// Lists groups, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn groups(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentGroupRow>, AgentError> {
        Ok(tables::Agents::of(self.store()).groups(after, limit).await?)
    }

    /// Creates a group (`revision` absent) or changes one.
    ///
    /// # Errors
    /// [`AgentError`].
    #[crate::boxed]
    pub async fn put_group(
        &self,
        name: &str,
        selector: &Labels,
        description: &str,
        revision: Option<i64>,
        actor: &str,
    ) -> Result<AgentGroupRow, AgentError> {
        check_name(name)?;
        check_labels(selector)?;
        if selector.is_empty() || selector.len() > SELECTOR_LABELS_MAX {
            return Err(AgentError::Invalid(format!(
                "a group needs 1 to {SELECTOR_LABELS_MAX} selector labels"
            )));
        }
        let (at, text) = (self.now_us(), json!(selector).to_string());
        let action = if revision.is_some() { "agent_group.update" } else { "agent_group.create" };
        let event = self.event(actor, action, format!("agent-group/{name}"), json!({"selector": selector}));
        let (named, about) = (name.to_owned(), description.to_owned());
        let done = self
            .store()
            .write("agent_group", move |tx| {
                async move {
                    let done = match revision {
                        Some(revision) => {
                            tables::update_agent_group(tx, &named, revision, &text, &about, at).await?
                        }
                        None => tables::insert_agent_group(tx, &named, &text, &about, at).await?,
                    };
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        match (done, revision) {
            (true, _) => self.group(name).await,
            (false, None) => Err(AgentError::NameTaken(name.to_owned())),
            (false, Some(_)) => self.group(name).await.and(Err(AgentError::Changed)),
        }
    }

    /// Deletes a group. The agents of the group are kept.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn delete_group(&self, name: &str, actor: &str) -> Result<(), AgentError> {
        let event = self.event(actor, "agent_group.delete", format!("agent-group/{name}"), json!({}));
        let named = name.to_owned();
        let done = self
            .store()
            .write("agent_group_delete", move |tx| {
                async move {
                    let done = tables::delete_agent_group(tx, &named).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(()) } else { Err(AgentError::NotFound("agent group")) }
    }

    pub(crate) fn event(
        &self,
        actor: &str,
        action: &'static str,
        resource: String,
        details: serde_json::Value,
    ) -> AuditEvent {
        AuditEvent { at_us: self.now_us(), actor: actor.to_owned(), action, resource, details }
    }
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").finish_non_exhaustive()
    }
}

/// Parses labels from their stored JSON.
#[must_use]
pub fn labels_of(json: &str) -> Labels {
    serde_json::from_str(json).unwrap_or_default()
}

pub(crate) fn check_name(name: &str) -> Result<(), AgentError> {
    enrollment::check_name(name).map_err(AgentError::Invalid)
}

pub(crate) fn check_labels(labels: &Labels) -> Result<(), AgentError> {
    if labels.len() > LABELS_MAX {
        return Err(AgentError::Invalid(format!("at most {LABELS_MAX} labels are allowed")));
    }
    for (label, value) in labels {
        let plain = |text: &str| text.len() <= LABEL_MAX && !text.chars().any(char::is_control);
        if label.is_empty() || !plain(label) || !plain(value) || label.contains(['=', ',']) {
            return Err(AgentError::Invalid(format!(
                "the label {label:?} must have 1 to {LABEL_MAX} bytes and no '=' or ',', and its value at most {LABEL_MAX} bytes"
            )));
        }
    }
    Ok(())
}
