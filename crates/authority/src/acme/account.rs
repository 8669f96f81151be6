//! ACME accounts: requests to create, return, update and deactivate them (RFC 8555 section 7.3).

use bytes::Bytes;
use events::{AcmeAccountChanged, AcmeAccountCreated, Event};
use futures_util::FutureExt;
use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{AuditEvent, NewEvent, audit, emit, new_event};
use uuid::Uuid;

use super::accounts::{actor, check};
use super::limits::Kind as Limited;
use super::override_index::network;
use super::problem::{Kind, Problem, rate_limited};
use super::request::{AccountRequest, KeyRequest};
use super::{Server, respond};
use crate::Peer;
use crate::tables;
use crate::tables::acme::{
    AcmeAccount, AcmeAccountChange, AcmeAccountStatus, NewAcmeAccount, NewAcmeAccountOutcome,
    insert_acme_account, set_acme_account,
};

/// Maximum number of contacts of an account.
const CONTACTS_MAX: usize = 10;
/// Maximum length in bytes of a contact: the longest email address (RFC 5321 section 4.5.3.1.3) and its scheme.
const CONTACT_MAX: usize = 254 + "mailto:".len();

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NewAccount {
    contact: Vec<String>,
    terms_of_service_agreed: bool,
    only_return_existing: bool,
    external_account_binding: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Change {
    contact: Option<Vec<String>>,
    terms_of_service_agreed: bool,
    status: Option<String>,
}

impl Server {
    /// Handles `newAccount` requests.
    pub(crate) async fn new_account(
        &self,
        profile: Option<&str>,
        signed: KeyRequest,
        peer: &Peer,
    ) -> Result<Response<Bytes>, Problem> {
        let (profile, directory) = self.directory_options(profile)?;
        let payload: NewAccount = signed.json()?;
        if let Some(existing) = tables::Acme::of(&self.store).account_by_key(signed.key.thumbprint()).await? {
            return self.existing(&existing);
        }
        if payload.only_return_existing {
            return Err(Problem::new(Kind::AccountDoesNotExist, "no account exists with this key"));
        }
        let contacts = contacts(payload.contact)?;
        if let Some(terms) =
            self.options.terms_of_service.as_ref().filter(|_| !payload.terms_of_service_agreed)
        {
            let detail = format!("agree to the terms of service at {terms}");
            let problem = Problem::new(Kind::UserActionRequired, detail);
            return Err(problem.link(format!("<{terms}>;rel=\"terms-of-service\"")));
        }
        self.check_account_key(&signed).await?;
        let external_key = match payload.external_account_binding {
            Some(binding) => Some(self.verify_external_binding(binding, &signed, profile).await?),
            None if directory.external_account_required => {
                let detail =
                    "this directory requires an external account binding: request a key from its operator";
                return Err(Problem::new(Kind::ExternalAccountRequired, detail));
            }
            None => None,
        };
        let subject = network(peer.address);
        self.take(Limited::NewAccounts, &subject, &[&peer.address.to_string()])
            .await
            .map_err(|seconds| rate_limited("new accounts from this address", seconds))?;
        let new = NewAcmeAccount {
            id: Uuid::now_v7(),
            thumbprint: *signed.key.thumbprint(),
            jwk: signed.key.canonical().to_owned(),
            contacts,
            terms_agreed: payload.terms_of_service_agreed,
            external_key,
            profile: profile.to_owned(),
            address: peer.address.to_string(),
            created_at_us: self.now_us(),
        };
        let id = new.id;
        match self.insert_account(new).await? {
            NewAcmeAccountOutcome::Made => {}
            NewAcmeAccountOutcome::KeyInUse => {
                let existing = tables::Acme::of(&self.store).account_by_key(signed.key.thumbprint()).await?;
                return self.existing(&existing.ok_or_else(Problem::busy)?);
            }
            NewAcmeAccountOutcome::ExternalKeySpent => {
                return Err(Problem::unauthorized(
                    "the external account key is already used or revoked: request a new one",
                ));
            }
        }
        let account = tables::Acme::of(&self.store).account(id).await?.ok_or_else(Problem::internal)?;
        let response = respond::json(StatusCode::CREATED, &self.account_json(&account))?;
        Ok(respond::with_header(response, header::LOCATION, &self.account_url(id)))
    }

    fn existing(&self, account: &AcmeAccount) -> Result<Response<Bytes>, Problem> {
        check(account)?;
        let response = respond::json(StatusCode::OK, &self.account_json(account))?;
        Ok(respond::with_header(response, header::LOCATION, &self.account_url(account.id)))
    }

    /// Rejects an account key that is on the list of blocked keys.
    async fn check_account_key(&self, signed: &KeyRequest) -> Result<(), Problem> {
        let spki = super::jose::sha256(signed.key.spki());
        if tables::Revocations::of(&self.store).is_spki_blocked(&spki).await? {
            return Err(Problem::new(Kind::BadPublicKey, "this key is blocked: generate a new key"));
        }
        Ok(())
    }

    async fn insert_account(&self, new: NewAcmeAccount) -> Result<NewAcmeAccountOutcome, Problem> {
        let created = Event::AcmeAccountCreated(AcmeAccountCreated {
            address: new.address.clone(),
            profile: new.profile.clone(),
            contact: new.contacts.clone(),
            external_key: new.external_key,
        });
        let details = json!({
            "address": new.address, "profile": new.profile, "contact": new.contacts,
            "external_key": new.external_key,
        });
        let (event, account_audit_event) =
            self.account_change_events(new.id, "acme_account.create", details, &created);
        let outcome = self
            .store
            .write("acme_new_account", move |tx| {
                async move {
                    let outcome = insert_acme_account(tx, &new).await?;
                    if outcome == NewAcmeAccountOutcome::Made {
                        audit(tx, vec![account_audit_event]).await?;
                        emit(tx, vec![event]).await?;
                    }
                    Ok(outcome)
                }
                .boxed()
            })
            .await?;
        Ok(outcome)
    }

    /// Handles a request to an account URL: returns, updates or deactivates the account that signed the request.
    pub(crate) async fn account(
        &self,
        id: Uuid,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        if signed.account.row.id != id {
            return Err(Problem::unauthorized("the request is signed by another account"));
        }
        if signed.is_post_as_get() {
            return respond::json(StatusCode::OK, &self.account_json(&signed.account.row));
        }
        let change: Change = signed.json()?;
        let status = match change.status.as_deref() {
            None | Some("valid") => AcmeAccountStatus::Valid,
            Some("deactivated") => AcmeAccountStatus::Deactivated,
            Some(other) => {
                return Err(Problem::malformed(format!(
                    "a client cannot set the account status to {other:?}"
                )));
            }
        };
        let contacts = change.contact.map(contacts).transpose()?;
        let changed = AcmeAccountChanged { contact: contacts.clone() };
        let (action, changed) = match status {
            AcmeAccountStatus::Deactivated => {
                ("acme_account.deactivate", Event::AcmeAccountDeactivated(changed))
            }
            _ => ("acme_account.update", Event::AcmeAccountUpdated(changed)),
        };
        let (event, account_audit_event) =
            self.account_change_events(id, action, json!({ "contact": contacts }), &changed);
        let terms_agreed = change.terms_of_service_agreed;
        let change = AcmeAccountChange { status, contacts, terms_agreed };
        let now_us = self.now_us();
        let changed = self
            .store
            .write("acme_account", move |tx| {
                async move {
                    let changed = set_acme_account(tx, id, change, now_us).await?;
                    if changed {
                        audit(tx, vec![account_audit_event]).await?;
                        emit(tx, vec![event]).await?;
                    }
                    Ok(changed)
                }
                .boxed()
            })
            .await?;
        self.accounts.forget(id);
        let account = tables::Acme::of(&self.store).account(id).await?.ok_or_else(Problem::not_found)?;
        if !changed {
            check(&account)?;
        }
        respond::json(StatusCode::OK, &self.account_json(&account))
    }

    /// Returns the event and the audit event of a change that the account itself makes.
    pub(crate) fn account_change_events(
        &self,
        account: Uuid,
        action: &'static str,
        details: Value,
        event: &Event,
    ) -> (NewEvent, AuditEvent) {
        let account_audit_event = self.account_audit_event(account, action, details);
        (
            new_event(account_audit_event.at_us, account_audit_event.resource.clone(), event),
            account_audit_event,
        )
    }

    /// Returns the audit event of a change that the account itself makes.
    pub(crate) fn account_audit_event(
        &self,
        account: Uuid,
        action: &'static str,
        details: Value,
    ) -> AuditEvent {
        let (at_us, resource) = (self.now_us(), format!("acme-account/{account}"));
        AuditEvent { at_us, actor: actor(account), action, resource, details }
    }

    fn account_json(&self, account: &AcmeAccount) -> Value {
        json!({
            "status": account.status,
            "contact": account.contacts,
            "termsOfServiceAgreed": account.terms_agreed,
            "orders": format!("{}/orders", self.account_url(account.id)),
        })
    }
}

/// Checks the contacts. Only `mailto` URLs with one plain address are allowed (RFC 8555 section 7.3).
fn contacts(all: Vec<String>) -> Result<Vec<String>, Problem> {
    if all.len() > CONTACTS_MAX {
        return Err(Problem::new(
            Kind::InvalidContact,
            format!("at most {CONTACTS_MAX} contacts are allowed"),
        ));
    }
    for contact in &all {
        let invalid = |why: &str| Err(Problem::new(Kind::InvalidContact, format!("{contact:?}: {why}")));
        let Some((scheme, address)) = contact.split_once(':') else { return invalid("not a URL") };
        if !scheme.eq_ignore_ascii_case("mailto") {
            let detail = format!("{contact:?}: contacts must be mailto URLs");
            return Err(Problem::new(Kind::UnsupportedContact, detail));
        }
        if contact.len() > CONTACT_MAX {
            return invalid("the contact is too long");
        }
        if address.contains(['?', ',', '%']) || address.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return invalid("give a single email address without header fields");
        }
        match address.split_once('@') {
            Some((local, host)) if !local.is_empty() && x509::HostName::parse(host).is_ok() => {}
            _ => return invalid("not an email address"),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_must_be_single_mail_addresses() {
        let table: &[(&str, Option<Kind>)] = &[
            ("mailto:ops@a.example", None),
            ("MAILTO:ops+x@a.example", None),
            ("mailto:ops@a.example?subject=x", Some(Kind::InvalidContact)),
            ("mailto:a@a.example,b@b.example", Some(Kind::InvalidContact)),
            ("mailto:ops", Some(Kind::InvalidContact)),
            ("mailto:@a.example", Some(Kind::InvalidContact)),
            ("mailto:a@b@c.example", Some(Kind::InvalidContact)),
            ("mailto:a b@c.example", Some(Kind::InvalidContact)),
            ("ops@a.example", Some(Kind::InvalidContact)),
            ("tel:+1", Some(Kind::UnsupportedContact)),
        ];
        for (contact, expected) in table {
            let found = contacts(vec![(*contact).to_owned()]).err().map(|problem| problem.kind);
            assert_eq!(found, *expected, "{contact}");
        }
        assert!(contacts(vec!["mailto:a@b.example".to_owned(); CONTACTS_MAX + 1]).is_err());
    }
}
