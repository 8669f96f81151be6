//! Whether there is a leaf for a consumer, and which.

use std::sync::Arc;
use std::time::Duration;

use keys::KeyError;

use super::consumer::{Consumer, ConsumerKeys};
use super::metrics::{Door, MintingMetrics, Outcome};
use crate::certificate_store::{CertificateStore, FetchError, LeafId};
use crate::clock::now;
use crate::mint::{Leaf, LeafKeyKind, LeafName, Minter};
use crate::proxy::{Action, Rules};

/// Why there is none.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum NoLeaf {
    /// Not one of the names that leaves are handed out for.
    #[error("there are no leaves for that name here")]
    NotAllowed,
    #[error(transparent)]
    NotFetched(#[from] FetchError),
    #[error("no key for a consumer: {0}")]
    Key(#[from] Arc<KeyError>),
}

pub(super) struct Desk {
    minter: Minter,
    store: CertificateStore,
    names: Rules,
    keys: ConsumerKeys,
    metrics: MintingMetrics,
}

impl Desk {
    pub(super) fn new(
        minter: Minter,
        store: CertificateStore,
        names: Rules,
        key_life: Duration,
        metrics: MintingMetrics,
    ) -> Self {
        Self { minter, store, names, keys: ConsumerKeys::new(key_life), metrics }
    }

    /// The leaf for `name`: minted once, however many ask. Whether there may be one is asked before anything is looked up.
    pub(super) async fn leaf(
        &self,
        consumer: &Consumer,
        name: &str,
        door: Door,
    ) -> Result<Arc<Leaf>, NoLeaf> {
        let fetched = self.fetch(consumer, name).await;
        self.metrics.answered(
            door,
            match &fetched {
                Ok(_) => Outcome::Leaf,
                Err(NoLeaf::NotAllowed) => Outcome::NotAllowed,
                Err(NoLeaf::NotFetched(FetchError::TooManyNames(_))) => Outcome::TooManyNames,
                Err(_) => Outcome::Failed,
            },
        );
        if let Err(error) = &fetched {
            let name = LeafName::parse(name).ok();
            tracing::info!(consumer = &*consumer.profile, ?name, %error, "a consumer gets no leaf");
        }
        fetched
    }

    /// Whether `name` is one that there are leaves for.
    pub(super) fn allows(&self, name: &str) -> Option<LeafName> {
        LeafName::parse(name).ok().filter(|name| self.names.decide(name) == Action::Intercept)
    }

    async fn fetch(&self, consumer: &Consumer, name: &str) -> Result<Arc<Leaf>, NoLeaf> {
        const KIND: LeafKeyKind = LeafKeyKind::P256;
        let name = self.allows(name).ok_or(NoLeaf::NotAllowed)?;
        let minter = self.minter.over(self.keys.of(consumer)?);
        let id = LeafId {
            name: name.clone(),
            authority: minter.authority().fingerprint(),
            kind: KIND,
            profile: Arc::clone(&consumer.profile),
            mirrored: None,
            is_handed_out: true,
        };
        let now = now();
        let mint = move || async move { minter.mint(&name, KIND, now).await };
        Ok(self.store.fetch(&id, consumer.address, now, mint).await?)
    }
}
