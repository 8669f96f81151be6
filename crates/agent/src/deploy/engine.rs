//! The deployment engine, the same for all kinds of target.
//!
//! plan → compare with the current files → back up the current files → write the journal → write the new files next to the old →
//! rename → validate → reload → check the served certificate → remove the journal. A failure at any step restores the backup and
//! reloads again. A crash leaves the journal, from which [`Deployer::recover`] restores the backup.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use enrollment::Material;
use enrollment::state_folder::StateError;
use shared::Shared;
use telemetry::spans::{Kind, Span, part};
use uuid::Uuid;
use x509::Fingerprint;
use zeroize::Zeroizing;

use super::fault::{Fault, Halted};
use super::file::{Attributes, FileContent, FileError, TargetFile};
use super::hook::{Hook, HookError};
use super::journal::{BackupFile, Journal, Phase, StateFolder};
use super::judge::{denied_endpoint, find_missing_permissions, judge_file, wanted};
use super::keystore::KeystoreError;
use super::plan::{DirectoryOwner, Plan, PlannedFile, TargetRequirements};
use super::policy::{DeniedAction, Policy, PolicyError, PolicyFile, Refusal};
use super::target::{InvalidTarget, Target, Verify};
use super::verify::{self, VerifyError};

/// Reason why a deployment failed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The target is invalid. Nothing was changed.
    #[error(transparent)]
    Invalid(#[from] InvalidTarget),
    /// Another deployment to the same target is in progress.
    #[error("another deployment to this target is running")]
    Busy,
    /// The policy of this host cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy of this host does not allow the deployment.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A deployment that a crash interrupted cannot be undone: the policy no longer allows it.
    #[error(
        "cannot undo the interrupted deployment: {refusal}\nOr remove {journal} to keep the files as they are",
        journal = .journal.display()
    )]
    Undo {
        /// The actions that the policy does not allow.
        refusal: Refusal,
        /// Path of the deployment's journal.
        journal: PathBuf,
    },
    /// The agent's state directory cannot be used.
    #[error("cannot use the agent's folder: {0}")]
    State(#[from] StateError),
    /// A file of the target cannot be read or replaced.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key store could not be generated.
    #[error(transparent)]
    Keystore(#[from] KeystoreError),
    /// The server rejects its configuration with the new files.
    #[error("validation failed: {0}")]
    Validate(HookError),
    /// The server could not be reloaded with the new files.
    #[error("reload failed: {0}")]
    Reload(HookError),
    /// The endpoint could not be probed, or serves another certificate.
    #[error("verification failed: {0}")]
    Verify(VerifyError),
    /// The thread of the deployment panicked; a bug.
    #[error("the deployment thread panicked: {0}")]
    Panicked(String),
    #[doc(hidden)]
    #[error(transparent)]
    Halted(#[from] Halted),
}

coded::named! {
    /// Outcome of a deployment, as the agent reports it to the server.
    pub enum Outcome: "outcome of a deployment" {
        /// The deployment succeeded. Files were written, or the files were already up to date but the endpoint served another
        /// certificate. The endpoint of the target, if any, now serves the certificate.
        Deployed => "deployed",
        /// All files were already up to date.
        Unchanged => "unchanged",
        /// The deployment failed before it changed anything.
        Failed => "failed",
        /// The deployment failed, and the previous files are restored.
        RolledBack => "rolled_back",
        /// The deployment and its rollback failed. A person must intervene.
        Broken => "broken",
    }
}

/// Result of a deployment, with its errors and the replaced files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// Outcome of the deployment, such as `deployed` or `rolled_back`.
    pub outcome: Outcome,
    /// The error, if the deployment failed.
    pub error: Option<String>,
    /// Reason why the previous files could not be restored or reloaded.
    pub rollback_error: Option<String>,
    /// Fingerprint of the certificate that the endpoint serves now, if the target names an endpoint and it responded.
    pub served: Option<Fingerprint>,
    /// Paths of the replaced files.
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

/// An interrupted deployment that was undone after a crash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recovery {
    /// Id of the target whose deployment was undone.
    pub target: Uuid,
    /// Reason why the undo failed. The next start tries again when files could not be restored.
    pub error: Option<String>,
}

/// Deploys certificates on this host. Clones share the state directory and its lock.
#[derive(Clone, Debug)]
pub struct Deployer(Shared<DeployerState>);

#[derive(Debug)]
struct DeployerState {
    state: StateFolder,
    /// Lock for writing, validating and reloading: one deployment at a time. Otherwise a reload for one deployment could load an
    /// incomplete set of files of another deployment.
    deploy_lock: tokio::sync::Mutex<()>,
    /// Targets with a deployment in progress. At most as many as the agent's concurrent jobs.
    busy: parking_lot::Mutex<HashSet<Uuid>>,
    /// Policy of this host. It is read again from its file for each deployment.
    policy: PolicyFile,
    fault: Fault,
}

impl Deployer {
    /// Opens or creates the agent's state directory. `policy` lists the actions that the host's owner allows. Call
    /// [`Deployer::recover`] before any other method.
    ///
    /// # Errors
    /// [`StateError`]: the directory is accessible to other users, is used by another process, or cannot be created.
    pub fn open(state: &Path, policy: PolicyFile) -> Result<Self, StateError> {
        Self::open_with(state, policy, Fault::default())
    }

    #[doc(hidden)]
    pub fn open_with(state: &Path, policy: PolicyFile, fault: Fault) -> Result<Self, StateError> {
        let state = StateFolder::open(state)?;
        let (deploy_lock, busy) = (tokio::sync::Mutex::default(), parking_lot::Mutex::default());
        Ok(Self(Shared::new(DeployerState { state, deploy_lock, busy, policy, fault })))
    }

    /// Undoes all deployments that a crash interrupted, where the policy still allows it.
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
                None => tracing::warn!(%target, "an interrupted deployment was rolled back"),
                Some(error) => {
                    tracing::error!(%target, %error, "an interrupted deployment could not be rolled back")
                }
            }
            done.push(Recovery { target, error });
        }
        Ok(done)
    }

    /// Deploys `material` to `target`. `id` identifies the target in the agent's state directory.
    ///
    /// # Cancellation
    /// Dropping the future acts like a crash: the next deployment to the target, or [`Deployer::recover`], undoes the interrupted
    /// deployment.
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

    /// Removes the backups and the journal of a deleted target. The deployed files on the host are kept.
    ///
    /// # Errors
    /// [`StateError`] when something cannot be removed.
    pub fn forget(&self, id: Uuid) -> Result<(), StateError> {
        self.0.state.forget(id)
    }

    /// Returns the agent's state directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.state.root()
    }

    fn policy(&self) -> Result<Arc<Policy>, DeployError> {
        Ok(Arc::new(self.0.policy.load(self.folder())?))
    }

    /// Runs a deployment. An `Err` means that the deployment failed before anything changed.
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
        let deploy_lock = self.0.deploy_lock.lock().await;
        let (inner, of, rules) = (Shared::clone(&self.0), Arc::clone(&plan), Arc::clone(&policy));
        let started = run_blocking(move || inner.write(id, &of, &rules)).await?;
        let Some(started) = started else {
            drop(deploy_lock);
            return self.handle_unchanged_target(&plan.needs, expected, &policy).await;
        };
        let mut journal = started.journal;
        let result = match started.failure {
            Some(error) => Err(error),
            None => self.validate_and_reload(&plan.needs, &mut journal, &policy).await,
        };
        drop(deploy_lock);
        let result = match result {
            Ok(()) => self.verify_and_finish(&plan.needs, &journal, expected, &policy).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(served) => Ok(Report::ok(Outcome::Deployed, served, started.changed)),
            // Leaves everything as a killed process would.
            Err(error @ DeployError::Halted(_)) => Err(error),
            Err(error) => Ok(self.roll_back(&plan.needs, &journal, &error, started.changed, &policy).await),
        }
    }

    /// Checks that the policy allows the whole plan, before anything changes.
    async fn judge(&self, plan: &Arc<Plan>, policy: &Arc<Policy>) -> Result<(), DeployError> {
        let (of, rules) = (Arc::clone(plan), Arc::clone(policy));
        let mut denied = run_blocking(move || Ok(find_missing_permissions(&of.needs, &rules)?)).await?;
        if let Some(verify) = &plan.needs.verify {
            denied.extend(denied_endpoint(verify, policy).await);
        }
        if denied.is_empty() { Ok(()) } else { Err(policy.refusal(denied).into()) }
    }

    /// Handles a target whose files are already up to date. The server may still serve the previous certificate.
    async fn handle_unchanged_target(
        &self,
        needs: &TargetRequirements,
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
            let _deploy_lock = self.0.deploy_lock.lock().await;
            reload.run(policy).await.map_err(DeployError::Reload)?;
        }
        verified(verify, expected, policy).await?;
        Ok(Report::ok(Outcome::Deployed, Some(expected), vec![]))
    }

    /// Runs the server's validate and reload commands.
    async fn validate_and_reload(
        &self,
        needs: &TargetRequirements,
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
        needs: &TargetRequirements,
        journal: &Journal,
        expected: Fingerprint,
        policy: &Policy,
    ) -> Result<Option<Fingerprint>, DeployError> {
        if let Some(verify) = &needs.verify {
            self.0.fault.at(|| "before verify".to_owned())?;
            verified(verify, expected, policy).await?;
        }
        self.0.step("finish", || Ok(self.0.state.remove_journal(journal.target)?))?;
        self.0.step("prune", || Ok(self.0.state.prune_backups(journal.target)?))?;
        Ok(needs.verify.is_some().then_some(expected))
    }

    async fn roll_back(
        &self,
        needs: &TargetRequirements,
        journal: &Journal,
        error: &DeployError,
        written: Vec<PathBuf>,
        policy: &Arc<Policy>,
    ) -> Report {
        tracing::warn!(target = %journal.target, %error, "a deployment failed and was rolled back");
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

    /// Restores the previous files, and reloads if the server may have loaded the new ones. Returns the error of a reload that
    /// failed after the files were restored. The policy is checked again: it may have changed since the journal was written.
    async fn undo(
        &self,
        journal: &Journal,
        policy: &Arc<Policy>,
    ) -> Result<Option<DeployError>, DeployError> {
        let _deploy_lock = self.0.deploy_lock.lock().await;
        let (inner, of, rules) = (Shared::clone(&self.0), journal.clone(), Arc::clone(policy));
        let had_files = run_blocking(move || inner.restore(&of, &rules)).await?;
        let mut failed = None;
        if let (Phase::Reloading, Some(reload)) = (journal.phase, &journal.reload) {
            self.0.fault.at(|| "before undo reload".to_owned())?;
            failed = reload_restored_files(reload, had_files, policy).await.err();
            self.0.fault.at(|| "after undo reload".to_owned())?;
        }
        self.0.step("undo finish", || Ok(self.0.state.remove_journal(journal.target)?))?;
        Ok(failed)
    }
}

/// Reloads the server with the restored files. Without previous files, the command of an `exec` target does not run, and a failed
/// reload is ignored: the server continues with its loaded certificate.
async fn reload_restored_files(reload: &Hook, had_files: bool, policy: &Policy) -> Result<(), DeployError> {
    if !had_files && reload.told.is_some() {
        return Ok(());
    }
    match reload.run(policy).await {
        Err(error) if had_files => Err(DeployError::Reload(error)),
        _ => Ok(()),
    }
}

/// Waits until the endpoint serves the certificate, as a part of the deployment's trace.
async fn verified(verify: &Verify, expected: Fingerprint, policy: &Policy) -> Result<(), DeployError> {
    let described = |span: Span| span.with("bulla.fingerprint", expected.to_string());
    let served = verify::wait_until_served(verify, expected, policy);
    part("verify", Kind::Client, described, served).await.map_err(DeployError::Verify)
}

/// Returns the actions that a target needs but the policy of this host does not allow. Changes nothing. `state` is the agent's
/// state directory.
///
/// # Errors
/// [`DeployError`] when the policy cannot be read, or a file that it allows cannot be inspected.
#[crate::boxed]
pub async fn missing_rules(policy: &Arc<Policy>, target: &Target) -> Result<Vec<DeniedAction>, DeployError> {
    target.check()?;
    let (needs, rules) = (TargetRequirements::of(target, Path::new("/")), Arc::clone(policy));
    let verify = needs.verify.clone();
    let mut denied = run_blocking(move || Ok(find_missing_permissions(&needs, &rules)?)).await?;
    if let Some(verify) = &verify {
        denied.extend(denied_endpoint(verify, policy).await);
    }
    Ok(denied)
}

/// A started deployment: the journal is written, and the files too unless writing failed.
struct StartedDeployment {
    journal: Journal,
    changed: Vec<PathBuf>,
    failure: Option<DeployError>,
}

struct FileComparison<'p> {
    planned: &'p PlannedFile,
    place: TargetFile,
    found: Option<FileContent>,
    wanted: Attributes,
    changed: bool,
}

impl DeployerState {
    /// Runs a step that changes files. Tests can inject a fault before and after it.
    fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<T, DeployError>) -> Result<T, DeployError> {
        self.fault.at(|| format!("before {name}"))?;
        let done = work()?;
        self.fault.at(|| format!("after {name}"))?;
        Ok(done)
    }

    /// Compares, backs up and writes the files. Returns `None` when all files are up to date.
    fn write(
        &self,
        id: Uuid,
        plan: &Plan,
        policy: &Policy,
    ) -> Result<Option<StartedDeployment>, DeployError> {
        let examined = plan.files.iter().map(|planned| check_planned_file(planned, policy));
        let files: Vec<_> = examined.collect::<Result<_, _>>()?;
        if files.iter().all(|file| !file.changed) {
            return Ok(None);
        }
        let backup_file: Vec<_> = files.iter().map(backup_file).collect();
        let backup = self.step("backup", || Ok(self.state.write_backup(id, &backup_file)?))?;
        drop(backup_file);
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
        Ok(Some(StartedDeployment { journal, changed, failure }))
    }

    /// Replaces the files. All new content is on disk before the first file changes; then the files are renamed one right after the
    /// other.
    fn replace(&self, files: &[FileComparison<'_>]) -> Result<(), DeployError> {
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

    /// Restores the files of a backup. Returns whether there were any.
    fn restore(&self, journal: &Journal, policy: &Policy) -> Result<bool, DeployError> {
        let files = self.state.read_backup(journal.target, journal.backup)?;
        let target_files: Result<Vec<_>, _> =
            files.iter().map(|(backup_file, _)| TargetFile::of(&backup_file.path)).collect();
        let target_files = target_files?;
        let own = self.state.exec_path(journal.target).canonicalize().ok();
        let is_own = |path: &Path| own.as_ref().is_some_and(|own| path.parent() == Some(own));
        let hosts = target_files.iter().map(TargetFile::path).filter(|path| !is_own(path));
        let denied: Vec<DeniedAction> = hosts.filter_map(|path| policy.path(path).err()).collect();
        if !denied.is_empty() {
            let (refusal, journal) = (policy.refusal(denied), self.state.journal_path(journal.target));
            return Err(DeployError::Undo { refusal, journal });
        }
        for (number, ((backup_file, content), place)) in files.iter().zip(&target_files).enumerate() {
            place.remove_staged_file()?;
            self.step(&format!("undo {number}"), || restore_file(place, backup_file, content.as_ref()))?;
        }
        Ok(files.iter().any(|(backup_file, _)| backup_file.attributes.is_some()))
    }
}

fn restore_file(
    place: &TargetFile,
    backup_file: &BackupFile,
    content: Option<&Zeroizing<Vec<u8>>>,
) -> Result<(), DeployError> {
    let found = place.read()?;
    match (backup_file.attributes, content) {
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

fn backup_file(file: &FileComparison<'_>) -> (BackupFile, Option<Zeroizing<Vec<u8>>>) {
    let path = file.planned.needed.spec.path.clone();
    let attributes = file.found.as_ref().map(|found| found.attributes);
    (BackupFile { path, attributes }, file.found.as_ref().map(|found| found.content.clone()))
}

/// Checks the policy again, because the path may resolve to another file by now. The directory opened here is the one that is
/// written to.
fn check_planned_file<'p>(
    planned: &'p PlannedFile,
    policy: &Policy,
) -> Result<FileComparison<'p>, DeployError> {
    let needed = &planned.needed;
    let place = TargetFile::of(&needed.spec.path)?;
    if needed.place == DirectoryOwner::Host {
        policy.path(place.path()).map_err(|want| policy.refusal(vec![want]))?;
    }
    let found = place.read()?;
    let before = found.as_ref().map(|found| found.attributes);
    let wanted = wanted(needed, before)?;
    judge_file(&place, needed, wanted, before, policy).map_err(|want| policy.refusal(vec![want]))?;
    let changed = match &found {
        None => true,
        Some(found) => found.attributes != wanted || !has_content(planned, &found.content),
    };
    Ok(FileComparison { planned, place, found, wanted, changed })
}

fn has_content(planned: &PlannedFile, content: &[u8]) -> bool {
    match &planned.same {
        Some(same) => same(content),
        None => *planned.content == content,
    }
}

/// Runs file work on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DeployError> + Send + 'static,
) -> Result<T, DeployError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(DeployError::Panicked(error.to_string())))
}

struct Busy<'d>(&'d DeployerState, Uuid);

impl<'d> Busy<'d> {
    fn claim(inner: &'d DeployerState, id: Uuid) -> Option<Self> {
        // Not `then_some`: that always builds a claim. If another deployment has the id, dropping the claim would remove that
        // deployment's id.
        inner.busy.lock().insert(id).then(|| Self(inner, id))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_claim_of_a_target_is_refused_and_keeps_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let policy = PolicyFile::new(&folder.path().join("policy.toml"));
        let deployer = Deployer::open(&folder.path().join("state"), policy).unwrap();
        let target = Uuid::now_v7();
        let first = Busy::claim(&deployer.0, target).unwrap();
        assert!(Busy::claim(&deployer.0, target).is_none());
        assert!(deployer.0.busy.lock().contains(&target));
        drop(first);
        assert!(Busy::claim(&deployer.0, target).is_some());
    }
}
