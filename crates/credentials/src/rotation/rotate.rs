//! Rotation of due values: a value in one operation, a CA step by step.

use std::collections::HashMap;

use events::CredentialRotationFailed;
use futures_util::{FutureExt, StreamExt};
use store::NewEvent;
use uuid::Uuid;

use super::error::RotateError;
use super::hook::{Hooks, TimedOutHooks};
use super::pace::{PAGES, RETRY_MAX_US, backoff_us};
use super::plan::{ROTATOR, plan, subject_of};
use super::report::RotationReport;
use super::step::{self, RotationAction, TransitionalFlag};
use crate::regenerate::Changes;
use crate::tables;
use crate::tables::{
    ChangeStep, DueRotation, PlannedNames, Requester, RotationFailure, RotationStep, fail_rotations,
    step_rotations,
};
use crate::version::Version;
use crate::{CredentialError, Credentials, Name, Value};

/// Due names in one page.
const DUE: usize = 32;
/// Maximum concurrent rotations in a page.
const AT_ONCE: usize = 4;
/// Maximum certificates below a CA that one round regenerates. The next round continues.
const CHILDREN_MAX: usize = 256;
/// Certificates below a CA in one page.
const CHILDREN_PAGE: usize = 64;
/// Maximum levels of CAs below a rotated CA.
const DEPTH_MAX: usize = 16;
/// Maximum characters of a stored reason.
const REASON_MAX: usize = 500;

/// Result of one name's rotation.
enum RotationOutcome {
    /// The name has a new value.
    Rotated,
    /// Nothing was written. Either another writer was faster and the name is planned again, or read-only mode was set and the
    /// name stays due.
    Overtaken,
    /// The name has a next step and a due time, for example in the replacement of a CA.
    Step(RotationStep),
    /// The rotation failed.
    Failed(RotationFailure),
}

fn rotator_requester() -> Requester {
    Requester::manager(ROTATOR)
}

impl Credentials {
    pub(super) async fn rotate_due(
        &self,
        timed_out: &TimedOutHooks,
        report: &mut RotationReport,
    ) -> Result<(), CredentialError> {
        for page in 0..PAGES {
            if self.is_read_only() {
                return Ok(());
            }
            let now_us = self.now_us();
            let due = tables::Credentials::of(self.store()).rotations_due(now_us, DUE).await?;
            if page == 0 {
                report.behind_s = due.first().map_or(0, |first| (now_us - first.due_at_us) / 1_000_000);
            }
            if due.is_empty() || (page > 0 && !self.try_acquire_lease().await?) {
                return Ok(());
            }
            // Names whose version has changed are planned again for the new version, whether or not its event has arrived.
            let (due, stale): (Vec<_>, Vec<_>) =
                due.into_iter().partition(|one| one.current == Some(one.version));
            let stale_names: Vec<String> = stale.into_iter().map(|one| one.name_key).collect();
            let page_outcomes = self.rotate_page(due, timed_out).await?;
            report.rotated += page_outcomes
                .iter()
                .filter(|page_outcomes| matches!(page_outcomes, RotationOutcome::Rotated))
                .count() as u64;
            let (mut steps, mut failed) = (Vec::new(), Vec::new());
            for one in page_outcomes {
                match one {
                    RotationOutcome::Step(step) => steps.push(step),
                    RotationOutcome::Failed(failure) => failed.push(failure),
                    RotationOutcome::Rotated | RotationOutcome::Overtaken => {}
                }
            }
            report.steps += steps.len() as u64;
            report.failed += failed.len() as u64;
            self.record(stale_names, steps, failed).await?;
        }
        Ok(())
    }

    /// Stores the results of a page of due names in one transaction.
    async fn record(
        &self,
        stale_names: Vec<String>,
        steps: Vec<RotationStep>,
        failed: Vec<RotationFailure>,
    ) -> Result<(), CredentialError> {
        let now_us = self.now_us();
        let record = self.store().write("credential_rotations_note", move |tx| {
            async move {
                plan(tx, &stale_names, PlannedNames::Changed, now_us).await?;
                step_rotations(tx, &steps).await?;
                // A CA whose replacement is complete is planned for its new certificate.
                let ended = steps.iter().filter(|step| step.step == ChangeStep::None);
                let ended: Vec<String> = ended.map(|step| step.name_key.clone()).collect();
                plan(tx, &ended, PlannedNames::All, now_us).await?;
                let first = fail_rotations(tx, &failed).await?;
                let notified = failed.iter().filter(|failure| first.contains(&failure.name_key));
                store::emit(tx, notified.map(|failure| failure_event(failure, now_us)).collect()).await
            }
            .boxed()
        });
        Ok(record.await?)
    }

    async fn rotate_page(
        &self,
        due: Vec<DueRotation>,
        timed_out: &TimedOutHooks,
    ) -> Result<Vec<RotationOutcome>, CredentialError> {
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let hooks = match due.iter().any(|one| one.hook.is_some()) {
            true => self.load_hooks(timed_out).await?,
            false => Hooks::none(timed_out),
        };
        let names: Vec<String> = due.iter().map(|one| one.name_key.clone()).collect();
        let mut versions = self.current_versions_by_name(&names).await?;
        let mut work = Vec::with_capacity(due.len());
        for one in &due {
            let versions = versions.remove(&one.name_key).unwrap_or_else(|| Ok(Vec::new()));
            work.push(self.rotate_one(one, versions, &hooks).boxed());
        }
        Ok(futures_util::stream::iter(work).buffer_unordered(AT_ONCE).collect().await)
    }

    /// Returns the current versions of each name (lower case): the active version, then the transitional one. Uses one statement.
    async fn current_versions_by_name(
        &self,
        names: &[String],
    ) -> Result<HashMap<String, Result<Vec<Version>, CredentialError>>, CredentialError> {
        let asked: Vec<_> = names.iter().map(|name| (Requester::system(), name.clone())).collect();
        let mut all: HashMap<String, Result<Vec<Version>, CredentialError>> = HashMap::new();
        for (index, row) in tables::Credentials::of(self.store()).current(&asked, self.now_us()).await? {
            let versions = all.entry(names[index].clone()).or_insert_with(|| Ok(Vec::new()));
            match (self.open_row(row), versions) {
                (Ok(version), Ok(versions)) => versions.push(version),
                (Err(error), versions) => *versions = Err(error),
                (Ok(_), Err(_)) => {}
            }
        }
        Ok(all)
    }

    async fn rotate_one(
        &self,
        due: &DueRotation,
        versions: Result<Vec<Version>, CredentialError>,
        hooks: &Hooks,
    ) -> RotationOutcome {
        let outcome = match versions {
            _ if self.is_read_only() => Err(RotateError::ReadOnly),
            Ok(versions) => self.rotate_versions(due, versions, hooks).await,
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(page_outcomes) => page_outcomes,
            Err(
                RotateError::ReadOnly
                | RotateError::Other(CredentialError::Changed | CredentialError::NotFound),
            ) => RotationOutcome::Overtaken,
            Err(error) => {
                if let RotateError::Other(error) = &error
                    && let Some(details) = error.details()
                {
                    tracing::error!(name = due.name_key, details, "a credential could not be rotated");
                }
                let wait = if error.is_transient() { backoff_us(due.failures) } else { RETRY_MAX_US };
                RotationOutcome::Failed(RotationFailure {
                    name_key: due.name_key.clone(),
                    version: due.version,
                    error: error.to_string().chars().take(REASON_MAX).collect(),
                    due_at_us: self.now_us().saturating_add(wait),
                })
            }
        }
    }

    async fn rotate_versions(
        &self,
        due: &DueRotation,
        versions: Vec<Version>,
        hooks: &Hooks,
    ) -> Result<RotationOutcome, RotateError> {
        let newest = versions.iter().max_by_key(|version| version.number).cloned();
        let Some(newest) = newest else {
            // The name expired or its versions were deleted. It stays planned, in case a version is restored.
            let due_at_us = self.now_us().saturating_add(RETRY_MAX_US);
            let (name_key, version) = (due.name_key.clone(), due.version);
            return Ok(RotationOutcome::Step(RotationStep { name_key, version, step: due.step, due_at_us }));
        };
        let authority = newest.facts.is_some_and(|facts| facts.certificate_authority);
        if !authority && due.step != ChangeStep::None {
            // The name was a CA when its replacement began, and is a CA no longer. Plans the name by its current type.
            let (name_key, version, due_at_us) = (due.name_key.clone(), due.version, self.now_us());
            return Ok(RotationOutcome::Step(RotationStep {
                name_key,
                version,
                step: ChangeStep::None,
                due_at_us,
            }));
        }
        if due.step == ChangeStep::None && newest.parameters.is_none() {
            return Err(RotateError::ByHand);
        }
        if authority {
            return self.continue_ca_rotation(due, versions, newest, hooks).await.map(RotationOutcome::Step);
        }
        let changes = Changes { expected: Some(due.version), ..Changes::default() };
        self.rotated(newest, &changes, due.hook.as_ref(), hooks).await?;
        Ok(RotationOutcome::Rotated)
    }

    /// Rotates a value, after its hook has agreed.
    async fn rotated(
        &self,
        existing: Version,
        changes: &Changes,
        hook: Option<&String>,
        hooks: &Hooks,
    ) -> Result<Version, RotateError> {
        let (requester, asked) = (rotator_requester(), hooks.approval_hook(hook)?);
        let draft = self.draft_regeneration(&requester, existing, None, changes).await?;
        if let Some(asked) = asked {
            self.request_hook_approval(hooks, asked, &draft).await?;
        }
        if self.is_read_only() {
            return Err(RotateError::ReadOnly);
        }
        Ok(self.write(&requester, draft).await?)
    }

    /// Makes one step of a CA's replacement, and returns when the next step is due.
    async fn continue_ca_rotation(
        &self,
        due: &DueRotation,
        versions: Vec<Version>,
        newest: Version,
        hooks: &Hooks,
    ) -> Result<RotationStep, RotateError> {
        let requester = rotator_requester();
        let name = Name::stored(newest.name.clone());
        let (credential, newest_id) = (newest.credential, newest.id);
        let active = versions.iter().find(|version| !version.transitional);
        let flagged = versions.iter().find(|version| version.transitional).map(|version| version.id);
        let flag = match flagged {
            None => TransitionalFlag::Absent,
            Some(flagged) if flagged == newest_id => TransitionalFlag::Newest,
            Some(_) => TransitionalFlag::Older,
        };
        // A CA whose only version is transitional has no version that could sign during the replacement.
        let old = active.filter(|_| flag != TransitionalFlag::Older).map(|active| active.id);
        let left_us = self.overlap_us(due, &versions);
        let next_step = |version: Uuid, step: ChangeStep, wait_us: i64| RotationStep {
            name_key: due.name_key.clone(),
            version,
            step,
            due_at_us: self.now_us().saturating_add(wait_us),
        };
        match step::next(due.step, flag) {
            RotationAction::Begin => Ok(next_step(newest_id, ChangeStep::Begun, 0)),
            RotationAction::Make => {
                let changes =
                    Changes { transitional: true, expected: Some(due.version), ..Changes::default() };
                let made = self.rotated(newest, &changes, due.hook.as_ref(), hooks).await?;
                self.update_children(&requester, &name).await?;
                Ok(next_step(made.id, ChangeStep::Trusted, left_us))
            }
            RotationAction::Spread => {
                self.update_children(&requester, &name).await?;
                Ok(next_step(newest_id, ChangeStep::Trusted, left_us))
            }
            RotationAction::Move => {
                let old = old.map(|id| id.to_string());
                self.update_transitional_version(&requester, credential, old.as_deref()).await?;
                Ok(next_step(newest_id, ChangeStep::Signs, 0))
            }
            RotationAction::Follow => {
                // The process may have crashed after the flag was moved and before the children were updated.
                self.update_children(&requester, &name).await?;
                if self.regenerate_children(&name, hooks).await? {
                    return Ok(next_step(newest_id, ChangeStep::Followed, left_us));
                }
                Ok(next_step(newest_id, ChangeStep::Signs, 0))
            }
            RotationAction::Clear => {
                self.update_transitional_version(&requester, credential, None).await?;
                Ok(next_step(newest_id, ChangeStep::None, 0))
            }
            RotationAction::End => {
                self.update_children(&requester, &name).await?;
                Ok(next_step(newest_id, ChangeStep::None, 0))
            }
        }
    }

    /// Returns how long both certificates are trusted, µs: the period of the policy, but at most a third of the shorter remaining
    /// lifetime.
    fn overlap_us(&self, due: &DueRotation, versions: &[Version]) -> i64 {
        let ends = versions.iter().filter_map(|version| version.not_after_us).min();
        let third = ends.map_or(i64::MAX, |ends| (ends - self.now_us()).max(0) / 3);
        due.overlap_s.saturating_mul(1_000_000).min(third)
    }

    /// Regenerates the certificates below the CA `root` that its active version did not sign. Then does the same for each CA below,
    /// level by level. Returns false once at least [`CHILDREN_MAX`] certificates are regenerated. The next round continues, because
    /// certificates that are already regenerated are skipped.
    async fn regenerate_children(&self, root: &Name, hooks: &Hooks) -> Result<bool, RotateError> {
        let mut level = vec![root.clone()];
        let mut left = CHILDREN_MAX;
        for _ in 0..DEPTH_MAX {
            let mut below = Vec::new();
            for authority in &level {
                let (active, _) = self.ca_versions(&rotator_requester(), authority).await?;
                let names = self.signed_by(authority).await?;
                for page in names.chunks(CHILDREN_PAGE) {
                    if self.is_read_only() {
                        return Err(RotateError::ReadOnly);
                    }
                    let made =
                        self.regenerate_signed_page(page, &active.certificate, hooks, &mut below).await?;
                    left = left.saturating_sub(made);
                    if left == 0 {
                        return Ok(false);
                    }
                }
            }
            if below.is_empty() {
                return Ok(true);
            }
            level = below;
        }
        Err(CredentialError::bad(format!("The CA chain has more than {DEPTH_MAX} levels.")).into())
    }

    /// Regenerates a page of certificates that a CA signed, and returns their number. Adds CAs among them to `below`.
    async fn regenerate_signed_page(
        &self,
        names: &[Name],
        signer: &Option<String>,
        hooks: &Hooks,
        below: &mut Vec<Name>,
    ) -> Result<usize, RotateError> {
        let keys: Vec<String> = names.iter().map(|name| name.key().to_owned()).collect();
        let notified: HashMap<String, String> = tables::Credentials::of(self.store())
            .rotation_hooks_of(&keys)
            .await
            .map_err(CredentialError::from)?
            .into_iter()
            .collect();
        let opened;
        let hooks = if notified.is_empty() || !hooks.is_empty() {
            hooks
        } else {
            opened = self.load_hooks(&hooks.timed_out).await?;
            &opened
        };
        let mut behind = Vec::new();
        for (key, versions) in self.current_versions_by_name(&keys).await? {
            let newest = versions?.into_iter().max_by_key(|version| version.number);
            let Some(newest) = newest else { continue };
            let Value::Certificate(value) = &newest.value else { continue };
            let follows = value.ca == *signer;
            if newest.facts.is_some_and(|facts| facts.certificate_authority) {
                below.push(Name::stored(newest.name.clone()));
            }
            if !follows {
                behind.push((key, newest));
            }
        }
        let made = behind.len();
        let work: Vec<_> = behind
            .into_iter()
            .map(|(key, newest)| {
                let hook = notified.get(&key);
                async move {
                    let (name, id) = (newest.name.clone(), newest.id);
                    let changes = Changes { expected: Some(id), ..Changes::default() };
                    match self.rotated(newest, &changes, hook, hooks).await {
                        // Another writer regenerated the certificate meanwhile, with the CA's current version.
                        Ok(_) | Err(RotateError::Other(CredentialError::Changed)) => Ok(()),
                        Err(RotateError::ReadOnly) => Err(RotateError::ReadOnly),
                        Err(error) => Err(RotateError::Follower { name, why: error.to_string() }),
                    }
                }
            })
            .collect();
        let outcomes: Vec<Result<(), RotateError>> =
            futures_util::stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
        outcomes.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(made)
    }
}

fn failure_event(failure: &RotationFailure, at_us: i64) -> NewEvent {
    let body = CredentialRotationFailed {
        name: failure.name_key.clone(),
        error: failure.error.clone(),
        again_at_us: failure.due_at_us,
    };
    store::new_event(at_us, subject_of(&failure.name_key), &events::Event::CredentialRotationFailed(body))
}
