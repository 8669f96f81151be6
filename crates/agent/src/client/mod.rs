//! The agent: on the host, makes keys that never leave it, asks for work, deploys.

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
use crate::work::{Enrolment, TargetWork, WAIT_SECONDS_MAX};
use folder::{Folder, Settings};
use jobs::Worker;

pub use folder::{AgentStatus, DeployedCertificate};

/// In the server's log.
const PROGRAM: &str = "bulla-agent";
/// The agent's folder when nothing else is said.
pub const STATE_FOLDER: &str = "/var/lib/bulla-agent";
/// Jobs under way at once: each may wait for a server to reload.
const JOBS_AT_ONCE: usize = 4;
/// At the stop, for deployments under way; what is not done by then is undone at the next start.
const STOP_GRACE: Duration = Duration::from_secs(60);
/// Rounds of [`Agent::work_once`]: a CSR in one, its certificate in a later one.
const ROUNDS_MAX: usize = 20;
/// Between two of them: the time an authority takes.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// Between two tries at that, seconds.
const RENEW_PAUSE_SECONDS: i64 = 60;

/// Why the agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentRunError {
    /// Enrol first.
    #[error("{0} holds no enrolled agent: run `bulla agent enroll` first")]
    NotEnrolled(PathBuf),
    /// It is an agent already.
    #[error("this host is already the agent {name} of {server}: remove {folder} to enrol it again")]
    Enrolled {
        /// Its name.
        name: String,
        /// Its server.
        server: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// Joining failed, or its result was invalid.
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

/// What a round of work came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Worked {
    /// Jobs that ended well.
    pub done: usize,
    /// Jobs that failed; they are reported to the server.
    pub failed: usize,
}

/// An enrolled agent.
pub struct Agent {
    folder: Folder,
    settings: Settings,
    identity: Identity,
    api: Arc<Api>,
    deployer: Deployer,
    clock: Clock,
    under_way: Arc<Mutex<HashSet<Uuid>>>,
    /// When to try again to renew the client certificate, seconds.
    renew_again_at: i64,
}

impl Agent {
    /// Makes this host an agent: a key is made here, the server certifies it. Repeated after a lost answer, the same key
    /// and the same token get the same agent.
    ///
    /// # Errors
    /// [`AgentRunError`]; nothing but the key is kept then.
    #[crate::boxed]
    pub async fn enroll(options: &JoinOptions) -> Result<AgentStatus, AgentRunError> {
        let server = options.server()?;
        // For its lock and the checks of the folder.
        let _deployer = Deployer::open(&options.state, PolicyFile::new(Path::new(POLICY_FILE)))?;
        let folder = Folder::new(&options.state)?;
        if let Some(settings) = folder.settings()? {
            let folder = options.state.clone();
            return Err(AgentRunError::Enrolled { name: settings.name, server: settings.server, folder });
        }
        let key = folder.joined().key_or_new().await?;
        let api = options.api(PROGRAM)?;
        let request = Enrolment {
            token: options.token.expose().to_owned(),
            csr_pem: bare_csr(&key)?,
            name: options.name.clone(),
            facts: host::facts(&server).await,
        };
        let enrolled = api::enroll(&api, &request).await?;
        folder.joined().write_certificate(&key, &enrolled.certificate_pem)?;
        let pin = options.keep_trust(folder.joined(), &enrolled.ca_pem)?;
        // Last: with it the agent is enrolled.
        folder.write_settings(&Settings { agent: enrolled.agent, name: enrolled.name, server, pin })?;
        folder.status()?.ok_or_else(|| AgentRunError::NotEnrolled(options.state.clone()))
    }

    /// What is known of the agent in a folder, without asking anybody. `None` when there is none.
    ///
    /// # Errors
    /// [`AgentRunError`] when the folder cannot be read.
    pub fn status(state: &Path) -> Result<Option<AgentStatus>, AgentRunError> {
        if !state.exists() {
            return Ok(None);
        }
        Ok(Folder::new(state)?.status()?)
    }

    /// Has the agent of a folder find its server at another address, from its next start on. Does nothing where there is no agent.
    ///
    /// # Errors
    /// [`AgentRunError`] when the folder cannot be read or written.
    pub fn move_to(state: &Path, server: &str) -> Result<(), AgentRunError> {
        let folder = Folder::new(state)?;
        let Some(settings) = folder.settings()? else { return Ok(()) };
        Ok(folder.write_settings(&Settings { server: server.to_owned(), ..settings })?)
    }

    /// The targets that the server has for the agent in a folder, without passwords. Another process may be using the folder.
    ///
    /// # Errors
    /// [`AgentRunError`], also when the server is away.
    #[crate::boxed]
    pub async fn targets(state: &Path) -> Result<Vec<TargetWork>, AgentRunError> {
        let not_enrolled = || AgentRunError::NotEnrolled(state.to_owned());
        if !state.exists() {
            return Err(not_enrolled());
        }
        let folder = Folder::new(state)?;
        let settings = folder.settings()?.ok_or_else(not_enrolled)?;
        let identity = folder.joined().identity()?.ok_or_else(not_enrolled)?;
        let api = api_of(&folder, &settings, &identity)?;
        Ok(api::targets(&api).await?.targets)
    }

    /// Opens an enrolled agent, and undoes what a crash has cut off. `policy` is what the host's owner lets the server do.
    ///
    /// # Errors
    /// [`AgentRunError`].
    #[crate::boxed]
    pub async fn open(state: &Path, policy: PolicyFile, clock: Clock) -> Result<Self, AgentRunError> {
        let folder = Folder::new(state)?;
        let not_enrolled = || AgentRunError::NotEnrolled(state.to_owned());
        let settings = folder.settings()?.ok_or_else(not_enrolled)?;
        let identity = folder.joined().identity()?.ok_or_else(not_enrolled)?;
        let deployer = Deployer::open(state, policy)?;
        deployer.recover().await?;
        folder.drop_strays()?;
        let api = Arc::new(api_of(&folder, &settings, &identity)?);
        let under_way = Arc::default();
        Ok(Self { folder, settings, identity, api, deployer, clock, under_way, renew_again_at: 0 })
    }

    /// The agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Works until stopped. Deployments under way are let finish for a minute.
    ///
    /// # Errors
    /// [`AgentRunError`] when its folder fails, after deployments under way. While the server is away it retries with backoff.
    #[crate::boxed]
    pub async fn run(&mut self, stop: CancellationToken) -> Result<(), AgentRunError> {
        let mut jobs = JoinSet::new();
        let mut failures = 0_u32;
        let mut outcome = Ok(());
        while !stop.is_cancelled() {
            let turn = tokio::select! {
                () = stop.cancelled() => break,
                turn = self.turn(&mut jobs, WAIT_SECONDS_MAX) => turn,
            };
            match turn {
                Ok(_) => failures = 0,
                Err(AgentRunError::Join(JoinError::Api(error))) => {
                    failures = failures.saturating_add(1);
                    let pause = backoff(failures, error.retry_after());
                    tracing::warn!(%error, pause_ms = pause.as_millis() as u64, "the server did not give work");
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
            tracing::warn!("deployments were cut off; they are undone at the next start");
        }
        outcome
    }

    /// Does what there is to do now, and ends.
    ///
    /// # Errors
    /// [`AgentRunError`], also when the server is away.
    #[crate::boxed]
    pub async fn work_once(&mut self) -> Result<Worked, AgentRunError> {
        let mut all = Worked::default();
        let mut jobs = JoinSet::new();
        for _ in 0..ROUNDS_MAX {
            let begun = self.turn(&mut jobs, 0).await?;
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

    /// One poll, its jobs begun; how many.
    async fn turn(
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
            // All of it is under way: the server does not know yet. Asking again at once would not end.
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        Ok(begun)
    }

    /// A failure is only told: the certificate is good for a while yet.
    async fn renew_if_due(&mut self) -> Result<(), AgentRunError> {
        let now = self.clock.now_seconds();
        let leaf = &self.identity.leaf;
        if now < self.identity.renew_at() || now < self.renew_again_at {
            return Ok(());
        }
        self.renew_again_at = now.saturating_add(RENEW_PAUSE_SECONDS);
        let csr_pem = bare_csr(&self.identity.key)?;
        let enrolled = match api::renew(&self.api, csr_pem).await {
            Ok(enrolled) => enrolled,
            Err(error) => {
                tracing::warn!(%error, until = leaf.not_after.0, "the client certificate is not renewed yet");
                return Ok(());
            }
        };
        self.folder.joined().write_certificate(&self.identity.key, &enrolled.certificate_pem)?;
        if !enrolled.ca_pem.is_empty() {
            self.folder.joined().add_ca(&enrolled.ca_pem)?;
        }
        if let Some(identity) = self.folder.joined().identity()? {
            self.identity = identity;
            self.api = Arc::new(api_of(&self.folder, &self.settings, &self.identity)?);
            tracing::info!(until = self.identity.leaf.not_after.0, "the client certificate is renewed");
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
    client::api_of(PROGRAM, folder.joined(), &settings.server, settings.pin.as_deref(), identity)
}

fn count(all: &mut Worked, ended: Result<Result<(), String>, tokio::task::JoinError>) {
    match ended {
        Ok(Ok(())) => all.done += 1,
        Ok(Err(_)) | Err(_) => all.failed += 1,
    }
}
