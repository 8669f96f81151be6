//! Operations on policies, and checks of all managed certificates against them.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use store::{Cursor, Page, StoreError, Tx};
use uuid::Uuid;

use super::people::Deletion;
use super::selection::{Selection, selected};
use crate::error::{DataError, NameTaken, RemoveError, Stale, from_data};
use crate::handle::Lifecycle;
use crate::judgement::{judge, violation_row};
use crate::ledger::{Ledger, attempt, transaction};
use crate::managed::{BadRequest, ManagedCertificate, check_label, json as json_text};
use crate::policy::{BadPolicy, POLICIES_MAX, Policy, PolicySet, Severity};
use crate::renewal::SuggestedRenewalWindow;
use crate::runs::{open_run, plan};
use crate::state::State;
use crate::surroundings::ProfileFacts;
use crate::tables;
use crate::tables::jobs::{JobRow, open_jobs_of};
use crate::tables::managed::{ManagedFilter, ManagedRow, ManagedSuggestion, managed_by_ids, suggestions_of};
use crate::tables::policies::{
    NamedDocument, ViolationFilter, delete_policy, insert_policy, policy_user, replace_violations,
    update_policy,
};

/// A policy with its name, revision and timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRecord {
    /// Name of the policy.
    pub name: String,
    /// Description, scope, enforcement, rules and renewal settings of the policy.
    pub policy: Policy,
    /// Revision, incremented with every change.
    pub revision: i64,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970.
    pub updated_at_us: i64,
}

/// Reason why the policy was not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyChangeError {
    /// The name is invalid.
    #[error(transparent)]
    BadName(#[from] BadRequest),
    /// The policy is invalid.
    #[error(transparent)]
    BadPolicy(#[from] BadPolicy),
    /// The maximum number of policies is reached.
    #[error("{0}")]
    TooMany(&'static str),
    /// The name is already in use.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// The object was changed after the caller read it.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(PolicyChangeError);

/// A violation of a policy rule, as the API shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ViolationRecord {
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Profile of the certificate.
    pub profile: String,
    /// Name of the policy.
    pub policy: String,
    /// Identifier of the rule, such as `key_types`.
    pub rule: String,
    /// Severity of the violation: info, warning, error or critical.
    pub severity: Severity,
    /// Human-readable message.
    pub message: String,
    /// Time when the violation was first found, in µs since 1970.
    pub found_at_us: i64,
}

impl PolicyRecord {
    fn of(document: NamedDocument) -> Result<Self, DataError> {
        let policy = serde_json::from_str(&document.body)
            .map_err(|error| DataError::Unreadable(format!("{}: {error}", document.name)))?;
        let NamedDocument { name, revision, created_at_us, updated_at_us, .. } = document;
        Ok(Self { name, policy, revision, created_at_us, updated_at_us })
    }
}

impl Lifecycle {
    /// Returns a policy by its name.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn policy(&self, name: &str) -> Result<PolicyRecord, DataError> {
        let found = tables::Policies::of(&self.inner.store).get(name).await?;
        PolicyRecord::of(found.ok_or_else(|| DataError::not_found("policy", name))?)
    }

    /// Returns a page of policies, sorted by name.
    ///
    /// # Errors
    /// [`store::StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn policies(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PolicyRecord>, DataError> {
        let page = tables::Policies::of(&self.inner.store).page(after, limit).await?;
        let rows = page.rows.into_iter().map(PolicyRecord::of).collect::<Result<_, _>>()?;
        Ok(Page { rows, next: page.next })
    }

    /// Creates or replaces a policy. `revision` is the revision that the caller read, `None` for a new policy. Certificates that
    /// name it are rescheduled immediately. The next [`Lifecycle::judge_all`], which this call triggers, checks all certificates
    /// against it.
    ///
    /// # Errors
    /// [`PolicyChangeError`]
    #[crate::boxed]
    pub async fn put_policy(
        &self,
        name: &str,
        policy: &Policy,
        revision: Option<i64>,
        actor: &str,
    ) -> Result<PolicyRecord, PolicyChangeError> {
        check_label("the name", name)?;
        policy.check()?;
        if revision.is_none()
            && tables::Policies::of(&self.inner.store).page(None, POLICIES_MAX).await?.rows.len()
                >= POLICIES_MAX
        {
            return Err(PolicyChangeError::TooMany("the maximum of 500 policies is reached"));
        }
        let (now_us, body, key) = (self.now_us(), json_text(policy), name.to_owned());
        let mut ledger = Ledger::new(now_us, actor);
        let action = if revision.is_some() { "policy.update" } else { "policy.create" };
        ledger.audit_resource(format!("policy/{name}"), action, json!({ "policy": policy }));
        let work = transaction(move |tx| {
            async move {
                let done = match revision {
                    None => insert_policy(tx, &key, &body, now_us).await?,
                    Some(revision) => update_policy(tx, &key, &body, now_us, revision).await?,
                };
                if done {
                    ledger.write(tx).await?;
                }
                Ok(done)
            }
            .boxed()
        });
        let done = self.inner.store.write("policy_put", work).await?;
        self.inner.policies.forget();
        if done {
            let naming = ManagedFilter { policy: Some(name.to_owned()), ..ManagedFilter::default() };
            self.reschedule(&Selection::Filter(naming)).await?;
            self.inner.judge.notify_one();
            return Ok(self.policy(name).await?);
        }
        match revision {
            None => Err(NameTaken { what: "a policy", name: name.to_owned() }.into()),
            Some(_) => Err(Stale { revision: self.policy(name).await?.revision }.into()),
        }
    }

    /// Deletes a policy that no certificate names, and its violations.
    ///
    /// # Errors
    /// [`RemoveError::InUse`], [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn delete_policy(&self, name: &str, actor: &str) -> Result<(), RemoveError> {
        let mut ledger = Ledger::new(self.now_us(), actor);
        ledger.audit_resource(format!("policy/{name}"), "policy.delete", json!({}));
        let key = name.to_owned();
        let work = transaction(move |tx| {
            async move {
                if let Some(user) = policy_user(tx, &key).await? {
                    return Ok(Deletion::Used(user));
                }
                if !delete_policy(tx, &key).await? {
                    return Ok(Deletion::Missing);
                }
                ledger.write(tx).await?;
                Ok(Deletion::Done)
            }
            .boxed()
        });
        let changed = self.inner.store.write("policy_delete", work).await?;
        self.inner.policies.forget();
        match changed {
            Deletion::Used(by) => Err(RemoveError::InUse { what: "policy", name: name.to_owned(), by }),
            Deletion::Missing => Err(DataError::not_found("policy", name).into()),
            Deletion::Done => Ok(()),
        }
    }

    /// Returns a page of violations.
    ///
    /// # Errors
    /// [`store::StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn violations(
        &self,
        filter: &ViolationFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ViolationRecord>, DataError> {
        let page = tables::Policies::of(&self.inner.store).violations(filter, after, limit).await?;
        let rows = page.rows.into_iter().map(|view| ViolationRecord {
            certificate: view.certificate,
            name: view.name,
            profile: view.profile,
            policy: view.violation.policy,
            rule: view.violation.rule,
            severity: view.violation.severity,
            message: view.violation.message,
            found_at_us: view.violation.found_at_us,
        });
        Ok(Page { rows: rows.collect(), next: page.next })
    }

    /// Returns a page of violations like [`Lifecycle::violations`], optionally of a single certificate.
    ///
    /// # Errors
    /// [`DataError::NotFound`]; as [`Lifecycle::violations`].
    #[crate::boxed]
    pub async fn violations_of(
        &self,
        certificate: Option<Uuid>,
        mut filter: ViolationFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ViolationRecord>, DataError> {
        if let Some(id) = certificate {
            filter.certificate = Some(self.row(id).await?);
        }
        self.violations(&filter, after, limit).await
    }

    /// Checks all certificates against all policies, and reschedules them. Returns the number of certificates checked. Runs a
    /// constant number of statements for each `CHUNK` certificates.
    ///
    /// # Errors
    /// [`DataError`] of the database. Work done before the error stays done.
    #[crate::boxed]
    pub async fn judge_all(&self) -> Result<u64, DataError> {
        self.reschedule(&Selection::Filter(ManagedFilter::default())).await
    }

    /// Checks these certificates against all policies, and reschedules them.
    pub(super) async fn reschedule(&self, selection: &Selection) -> Result<u64, DataError> {
        let mut checked = 0;
        let mut after = Some(0);
        let source = Arc::new(selection.clone());
        while let Some(from) = after {
            let source = Arc::clone(&source);
            let read = transaction(move |tx| async move { selected(tx, &source, from).await }.boxed());
            let (rows, _, next) = self.inner.store.write("certificates_selected", read).await?;
            checked += rows.len() as u64;
            self.review(&rows).await?;
            after = next;
        }
        Ok(checked)
    }

    async fn review(&self, rows: &[ManagedRow]) -> Result<(), DataError> {
        let mut facts: HashMap<String, Option<ProfileFacts>> = HashMap::new();
        for row in rows {
            if !facts.contains_key(&row.profile) {
                facts.insert(row.profile.clone(), self.profile_facts(&row.profile).await?);
            }
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let (set, facts, now_us) = (self.policy_set().await?, Arc::new(facts), self.now_us());
        attempt(&self.inner.store, "certificates_review", move || {
            let (set, facts, ids) = (Arc::clone(&set), Arc::clone(&facts), ids.clone());
            transaction(move |tx| async move { review(tx, ids, &set, &facts, now_us).await }.boxed())
        })
        .await?;
        Ok(())
    }
}

async fn review(
    tx: &mut Tx,
    ids: Vec<i64>,
    set: &PolicySet,
    facts: &HashMap<String, Option<ProfileFacts>>,
    now_us: i64,
) -> Result<(), StoreError> {
    let rows = managed_by_ids(tx, ids.clone()).await?;
    let mut open: HashMap<i64, Vec<JobRow>> = HashMap::new();
    for job in open_jobs_of(tx, ids.clone()).await? {
        open.entry(job.certificate).or_default().push(job);
    }
    let suggested: HashMap<i64, ManagedSuggestion> =
        suggestions_of(tx, ids).await?.into_iter().map(|one| (one.certificate, one)).collect();
    let mut ledger = Ledger::new(now_us, "system:policies");
    let (mut checked, mut found) = (Vec::new(), Vec::new());
    for row in &rows {
        let Ok(certificate) = ManagedCertificate::from_row(row) else { continue };
        let judged = judge(set, facts.get(&row.profile).copied().flatten(), &certificate);
        checked.push(row.id);
        if certificate.state != State::Archived {
            let violations = set.violations(&certificate, &judged.rule);
            found.extend(violations.iter().map(|one| violation_row(row.id, one, now_us)));
        }
        let window = suggested.get(&row.id).and_then(|one| one.window_us);
        let window = window.map(|(start_us, end_us)| SuggestedRenewalWindow { start_us, end_us });
        plan(&mut ledger, &certificate, row, open_run(&open, row.id), &judged, window);
    }
    ledger.write(tx).await?;
    replace_violations(tx, checked, &found).await
}
