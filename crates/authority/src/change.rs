//! Approval of changes to profiles that require approval, and to every object on which such a profile depends.
//!
//! This module stores the plan of a change, its approvals, and the encrypted change itself. The caller decides which changes need
//! approval and applies them.

use std::collections::{BTreeMap, BTreeSet};

use api::plan::{CHANGE_PLAN, encoded};
use events::{ChangeDecided, ChangeWaiting, Event};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{AuditEvent, Cursor, Page, StoreError, Tx, audit, emit};
use uuid::Uuid;
use x509::Fingerprint;
use zeroize::Zeroizing;

use crate::Authority;
use crate::plan::{hex, sha256};
use crate::principal::Principal;
use crate::quorum::{self, Progress};
use crate::tables::{self, ChangeDecision, ChangeRow, ChangeState, NewChange, SEALED_CHANGES, VoteRow};

/// Maximum number of changes in the database that wait for approval.
const OPEN_MAX: u32 = 1_000;
/// Time in microseconds until an open change expires: one week, as for approvals of certificates.
const OPEN_LIFETIME_US: i64 = 7 * 86_400 * 1_000_000;
/// Microseconds for which an expired change is stored.
const EXPIRED_RETENTION_US: i64 = 90 * 86_400 * 1_000_000;
/// Microseconds for which votes are stored; longer than the lifetime of any request for approval. The audit log records approvals
/// too.
const VOTE_RETENTION_US: i64 = 400 * 86_400 * 1_000_000;
/// Maximum length of a note in characters.
const NOTE_MAX: usize = 2_000;
/// Maximum size of a change in bytes, including its secrets.
const CONTENT_MAX: usize = 1 << 20;

/// The plan to approve: the whole object before and after the change, and the hash of the change.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ChangePlan {
    /// The action, such as `profile.put`.
    pub action: String,
    /// The object of the change, such as `profile/vip`.
    pub object: String,
    /// Revision of the object on which the change is based; `None` for a new object.
    pub revision: Option<i64>,
    /// The object before the change, without secrets; `None` for a new object.
    pub before: Option<Value>,
    /// The object after the change, without secrets; `None` for a deletion.
    pub after: Option<Value>,
    /// SHA-256 of the change with its secrets and a salt. The salt is stored encrypted, so the hash reveals nothing of the secrets.
    pub content_sha256: String,
}

/// A field of a change's plan, as shown to approvers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeField {
    /// Name of the field: `action`, or the JSON pointer of a value, such as `after/validity/default_seconds`.
    pub name: String,
    /// The field's value; empty if the field has none.
    pub values: Vec<String>,
}

/// A value that a change modifies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeDifference {
    /// JSON pointer of the value (RFC 6901).
    pub name: String,
    /// Value before the change, JSON; empty if the value is new.
    pub before: Vec<String>,
    /// Value after the change, JSON; empty if the value is removed.
    pub after: Vec<String>,
}

impl ChangePlan {
    /// Returns all fields of the plan, in the order of its canonical encoding.
    #[must_use]
    pub fn fields(&self) -> Vec<ChangeField> {
        let field = |name: &str, values: Vec<String>| ChangeField { name: name.to_owned(), values };
        let mut fields = vec![
            field("action", vec![self.action.clone()]),
            field("object", vec![self.object.clone()]),
            field("revision", self.revision.iter().map(ToString::to_string).collect()),
            field("content_sha256", vec![self.content_sha256.clone()]),
        ];
        for (side, document) in [("before", &self.before), ("after", &self.after)] {
            let values = document.iter().flat_map(leaves);
            fields.extend(values.map(|(pointer, value)| field(&format!("{side}{pointer}"), vec![value])));
        }
        fields
    }

    /// Returns the SHA-256 of the plan's canonical encoding.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        let fields = self.fields();
        let fields = fields.iter().map(|field| (field.name.as_str(), field.values.as_slice()));
        sha256(&encoded(CHANGE_PLAN, fields))
    }

    /// Returns the values that the change modifies.
    #[must_use]
    pub fn differences(&self) -> Vec<ChangeDifference> {
        let of = |document: &Option<Value>| document.as_ref().map(leaves).unwrap_or_default();
        let (before, after) = (of(&self.before), of(&self.after));
        let pointers: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differs = pointers.into_iter().filter(|pointer| before.get(*pointer) != after.get(*pointer));
        let value =
            |side: &BTreeMap<String, String>, pointer| side.get(pointer).cloned().into_iter().collect();
        differs
            .map(|pointer| ChangeDifference {
                name: pointer.clone(),
                before: value(&before, pointer),
                after: value(&after, pointer),
            })
            .collect()
    }
}

/// Returns the JSON text of each value in a document, keyed by JSON pointer. An empty object or list counts as a value.
fn leaves(document: &Value) -> BTreeMap<String, String> {
    fn walk(pointer: String, value: &Value, out: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (name, value) in members {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    walk(format!("{pointer}/{name}"), value, out);
                }
            }
            Value::Array(values) if !values.is_empty() => {
                for (at, value) in values.iter().enumerate() {
                    walk(format!("{pointer}/{at}"), value, out);
                }
            }
            value => {
                out.insert(pointer, value.to_string());
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(String::new(), document, &mut out);
    out
}

/// A change to store for approval: see [`Authority::propose_change`].
#[derive(Debug)]
pub struct ProposedChange {
    /// The action, such as `profile.put`.
    pub action: String,
    /// The object of the change, such as `profile/vip`.
    pub object: String,
    /// Profiles that require approval and depend on the object; empty if the change affects every profile that requires approval.
    pub profiles: Vec<String>,
    /// Number of people who must approve the change.
    pub needed: u32,
    /// Revision of the object on which the change is based; `None` for a new object.
    pub revision: Option<i64>,
    /// The object before the change, without secrets; `None` for a new object.
    pub before: Option<Value>,
    /// The object after the change, without secrets; `None` for a deletion.
    pub after: Option<Value>,
    /// The change itself as JSON, including secrets.
    pub content: Zeroizing<String>,
}

/// A pending change, as returned to callers.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingChange {
    /// Identifier of the change, with which callers approve or reject it.
    pub id: Uuid,
    /// Profiles that require approval and depend on the object; empty if the change affects every profile that requires approval.
    pub profiles: Vec<String>,
    /// State of the change: open, approved, rejected, void or applied.
    pub state: ChangeState,
    /// The plan to approve.
    pub plan: ChangePlan,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: [u8; 32],
    /// Number of people who have approved the change, and number required.
    pub progress: Progress,
    /// Actor that requested the change.
    pub requested_by: String,
    /// Time of the request in microseconds.
    pub requested_at_us: i64,
    /// Expiry time in microseconds.
    pub expires_at_us: i64,
    /// Actor of the last state change: approval, rejection, voiding or application. `None` before the decision.
    pub decided_by: Option<String>,
    /// Time of the decision in microseconds.
    pub decided_at_us: Option<i64>,
    /// Note of the decision, or the reason why the change is void.
    pub note: Option<String>,
    /// Actors that approved the change. Empty in lists; filled only by [`Authority::pending_change`].
    pub approvers: Vec<String>,
}

impl PendingChange {
    fn of(row: ChangeRow) -> Result<Self, StoreError> {
        let corrupt = |column: &str, error: serde_json::Error| {
            StoreError::Corrupt(format!("cannot read pending_changes.{column} of {}: {error}", row.id))
        };
        Ok(Self {
            id: row.id,
            profiles: serde_json::from_str(&row.profiles).map_err(|error| corrupt("profiles", error))?,
            plan: serde_json::from_str(&row.plan).map_err(|error| corrupt("plan", error))?,
            state: row.state,
            plan_sha256: row.plan_sha256,
            progress: Progress { given: row.given, needed: row.needed },
            requested_by: row.requested_by,
            requested_at_us: row.requested_at_us,
            expires_at_us: row.expires_at_us,
            decided_by: row.decided_by,
            decided_at_us: row.decided_at_us,
            note: row.note,
            approvers: Vec::new(),
        })
    }
}

/// Reason why a change was not stored or decided.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The change does not exist.
    #[error("unknown pending change {0}")]
    Unknown(Uuid),
    /// The change is already decided or expired.
    #[error("the change is already {0}")]
    Over(&'static str),
    /// The approver is the person who requested the change. Another person must approve it.
    #[error("{0} requested this change and is the same person as you: another person must approve it")]
    OwnRequest(String),
    /// The approver already approved the change.
    #[error("you already approved this change: {needed} different people must approve it, {given} did")]
    Repeated {
        /// Number of people who have approved the change.
        given: u32,
        /// Number of people who must approve the change.
        needed: u32,
    },
    /// The plan is not the one that was shown to the approver.
    #[error(
        "the SHA-256 does not match the plan of the change: read the plan again, then approve its SHA-256"
    )]
    OtherPlan,
    /// The object changed after the request for approval.
    #[error("the object changed after the approval was requested, so the change is void: request it again")]
    Void,
    /// The stored change does not match its plan.
    #[error("the stored change {0} does not match its plan and is not applied")]
    Mismatch(Uuid),
    /// The note has more than 2,000 characters, or contains a null character.
    #[error("the note must have at most {NOTE_MAX} characters and no null character")]
    Note,
    /// The change with its secrets is larger than 1 MiB.
    #[error("the change is larger than {CONTENT_MAX} bytes")]
    TooLong,
    /// 1,000 changes are already waiting for approval.
    #[error("{OPEN_MAX} changes already wait for approval: approve or reject some first")]
    TooMany,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The result of an approval.
#[derive(Debug)]
pub enum Approved {
    /// More approvals are required.
    Waits(Progress),
    /// Enough people approved the change. The caller applies it and then calls [`Authority::finish_change`].
    Apply(Zeroizing<String>),
}

/// The plaintext of a stored change.
#[derive(Serialize, Deserialize)]
struct Content {
    /// Two random UUIDs, so that the hash does not reveal a short secret.
    salt: String,
    content: String,
}

impl Authority {
    /// Stores a change that waits for approval.
    ///
    /// # Errors
    /// [`ChangeError::TooMany`], [`ChangeError::TooLong`], or an error of the database.
    #[crate::boxed]
    pub async fn propose_change(
        &self,
        proposed: ProposedChange,
        by: &Principal,
    ) -> Result<PendingChange, ChangeError> {
        if proposed.content.len() > CONTENT_MAX {
            return Err(ChangeError::TooLong);
        }
        let now_us = self.clock().now_us();
        tables::Changes::of(self.store()).trim(now_us.saturating_sub(EXPIRED_RETENTION_US)).await?;
        tables::Votes::of(self.store()).trim(now_us.saturating_sub(VOTE_RETENTION_US)).await?;
        let id = Uuid::now_v7();
        let salt = format!("{}{}", Uuid::new_v4(), Uuid::new_v4());
        let content = Content { salt, content: proposed.content.to_string() };
        let content = Zeroizing::new(serde_json::to_string(&content).unwrap_or_default());
        let plan = ChangePlan {
            action: proposed.action,
            object: proposed.object,
            revision: proposed.revision,
            before: proposed.before,
            after: proposed.after,
            content_sha256: hex(content.as_bytes()),
        };
        let plan_sha256 = plan.sha256();
        let new = NewChange {
            id,
            action: plan.action.clone(),
            object: plan.object.clone(),
            profiles: json!(proposed.profiles).to_string(),
            needed: proposed.needed.max(1),
            plan: serde_json::to_string(&plan).unwrap_or_default(),
            plan_sha256,
            sealed: self.keystore().keyring().seal(&context(&id), content.as_bytes()),
            requested_by: by.actor().to_owned(),
            requested_at_us: now_us,
            expires_at_us: now_us.saturating_add(OPEN_LIFETIME_US),
        };
        let event = AuditEvent {
            at_us: now_us,
            actor: by.actor().to_owned(),
            action: "change.request",
            resource: format!("change/{id}"),
            details: json!({
                "action": plan.action,
                "object": plan.object,
                "profiles": proposed.profiles,
                "plan_sha256": Fingerprint::from_bytes(plan_sha256),
            }),
        };
        let notification = Event::ChangeWaiting(ChangeWaiting {
            action: plan.action.clone(),
            object: plan.object.clone(),
            requester: by.actor().to_owned(),
            given: 0,
            needed: new.needed,
        });
        let notification = store::new_event(now_us, event.resource.clone(), &notification);
        let principal = by.clone();
        let stored = self.store().write("change_insert", move |tx| {
            Box::pin(async move {
                tables::store_principal_marks(tx, &principal).await?;
                if !tables::insert_change(tx, new, OPEN_MAX).await? {
                    return Ok(false);
                }
                audit(tx, vec![event]).await?;
                emit(tx, vec![notification]).await?;
                Ok(true)
            })
        });
        if !stored.await? {
            return Err(ChangeError::TooMany);
        }
        self.pending_change(id).await
    }

    /// Returns a pending change, with the actors that approved it.
    ///
    /// # Errors
    /// [`ChangeError::Unknown`], or an error of the database.
    #[crate::boxed]
    pub async fn pending_change(&self, id: Uuid) -> Result<PendingChange, ChangeError> {
        let row = tables::Changes::of(self.store()).get(id).await?.ok_or(ChangeError::Unknown(id))?;
        let approvers = tables::Votes::of(self.store()).approvers(id, row.plan_sha256).await?;
        Ok(PendingChange { approvers, ..PendingChange::of(row)? })
    }

    /// Returns a page of changes in a state, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    #[crate::boxed]
    pub async fn pending_changes(
        &self,
        state: ChangeState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PendingChange>, StoreError> {
        let now_us = self.clock().now_us();
        let Page { rows, next } = tables::Changes::of(self.store()).page(state, now_us, after, limit).await?;
        let rows = rows.into_iter().map(PendingChange::of).collect::<Result<_, _>>()?;
        Ok(Page { rows, next })
    }

    /// Approves a change. `shown` is the SHA-256 of the plan that was shown to the approver, if known. If the server stopped before
    /// it applied a fully approved change, the next call returns the change again.
    ///
    /// # Errors
    /// [`ChangeError`]
    #[crate::boxed]
    pub async fn approve_change(
        &self,
        id: Uuid,
        shown: Option<[u8; 32]>,
        note: Option<&str>,
        by: &Principal,
    ) -> Result<Approved, ChangeError> {
        if note.is_some_and(|note| note.chars().count() > NOTE_MAX || note.contains('\0')) {
            return Err(ChangeError::Note);
        }
        let (now_us, principal, note) = (self.clock().now_us(), by.clone(), note.map(str::to_owned));
        let decided = self.store().write("change_approve", move |tx| {
            let (principal, note) = (principal.clone(), note.clone());
            Box::pin(async move { approve(tx, id, shown, note, &principal, now_us).await })
        });
        let (row, progress) = decided.await??;
        if !progress.is_enough() {
            return Ok(Approved::Waits(progress));
        }
        Ok(Approved::Apply(self.content_of(&row)?))
    }

    /// Rejects a change. The requester may use this to withdraw it.
    ///
    /// # Errors
    /// [`ChangeError`]
    #[crate::boxed]
    pub async fn reject_change(
        &self,
        id: Uuid,
        note: Option<&str>,
        by: &Principal,
    ) -> Result<(), ChangeError> {
        if note.is_some_and(|note| note.chars().count() > NOTE_MAX || note.contains('\0')) {
            return Err(ChangeError::Note);
        }
        self.end_change(id, ChangeState::Open, ChangeState::Rejected, note, by.actor()).await
    }

    /// Records that an approved change was applied, or why it could not be applied.
    ///
    /// # Errors
    /// [`ChangeError::Over`] if the result was already recorded, or an error of the database.
    #[crate::boxed]
    pub async fn finish_change(
        &self,
        id: Uuid,
        void: Option<&str>,
        by: &Principal,
    ) -> Result<(), ChangeError> {
        let to = if void.is_some() { ChangeState::Void } else { ChangeState::Applied };
        self.end_change(id, ChangeState::Approved, to, void, by.actor()).await
    }

    /// Voids an open change whose object was modified after the request.
    ///
    /// # Errors
    /// [`ChangeError::Over`], or an error of the database.
    #[crate::boxed]
    pub async fn void_change(&self, id: Uuid, why: &str, by: &Principal) -> Result<(), ChangeError> {
        self.end_change(id, ChangeState::Open, ChangeState::Void, Some(why), by.actor()).await
    }

    async fn end_change(
        &self,
        id: Uuid,
        from: ChangeState,
        to: ChangeState,
        note: Option<&str>,
        by: &str,
    ) -> Result<(), ChangeError> {
        let at_us = self.clock().now_us();
        let step = ChangeDecision { id, from, to, by: by.to_owned(), at_us, note: note.map(str::to_owned) };
        let action = match to {
            ChangeState::Rejected => "change.reject",
            ChangeState::Applied => "change.apply",
            ChangeState::Void | ChangeState::Open | ChangeState::Approved => "change.void",
        };
        let ended = self.store().write("change_end", move |tx| {
            let step = step.clone();
            Box::pin(async move {
                let Some(row) = tables::change_row(tx, id).await? else {
                    return Ok(Err(ChangeError::Unknown(id)));
                };
                let (by, note) = (step.by.clone(), step.note.clone());
                if !tables::decide_change(tx, step).await? {
                    return Ok(Err(ChangeError::Over(row.state.name())));
                }
                let event = change_audit_event(&row, action, by, at_us, json!({ "note": note }));
                let notification = Event::ChangeDecided(ChangeDecided { state: to.name().to_owned() });
                let notification = store::new_event(at_us, event.resource.clone(), &notification);
                audit(tx, vec![event]).await?;
                emit(tx, vec![notification]).await?;
                Ok(Ok(()))
            })
        });
        ended.await?
    }

    /// Decrypts the change and checks that it matches its plan.
    fn content_of(&self, row: &ChangeRow) -> Result<Zeroizing<String>, ChangeError> {
        let mismatch = || ChangeError::Mismatch(row.id);
        let plan: ChangePlan = serde_json::from_str(&row.plan).map_err(|_| mismatch())?;
        let sealed = row.sealed.as_deref().ok_or_else(mismatch)?;
        let opened =
            self.keystore().keyring().open_sealed(&context(&row.id), sealed).map_err(|_| mismatch())?;
        if plan.sha256() != row.plan_sha256 || plan.content_sha256 != hex(&opened) {
            return Err(mismatch());
        }
        let content: Content = serde_json::from_slice(&opened).map_err(|_| mismatch())?;
        Ok(Zeroizing::new(content.content))
    }
}

async fn approve(
    tx: &mut Tx,
    id: Uuid,
    shown: Option<[u8; 32]>,
    note: Option<String>,
    by: &Principal,
    now_us: i64,
) -> Result<Result<(ChangeRow, Progress), ChangeError>, StoreError> {
    let Some(row) = tables::change_row(tx, id).await? else { return Ok(Err(ChangeError::Unknown(id))) };
    let lapsed = row.state == ChangeState::Open && row.expires_at_us <= now_us;
    if lapsed || !matches!(row.state, ChangeState::Open | ChangeState::Approved) {
        return Ok(Err(ChangeError::Over(if lapsed { "expired" } else { row.state.name() })));
    }
    if quorum::is_one_of(tx, vec![row.requested_by.clone()], by).await? {
        return Ok(Err(ChangeError::OwnRequest(row.requested_by)));
    }
    if shown.is_some_and(|shown| shown != row.plan_sha256) {
        return Ok(Err(ChangeError::OtherPlan));
    }
    if row.state == ChangeState::Approved {
        let progress = Progress { given: row.given, needed: row.needed };
        return Ok(Ok((row, progress)));
    }
    let vote = VoteRow {
        subject: id,
        actor: by.actor().to_owned(),
        plan_sha256: row.plan_sha256,
        voted_at_us: now_us,
        note: note.clone(),
    };
    let Some(progress) = quorum::vote(tx, vote, by, row.needed).await? else {
        return Ok(Err(ChangeError::Repeated { given: row.given, needed: row.needed }));
    };
    let details = json!({
        "note": note,
        "plan_sha256": Fingerprint::from_bytes(row.plan_sha256),
        "given": progress.given,
        "needed": progress.needed,
    });
    let event = change_audit_event(&row, "change.approve", by.actor().to_owned(), now_us, details);
    if progress.is_enough() {
        let step = ChangeDecision {
            id,
            from: ChangeState::Open,
            to: ChangeState::Approved,
            by: by.actor().to_owned(),
            at_us: now_us,
            note,
        };
        tables::decide_change(tx, step).await?;
    } else {
        let notification = Event::ChangeWaiting(ChangeWaiting {
            action: row.action.clone(),
            object: row.object.clone(),
            requester: row.requested_by.clone(),
            given: progress.given,
            needed: progress.needed,
        });
        emit(tx, vec![store::new_event(now_us, event.resource.clone(), &notification)]).await?;
    }
    audit(tx, vec![event]).await?;
    Ok(Ok((row, progress)))
}

fn change_audit_event(
    row: &ChangeRow,
    action: &'static str,
    actor: String,
    at_us: i64,
    extra: Value,
) -> AuditEvent {
    let mut details = json!({ "action": row.action, "object": row.object, "requester": row.requested_by });
    if let (Value::Object(details), Value::Object(extra)) = (&mut details, extra) {
        details.extend(extra);
    }
    AuditEvent { at_us, actor, action, resource: format!("change/{}", row.id), details }
}

/// Returns the encryption context of a change.
fn context(id: &Uuid) -> keys::Context<'_> {
    keys::Context { table: SEALED_CHANGES.table, row: id.as_bytes(), column: SEALED_CHANGES.column }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(before: Option<Value>, after: Option<Value>) -> ChangePlan {
        ChangePlan {
            action: "profile.put".to_owned(),
            object: "profile/vip".to_owned(),
            revision: Some(1),
            before,
            after,
            content_sha256: "00".to_owned(),
        }
    }

    #[test]
    fn json_values_are_listed_by_json_pointer() {
        let document = json!({ "a/b": { "c~": [1, "1", {}] }, "d": [], "e": null });
        let found: Vec<(String, String)> = leaves(&document).into_iter().collect();
        let expected = [
            ("/a~1b/c~0/0", "1"),
            ("/a~1b/c~0/1", "\"1\""),
            ("/a~1b/c~0/2", "{}"),
            ("/d", "[]"),
            ("/e", "null"),
        ];
        assert_eq!(found, expected.map(|(pointer, value)| (pointer.to_owned(), value.to_owned())));
    }

    #[test]
    fn plan_differences_name_the_changed_values() {
        let before = json!({ "requires_approval": true, "names": { "dns_allowed": [".a.example"] } });
        let after =
            json!({ "requires_approval": false, "names": { "dns_allowed": [".a.example", ".b.example"] } });
        let found = plan(Some(before), Some(after)).differences();
        let difference = |name: &str, before: &[&str], after: &[&str]| ChangeDifference {
            name: name.to_owned(),
            before: before.iter().map(ToString::to_string).collect(),
            after: after.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(
            found,
            [
                difference("/names/dns_allowed/1", &[], &["\".b.example\""]),
                difference("/requires_approval", &["true"], &["false"]),
            ]
        );
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3_i64).prop_map(Value::from),
            "[a/~]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a/~]{0,2}", inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
        // The root value of a plan is always an object.
        .prop_map(|value| json!({ "of": value }))
    }

    proptest! {
        #[test]
        fn change_plans_with_the_same_hash_are_equal(
            (before, after) in (prop::option::of(document()), prop::option::of(document())),
            (other_before, other_after) in (prop::option::of(document()), prop::option::of(document())),
        ) {
            let (one, other) = (plan(before, after), plan(other_before, other_after));
            prop_assert_eq!(one == other, one.sha256() == other.sha256());
            prop_assert_eq!(one.before == one.after, one.differences().is_empty());
            let read: ChangePlan = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
            prop_assert_eq!(read.sha256(), one.sha256());
        }
    }
}
