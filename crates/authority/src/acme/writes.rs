//! Frequent database writes, combined into few transactions.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::{AuditEvent, Batcher, BatcherOptions, NewEvent, Store, StoreError, Tx, audit, emit};
use uuid::Uuid;

use super::problem::Problem;
use crate::tables::acme::{
    AcmeAuthorization, AcmeChallengeResponse, AcmeFinalizedOrder, AcmeIssuanceResult, AcmeOrder,
    AcmeValidationResult, begin_acme_issuances, begin_acme_validations, end_acme_issuances,
    insert_acme_authorizations, insert_acme_orders, store_validation_results,
};

/// A finished validation, with its audit event.
#[derive(Clone, Debug)]
pub(crate) struct FinishedValidation {
    pub(crate) row: AcmeValidationResult,
    pub(crate) audit: AuditEvent,
}

/// A new order, and the authorizations created for it. Reused authorizations are only referenced in the order.
#[derive(Clone, Debug)]
pub(crate) struct OrderCreation {
    pub(crate) order: AcmeOrder,
    pub(crate) authorizations: Vec<AcmeAuthorization>,
}

/// The result of an order, with its event.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) row: AcmeIssuanceResult,
    pub(crate) event: NewEvent,
}

/// Whether the row was in the expected earlier state and was therefore changed. After an error, this is unknown.
type Outcome = Result<bool, WriteFailure>;

/// A failed database write, whose error was logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteFailure {
    transient: bool,
}

impl From<WriteFailure> for Problem {
    fn from(error: WriteFailure) -> Self {
        if error.transient { Self::busy() } else { Self::internal() }
    }
}

pub(crate) struct WriteBatchers {
    orders: Batcher<OrderCreation, Outcome>,
    answers: Batcher<AcmeChallengeResponse, Outcome>,
    validated: Batcher<FinishedValidation, Outcome>,
    finalized: Batcher<AcmeFinalizedOrder, Outcome>,
    issued: Batcher<Issued, Outcome>,
}

impl WriteBatchers {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            orders: batcher(store, "acme-orders", |one: &OrderCreation| one.order.id, insert),
            answers: batcher(
                store,
                "acme-answers",
                |one: &AcmeChallengeResponse| one.id,
                |tx, all| async move { begin_acme_validations(tx, all).await }.boxed(),
            ),
            validated: batcher(store, "acme-validated", |one| one.row.id, validated),
            finalized: batcher(
                store,
                "acme-finalized",
                |one: &AcmeFinalizedOrder| one.id,
                |tx, all| async move { begin_acme_issuances(tx, all).await }.boxed(),
            ),
            issued: batcher(store, "acme-issued", |one| one.row.id, issued),
        }
    }

    pub(crate) async fn order(&self, new: OrderCreation) -> Result<(), WriteFailure> {
        submit(&self.orders, new).await.map(drop)
    }

    pub(crate) async fn answer(&self, answer: AcmeChallengeResponse) -> Outcome {
        submit(&self.answers, answer).await
    }

    pub(crate) async fn validated(&self, validated: FinishedValidation) -> Outcome {
        submit(&self.validated, validated).await
    }

    pub(crate) async fn finalize(&self, finalized: AcmeFinalizedOrder) -> Outcome {
        submit(&self.finalized, finalized).await
    }

    pub(crate) async fn issued(&self, issued: Issued) -> Outcome {
        submit(&self.issued, issued).await
    }
}

async fn submit<I: Send + 'static>(batcher: &Batcher<I, Outcome>, item: I) -> Outcome {
    batcher.submit(item).await.unwrap_or(Err(WriteFailure { transient: true }))
}

type Write<I> = for<'t> fn(&'t mut Tx, &'t [I]) -> BoxFuture<'t, Result<Vec<Uuid>, StoreError>>;

/// Creates a batcher that runs each batch as one transaction. The result of an item is true if the transaction returns its
/// identifier.
fn batcher<I: Send + Sync + 'static>(
    store: &Store,
    name: &'static str,
    id: fn(&I) -> Uuid,
    write: Write<I>,
) -> Batcher<I, Outcome> {
    let store = store.clone();
    Batcher::new(name, BatcherOptions::default(), move |items: Vec<I>| {
        let store = store.clone();
        async move {
            let items = Arc::new(items);
            let shared = items.clone();
            let written = store.write(name, move |tx| async move { write(tx, &shared).await }.boxed()).await;
            match written {
                Ok(changed) => {
                    let changed: HashSet<Uuid> = changed.into_iter().collect();
                    items.iter().map(|item| Ok(changed.contains(&id(item)))).collect()
                }
                Err(error) => {
                    tracing::error!(%error, batch = name, items = items.len(), "not stored");
                    let transient = error.is_transient();
                    items.iter().map(|_| Err(WriteFailure { transient })).collect()
                }
            }
        }
        .boxed()
    })
}

fn insert<'t>(tx: &'t mut Tx, all: &'t [OrderCreation]) -> BoxFuture<'t, Result<Vec<Uuid>, StoreError>> {
    async move {
        let orders: Vec<AcmeOrder> = all.iter().map(|one| one.order.clone()).collect();
        let authorizations: Vec<AcmeAuthorization> =
            all.iter().flat_map(|one| one.authorizations.iter().cloned()).collect();
        insert_acme_authorizations(tx, &authorizations).await?;
        insert_acme_orders(tx, &orders).await?;
        Ok(orders.iter().map(|order| order.id).collect())
    }
    .boxed()
}

fn validated<'t>(
    tx: &'t mut Tx,
    all: &'t [FinishedValidation],
) -> BoxFuture<'t, Result<Vec<Uuid>, StoreError>> {
    async move {
        let rows: Vec<AcmeValidationResult> = all.iter().map(|one| one.row.clone()).collect();
        let changed = store_validation_results(tx, &rows).await?;
        let events = all.iter().filter(|one| changed.contains(&one.row.id)).map(|one| one.audit.clone());
        audit(tx, events.collect()).await?;
        Ok(changed)
    }
    .boxed()
}

fn issued<'t>(tx: &'t mut Tx, all: &'t [Issued]) -> BoxFuture<'t, Result<Vec<Uuid>, StoreError>> {
    async move {
        let rows: Vec<AcmeIssuanceResult> = all.iter().map(|one| one.row.clone()).collect();
        let changed = end_acme_issuances(tx, &rows).await?;
        let events = all.iter().filter(|one| changed.contains(&one.row.id)).map(|one| one.event.clone());
        emit(tx, events.collect()).await?;
        Ok(changed)
    }
    .boxed()
}
