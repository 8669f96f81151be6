//! The one way a certificate gets onto a host, whatever the target.
//!
//! plan → compare with what is there → keep what is there → journal → write beside → rename → validate → reload → ask
//! what is served → forget the journal. A failure at any point puts back what was kept and reloads again; a crash
//! leaves the journal, and [`Deployer::recover`] does the same.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use enrollment::Material;
use enrollment::state_folder::StateError;
use uuid::Uuid;
use x509::Fingerprint;
use zeroize::Zeroizing;

use super::fault::{Fault, Halted};
use super::file::{Attributes, FileContent, FileError, TargetFile};
use super::hook::{Hook, HookError};
use super::journal::{BackupFile, Journal, Phase, StateFolder};
use super::judge::{endpoint_want, judge_file, wanted, wants_of};
use super::keystore::KeystoreError;
use super::plan::{FilePlace, Needs, Plan, PlannedFile};
use super::policy::{Policy, PolicyError, PolicyFile, Refusal, Want};
use super::target::{InvalidTarget, Target};
use super::verify::{self, VerifyError};

/// Why a deployment failed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// Nothing was touched.
    #[error(transparent)]
    Invalid(#[from] InvalidTarget),
    /// Another deployment to the same target is under way.
    #[error("another deployment to this target is under way")]
    Busy,
    /// The policy of this host cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy of this host does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What a crash cut off cannot be undone, as the policy no longer allows it.
    #[error("{refusal}\nOr remove {journal} to leave the files as they are", journal = .journal.display())]
    Undo {
        /// The reason of the refusal.
        refusal: Refusal,
        /// What is known of the deployment.
        journal: PathBuf,
    },
    /// The agent's own folder.
    #[error("the agent's folder: {0}")]
    State(#[from] StateError),
    /// A file of the target.
    #[error(transparent)]
    File(#[from] FileError),
    /// No key store could be made.
    #[error(transparent)]
    Keystore(#[from] KeystoreError),
    /// The server does not accept its configuration with the new files.
    #[error("validation failed: {0}")]
    Validate(HookError),
    /// The server could not be made to take the new files.
    #[error("reload failed: {0}")]
    Reload(HookError),
    /// The server serves something else.
    #[error("verification failed: {0}")]
    Verify(VerifyError),
    /// The work's thread ended; a bug.
    #[error("the deployment's thread ended: {0}")]
    Panicked(String),
    #[doc(hidden)]
    #[error(transparent)]
    Halted(#[from] Halted),
}

coded::named! {
    /// How a deployment ended.
    pub enum Outcome: "outcome of a deployment" {
        /// Written, reloaded, and served if that was asked for.
        Deployed => "deployed",
        /// It was all there already.
        Unchanged => "unchanged",
        /// It failed before anything changed.
        Failed => "failed",
        /// It failed, and everything is as before.
        RolledBack => "rolled_back",
        /// The deployment and its rollback failed: a person must intervene.
        Broken => "broken",
    }
}

/// How a deployment went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// In one word.
    pub outcome: Outcome,
    /// The error.
    pub error: Option<String>,
    /// Why what was before could not be put back, or not be reloaded.
    pub rollback_error: Option<String>,
    /// What the endpoint serves now, where the target names one and it answered.
    pub served: Option<Fingerprint>,
    /// The files replaced.
    pub written: Vec<PathBuf>,
}

impl Report {
    fn ok(outcome: Outcome, served: Option<Fingerprint>, written: Vec<PathBuf>) -> Self {
        Self { outcome, error: None, rollback_error: None, served, written }
    }

    fn failed(error: &DeployError) -> Self {
        Self {
            outcome: Outcome::Failed,
            error: Some(error.to_string()),
            ..Self::ok(Outcome::Failed, None, vec![])
        }
    }
}

/// A deployment that a crash had cut off and that was undone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recovery {
    /// The target.
    pub target: Uuid,
    /// Why that failed; the next start tries again when files could not be put back.
    pub error: Option<String>,
}

/// Deploys on this host. Clones share the folder and its lock.
#[derive(Clone, Debug)]
pub struct Deployer(Arc<DeployerState>);

#[derive(Debug)]
struct DeployerState {
    state: StateFolder,
    /// One set of files is written, validated and reloaded at a time: two certificates of one server would each see
    /// the other half written.
    turn: tokio::sync::Mutex<()>,
    /// Targets with a deployment under way; as many as the agent's jobs at once.
    busy: parking_lot::Mutex<HashSet<Uuid>>,
    /// Read again for each deployment.
    policy: PolicyFile,
    fault: Fault,
}

impl Deployer {
    /// Opens or makes the agent's folder; `policy` is what the host's owner allows. Call [`Deployer::recover`] before anything else.
    ///
    /// # Errors
    /// [`StateError`]: it is open to others, used by another process, or cannot be made.
    pub fn open(state: &Path, policy: PolicyFile) -> Result<Self, StateError> {
        Self::open_with(state, policy, Fault::default())
    }

    #[doc(hidden)]
    pub fn open_with(state: &Path, policy: PolicyFile, fault: Fault) -> Result<Self, StateError> {
        let state = StateFolder::open(state)?;
        let (turn, busy) = (tokio::sync::Mutex::default(), parking_lot::Mutex::default());
        Ok(Self(Arc::new(DeployerState { state, turn, busy, policy, fault })))
    }

    /// Undoes whatever a crash has cut off, where the policy still allows it.
    ///
    /// # Errors
    /// [`StateError`] when the journals cannot be read.
    #[crate::boxed]
    pub async fn recover(&self) -> Result<Vec<Recovery>, StateError> {
        let mut done = Vec::new();
        for journal in self.0.state.journals()? {
            let target = journal.target;
            let undone = match self.policy() {
                Ok(policy) => self.undo(&journal, &policy).await,
                Err(error) => Err(error),
            };
            let error = match undone {
                Ok(None) => None,
                Ok(Some(reload)) => Some(reload.to_string()),
                Err(error) => Some(error.to_string()),
            };
            match &error {
                None => tracing::warn!(%target, "a deployment that was cut off has been undone"),
                Some(error) => {
                    tracing::error!(%target, %error, "a deployment that was cut off is not undone")
                }
            }
            done.push(Recovery { target, error });
        }
        Ok(done)
    }

    /// Brings `material` to `target`, whose identity in the agent's folder is `id`.
    ///
    /// # Cancellation
    /// Dropping the future is as a crash: what was under way is undone by the next deployment to the target or by
    /// [`Deployer::recover`].
    #[crate::boxed]
    pub async fn deploy(&self, id: Uuid, target: &Target, material: &Material) -> Report {
        let Some(_under_way) = Busy::claim(&self.0, id) else {
            return Report::failed(&DeployError::Busy);
        };
        match self.attempt(id, target, material).await {
            Ok(report) => report,
            Err(error) => Report::failed(&error),
        }
    }

    /// Forgets what is kept of a target that is no more. Its files stay.
    ///
    /// # Errors
    /// [`StateError`] when something cannot be removed.
    pub fn forget(&self, id: Uuid) -> Result<(), StateError> {
        self.0.state.forget(id)
    }

    /// The agent's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.state.root()
    }

    fn policy(&self) -> Result<Arc<Policy>, DeployError> {
        Ok(Arc::new(self.0.policy.load(self.folder())?))
    }

    /// An error is a failure before anything changed.
    async fn attempt(&self, id: Uuid, target: &Target, material: &Material) -> Result<Report, DeployError> {
        target.check()?;
        let policy = self.policy()?;
        let own = match target {
            Target::Exec(_) => self.0.state.exec_folder(id)?,
            _ => PathBuf::new(),
        };
        let plan = Arc::new(Plan::of(target, material, &own)?);
        if let Some(journal) = self.0.state.journal(id)? {
            self.undo(&journal, &policy).await?;
        }
        self.judge(&plan, &policy).await?;
        let expected = material.fingerprint();
        let turn = self.0.turn.lock().await;
        let (inner, of, rules) = (Arc::clone(&self.0), Arc::clone(&plan), Arc::clone(&policy));
        let started = aside(move || inner.write(id, &of, &rules)).await?;
        let Some(started) = started else {
            drop(turn);
            return self.already_there(&plan.needs, expected, &policy).await;
        };
        let mut journal = started.journal;
        let result = match started.failure {
            Some(error) => Err(error),
            None => self.take_over(&plan.needs, &mut journal, &policy).await,
        };
        drop(turn);
        let result = match result {
            Ok(()) => self.verify_and_finish(&plan.needs, &journal, expected, &policy).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(served) => Ok(Report::ok(Outcome::Deployed, served, started.changed)),
            // As dead as a killed process.
            Err(error @ DeployError::Halted(_)) => Err(error),
            Err(error) => Ok(self.roll_back(&plan.needs, &journal, &error, started.changed, &policy).await),
        }
    }

    /// Whether the policy allows all of it; before anything is touched.
    async fn judge(&self, plan: &Arc<Plan>, policy: &Arc<Policy>) -> Result<(), DeployError> {
        let (of, rules) = (Arc::clone(plan), Arc::clone(policy));
        let mut wants = aside(move || Ok(wants_of(&of.needs, &rules)?)).await?;
        if let Some(verify) = &plan.needs.verify {
            wants.extend(endpoint_want(verify, policy).await);
        }
        if wants.is_empty() { Ok(()) } else { Err(policy.refusal(wants).into()) }
    }

    /// The files are as they should be; the server may not be.
    async fn already_there(
        &self,
        needs: &Needs,
        expected: Fingerprint,
        policy: &Policy,
    ) -> Result<Report, DeployError> {
        let Some(verify) = &needs.verify else {
            return Ok(Report::ok(Outcome::Unchanged, None, vec![]));
        };
        if matches!(verify::served(verify, policy).await, Ok(served) if served == expected) {
            return Ok(Report::ok(Outcome::Unchanged, Some(expected), vec![]));
        }
        if let Some(reload) = &needs.reload {
            let _turn = self.0.turn.lock().await;
            reload.run(policy).await.map_err(DeployError::Reload)?;
        }
        verify::until_served(verify, expected, policy).await.map_err(DeployError::Verify)?;
        Ok(Report::ok(Outcome::Deployed, Some(expected), vec![]))
    }

    /// Makes the server check and take the files.
    async fn take_over(
        &self,
        needs: &Needs,
        journal: &mut Journal,
        policy: &Policy,
    ) -> Result<(), DeployError> {
        let fault = &self.0.fault;
        if let Some(validate) = &needs.validate {
            fault.at(|| "before validate".to_owned())?;
            validate.run(policy).await.map_err(DeployError::Validate)?;
            fault.at(|| "after validate".to_owned())?;
        }
        if let Some(reload) = &needs.reload {
            journal.phase = Phase::Reloading;
            self.0.step("journal reload", || Ok(self.0.state.write_journal(journal)?))?;
            fault.at(|| "before reload".to_owned())?;
            reload.run(policy).await.map_err(DeployError::Reload)?;
            fault.at(|| "after reload".to_owned())?;
        }
        Ok(())
    }

    async fn verify_and_finish(
        &self,
        needs: &Needs,
        journal: &Journal,
        expected: Fingerprint,
        policy: &Policy,
    ) -> Result<Option<Fingerprint>, DeployError> {
        if let Some(verify) = &needs.verify {
            self.0.fault.at(|| "before verify".to_owned())?;
            verify::until_served(verify, expected, policy).await.map_err(DeployError::Verify)?;
        }
        self.0.step("finish", || Ok(self.0.state.remove_journal(journal.target)?))?;
        self.0.step("prune", || Ok(self.0.state.prune_backups(journal.target)?))?;
        Ok(needs.verify.is_some().then_some(expected))
    }

    async fn roll_back(
        &self,
        needs: &Needs,
        journal: &Journal,
        error: &DeployError,
        written: Vec<PathBuf>,
        policy: &Arc<Policy>,
    ) -> Report {
        tracing::warn!(target = %journal.target, %error, "a deployment failed and is undone");
        let (outcome, rollback_error) = match self.undo(journal, policy).await {
            Ok(None) => (Outcome::RolledBack, None),
            Ok(Some(reload)) => (Outcome::Broken, Some(reload.to_string())),
            Err(undoing) => (Outcome::Broken, Some(undoing.to_string())),
        };
        let served = match &needs.verify {
            Some(verify) if journal.phase == Phase::Reloading => verify::served(verify, policy).await.ok(),
            _ => None,
        };
        Report { outcome, error: Some(error.to_string()), rollback_error, served, written }
    }

    /// Puts back what was there, and reloads if the server may have taken the new files. `Some` is a reload that
    /// failed with the files put back. The policy is retried: it may have changed since the journal was written.
    async fn undo(
        &self,
        journal: &Journal,
        policy: &Arc<Policy>,
    ) -> Result<Option<DeployError>, DeployError> {
        let _turn = self.0.turn.lock().await;
        let (inner, of, rules) = (Arc::clone(&self.0), journal.clone(), Arc::clone(policy));
        let had_files = aside(move || inner.restore(&of, &rules)).await?;
        let mut failed = None;
        if let (Phase::Reloading, Some(reload)) = (journal.phase, &journal.reload) {
            self.0.fault.at(|| "before undo reload".to_owned())?;
            failed = reload_old(reload, had_files, policy).await.err();
            self.0.fault.at(|| "after undo reload".to_owned())?;
        }
        self.0.step("undo finish", || Ok(self.0.state.remove_journal(journal.target)?))?;
        Ok(failed)
    }
}

/// Without files from before there is nothing to go back to: a command is not called for it, and a server that cannot
/// be reloaded without them goes on with what it has.
async fn reload_old(reload: &Hook, had_files: bool, policy: &Policy) -> Result<(), DeployError> {
    if !had_files && reload.told.is_some() {
        return Ok(());
    }
    match reload.run(policy).await {
        Err(error) if had_files => Err(DeployError::Reload(error)),
        _ => Ok(()),
    }
}

/// What a target needs and the policy of this host does not allow; nothing is touched. `state` is the agent's folder.
///
/// # Errors
/// [`DeployError`] when the policy cannot be read, or a file that it allows cannot be looked at.
#[crate::boxed]
pub async fn missing_rules(policy: &Arc<Policy>, target: &Target) -> Result<Vec<Want>, DeployError> {
    target.check()?;
    let (needs, rules) = (Needs::of(target, Path::new("/")), Arc::clone(policy));
    let verify = needs.verify.clone();
    let mut wants = aside(move || Ok(wants_of(&needs, &rules)?)).await?;
    if let Some(verify) = &verify {
        wants.extend(endpoint_want(verify, policy).await);
    }
    Ok(wants)
}

/// What was begun: the journal is written, and so are the files unless there is a failure.
struct Started {
    journal: Journal,
    changed: Vec<PathBuf>,
    failure: Option<DeployError>,
}

struct Examined<'p> {
    planned: &'p PlannedFile,
    place: TargetFile,
    found: Option<FileContent>,
    wanted: Attributes,
    changed: bool,
}

impl DeployerState {
    /// A step that leaves a trace, with a place for faults on either side.
    fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<T, DeployError>) -> Result<T, DeployError> {
        self.fault.at(|| format!("before {name}"))?;
        let done = work()?;
        self.fault.at(|| format!("after {name}"))?;
        Ok(done)
    }

    /// Compares, keeps, and writes. `None` when all is there already.
    fn write(&self, id: Uuid, plan: &Plan, policy: &Policy) -> Result<Option<Started>, DeployError> {
        let examined = plan.files.iter().map(|planned| examine(planned, policy));
        let files: Vec<_> = examined.collect::<Result<_, _>>()?;
        if files.iter().all(|file| !file.changed) {
            return Ok(None);
        }
        let kept: Vec<_> = files.iter().map(kept).collect();
        let backup = self.step("backup", || Ok(self.state.write_backup(id, &kept)?))?;
        drop(kept);
        let journal =
            Journal { target: id, phase: Phase::Writing, backup, reload: plan.needs.reload.clone() };
        self.step("journal", || Ok(self.state.write_journal(&journal)?))?;
        let failure = match self.replace(&files) {
            Ok(()) => None,
            Err(halted @ DeployError::Halted(_)) => return Err(halted),
            Err(error) => Some(error),
        };
        let changed =
            files.iter().filter(|file| file.changed).map(|file| file.place.path().to_owned()).collect();
        Ok(Some(Started { journal, changed, failure }))
    }

    /// Everything is on the disk before the first file changes; then they change one right after the other.
    fn replace(&self, files: &[Examined<'_>]) -> Result<(), DeployError> {
        let changed: Vec<_> = files.iter().filter(|file| file.changed).collect();
        for (number, file) in changed.iter().enumerate() {
            self.step(&format!("stage {number}"), || {
                Ok(file.place.stage(&file.planned.content, file.wanted)?)
            })?;
        }
        for (number, file) in changed.iter().enumerate() {
            self.step(&format!("commit {number}"), || Ok(file.place.commit()?))?;
        }
        Ok(())
    }

    /// Puts the files of a backup back; whether there were any.
    fn restore(&self, journal: &Journal, policy: &Policy) -> Result<bool, DeployError> {
        let files = self.state.read_backup(journal.target, journal.backup)?;
        let places: Result<Vec<_>, _> = files.iter().map(|(kept, _)| TargetFile::of(&kept.path)).collect();
        let places = places?;
        let own = self.state.exec_path(journal.target).canonicalize().ok();
        let is_own = |path: &Path| own.as_ref().is_some_and(|own| path.parent() == Some(own));
        let hosts = places.iter().map(TargetFile::path).filter(|path| !is_own(path));
        let wants: Vec<Want> = hosts.filter_map(|path| policy.path(path).err()).collect();
        if !wants.is_empty() {
            let (refusal, journal) = (policy.refusal(wants), self.state.journal_path(journal.target));
            return Err(DeployError::Undo { refusal, journal });
        }
        for (number, ((kept, content), place)) in files.iter().zip(&places).enumerate() {
            place.unstage()?;
            self.step(&format!("undo {number}"), || restore_file(place, kept, content.as_ref()))?;
        }
        Ok(files.iter().any(|(kept, _)| kept.attributes.is_some()))
    }
}

fn restore_file(
    place: &TargetFile,
    kept: &BackupFile,
    content: Option<&Zeroizing<Vec<u8>>>,
) -> Result<(), DeployError> {
    let found = place.read()?;
    match (kept.attributes, content) {
        (Some(attributes), Some(content)) => {
            let same = found.is_some_and(|f| f.content == *content && f.attributes == attributes);
            if !same {
                place.stage(content, attributes)?;
                place.commit()?;
            }
        }
        _ if found.is_some() => place.remove()?,
        _ => {}
    }
    Ok(())
}

fn kept(file: &Examined<'_>) -> (BackupFile, Option<Zeroizing<Vec<u8>>>) {
    let path = file.planned.needed.spec.path.clone();
    let attributes = file.found.as_ref().map(|found| found.attributes);
    (BackupFile { path, attributes }, file.found.as_ref().map(|found| found.content.clone()))
}

/// Judges once more: where a path leads may have changed, and this folder is the one that is written to.
fn examine<'p>(planned: &'p PlannedFile, policy: &Policy) -> Result<Examined<'p>, DeployError> {
    let needed = &planned.needed;
    let place = TargetFile::of(&needed.spec.path)?;
    if needed.place == FilePlace::Host {
        policy.path(place.path()).map_err(|want| policy.refusal(vec![want]))?;
    }
    let found = place.read()?;
    let before = found.as_ref().map(|found| found.attributes);
    let wanted = wanted(needed, before)?;
    judge_file(&place, needed, wanted, before, policy).map_err(|want| policy.refusal(vec![want]))?;
    let changed = match &found {
        None => true,
        Some(found) => found.attributes != wanted || !holds(planned, &found.content),
    };
    Ok(Examined { planned, place, found, wanted, changed })
}

fn holds(planned: &PlannedFile, content: &[u8]) -> bool {
    match &planned.same {
        Some(same) => same(content),
        None => *planned.content == content,
    }
}

/// Work with files, on a thread that may wait for the disk.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DeployError> + Send + 'static,
) -> Result<T, DeployError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(DeployError::Panicked(error.to_string())))
}

struct Busy<'d>(&'d DeployerState, Uuid);

impl<'d> Busy<'d> {
    fn claim(inner: &'d DeployerState, id: Uuid) -> Option<Self> {
        inner.busy.lock().insert(id).then_some(Self(inner, id))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}
