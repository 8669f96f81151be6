//! Signatures of approvers: a security key signs the SHA-256 of the plan.

use api::security_keys::{ApprovalSignatureView, PlanToSign, SecurityKeyAssertion};
use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};
use store::{ApprovalSignatureRow, AuditEvent, CeremonyPurpose, KeyCeremony};
use uuid::Uuid;
use webauthn::Base64Url;
use webauthn::approval::ApprovalSignature;
use x509::Fingerprint;

use crate::access::security_key::{self, AssertionStart, ProvedKey};
use crate::access::site::Site;
use crate::access::{AccessControl, Caller};
use crate::idempotency::HoldsSecret;
use crate::peer::address;
use crate::problem::Problem;
use crate::state::State;
use crate::time;

/// Parses the SHA-256 of the plan that the approver was shown.
pub(crate) fn shown(text: Option<&str>) -> Result<Option<[u8; 32]>, Problem> {
    let plan = text.map(str::parse::<Fingerprint>).transpose();
    let plan = plan.map_err(|error| Problem::unprocessable(format_args!("plan_sha256: {error}")))?;
    Ok(plan.map(|hash| *hash.as_bytes()))
}

/// Begins the signature of a plan by the caller's security key.
pub(crate) async fn begin(
    access: &AccessControl,
    caller: &Caller,
    parts: &Parts,
    subject: Uuid,
    plan: &PlanToSign,
) -> Result<Response, Problem> {
    let (user, session) = security_key::own_session(caller)?;
    let plan_sha256 = shown(Some(&plan.plan_sha256))?.unwrap_or_default();
    let site = Site::of(parts)?;
    let start = AssertionStart {
        site: &site,
        purpose: CeremonyPurpose::Approve,
        user: Some(user),
        session: Some(session),
        after_password: false,
        plan: Some((subject, plan_sha256, caller.actor())),
    };
    let ceremony = security_key::begin_assertion(access, start).await?;
    let mut response = (StatusCode::CREATED, Json(ceremony)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// The plan that a person approves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApprovedPlan {
    /// SHA-256 of the signed plan; without a signature, of the plan that was shown.
    pub(crate) sha256: Option<[u8; 32]>,
    /// Whether this is the person's first signature of the plan.
    is_first_signature: bool,
}

impl ApprovedPlan {
    /// Returns whether the caller approved this plan before without a signature. The new signature then completes that approval.
    pub(crate) fn completes(self, caller: &Caller, plan: Option<[u8; 32]>, approvers: &[String]) -> bool {
        self.is_first_signature
            && self.sha256 == plan
            && approvers.iter().any(|approver| approver == caller.actor())
    }
}

/// Verifies and stores the signature of an approval, if it has one.
///
/// # Errors
/// 403 if the configuration requires a signature and there is none; 401 for a signature that is not accepted.
pub(crate) async fn signed(
    state: &State,
    caller: &Caller,
    parts: &Parts,
    subject: Uuid,
    shown: Option<[u8; 32]>,
    given: Option<&SecurityKeyAssertion>,
) -> Result<ApprovedPlan, Problem> {
    let Some(given) = given else {
        if state.signed_approvals() {
            return Err(Problem::forbidden(
                "this server requires that approvers sign the plan with a security key",
            )
            .hint("approve in the console, with \"Approve and sign\"; keys are added at /console/account"));
        }
        return Ok(ApprovedPlan { sha256: shown, is_first_signature: false });
    };
    let access = state.access();
    let (user, session) = security_key::own_session(caller)?;
    let from = address(parts).to_string();
    let proved = security_key::prove(access, CeremonyPurpose::Approve, given, &from).await;
    let (ceremony, key) = proved.inspect_err(|_| state.metrics().refused("approval-signature"))?;
    let of_caller = (ceremony.identity, ceremony.session) == (user, Some(session));
    let plan_sha256 = ceremony.plan_sha256.filter(|_| of_caller && ceremony.subject == Some(subject));
    let plan_sha256 = plan_sha256.ok_or_else(security_key::refused)?;
    if shown.is_some_and(|shown| shown != plan_sha256) {
        return Err(Problem::conflict(
            "the signature is for another plan than the one with this `plan_sha256`",
        )
        .hint("read the plan again, then sign it"));
    }
    let before = store::Access::of(access.store()).approval_signatures(subject).await?;
    let is_own = |row: &ApprovalSignatureRow| row.actor == caller.actor() && row.plan_sha256 == plan_sha256;
    let is_first_signature = !before.iter().any(is_own);
    store(access, caller, &ceremony, key, (subject, plan_sha256)).await?;
    Ok(ApprovedPlan { sha256: Some(plan_sha256), is_first_signature })
}

/// Checks that the earlier approvers of a plan signed it too, if the configuration requires signatures. An approval from before the
/// configuration required them does not count towards the quorum.
///
/// # Errors
/// 409 with the approvers whose signature is missing.
pub(crate) async fn check_earlier(
    state: &State,
    subject: Uuid,
    plan_sha256: Option<[u8; 32]>,
    approvers: &[String],
) -> Result<(), Problem> {
    if !state.signed_approvals() || approvers.is_empty() {
        return Ok(());
    }
    let rows = store::Access::of(state.store()).approval_signatures(subject).await?;
    let signed = |approver: &String| {
        rows.iter().any(|row| &row.actor == approver && Some(row.plan_sha256) == plan_sha256)
    };
    let missing: Vec<&str> = approvers.iter().filter(|one| !signed(one)).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Problem::conflict(format_args!(
        "this server requires signed approvals, but these earlier approvers did not sign the plan: {}",
        missing.join(", ")
    ))
    .hint("ask each of these approvers to sign first, with \"Approve and sign\" in the console; or reject the plan and request it again"))
}

/// Stores a signature, the use of its key, and the audit event, which contains the signature too.
async fn store(
    access: &AccessControl,
    caller: &Caller,
    ceremony: &KeyCeremony,
    key: ProvedKey,
    (subject, plan_sha256): (Uuid, [u8; 32]),
) -> Result<(), Problem> {
    let signature = ApprovalSignature {
        public_key: Base64Url::from(key.key.public_key.as_slice()),
        rp_id: ceremony.rp_id.clone(),
        origin: ceremony.origin.clone(),
        nonce: Base64Url(ceremony.nonce.unwrap_or_default().to_vec()),
        assertion: key.assertion.clone(),
    };
    // The stored signature must stay verifiable. It is not verifiable if the user was renamed after the ceremony began.
    signature
        .verify(subject.into_bytes(), plan_sha256, caller.actor())
        .map_err(|_| security_key::refused())?;
    let document = serde_json::to_value(&signature).map_err(Problem::internal)?;
    let signed_at_us = access.clock().now_us();
    let event = AuditEvent {
        at_us: signed_at_us,
        actor: caller.actor().to_owned(),
        action: "approval.sign",
        resource: format!("approval/{subject}"),
        details: json!({
            "plan_sha256": Fingerprint::from_bytes(plan_sha256),
            "security_key": key.key.id,
            "public_key_sha256": Fingerprint::from_bytes(signature.key_sha256()),
            "signature": document,
        }),
    };
    let row = ApprovalSignatureRow {
        subject,
        actor: caller.actor().to_owned(),
        plan_sha256,
        security_key: key.key.id,
        signature: document.to_string(),
        signed_at_us,
    };
    let work = access.store().write("approval_sign", move |tx| {
        async move {
            let used = key.store(tx).await?;
            if used {
                store::put_approval_signature(tx, &row).await?;
                store::audit(tx, vec![event]).await?;
            }
            Ok(used)
        }
        .boxed()
    });
    if work.await? { Ok(()) } else { Err(security_key::refused()) }
}

/// Returns the signatures for an approval, pending change or enrolment.
pub(crate) async fn views(
    access: &AccessControl,
    subject: Uuid,
) -> Result<Vec<ApprovalSignatureView>, Problem> {
    let rows = store::Access::of(access.store()).approval_signatures(subject).await?;
    rows.into_iter().map(view).collect()
}

fn view(row: ApprovalSignatureRow) -> Result<ApprovalSignatureView, Problem> {
    let signature: Value = serde_json::from_str(&row.signature).map_err(Problem::internal)?;
    let parsed: ApprovalSignature = serde_json::from_value(signature.clone()).map_err(Problem::internal)?;
    Ok(ApprovalSignatureView {
        actor: row.actor,
        plan_sha256: Fingerprint::from_bytes(row.plan_sha256).to_string(),
        security_key: row.security_key,
        public_key_sha256: Fingerprint::from_bytes(parsed.key_sha256()).to_string(),
        signed_at: time::shown(row.signed_at_us),
        signature,
    })
}
