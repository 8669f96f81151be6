//! Frequent database reads, combined into few statements. Lookups that arrive while a statement runs share the next one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::{Batcher, BatcherOptions, Store, StoreError};
use uuid::Uuid;

use super::problem::Problem;
use crate::tables;
use crate::tables::acme::{AcmeAuthorization, AcmeOrder};

/// Maximum number of keys in one statement.
const BATCH_MAX: usize = 128;
/// Capacity of each queue of lookups. When a queue is full, callers wait for a slot.
const WAITING_MAX: usize = 4_096;
/// Maximum number of concurrent statements per queue.
const CONCURRENCY_MAX: usize = 2;

/// An order, and its authorizations if the order is pending.
pub(crate) type FoundOrder = (AcmeOrder, Vec<AcmeAuthorization>);

/// A batcher that combines lookups of rows by key into few statements.
type Reader<K, V> = Batcher<K, Result<Option<V>, Arc<StoreError>>>;

pub(crate) struct Reads {
    orders: Reader<Uuid, FoundOrder>,
    authorizations: Reader<Uuid, AcmeAuthorization>,
    keys: Reader<[u8; 32], ()>,
}

impl Reads {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            orders: reader(store, "acme-read-orders", |store, ids| {
                async move { tables::Acme::of(&store).orders_with_authorizations(&ids).await }.boxed()
            }),
            authorizations: reader(store, "acme-read-authorizations", |store, ids| {
                async move {
                    let found = tables::Acme::of(&store).authorizations(&ids).await?;
                    Ok(found.into_iter().map(|one| (one.id, one)).collect())
                }
                .boxed()
            }),
            keys: reader(store, "acme-read-keys", |store, keys| {
                async move {
                    let used = tables::Acme::of(&store).thumbprints_in_use(&keys).await?;
                    Ok(used.into_iter().map(|key| (key, ())).collect())
                }
                .boxed()
            }),
        }
    }

    pub(crate) async fn order(&self, id: Uuid) -> Result<Option<FoundOrder>, Problem> {
        read(&self.orders, id).await
    }

    pub(crate) async fn authorization(&self, id: Uuid) -> Result<Option<AcmeAuthorization>, Problem> {
        read(&self.authorizations, id).await
    }

    /// Returns whether the key with this thumbprint belongs to an account.
    pub(crate) async fn is_account_key(&self, thumbprint: [u8; 32]) -> Result<bool, Problem> {
        read(&self.keys, thumbprint).await.map(|found| found.is_some())
    }
}

async fn read<K: Send + 'static, V: Send + 'static>(
    reader: &Reader<K, V>,
    key: K,
) -> Result<Option<V>, Problem> {
    let answer = reader.submit(key).await.map_err(|_| Problem::busy())?;
    answer.map_err(|error| super::problem::read_failed(&error))
}

type Read<K, V> = fn(Store, Vec<K>) -> BoxFuture<'static, Result<HashMap<K, V>, StoreError>>;

fn reader<K, V>(store: &Store, name: &'static str, read: Read<K, V>) -> Reader<K, V>
where
    K: Copy + Eq + Hash + Ord + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let store = store.clone();
    let options = BatcherOptions { batch_max: BATCH_MAX, queue_max: WAITING_MAX, at_once: CONCURRENCY_MAX };
    Batcher::new(name, options, move |keys: Vec<K>| {
        let store = store.clone();
        async move {
            let mut each = keys.clone();
            each.sort_unstable();
            each.dedup();
            match read(store, each).await {
                // Two lookups may have the same key.
                Ok(found) => keys.iter().map(|key| Ok(found.get(key).cloned())).collect(),
                Err(error) => {
                    let error = Arc::new(error);
                    keys.iter().map(|_| Err(Arc::clone(&error))).collect()
                }
            }
        }
        .boxed()
    })
}
