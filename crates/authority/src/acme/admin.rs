//! Operator's view of accounts and orders. External keys are in [`super::binding`], limits in [`super::overrides`].

use events::{AcmeAccountRevoked, Event};
use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Cursor, Page, StoreError, audit, emit, new_event};
use uuid::Uuid;

use super::Acme;
use super::state::OrderState;
use crate::tables;
use crate::tables::acme::{
    AcmeAccount, AcmeAccountChange, AcmeAccountStatus, AcmeAuthorization, AcmeOrder, set_acme_account,
};

impl Acme {
    /// Accounts, newest first.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn accounts(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeAccount>, StoreError> {
        tables::Acme::of(&self.0.store).accounts(after, limit).await
    }

    /// An account.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn find_account(&self, id: Uuid) -> Result<Option<AcmeAccount>, StoreError> {
        tables::Acme::of(&self.0.store).account(id).await
    }

    /// Ends an account, at once on this node and within seconds on others; what was issued to it stays. False when it
    /// is not valid any more, or there is none.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn revoke_account(&self, id: Uuid, actor: &str) -> Result<bool, StoreError> {
        let (now_us, resource) = (self.0.now_us(), format!("acme-account/{id}"));
        let event = Event::AcmeAccountRevoked(AcmeAccountRevoked {});
        let event = new_event(now_us, resource.clone(), &event);
        let (actor, action) = (actor.to_owned(), "acme_account.revoke");
        let audited = AuditEvent { at_us: now_us, actor, action, resource, details: json!({}) };
        let changed = self
            .0
            .store
            .write("acme_account_revoke", move |tx| {
                async move {
                    let status = AcmeAccountStatus::Revoked;
                    let change = AcmeAccountChange { status, contacts: None, terms_agreed: false };
                    let changed = set_acme_account(tx, id, change, now_us).await?;
                    if changed {
                        audit(tx, vec![audited]).await?;
                        emit(tx, vec![event]).await?;
                    }
                    Ok(changed)
                }
                .boxed()
            })
            .await?;
        self.0.accounts.forget(id);
        Ok(changed)
    }

    /// Orders, newest first: everybody's, or an account's without those refused.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn list_orders(
        &self,
        account: Option<Uuid>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeOrder>, StoreError> {
        match account {
            Some(account) => tables::Acme::of(&self.0.store).orders_of(account, after, limit).await,
            None => tables::Acme::of(&self.0.store).orders(after, limit).await,
        }
    }

    /// An order with its authorizations.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn find_order(
        &self,
        id: Uuid,
    ) -> Result<Option<(AcmeOrder, Vec<AcmeAuthorization>)>, StoreError> {
        let Some(order) = tables::Acme::of(&self.0.store).order(id).await? else { return Ok(None) };
        let authorizations = tables::Acme::of(&self.0.store).authorizations(&order.authorizations).await?;
        Ok(Some((order, authorizations)))
    }

    /// What an order's `status` says to its client now: `pending`, `ready`, `processing`, `valid` or `invalid`.
    #[must_use]
    pub fn order_status(&self, order: &AcmeOrder, authorizations: &[AcmeAuthorization]) -> &'static str {
        OrderState::of(order, authorizations, self.0.now_us()).name()
    }
}
