//! Operator access to accounts and orders. External keys are in [`super::binding`], limits in [`super::overrides`].

use events::{AcmeAccountRevoked, Event};
use futures_util::FutureExt;
use serde_json::{Value, json};
use store::{AuditEvent, Cursor, Page, StoreError, audit, emit, new_event};
use uuid::Uuid;

use super::Acme;
use super::state::{OrderState, order_error};
use crate::tables;
use crate::tables::acme::{AcmeAccount, AcmeAccountChange, AcmeAccountStatus, AcmeOrder, set_acme_account};

/// An order with the status that its client sees.
#[derive(Clone, Debug)]
pub struct OrderWithStatus {
    /// The stored order.
    pub order: AcmeOrder,
    /// Current `status` of the order object: `pending`, `ready`, `processing`, `valid` or `invalid`.
    pub status: &'static str,
    /// Why the order is invalid: the problem document that its client sees.
    pub error: Option<Value>,
}

impl Acme {
    /// Lists accounts, newest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn accounts(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeAccount>, StoreError> {
        tables::Acme::of(&self.0.store).accounts(after, limit).await
    }

    /// Returns the account with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn find_account(&self, id: Uuid) -> Result<Option<AcmeAccount>, StoreError> {
        tables::Acme::of(&self.0.store).account(id).await
    }

    /// Revokes an account, immediately on this node and within seconds on other nodes. Its certificates stay valid. Returns false
    /// if the account does not exist or is no longer valid.
    ///
    /// # Errors
    /// Fails if the database fails.
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

    /// Lists orders, newest first: all orders, or the orders of one account except rejected orders.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn list_orders(
        &self,
        account: Option<Uuid>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<OrderWithStatus>, StoreError> {
        let tables = tables::Acme::of(&self.0.store);
        let page = match account {
            Some(account) => tables.orders_of(account, after, limit).await?,
            None => tables.orders(after, limit).await?,
        };
        Ok(Page { rows: self.with_status(page.rows).await?, next: page.next })
    }

    /// Returns the order with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn find_order(&self, id: Uuid) -> Result<Option<OrderWithStatus>, StoreError> {
        let found = tables::Acme::of(&self.0.store).order(id).await?;
        Ok(self.with_status(found.into_iter().collect()).await?.pop())
    }

    async fn with_status(&self, orders: Vec<AcmeOrder>) -> Result<Vec<OrderWithStatus>, StoreError> {
        let mut authorizations = tables::Acme::of(&self.0.store).authorizations_of(&orders).await?;
        let now_us = self.0.now_us();
        let with = |order: AcmeOrder| {
            let of = authorizations.remove(&order.id).unwrap_or_default();
            let state = OrderState::of(&order, &of, now_us);
            OrderWithStatus { status: state.name(), error: order_error(&order, &of, state), order }
        };
        Ok(orders.into_iter().map(with).collect())
    }
}
