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
use super::file::{self, Attributes, FileContent, FileError, TargetFile};
use super::hook::{Hook, HookError};
use super::journal::{BackupFile, Journal, Phase, StateFolder};
use super::keystore::KeystoreError;
use super::plan::{Plan, PlannedFile};
use super::target::{InvalidTarget, Target, Verify};
use super::verify::{self, VerifyError};

/// The mode of a new file that holds a key.
const PRIVATE: u32 = 0o600;
/// The mode of a new file that holds none.
const PUBLIC: u32 = 0o644;
/// What nobody else may do with a key, whatever the mode was before.
const OTHERS: u32 = 0o007;

/// Why a deployment failed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// Nothing was touched.
    #[error(transparent)]
    Invalid(#[from] InvalidTarget),
    /// Another deployment to the same target is under way.
    #[error("another deployment to this target is under way")]
    Busy,
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
        /// It failed, and putting back what was before failed as well: somebody has to look.
        Broken => "broken",
    }
}

/// How a deployment went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// In one word.
    pub outcome: Outcome,
    /// Why it failed.
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
    fault: Fault,
}

impl Deployer {
    /// Opens or makes the agent's folder. Call [`Deployer::recover`] before anything else.
    ///
    /// # Errors
    /// [`StateError`]: it is open to others, used by another process, or cannot be made.
    pub fn open(state: &Path) -> Result<Self, StateError> {
        Self::open_with(state, Fault::default())
    }

    #[doc(hidden)]
    pub fn open_with(state: &Path, fault: Fault) -> Result<Self, StateError> {
        let state = StateFolder::open(state)?;
        let (turn, busy) = (tokio::sync::Mutex::default(), parking_lot::Mutex::default());
        Ok(Self(Arc::new(DeployerState { state, turn, busy, fault })))
    }

    /// Undoes whatever a crash has cut off.
    ///
    /// # Errors
    /// [`StateError`] when the journals cannot be read.
    #[crate::boxed]
    pub async fn recover(&self) -> Result<Vec<Recovery>, StateError> {
        let mut done = Vec::new();
        for journal in self.0.state.journals()? {
            let target = journal.target;
            let undone = self.undo(&journal).await;
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

    /// An error is a failure before anything changed.
    async fn attempt(&self, id: Uuid, target: &Target, material: &Material) -> Result<Report, DeployError> {
        target.check()?;
        let own = match target {
            Target::Exec(_) => self.0.state.exec_folder(id)?,
            _ => PathBuf::new(),
        };
        let plan = Arc::new(Plan::of(target, material, &own)?);
        if let Some(journal) = self.0.state.journal(id)? {
            self.undo(&journal).await?;
        }
        let expected = material.fingerprint();
        let turn = self.0.turn.lock().await;
        let (inner, of) = (Arc::clone(&self.0), Arc::clone(&plan));
        let started = aside(move || inner.write(id, &of)).await?;
        let Some(started) = started else {
            drop(turn);
            return self.already_there(&plan, expected).await;
        };
        let mut journal = started.journal;
        let result = match started.failure {
            Some(error) => Err(error),
            None => self.take_over(&plan, &mut journal).await,
        };
        drop(turn);
        let result = match result {
            Ok(()) => self.verify_and_finish(&plan, &journal, expected).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(served) => Ok(Report::ok(Outcome::Deployed, served, started.changed)),
            // As dead as a killed process.
            Err(error @ DeployError::Halted(_)) => Err(error),
            Err(error) => Ok(self.roll_back(&plan, &journal, &error, started.changed).await),
        }
    }

    /// The files are as they should be; the server may not be.
    async fn already_there(&self, plan: &Plan, expected: Fingerprint) -> Result<Report, DeployError> {
        let Some(verify) = &plan.verify else {
            return Ok(Report::ok(Outcome::Unchanged, None, vec![]));
        };
        if matches!(verify::served(verify).await, Ok(served) if served == expected) {
            return Ok(Report::ok(Outcome::Unchanged, Some(expected), vec![]));
        }
        if let Some(reload) = &plan.reload {
            let _turn = self.0.turn.lock().await;
            reload.run().await.map_err(DeployError::Reload)?;
        }
        verify::until_served(verify, expected).await.map_err(DeployError::Verify)?;
        Ok(Report::ok(Outcome::Deployed, Some(expected), vec![]))
    }

    /// Makes the server check and take the files.
    async fn take_over(&self, plan: &Plan, journal: &mut Journal) -> Result<(), DeployError> {
        let fault = &self.0.fault;
        if let Some(validate) = &plan.validate {
            fault.at(|| "before validate".to_owned())?;
            validate.run().await.map_err(DeployError::Validate)?;
            fault.at(|| "after validate".to_owned())?;
        }
        if let Some(reload) = &plan.reload {
            journal.phase = Phase::Reloading;
            self.0.step("journal reload", || Ok(self.0.state.write_journal(journal)?))?;
            fault.at(|| "before reload".to_owned())?;
            reload.run().await.map_err(DeployError::Reload)?;
            fault.at(|| "after reload".to_owned())?;
        }
        Ok(())
    }

    async fn verify_and_finish(
        &self,
        plan: &Plan,
        journal: &Journal,
        expected: Fingerprint,
    ) -> Result<Option<Fingerprint>, DeployError> {
        if let Some(verify) = &plan.verify {
            self.0.fault.at(|| "before verify".to_owned())?;
            verify::until_served(verify, expected).await.map_err(DeployError::Verify)?;
        }
        self.0.step("finish", || Ok(self.0.state.remove_journal(journal.target)?))?;
        self.0.step("prune", || Ok(self.0.state.prune_backups(journal.target)?))?;
        Ok(plan.verify.is_some().then_some(expected))
    }

    async fn roll_back(
        &self,
        plan: &Plan,
        journal: &Journal,
        error: &DeployError,
        written: Vec<PathBuf>,
    ) -> Report {
        tracing::warn!(target = %journal.target, %error, "a deployment failed and is undone");
        let (outcome, rollback_error) = match self.undo(journal).await {
            Ok(None) => (Outcome::RolledBack, None),
            Ok(Some(reload)) => (Outcome::Broken, Some(reload.to_string())),
            Err(undoing) => (Outcome::Broken, Some(undoing.to_string())),
        };
        let served = match &plan.verify {
            Some(verify) if journal.phase == Phase::Reloading => served_now(verify).await,
            _ => None,
        };
        Report { outcome, error: Some(error.to_string()), rollback_error, served, written }
    }

    /// Puts back what was there, and reloads if the server may have taken the new files. `Some` is a reload that
    /// failed with the files put back.
    async fn undo(&self, journal: &Journal) -> Result<Option<DeployError>, DeployError> {
        let _turn = self.0.turn.lock().await;
        let (inner, of) = (Arc::clone(&self.0), journal.clone());
        let had_files = aside(move || inner.restore(&of)).await?;
        let mut failed = None;
        if let (Phase::Reloading, Some(reload)) = (journal.phase, &journal.reload) {
            self.0.fault.at(|| "before undo reload".to_owned())?;
            failed = reload_old(reload, had_files).await.err();
            self.0.fault.at(|| "after undo reload".to_owned())?;
        }
        self.0.step("undo finish", || Ok(self.0.state.remove_journal(journal.target)?))?;
        Ok(failed)
    }
}

/// Without files from before there is nothing to go back to: a command is not called for it, and a server that cannot
/// be reloaded without them goes on with what it has.
async fn reload_old(reload: &Hook, had_files: bool) -> Result<(), DeployError> {
    if !had_files && reload.told.is_some() {
        return Ok(());
    }
    match reload.run().await {
        Err(error) if had_files => Err(DeployError::Reload(error)),
        _ => Ok(()),
    }
}

async fn served_now(verify: &Verify) -> Option<Fingerprint> {
    verify::served(verify).await.ok()
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
    fn write(&self, id: Uuid, plan: &Plan) -> Result<Option<Started>, DeployError> {
        let files: Vec<_> = plan.files.iter().map(examine).collect::<Result<_, _>>()?;
        if files.iter().all(|file| !file.changed) {
            return Ok(None);
        }
        let kept: Vec<_> = files.iter().map(kept).collect();
        let backup = self.step("backup", || Ok(self.state.write_backup(id, &kept)?))?;
        drop(kept);
        let journal = Journal { target: id, phase: Phase::Writing, backup, reload: plan.reload.clone() };
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
    fn restore(&self, journal: &Journal) -> Result<bool, DeployError> {
        let files = self.state.read_backup(journal.target, journal.backup)?;
        for (number, (kept, content)) in files.iter().enumerate() {
            let place = TargetFile::of(&kept.path)?;
            place.unstage()?;
            self.step(&format!("undo {number}"), || restore_file(&place, kept, content.as_ref()))?;
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
    let path = file.planned.spec.path.clone();
    let attributes = file.found.as_ref().map(|found| found.attributes);
    (BackupFile { path, attributes }, file.found.as_ref().map(|found| found.content.clone()))
}

fn examine(planned: &PlannedFile) -> Result<Examined<'_>, DeployError> {
    let place = TargetFile::of(&planned.spec.path)?;
    let found = place.read()?;
    let wanted = wanted(planned, found.as_ref())?;
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

/// As configured, else as it was, else the agent's own; what holds a key stays closed to others unless somebody wrote
/// otherwise.
fn wanted(planned: &PlannedFile, found: Option<&FileContent>) -> Result<Attributes, FileError> {
    let spec = &planned.spec;
    let before = found.map(|found| found.attributes);
    let (own_uid, own_gid) = file::own();
    let uid = match &spec.owner {
        Some(name) => file::uid_of(name)?,
        None => before.map_or(own_uid, |before| before.uid),
    };
    let gid = match &spec.group {
        Some(name) => file::gid_of(name)?,
        None => before.map_or(own_gid, |before| before.gid),
    };
    let closed = if planned.private { OTHERS } else { 0 };
    let mode = match (spec.mode, before) {
        (Some(mode), _) => mode.0,
        (None, Some(before)) => before.mode & !closed,
        (None, None) if planned.private => PRIVATE,
        (None, None) => PUBLIC,
    };
    Ok(Attributes { uid, gid, mode })
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
