//! The agent on a host: generates keys that never leave the host, polls for jobs and deploys certificates.

mod api;
mod folder;
mod host;
mod jobs;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use enrollment::client::{self, Api, ApiError, Identity, JoinError, JoinOptions, backoff, bare_csr};
use enrollment::state_folder::StateError;
use parking_lot::Mutex;
use store::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::deploy::{Deployer, POLICY_FILE, PolicyFile};
use crate::work::{AssignedTarget, Enrolment, WAIT_SECONDS_MAX};
use folder::{Folder, Settings};
use jobs::Worker;

pub use folder::{AgentStatus, DeployedCertificate};

/// Name of the agent in the server's log.
const PROGRAM: &str = "bulla-agent";
/// Default state directory of the agent.
pub const STATE_FOLDER: &str = "/var/lib/bulla-agent";
/// Maximum number of concurrent jobs. Each may wait for a server to reload.
const JOBS_AT_ONCE: usize = 4;
/// Time for deployments in progress to finish on shutdown. The next start undoes unfinished ones.
const STOP_GRACE: Duration = Duration::from_secs(60);
/// Maximum number of rounds of [`Agent::work_once`]. A CSR takes one round, its certificate a later one.
const ROUNDS_MAX: usize = 20;
/// Pause between two rounds, so that the CA has time to issue.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// Seconds between two attempts to renew the client certificate.
const RENEW_PAUSE_SECONDS: i64 = 60;

/// Reason why the agent cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum AgentRunError {
    /// The directory contains no enrolled agent. Run `bulla agent enroll` first.
    #[error("{0} contains no enrolled agent: run `bulla agent enroll` first")]
    NotEnrolled(PathBuf),
    /// The directory already contains an enrolled agent.
    #[error("this host is already the agent {name} of {server}: remove {folder} to enrol it again")]
    Enrolled {
        /// Name of the agent that is already enrolled.
        name: String,
        /// URL of the agent's server.
        server: String,
        /// The agent's state directory.
        folder: PathBuf,
    },
    /// Enrolment failed, or its result is invalid.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl From<StateError> for AgentRunError {
    fn from(error: StateError) -> Self {
        Self::Join(error.into())
    }
}

impl From<ApiError> for AgentRunError {
    fn from(error: ApiError) -> Self {
        Self::Join(error.into())
    }
}

/// Counts of the jobs that [`Agent::work_once`] ran.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WorkReport {
    /// Number of jobs that succeeded.
    pub done: usize,
    /// Number of jobs that failed. They are reported to the server.
    pub failed: usize,
}

/// An enrolled agent on this host, which runs the jobs of its server.
pub struct Agent {
    folder: Folder,
    settings: Settings,
    identity: Identity,
    api: Arc<Api>,
    deployer: Deployer,
    clock: Clock,
    under_way: Arc<Mutex<HashSet<Uuid>>>,
    /// Earliest time of the next attempt to renew the client certificate, seconds since 1970-01-01 UTC.
    next_renewal_at: i64,
}

impl Agent {
    /// Enrols this host as an agent: generates a key here and gets a certificate for it from the server. Repeating the call after a
    /// lost response, with the same key and token, returns the same agent.
    ///
    /// # Errors
    /// [`AgentRunError`]. The generated key is kept for the next call.
    #[crate::boxed]
    pub async fn enroll(options: &JoinOptions) -> Result<AgentStatus, AgentRunError> {
        let server = options.server()?;
        // Opened only to lock and check the directory.
        let _deployer = Deployer::open(&options.state, PolicyFile::new(Path::new(POLICY_FILE)))?;
        let folder = Folder::new(&options.state)?;
        if let Some(settings) = folder.settings()? {
            let folder = options.state.clone();
            return Err(AgentRunError::Enrolled { name: settings.name, server: settings.server, folder });
        }
        let key = folder.identity_folder().load_or_generate_key().await?;
        let api = options.api(PROGRAM)?;
        let request = Enrolment {
            token: options.token.expose().to_owned(),
            csr_pem: bare_csr(&key)?,
            name: options.name.clone(),
            facts: host::facts(&server).await,
        };
        let enrolled = api::enroll(&api, &request).await?;
        folder.identity_folder().write_certificate(&key, &enrolled.certificate_pem)?;
        let pin = options.store_trust_anchors(folder.identity_folder(), &enrolled.ca_pem)?;
        // Written last: from here on the agent is enrolled.
        folder.write_settings(&Settings { agent: enrolled.agent, name: enrolled.name, server, pin })?;
        folder.status()?.ok_or_else(|| AgentRunError::NotEnrolled(options.state.clone()))
    }

    /// Returns the status of the agent whose state directory is `state`, without a network request. `None` when there is no agent.
    ///
    /// # Errors
    /// [`AgentRunError`] when the directory cannot be read.
    pub fn status(state: &Path) -> Result<Option<AgentStatus>, AgentRunError> {
        if !state.exists() {
            return Ok(None);
        }
        Ok(Folder::new(state)?.status()?)
    }

    /// Changes the server address of the agent whose state directory is `state`. The change takes effect at the agent's next start.
    /// Does nothing when there is no agent.
    ///
    /// # Errors
    /// [`AgentRunError`] when the directory cannot be read or written.
    pub fn move_to(state: &Path, server: &str) -> Result<(), AgentRunError> {
        let folder = Folder::new(state)?;
        let Some(settings) = folder.settings()? else { return Ok(()) };
        Ok(folder.write_settings(&Settings { server: server.to_owned(), ..settings })?)
    }

    /// Requests from the server the targets of the agent whose state directory is `state`, without passwords. Another process may
    /// use the directory at the same time.
    ///
    /// # Errors
    /// [`AgentRunError`], also when the server is unreachable.
    #[crate::boxed]
    pub async fn targets(state: &Path) -> Result<Vec<AssignedTarget>, AgentRunError> {
        let not_enrolled = || AgentRunError::NotEnrolled(state.to_owned());
        if !state.exists() {
            return Err(not_enrolled());
        }
        let folder = Folder::new(state)?;
        let settings = folder.settings()?.ok_or_else(not_enrolled)?;
        let identity = folder.identity_folder().identity()?.ok_or_else(not_enrolled)?;
        let api = api_of(&folder, &settings, &identity)?;
        Ok(api::targets(&api).await?.targets)
    }

    /// Opens an enrolled agent and undoes deployments that a crash interrupted. `policy` lists the actions that the host's owner
    /// allows the server to perform.
    ///
    /// # Errors
    /// [`AgentRunError`].
    #[crate::boxed]
    pub async fn open(state: &Path, policy: PolicyFile, clock: Clock) -> Result<Self, AgentRunError> {
        let folder = Folder::new(state)?;
        let not_enrolled = || AgentRunError::NotEnrolled(state.to_owned());
        let settings = folder.settings()?.ok_or_else(not_enrolled)?;
        let identity = folder.identity_folder().identity()?.ok_or_else(not_enrolled)?;
        let deployer = Deployer::open(state, policy)?;
        deployer.recover().await?;
        folder.remove_leftover_files()?;
        let api = Arc::new(api_of(&folder, &settings, &identity)?);
        let under_way = Arc::default();
        Ok(Self { folder, settings, identity, api, deployer, clock, under_way, next_renewal_at: 0 })
    }

    /// Returns the name that the agent was enrolled with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Runs until stopped. On shutdown, deployments in progress get a minute to finish. Retries with backoff while the server is
    /// unreachable.
    ///
    /// # Errors
    /// [`AgentRunError`] when the agent's directory cannot be read or written. As on shutdown, deployments in progress get a minute
    /// to finish first.
    #[crate::boxed]
    pub async fn run(&mut self, stop: CancellationToken) -> Result<(), AgentRunError> {
        let mut jobs = JoinSet::new();
        let mut failures = 0_u32;
        let mut outcome = Ok(());
        while !stop.is_cancelled() {
            let poll = tokio::select! {
                () = stop.cancelled() => break,
                poll = self.poll(&mut jobs, WAIT_SECONDS_MAX) => poll,
            };
            match poll {
                Ok(_) => failures = 0,
                Err(AgentRunError::Join(JoinError::Api(error))) => {
                    failures = failures.saturating_add(1);
                    let pause = backoff(failures, error.retry_after());
                    tracing::warn!(%error, pause_ms = pause.as_millis() as u64, "the server did not return jobs");
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let all = async { while jobs.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_GRACE, all).await.is_err() {
            tracing::warn!("deployments were interrupted; they are rolled back at the next start");
        }
        outcome
    }

    /// Runs all pending jobs once and returns.
    ///
    /// # Errors
    /// [`AgentRunError`], also when the server is unreachable.
    #[crate::boxed]
    pub async fn work_once(&mut self) -> Result<WorkReport, AgentRunError> {
        let mut all = WorkReport::default();
        let mut jobs = JoinSet::new();
        for _ in 0..ROUNDS_MAX {
            let begun = self.poll(&mut jobs, 0).await?;
            while let Some(ended) = jobs.join_next().await {
                count(&mut all, ended);
            }
            if begun == 0 {
                break;
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        Ok(all)
    }

    /// Polls once and starts the received jobs. Returns their number.
    async fn poll(
        &mut self,
        jobs: &mut JoinSet<Result<(), String>>,
        wait_seconds: u32,
    ) -> Result<usize, AgentRunError> {
        self.renew_if_due().await?;
        while jobs.len() >= JOBS_AT_ONCE {
            jobs.join_next().await;
        }
        while jobs.try_join_next().is_some() {}
        let facts = host::facts(&self.settings.server).await;
        let assigned = api::work(&self.api, &facts, wait_seconds).await?;
        let (given, mut begun) = (assigned.len(), 0);
        for job in assigned {
            if !self.under_way.lock().insert(job.id()) {
                continue;
            }
            while jobs.len() >= JOBS_AT_ONCE {
                jobs.join_next().await;
            }
            let worker = Worker {
                folder: self.folder.clone(),
                api: Arc::clone(&self.api),
                deployer: self.deployer.clone(),
            };
            let under_way = Arc::clone(&self.under_way);
            jobs.spawn(async move {
                let id = job.id();
                let result = worker.work(job).await;
                under_way.lock().remove(&id);
                result
            });
            begun += 1;
        }
        if given > 0 && begun == 0 {
            // All of these jobs are in progress here, but the server does not know yet. Polling immediately would loop.
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        Ok(begun)
    }

    /// Renews the client certificate when due. A failure is only logged: the current certificate is valid for some time.
    async fn renew_if_due(&mut self) -> Result<(), AgentRunError> {
        let now = self.clock.now_seconds();
        let leaf = &self.identity.leaf;
        if now < self.identity.renew_at() || now < self.next_renewal_at {
            return Ok(());
        }
        self.next_renewal_at = now.saturating_add(RENEW_PAUSE_SECONDS);
        let csr_pem = bare_csr(&self.identity.key)?;
        let enrolled = match api::renew(&self.api, csr_pem).await {
            Ok(enrolled) => enrolled,
            Err(error) => {
                tracing::warn!(%error, until = leaf.not_after.0, "the client certificate could not be renewed yet");
                return Ok(());
            }
        };
        self.folder.identity_folder().write_certificate(&self.identity.key, &enrolled.certificate_pem)?;
        if !enrolled.ca_pem.is_empty() {
            self.folder.identity_folder().add_ca(&enrolled.ca_pem)?;
        }
        if let Some(identity) = self.folder.identity_folder().identity()? {
            self.identity = identity;
            self.api = Arc::new(api_of(&self.folder, &self.settings, &self.identity)?);
            tracing::info!(until = self.identity.leaf.not_after.0, "the client certificate was renewed");
        }
        Ok(())
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn api_of(folder: &Folder, settings: &Settings, identity: &Identity) -> Result<Api, JoinError> {
    client::api_of(PROGRAM, folder.identity_folder(), &settings.server, settings.pin.as_deref(), identity)
}

fn count(all: &mut WorkReport, ended: Result<Result<(), String>, tokio::task::JoinError>) {
    match ended {
        Ok(Ok(())) => all.done += 1,
        Ok(Err(_)) | Err(_) => all.failed += 1,
    }
}
