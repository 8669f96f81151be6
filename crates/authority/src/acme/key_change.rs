//! Account key rollover (RFC 8555 section 7.3.5).

use bytes::Bytes;
use events::{AcmeAccountKeyChanged, Event};
use futures_util::FutureExt;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{audit, emit};

use super::jose::{AccountKey, Jws, JwsError, Signer, sha256, strict};
use super::problem::{Kind, Problem};
use super::request::AccountRequest;
use super::{Server, respond};
use crate::tables;
use crate::tables::acme::change_acme_account_key;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyChange {
    account: String,
    old_key: Value,
}

impl Server {
    /// Handles `keyChange`. Its payload is itself a JWS, signed with the new key.
    pub(crate) async fn change_key(&self, signed: &AccountRequest) -> Result<Response<Bytes>, Problem> {
        let inner = Jws::parse(signed.payload())?;
        let new = self.check_inner(&inner, signed)?;
        let account = &signed.account.row;
        if let Some(owner) = tables::Acme::of(&self.store).account_by_key(new.thumbprint()).await? {
            return Err(self.key_in_use(owner.id));
        }
        if tables::Revocations::of(&self.store).is_spki_blocked(&sha256(new.spki())).await? {
            return Err(Problem::new(Kind::BadPublicKey, "the new key is blocked: generate another key"));
        }
        let new_thumbprint = new.thumbprint_text();
        let details = json!({ "new_thumbprint": new_thumbprint });
        let event = Event::AcmeAccountKeyChanged(AcmeAccountKeyChanged { new_thumbprint });
        let (event, audited) =
            self.account_change_events(account.id, "acme_account.change_key", details, &event);
        let (id, old, thumbprint) = (account.id, account.thumbprint, *new.thumbprint());
        let (jwk, now_us) = (new.canonical().to_owned(), self.now_us());
        let changed = self
            .store
            .write("acme_key_change", move |tx| {
                async move {
                    let changed = change_acme_account_key(tx, id, old, thumbprint, &jwk, now_us).await?;
                    if changed {
                        audit(tx, vec![audited]).await?;
                        emit(tx, vec![event]).await?;
                    }
                    Ok(changed)
                }
                .boxed()
            })
            .await?;
        self.accounts.forget(id);
        if !changed {
            // Another request used this key or changed this account first.
            return Err(match tables::Acme::of(&self.store).account_by_key(new.thumbprint()).await? {
                Some(owner) => self.key_in_use(owner.id),
                None => Problem::malformed("the account's key was changed by another request")
                    .status(StatusCode::CONFLICT),
            });
        }
        Ok(respond::empty(StatusCode::OK))
    }

    fn check_inner<'j>(&self, inner: &'j Jws, outer: &AccountRequest) -> Result<&'j AccountKey, Problem> {
        let Signer::Key(new) = &inner.signer else {
            return Err(Problem::malformed("the inner request must carry the new key (jwk)"));
        };
        inner.verify(new)?;
        if inner.url != outer.url {
            return Err(Problem::malformed("the inner request must have the same URL as the outer one"));
        }
        if inner.nonce.is_some() {
            return Err(Problem::malformed("the inner request must not have a nonce"));
        }
        let wanted: KeyChange = strict::parse(&inner.payload)
            .and_then(serde_json::from_value)
            .map_err(|error| Problem::malformed(format!("cannot parse the inner payload: {error}")))?;
        if wanted.account != outer.account_url {
            return Err(Problem::malformed("the inner payload names another account"));
        }
        let old = AccountKey::from_jwk(&wanted.old_key).map_err(JwsError::from)?;
        if old.thumbprint() != outer.account.key.thumbprint() {
            return Err(Problem::malformed("oldKey is not the account's key"));
        }
        Ok(new)
    }

    fn key_in_use(&self, owner: uuid::Uuid) -> Problem {
        Problem::malformed("the new key already belongs to an account")
            .status(StatusCode::CONFLICT)
            .location(self.account_url(owner))
    }
}
