//! Keys of users and of consumers, each their own.

use std::sync::Arc;
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use keys::{KeyError, RsaStock};

use super::keys::LeafKeys;

/// The present keys of each owner. Leaves of two owners never share a key, nor one with the process's own leaves.
#[derive(Clone, Debug)]
pub struct KeysByOwner {
    owners: BoundedMap<Arc<str>, Arc<LeafKeys>>,
    make: fn(&RsaStock) -> Result<LeafKeys, KeyError>,
    stock: RsaStock,
}

impl KeysByOwner {
    /// Of users: of `owners_max` at most (some 1 KiB each, 5 KiB with an RSA key), each made again after `life`. Of more, the one that asked the
    /// longest ago gets another.
    #[must_use]
    pub fn of_users(owners_max: u64, life: Duration, stock: RsaStock) -> Self {
        Self::new(owners_max, life, stock, LeafKeys::of_user)
    }

    /// Of consumers, to whom they are handed.
    #[must_use]
    pub fn of_consumers(owners_max: u64, life: Duration, stock: RsaStock) -> Self {
        Self::new(owners_max, life, stock, LeafKeys::of_consumer)
    }

    fn new(
        owners_max: u64,
        life: Duration,
        stock: RsaStock,
        make: fn(&RsaStock) -> Result<LeafKeys, KeyError>,
    ) -> Self {
        let owners =
            BoundedMap::builder(owners_max).time_to_live(life).eviction(Eviction::LeastRecent).build();
        Self { owners, make, stock }
    }

    /// Made at the first request: some 30 µs.
    ///
    /// # Errors
    /// [`KeyError`] when the library fails.
    pub fn of(&self, owner: &Arc<str>) -> Result<Arc<LeafKeys>, Arc<KeyError>> {
        self.owners.try_get_with(Arc::clone(owner), || (self.make)(&self.stock).map(Arc::new))
    }
}

#[cfg(test)]
mod tests {

    use super::super::error::MintError;
    use super::super::key::LeafKeyKind;
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    fn p256(keys: &KeysByOwner, owner: &str) -> Vec<u8> {
        keys.of(&owner.into()).unwrap().current(LeafKeyKind::P256).unwrap().spki().to_vec()
    }

    #[test]
    fn keys_are_changed_by_time_and_bounded_in_number() {
        let keys = KeysByOwner::of_users(4, LONG, RsaStock::new(4));
        let first = p256(&keys, "alice");
        assert_eq!(p256(&keys, "alice"), first);
        for owner in 0..1_000 {
            p256(&keys, &format!("user{owner}"));
        }
        keys.owners.run_pending_tasks();
        assert!(keys.owners.entry_count() <= 4, "{}", keys.owners.entry_count());
        assert_ne!(p256(&keys, "alice"), first, "whoever has gone gets another");
        let short = KeysByOwner::of_users(4, Duration::from_millis(1), RsaStock::new(4));
        let first = p256(&short, "alice");
        std::thread::sleep(Duration::from_millis(20));
        assert_ne!(p256(&short, "alice"), first);
    }

    #[tokio::test]
    async fn an_rsa_key_comes_from_the_stock_or_not_at_all() {
        let stock = RsaStock::new(4);
        let (users, consumers) = (
            KeysByOwner::of_users(4, LONG, stock.clone()),
            KeysByOwner::of_consumers(4, LONG, stock.clone()),
        );
        let rsa =
            |keys: &KeysByOwner, owner: &str| keys.of(&owner.into()).unwrap().current(LeafKeyKind::Rsa2048);
        assert_eq!(rsa(&users, "alice").unwrap_err(), MintError::NoRsaKey, "none is made for who asks");
        let keeping = tokio::spawn({
            let stock = stock.clone();
            async move { stock.keep().await }
        });
        while stock.ready() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let all = [rsa(&users, "alice"), rsa(&users, "bob"), rsa(&consumers, "caddy")].map(Result::unwrap);
        let different: std::collections::HashSet<_> = all.iter().map(|key| key.spki().to_vec()).collect();
        assert_eq!(different.len(), 3, "each its own");
        assert_eq!(rsa(&users, "alice").unwrap().spki(), all[0].spki(), "and once");
        assert!(all.iter().all(|key| key.ends_with_its_leaves() && key.kind() == LeafKeyKind::Rsa2048));
        assert!(all[0].to_pkcs8_pem().is_none() && all[2].to_pkcs8_pem().is_some());
        keeping.abort();
    }
}
