//! Decisions about certificates that scans found: claim, dismiss, or leave unmanaged.

use std::collections::{BTreeMap, HashMap};

use events::{CertificateClaimed, CertificateDismissed, Event};
use futures_util::FutureExt;
use inventory::ownership::{Assignment, Candidate, Rules};
use serde_json::json;
use store::{Cursor, InventoryFilter, InventoryRow, Page, StoreError, Tx, emit, new_event};
use uuid::Uuid;
use x509::{Certificate, Fingerprint};

use super::create::new_row;
use crate::claim::{BadClaim, Claim, ClaimSubject, FoundState, read};
use crate::creation::{AdmissionError, Created};
use crate::error::{DataError, NameTaken, from_data};
use crate::handle::Lifecycle;
use crate::ledger::{Ledger, attempt, transaction};
use crate::managed::{
    BadRequest, CurrentVersion, ManagedCertificate, NOTES_BYTES_MAX, NewCertificate, TargetRef,
};
use crate::renewal::{Life, due};
use crate::runs::planned;
use crate::state::State;
use crate::tables::managed::{
    NewManagedVersion, insert_managed, insert_versions, managed_by_ids, managed_by_version_fingerprints,
    update_managed,
};
use crate::tables::people::{Dismissal, dismiss, dismissed, undismiss};
use crate::transition::event_certificate;

/// An endpoint of the inventory, with the management state of its certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundEndpoint {
    /// Inventory row of the endpoint.
    pub row: InventoryRow,
    /// Management state of the certificate. `None` if the endpoint never presented one.
    pub state: Option<FoundState>,
    /// Owner and team, by the first ownership rule that matches.
    pub ownership: Option<Assignment>,
}

/// Maximum endpoints that a claim by fingerprint checks against the ownership rules. This number is enough to find the owner even
/// if a whole fleet serves the certificate.
const CLAIM_PLACES_MAX: usize = 500;

/// Filter for endpoints by owner and team. All given conditions must match.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OwnerFilter {
    /// The endpoint belongs to this team.
    pub team: Option<String>,
    /// The endpoint belongs to this owner.
    pub owner: Option<String>,
    /// Whether to return only endpoints that no ownership rule assigns to a team or an owner.
    pub nobody: bool,
}

impl OwnerFilter {
    /// Returns whether the filter has no condition.
    #[must_use]
    pub fn is_unfiltered(&self) -> bool {
        *self == Self::default()
    }

    fn is(&self, ownership: Option<&Assignment>) -> bool {
        let team = ownership.and_then(|assign| assign.team.as_ref());
        let owner = ownership.and_then(|assign| assign.owner.as_ref());
        self.team.as_ref().is_none_or(|wanted| team == Some(wanted))
            && self.owner.as_ref().is_none_or(|wanted| owner == Some(wanted))
            && (!self.nobody || team.is_none() && owner.is_none())
    }
}

/// Maximum endpoints that one page of [`Lifecycle::found_of`] reads. Reading this number takes about ten statements, and 0.1 s with
/// 1,000 rules. A page that reaches the maximum may have fewer rows than requested, or none; the next page continues.
pub const FOUND_READ_MAX: usize = 5_000;
/// Endpoints processed in one step, so that other tasks do not wait long.
const FOUND_AT_ONCE: usize = 500;

/// Reason why the certificate was not claimed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClaimError {
    /// No certificate was found at the endpoint. Contains the reason.
    #[error("{0}")]
    NothingFound(&'static str),
    /// The found certificate cannot be claimed.
    #[error(transparent)]
    BadClaim(#[from] BadClaim),
    /// The request is invalid.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request names an object that does not exist, or a policy forbids it.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The name is already in use.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(ClaimError);

/// Reason why the certificate was not dismissed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DismissError {
    /// The request is invalid.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(DismissError);

/// A validated claim, with the data that it refers to.
#[derive(Clone)]
struct ValidatedClaim {
    certificate: ManagedCertificate,
    version: NewManagedVersion,
    renew_at_us: Option<i64>,
    consent: crate::job::Consent,
    actor: String,
    now_us: i64,
}

impl Lifecycle {
    /// Returns a page of the inventory, with the management state of each endpoint.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn found(
        &self,
        filter: &InventoryFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<FoundEndpoint>, DataError> {
        let page = store::Inventory::of(&self.inner.store).page(filter, after, limit).await?;
        let rules = Rules::read(&self.inner.store).await?;
        let assigned = rules.assignments_for(&self.inner.store, &page.rows).await?;
        let found = page.rows.into_iter().zip(assigned).collect();
        Ok(Page { rows: self.with_states(found).await?, next: page.next })
    }

    /// Like [`Lifecycle::found`], filtered by owner and team. Ownership is not stored, so each endpoint is evaluated in the order
    /// of the inventory. A page reads at most [`FOUND_READ_MAX`] endpoints. It may therefore have fewer rows than `limit`, or
    /// none, and still have a next page.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn found_of(
        &self,
        filter: &InventoryFilter,
        owner_filter: &OwnerFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<FoundEndpoint>, DataError> {
        let store = &self.inner.store;
        let rules = Rules::read(store).await?;
        let (mut matching, mut next, mut rows_read) = (Vec::new(), after.cloned(), 0);
        while rows_read < FOUND_READ_MAX && matching.len() < limit {
            let page = store::Inventory::of(store).walk(filter, next.as_ref(), FOUND_AT_ONCE).await?;
            rows_read += page.rows.len();
            next = page.next;
            let (rows, places): (Vec<InventoryRow>, Vec<Cursor>) = page.rows.into_iter().unzip();
            let assigned = rules.assignments_for(store, &rows).await?;
            let behind = rows.len();
            for (number, found) in rows.into_iter().zip(assigned).enumerate() {
                if !owner_filter.is(found.1.as_ref()) {
                    continue;
                }
                matching.push(found);
                if matching.len() == limit {
                    // If this is the last row read, the cursor of the inventory page already continues after it.
                    if number + 1 < behind {
                        next = Some(places[number].clone());
                    }
                    break;
                }
            }
            if next.is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(Page { rows: self.with_states(matching).await?, next })
    }

    async fn with_states(
        &self,
        found: Vec<(InventoryRow, Option<Assignment>)>,
    ) -> Result<Vec<FoundEndpoint>, DataError> {
        let leaves = found.iter().filter_map(|(row, _)| row.leaf.as_ref()).map(|leaf| leaf.sha256).collect();
        let states = self.found_states(leaves).await?;
        let with_state = |(row, ownership): (InventoryRow, Option<Assignment>)| {
            let state = row
                .leaf
                .as_ref()
                .map(|leaf| states.get(&leaf.sha256).cloned().unwrap_or(FoundState::Unmanaged));
            FoundEndpoint { row, state, ownership }
        };
        Ok(found.into_iter().map(with_state).collect())
    }

    async fn found_states(
        &self,
        mut leaves: Vec<[u8; 32]>,
    ) -> Result<HashMap<[u8; 32], FoundState>, DataError> {
        let now_us = self.now_us();
        leaves.sort_unstable();
        leaves.dedup();
        let query = transaction(move |tx| {
            async move {
                let mut states: HashMap<[u8; 32], FoundState> = dismissed(tx, &leaves, now_us)
                    .await?
                    .into_iter()
                    .map(|(leaf, dismissal)| (leaf, FoundState::Dismissed(dismissal)))
                    .collect();
                let managed = managed_by_version_fingerprints(tx, &leaves).await?;
                let ids: Vec<i64> = managed.iter().map(|(_, certificate, _)| *certificate).collect();
                let uuids: HashMap<i64, Uuid> =
                    managed_by_ids(tx, ids).await?.into_iter().map(|row| (row.id, row.uuid)).collect();
                for (leaf, certificate, _) in managed {
                    if let Some(uuid) = uuids.get(&certificate) {
                        states.insert(leaf, FoundState::Managed(*uuid));
                    }
                }
                Ok(states)
            }
            .boxed()
        });
        Ok(self.inner.store.write("found_states", query).await?)
    }

    /// Claims a found certificate. Names, key type and expiry are read from the certificate, the endpoint becomes its target, and
    /// the next version is issued when due. The ownership rules supply owner and team if the claim does not.
    ///
    /// # Errors
    /// [`ClaimError`]
    #[crate::boxed]
    pub async fn claim(&self, claim: Claim, actor: &str) -> Result<Created, ClaimError> {
        let validated_claim = self.validated_claim(claim, actor).await?;
        let name = validated_claim.certificate.name.clone();
        let leaf = validated_claim.version.fingerprint;
        if let Some(FoundState::Managed(id)) = self.found_states(vec![leaf]).await?.remove(&leaf) {
            let name = id.to_string();
            return Err(NameTaken { what: "a managed certificate for this certificate:", name }.into());
        }
        let created = Created {
            certificate: validated_claim.certificate.id,
            name: name.clone(),
            job: None,
            violations: Vec::new(),
        };
        let entered = attempt(&self.inner.store, "claim", move || {
            let validated_claim = validated_claim.clone();
            transaction(move |tx| async move { insert_claimed(tx, &validated_claim).await }.boxed())
        })
        .await?;
        if entered { Ok(created) } else { Err(NameTaken { what: "a certificate", name }.into()) }
    }

    async fn validated_claim(&self, mut claim: Claim, actor: &str) -> Result<ValidatedClaim, ClaimError> {
        let (chain, endpoint) = self.chain_of(&claim.what).await?;
        let leaf =
            chain.first().ok_or(ClaimError::NothingFound("no certificate was found at this endpoint"))?;
        let facts = read(leaf)?;
        let assigned = self.assigned(&claim.what, leaf).await?;
        let tags = assigned.map_or_else(BTreeMap::new, |assigned| claim.fill_from(&assigned));
        let mut targets = claim.targets;
        targets.extend(endpoint);
        let new = NewCertificate {
            name: claim.name,
            names: facts.names,
            profile: claim.profile,
            issuer: claim.issuer,
            owner: claim.owner,
            team: claim.team,
            tags,
            environment: claim.environment,
            policy: claim.policy,
            key_location: claim.key_location,
            key_type: facts.key_type,
            targets,
            options: claim.options,
            issue: false,
        };
        let now_us = self.now_us();
        let mut certificate = new.check(Uuid::now_v7(), now_us)?;
        let fingerprint = Fingerprint::of(leaf);
        certificate.state = State::Active;
        certificate.current = Some(CurrentVersion {
            fingerprint,
            not_before_us: facts.not_before_us,
            not_after_us: facts.not_after_us,
            revoked: false,
        });
        let (consent, _) = self.admit(&certificate).await?;
        let judged = self.judge(&certificate).await?;
        let life = Life { not_before_us: facts.not_before_us, not_after_us: facts.not_after_us };
        let version = NewManagedVersion {
            certificate: 0,
            job: None,
            fingerprint: *fingerprint.as_bytes(),
            serial: facts.serial,
            spki_sha256: facts.spki_sha256,
            not_before_us: facts.not_before_us,
            not_after_us: facts.not_after_us,
            // The issuer is irrelevant: the certificate was not requested through this installation.
            issuer: "found".to_owned(),
            profile: Some(certificate.profile.clone()),
            policy: certificate.policy.clone(),
            key: None,
            chain: chain.concat(),
            issued_at_us: now_us,
        };
        let renew_at_us = due(certificate.id, life, &judged.rule, None).map(|due| due.at_us);
        Ok(ValidatedClaim { certificate, version, renew_at_us, consent, actor: actor.to_owned(), now_us })
    }

    /// Evaluates the ownership rules for a claim: for its endpoint, or for up to [`CLAIM_PLACES_MAX`] endpoints that serve the
    /// certificate as their leaf. Returns the first rule that matches any of them.
    async fn assigned(&self, what: &ClaimSubject, leaf: &[u8]) -> Result<Option<Assignment>, DataError> {
        let store = &self.inner.store;
        let rules = Rules::read(store).await?;
        if rules.is_empty() {
            return Ok(None);
        }
        let mut found: Vec<InventoryRow> = match what {
            ClaimSubject::Endpoint(key) => {
                store::Inventory::of(store).endpoint(key).await?.into_iter().collect()
            }
            ClaimSubject::Fingerprint(fingerprint) => {
                store::Inventory::of(store)
                    .endpoints_of_certificate(fingerprint.as_bytes(), None, CLAIM_PLACES_MAX)
                    .await?
                    .rows
            }
        };
        let sha256 = *Fingerprint::of(leaf).as_bytes();
        found.retain(|row| row.leaf.as_ref().is_some_and(|leaf| leaf.sha256 == sha256));
        let mut places = rules.places(store, &found).await?;
        if places.is_empty() {
            // No endpoint serves the certificate any more, so only its own content is evaluated.
            places.extend(candidate_from_leaf(leaf));
        }
        Ok(rules.of_any(&places))
    }

    async fn chain_of(&self, what: &ClaimSubject) -> Result<(Vec<Vec<u8>>, Option<TargetRef>), DataError> {
        let store = &self.inner.store;
        match what {
            ClaimSubject::Fingerprint(fingerprint) => {
                let found = store::Inventory::of(store).certificate_by_sha256(fingerprint.as_bytes()).await?;
                let found = found.ok_or_else(|| DataError::not_found("certificate", fingerprint))?;
                Ok((vec![found.der], None))
            }
            ClaimSubject::Endpoint(key) => {
                let row = store::Inventory::of(store).endpoint(key).await?;
                let row = row.ok_or_else(|| DataError::not_found("endpoint", &key.host))?;
                let chain = match row.chain {
                    Some(chain) => store::Inventory::of(store).chain(chain).await?,
                    None => Vec::new(),
                };
                let target = TargetRef::Endpoint {
                    host: key.host.clone(),
                    port: key.port,
                    protocol: key.protocol.clone(),
                    server_name: key.server_name.clone(),
                };
                Ok((chain.into_iter().map(|member| member.der).collect(), Some(target)))
            }
        }
    }

    /// Dismisses a found certificate, permanently or until the given time, so that it is not managed. During this time, no
    /// notifications about the certificate or its endpoints are sent. Open expiry alerts about the certificate end immediately.
    ///
    /// # Errors
    /// [`DismissError`]
    #[crate::boxed]
    pub async fn dismiss(
        &self,
        fingerprint: Fingerprint,
        dismissal: Dismissal,
        actor: &str,
    ) -> Result<(), DismissError> {
        let (actor, at_us) = (actor.to_owned(), self.now_us());
        if dismissal.note.len() > NOTES_BYTES_MAX || dismissal.note.contains('\0') {
            return Err(BadRequest::Notes.into());
        }
        if dismissal.until_us.is_some_and(|until_us| until_us <= at_us) {
            return Err(BadRequest::DismissalOver.into());
        }
        let work = transaction(move |tx| {
            async move {
                dismiss(tx, *fingerprint.as_bytes(), &actor, &dismissal, at_us).await?;
                let mut ledger = Ledger::new(at_us, &actor);
                let subject = format!("found/{fingerprint}");
                let details = json!({"note": dismissal.note, "until_us": dismissal.until_us});
                ledger.audit_resource(subject.clone(), "found.dismiss", details);
                let over = Event::CertificateDismissed(CertificateDismissed {});
                emit(tx, vec![new_event(at_us, subject, &over)]).await?;
                ledger.write(tx).await.map(drop)
            }
            .boxed()
        });
        Ok(self.inner.store.write("dismiss", work).await?)
    }

    /// Withdraws a dismissal. Returns false if the certificate was not dismissed.
    ///
    /// # Errors
    /// [`DataError`]
    #[crate::boxed]
    pub async fn undismiss(&self, fingerprint: Fingerprint, actor: &str) -> Result<bool, DataError> {
        let (actor, at_us) = (actor.to_owned(), self.now_us());
        let work = transaction(move |tx| {
            async move {
                let undone = undismiss(tx, *fingerprint.as_bytes()).await?;
                let mut ledger = Ledger::new(at_us, &actor);
                if undone {
                    ledger.audit_resource(format!("found/{fingerprint}"), "found.undismiss", json!({}));
                }
                ledger.write(tx).await?;
                Ok(undone)
            }
            .boxed()
        });
        Ok(self.inner.store.write("undismiss", work).await?)
    }
}

fn candidate_from_leaf(leaf: &[u8]) -> Option<Candidate> {
    let leaf = Certificate::parse(leaf).ok()?;
    Some(Candidate { issuer: leaf.issuer.text.clone(), ..Candidate::default() }.named(&leaf.names()))
}

/// Stores the claimed certificate. Returns false if the name is in use.
async fn insert_claimed(tx: &mut Tx, validated_claim: &ValidatedClaim) -> Result<bool, StoreError> {
    let new = new_row(&validated_claim.certificate);
    let Some((id, _)) = insert_managed(tx, std::slice::from_ref(&new)).await?.into_iter().next() else {
        return Ok(false);
    };
    let version = NewManagedVersion { certificate: id, ..validated_claim.version.clone() };
    let version = insert_versions(tx, &[version]).await?.first().map(|(version, _)| *version);
    let mut rows = managed_by_ids(tx, vec![id]).await?;
    for row in &mut rows {
        row.version = version;
    }
    update_managed(tx, &rows).await?;
    let mut ledger = Ledger::new(validated_claim.now_us, &validated_claim.actor);
    for row in &rows {
        ledger.entered(row);
        let fingerprint = Fingerprint::from_bytes(validated_claim.version.fingerprint);
        ledger.note(row, "certificate.claim", json!({ "fingerprint": fingerprint }));
        let claimed = CertificateClaimed { certificate: event_certificate(row), fingerprint };
        ledger.announce(row, &Event::CertificateClaimed(claimed));
        if let Some(at_us) = validated_claim.renew_at_us {
            ledger.queue(planned(row, at_us, "planned", validated_claim.consent, validated_claim.now_us));
        }
    }
    ledger.write(tx).await?;
    Ok(true)
}
