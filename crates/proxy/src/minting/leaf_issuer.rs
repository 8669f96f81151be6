//! Selects the leaf for a consumer, by configuration and permission.

use std::collections::HashSet;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use http_relay::clock::now;
use keys::{KeyError, RsaStock};
use x509::HostOrIp;

use super::consumer::{CONSUMERS_MAX, Consumer};
use super::metrics::{MintingMetrics, MintingProtocol, Outcome};
use crate::certificate_store::{CertificateStore, FetchError, KeyRecipients, LeafId};
use crate::mint::{KeysByOwner, Leaf, LeafKeyKind, LeafKeySharing, Minter};
use crate::permission::{LeafRequester, NotPermitted, Permission};
use crate::{Action, Rules};

/// Port for rules with a port: leaves are for HTTPS.
const HTTPS_PORT: u16 = 443;

/// Reason why no leaf certificate is available for a requested name.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum NoLeaf {
    /// The configuration does not permit leaves for this name.
    #[error("the configuration permits no leaf certificates for this name")]
    NotAllowed,
    /// The permission service denies a leaf.
    #[error("the permission service denies a leaf certificate for this name")]
    NotPermitted,
    /// The permission service returned no decision.
    #[error("the permission service is unavailable")]
    Unknown(#[source] NotPermitted),
    #[error(transparent)]
    NotFetched(#[from] FetchError),
    #[error("cannot create a key for a consumer: {0}")]
    Key(#[from] Arc<KeyError>),
}

impl NoLeaf {
    fn of(refused: NotPermitted) -> Self {
        match refused {
            NotPermitted::No => Self::NotPermitted,
            NotPermitted::TooMany(names) => Self::NotFetched(names.into()),
            NotPermitted::Unknown(_) | NotPermitted::Busy => Self::Unknown(refused),
        }
    }
}

/// Everything needed to issue leaves: minter, store, permission check and RSA keys.
pub(crate) struct LeafSource {
    pub(crate) minter: Minter,
    /// Text of the minter's settings, which is a part of each leaf's identity.
    pub(crate) profile: Arc<str>,
    pub(crate) store: CertificateStore,
    /// The permission check before minting.
    pub(crate) permission: Permission,
    /// RSA keys in stock. The caller must refill the stock if there are [`Options::rsa_consumers`](super::Options::rsa_consumers).
    pub(crate) stock: RsaStock,
}

/// Issuer of leaves to consumers.
pub(super) struct LeafIssuer {
    leaves: LeafSource,
    names: Rules,
    keys: KeysByOwner,
    /// Consumers that receive RSA leaves.
    rsa: HashSet<String>,
    metrics: MintingMetrics,
}

impl LeafIssuer {
    /// Creates the issuer. The first part of the tuple is the life of a consumer's key, the second the consumers that get RSA
    /// keys.
    pub(super) fn new(
        leaves: LeafSource,
        names: Rules,
        (key_life, rsa): (Duration, HashSet<String>),
        metrics: MintingMetrics,
    ) -> Self {
        let keys = KeysByOwner::for_consumers(CONSUMERS_MAX, key_life, leaves.stock.clone());
        Self { leaves, names, keys, rsa, metrics }
    }

    /// Returns the key type of the consumer's leaves, unless a request lists supported algorithms.
    pub(super) fn kind_of(&self, consumer: &Consumer) -> LeafKeyKind {
        let identity = &consumer.identity;
        match std::iter::once(&identity.subject).chain(&identity.names).any(|name| self.rsa.contains(name)) {
            true => LeafKeyKind::Rsa2048,
            false => LeafKeyKind::P256,
        }
    }

    /// Returns the leaf for `name`, minted once for all concurrent requests. Permission is checked before any lookup.
    pub(super) async fn leaf(
        &self,
        consumer: &Consumer,
        name: &str,
        kind: LeafKeyKind,
        door: MintingProtocol,
    ) -> Result<Arc<Leaf>, NoLeaf> {
        let fetched = self.fetch(consumer, name, kind).await;
        self.metrics.answered(
            door,
            match &fetched {
                Ok(_) => Outcome::Leaf,
                Err(NoLeaf::NotAllowed) => Outcome::NotAllowed,
                Err(NoLeaf::NotPermitted) => Outcome::NotPermitted,
                Err(NoLeaf::NotFetched(FetchError::TooManyNames(_))) => Outcome::TooManyNames,
                Err(_) => Outcome::Failed,
            },
        );
        if let Err(error) = &fetched {
            let name = HostOrIp::parse(name).ok();
            let why = error.source().map(ToString::to_string);
            tracing::info!(consumer = &*consumer.profile, ?name, %error, why, "cannot serve a leaf certificate to a consumer");
        }
        fetched
    }

    /// Returns the host if the configuration permits leaves for `name`.
    pub(super) fn allows(&self, name: &str) -> Option<HostOrIp> {
        HostOrIp::parse(name).ok().filter(|name| self.names.decide(name, HTTPS_PORT) == Action::Intercept)
    }

    async fn fetch(&self, consumer: &Consumer, name: &str, kind: LeafKeyKind) -> Result<Arc<Leaf>, NoLeaf> {
        let name = self.allows(name).ok_or(NoLeaf::NotAllowed)?;
        let address = consumer.address;
        let requester = LeafRequester { address, user: None, consumer: Some(&consumer.identity) };
        self.leaves.permission.check(requester, &name).await.map_err(NoLeaf::of)?;
        let minter = self.leaves.minter.with_keys(self.keys.of(&consumer.profile)?);
        let id = LeafId {
            name: name.clone(),
            authority: minter.authority().fingerprint(),
            kind,
            keys: LeafKeySharing::ByUser,
            user: Some(Arc::clone(&consumer.profile)),
            profile: Arc::clone(&self.leaves.profile),
            mirrored: None,
            key_recipients: if consumer.is_local() {
                KeyRecipients::ThisMachine
            } else {
                KeyRecipients::Consumer
            },
        };
        let now = now();
        let mint = move || async move { minter.mint(&name, kind, now).await };
        Ok(self.leaves.store.fetch(&id, consumer.address, now, mint).await?)
    }
}
