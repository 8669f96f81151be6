//! Creation of managed certificates.

use events::{CertificateCreated, Event};
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::json;
use store::time_limits;
use store::{Batcher, BatcherOptions, Clock, Store, StoreError, Tx};
use uuid::Uuid;

use crate::creation::{AdmissionError, CreateError, Created, Creation};
use crate::error::{Missing, NameTaken};
use crate::handle::Lifecycle;
use crate::job::{Consent, JobId, JobKind};
use crate::judgement::violation_row;
use crate::ledger::{Ledger, attempt, transaction};
use crate::managed::{INTERNAL_ISSUER, KeyLocation, ManagedCertificate, NewCertificate, TargetRef, row_of};
use crate::policy::Violation;
use crate::tables::jobs::NewJob;
use crate::tables::managed::{NewManaged, agents_of_targets, insert_managed};
use crate::tables::policies::replace_violations;
use crate::transition::event_certificate;

/// Maximum creations in one transaction, about 2 KiB each.
const BATCH_MAX: usize = 512;

/// Creates the batcher: concurrent creations share a transaction.
pub(crate) fn batcher(store: Store, clock: Clock) -> Batcher<Creation, Result<Created, CreateError>> {
    let options = BatcherOptions { batch_max: BATCH_MAX, ..BatcherOptions::default() };
    Batcher::new("lifecycle-create", options, move |batch| {
        let (store, now_us) = (store.clone(), clock.now_us());
        async move {
            let batch = std::sync::Arc::new(batch);
            let shared_batch = std::sync::Arc::clone(&batch);
            let work = move || {
                let batch = std::sync::Arc::clone(&shared_batch);
                transaction(move |tx| async move { insert_batch(tx, &batch, now_us).await }.boxed())
            };
            match attempt(&store, "certificates_create", work).await {
                Ok(entered) => entered,
                Err(error) => {
                    let error = CreateError::from(error);
                    batch.iter().map(|_| Err(error.clone())).collect()
                }
            }
        }
        .boxed()
    })
}

/// Writes rows, first runs, counters, audit rows, events and violations in one transaction.
async fn insert_batch(
    tx: &mut Tx,
    batch: &[Creation],
    now_us: i64,
) -> Result<Vec<Result<Created, CreateError>>, StoreError> {
    let new: Vec<NewManaged> = batch.iter().map(|one| new_row(&one.certificate)).collect();
    let given: std::collections::HashMap<Uuid, i64> =
        insert_managed(tx, &new).await?.into_iter().map(|(id, uuid)| (uuid, id)).collect();
    let mut ledger = Ledger::new(now_us, "system:create");
    let mut found = Vec::new();
    for (one, new) in batch.iter().zip(&new) {
        let Some(&id) = given.get(&new.row.uuid) else { continue };
        ledger.entered(&new.row);
        let details = json!({ "names": one.certificate.names.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "profile": new.row.profile, "issuer": new.row.issuer });
        ledger.audit_as(Some(&one.actor), &new.row, "certificate.create", details);
        let created =
            CertificateCreated { certificate: event_certificate(&new.row), actor: one.actor.clone() };
        ledger.announce(&new.row, &Event::CertificateCreated(created));
        if one.consent == Consent::Needed {
            ledger.plan_changed(id, &one.actor);
        }
        if one.issue {
            ledger.queue(NewJob {
                certificate: id,
                kind: JobKind::Issuance,
                approval: one.consent,
                issuer: new.row.issuer.clone(),
                agent: new.row.agent,
                version: None,
                reason: "created".to_owned(),
                requested_by: one.actor.clone(),
                next_attempt_at_us: now_us,
                deadline_at_us: now_us + time_limits::run_timeout_us(new.row.life_us()),
                detail: None,
                created_at_us: now_us,
            });
        }
        found.extend(one.violations.iter().map(|violation| violation_row(id, violation, now_us)));
    }
    let jobs: std::collections::HashMap<i64, i64> =
        ledger.write(tx).await?.into_iter().map(|job| (job.certificate, job.id)).collect();
    if !found.is_empty() {
        replace_violations(tx, found.iter().map(|one| one.certificate).collect(), &found).await?;
    }
    Ok(batch
        .iter()
        .map(|one| {
            let name = one.certificate.name.clone();
            let Some(id) = given.get(&one.certificate.id) else {
                return Err(NameTaken { what: "a certificate", name }.into());
            };
            Ok(Created {
                certificate: one.certificate.id,
                name,
                job: jobs.get(id).map(|job| JobId::of(*job, now_us)),
                violations: one.violations.clone(),
            })
        })
        .collect())
}

pub(super) fn new_row(certificate: &ManagedCertificate) -> NewManaged {
    NewManaged {
        row: row_of(certificate),
        names: certificate.names.iter().map(ToString::to_string).collect(),
        tags: certificate.tags.clone().into_iter().collect(),
    }
}

impl Lifecycle {
    /// Creates a managed certificate. With [`NewCertificate::issue`], its first run is queued in the same transaction.
    ///
    /// # Errors
    /// [`CreateError`]: a rejected request stores nothing.
    #[crate::boxed]
    pub async fn create(&self, new: NewCertificate, actor: &str) -> Result<Created, CreateError> {
        let creation = self.prepare(&new, actor).await?;
        let issue = creation.issue;
        let created = self.inner.creating.submit(creation).await.map_err(|_| CreateError::Stopping)?;
        if issue && created.is_ok() {
            self.inner.wake.notify_one();
        }
        created
    }

    /// Creates many certificates concurrently, and returns a result for each.
    #[crate::boxed]
    pub async fn create_many(
        &self,
        new: Vec<NewCertificate>,
        actor: &str,
    ) -> Vec<Result<Created, CreateError>> {
        join_all(new.into_iter().map(|one| self.create(one, actor))).await
    }

    async fn prepare(&self, new: &NewCertificate, actor: &str) -> Result<Creation, CreateError> {
        let certificate = new.check(Uuid::now_v7(), self.now_us())?;
        let (consent, violations) = self.admit(&certificate).await?;
        Ok(Creation { certificate, issue: new.issue, consent, actor: actor.to_owned(), violations })
    }

    /// Checks that all objects that the certificate refers to exist, and that no enforced policy forbids the certificate. Returns
    /// whether its runs need approval, and the violations of advisory policies.
    pub(super) async fn admit(
        &self,
        certificate: &ManagedCertificate,
    ) -> Result<(Consent, Vec<Violation>), AdmissionError> {
        let set = self.policy_set().await?;
        if let Some(name) = &certificate.policy
            && set.get(name).is_none()
        {
            return Err(Missing { what: "policy", name: name.clone() }.into());
        }
        let facts = self.profile_facts(&certificate.profile).await?;
        if certificate.issuer == INTERNAL_ISSUER {
            if facts.is_none() {
                let name = certificate.profile.clone();
                return Err(Missing { what: "profile", name }.into());
            }
        } else {
            self.inner.issuers.issuer(&certificate.issuer).await?;
        }
        self.check_agents(certificate).await?;
        let judged = crate::judgement::judge(&set, facts, certificate);
        let violations = set.violations(certificate, &judged.rule);
        let (enforced, advised): (Vec<_>, Vec<_>) = violations.into_iter().partition(|one| one.enforced);
        if enforced.is_empty() {
            Ok((judged.consent(), advised))
        } else {
            Err(AdmissionError::Forbidden(enforced))
        }
    }

    /// Checks that the agents of the key and of the targets exist, and that each target belongs to its agent.
    async fn check_agents(&self, certificate: &ManagedCertificate) -> Result<(), AdmissionError> {
        let missing = |what, id: &Uuid| AdmissionError::from(Missing { what, name: id.to_string() });
        if let KeyLocation::Agent { agent } = &certificate.key_location {
            let existing = agent::tables::Agents::of(&self.inner.store).get(*agent).await?;
            existing.filter(|agent| agent.retired_at_us.is_none()).ok_or_else(|| missing("agent", agent))?;
        }
        let target_agents: Vec<(Uuid, Uuid)> = certificate
            .targets
            .iter()
            .filter_map(|target| match target {
                TargetRef::Deploy { target, agent } => Some((*target, *agent)),
                TargetRef::Endpoint { .. } => None,
            })
            .collect();
        if target_agents.is_empty() {
            return Ok(());
        }
        let wanted = target_agents.iter().map(|(target, _)| *target).collect();
        let query = transaction(move |tx| async move { agents_of_targets(tx, wanted).await }.boxed());
        let existing = self.inner.store.write("target_agents", query).await?;
        match target_agents.iter().find(|pair| !existing.contains(pair)) {
            None => Ok(()),
            Some((target, agent)) if existing.iter().any(|(one, _)| one == target) => {
                Err(Missing { what: "target of the agent", name: agent.to_string() }.into())
            }
            Some((target, _)) => Err(missing("target", target)),
        }
    }
}
