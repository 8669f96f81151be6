//! Handling of requests for authorizations and challenges (RFC 8555 section 7.5).

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::audit;
use uuid::Uuid;

use super::limits::Kind as Limited;
use super::options::Method;
use super::orders::POLL_SECONDS;
use super::problem::{Problem, rate_limited};
use super::request::AccountRequest;
use super::state::{AuthorizationState, responded_method};
use super::{Server, respond};
use crate::tables;
use crate::tables::acme::{
    AcmeAuthorization, AcmeAuthorizationStatus, AcmeChallengeResponse, AcmeProof,
    deactivate_acme_authorization,
};

#[derive(Debug, Deserialize)]
struct Change {
    status: String,
}

impl Server {
    /// Returns or deactivates an authorization (section 7.5.2).
    pub(crate) async fn authorization(
        &self,
        id: Uuid,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        let mut row = self.authorization_of_account(id, signed).await?;
        if !signed.is_post_as_get() {
            let change: Change = signed.json()?;
            if change.status != "deactivated" {
                let detail = format!("a client cannot set the authorization status to {:?}", change.status);
                return Err(Problem::malformed(detail));
            }
            if !self.deactivate(&row).await? {
                return Err(Problem::malformed("the authorization is neither pending nor valid"));
            }
            row.status = AcmeAuthorizationStatus::Deactivated;
        }
        let now_us = self.now_us();
        let response = respond::json(StatusCode::OK, &self.authorization_json(&row, now_us))?;
        if AuthorizationState::of(&row, now_us) == AuthorizationState::Pending
            && responded_method(&row).is_some()
        {
            return Ok(respond::with_header(response, header::RETRY_AFTER, &POLL_SECONDS.to_string()));
        }
        Ok(response)
    }

    async fn deactivate(&self, row: &AcmeAuthorization) -> Result<bool, Problem> {
        let (id, account) = (row.id, row.account);
        let details = json!({ "identifier": row.identifier });
        let mut event = self.account_audit_event(account, "acme_authorization.deactivate", details);
        event.resource = format!("acme-authorization/{id}");
        let changed = self
            .store
            .write("acme_authorization_deactivate", move |tx| {
                async move {
                    let changed = deactivate_acme_authorization(tx, id, account).await?;
                    if changed {
                        audit(tx, vec![event]).await?;
                    }
                    Ok(changed)
                }
                .boxed()
            })
            .await?;
        Ok(changed)
    }

    /// Returns a challenge or starts its validation (section 7.5.1).
    pub(crate) async fn challenge(
        &self,
        id: Uuid,
        method: Method,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        let mut row = self.authorization_of_account(id, signed).await?;
        if row.methods & method.bit() == 0 {
            return Err(Problem::not_found());
        }
        if !signed.is_post_as_get() {
            // The members of the payload are ignored: only other challenge types use them.
            let _: Map<String, Value> = signed.json()?;
            self.start_challenge_validation(&mut row, method).await?;
        }
        let now_us = self.now_us();
        let response = respond::json(StatusCode::OK, &self.challenge_json(&row, method, now_us))?;
        let response = respond::with_link(response, &self.authorization_url(id), "up");
        let response = respond::with_header(response, header::LOCATION, &self.challenge_url(&row, method));
        if AuthorizationState::of(&row, now_us) == AuthorizationState::Pending
            && responded_method(&row).is_some()
        {
            return Ok(respond::with_header(response, header::RETRY_AFTER, &POLL_SECONDS.to_string()));
        }
        Ok(response)
    }

    /// Starts the validation of a pending authorization. An authorization that is being validated or is final does not change.
    async fn start_challenge_validation(
        &self,
        row: &mut AcmeAuthorization,
        method: Method,
    ) -> Result<(), Problem> {
        let now_us = self.now_us();
        if AuthorizationState::of(row, now_us) != AuthorizationState::Pending || row.proof.is_some() {
            return Ok(());
        }
        let (account, key) = (row.account.to_string(), row.identifier.clone());
        let subject = format!("{account} {key}");
        self.check_rate_limit(Limited::FailedValidations, &subject, &[&account, &key])
            .await
            .map_err(|seconds| rate_limited("failed validations of this name", seconds))?;
        // Without a free queue slot, the authorization is stored unclaimed. The worker finds it in the database.
        let slot = self.queue.slot();
        let until = if slot.is_some() { now_us + self.claim_duration_us() } else { now_us };
        let answer = AcmeChallengeResponse { id: row.id, method, claimed_until_us: until };
        let begun = self.writes.answer(answer).await?;
        if begun {
            (row.proof, row.claimed_until_us) = (Some(AcmeProof::Challenge(method)), Some(until));
            if let Some(slot) = slot {
                slot.send(row.clone());
            }
        } else if let Some(current) = tables::Acme::of(&self.store).authorization(row.id).await? {
            *row = current;
        }
        Ok(())
    }

    async fn authorization_of_account(
        &self,
        id: Uuid,
        signed: &AccountRequest,
    ) -> Result<AcmeAuthorization, Problem> {
        let row = self.reads.authorization(id).await?;
        row.filter(|row| row.account == signed.account.row.id).ok_or_else(Problem::not_found)
    }
}
