//! Limits and who has others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use ipnet::{IpNet, Ipv6Net};
use parking_lot::RwLock;
use serde_json::json;
use store::acme::{AcmeLimitOverride, delete_acme_limit_override, put_acme_limit_override};
use store::{AuditEvent, StoreError, audit};
use uuid::Uuid;

use super::limits::{Key, Kind};
use super::options::Limit;
use super::{Acme, Inner};

/// How long this node may act on overrides that another has changed, µs.
const KEPT_US: i64 = 10_000_000;
/// Octets of a note or subject.
const TEXT_MAX: usize = 500;
/// The prefix of IPv6 that counts as one client: what a site gives to one network.
const IPV6_PREFIX: u8 = 64;

/// A limit for one subject, to be stored.
#[derive(Clone, Debug)]
pub struct NewOverride {
    /// `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    pub kind: String,
    /// An account's id; for `new_accounts` an address or network; for `failed_validations` and
    /// `duplicate_certificates` also a name (`dns:a.example`).
    pub subject: String,
    /// How many; `None`: any number.
    pub allowed: Option<u32>,
    /// In how long, seconds.
    pub seconds: u32,
    /// Why, in words.
    pub note: String,
}

/// Why an override was not stored.
#[derive(Debug, thiserror::Error)]
pub enum BadOverride {
    /// Caller: correct it.
    #[error("{field}: {reason}")]
    Bad {
        /// Which member.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Those of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Read at first use, and again now and then.
#[derive(Default)]
pub(crate) struct Overrides(RwLock<Known>);

#[derive(Default)]
struct Known {
    read_at_us: Option<i64>,
    all: Arc<Index>,
}

#[derive(Default)]
struct Index {
    exact: HashMap<(Kind, Box<str>), Option<Limit>>,
    networks: Vec<(Kind, IpNet, Option<Limit>)>,
}

impl Inner {
    /// Takes one of `kind` for `subject`, or says for how many seconds there is none. `names` are what an override may
    /// be for beside the subject.
    pub(crate) async fn take(&self, kind: Kind, subject: &str, names: &[&str]) -> Result<(), u64> {
        match self.limit(kind, subject, names).await {
            Some(limit) => self.limiter.take(Key { kind, subject: subject.into(), limit }, self.now_us()),
            None => Ok(()),
        }
    }

    /// Whether there is one of `kind` for `subject`, without taking it.
    pub(crate) async fn may_take(&self, kind: Kind, subject: &str, names: &[&str]) -> Result<(), u64> {
        match self.limit(kind, subject, names).await {
            Some(limit) => self.limiter.check(&Key { kind, subject: subject.into(), limit }, self.now_us()),
            None => Ok(()),
        }
    }

    async fn limit(&self, kind: Kind, subject: &str, names: &[&str]) -> Option<Limit> {
        let limits = &self.options.limits;
        let general = match kind {
            Kind::NewAccounts => limits.new_accounts,
            Kind::Orders => limits.orders,
            Kind::FailedValidations => limits.failed_validations,
            Kind::DuplicateCertificates => limits.duplicate_certificates,
        };
        let index = self.overrides().await;
        std::iter::once(subject)
            .chain(names.iter().copied())
            .find_map(|name| index.of(kind, name))
            .unwrap_or(general)
    }

    async fn overrides(&self) -> Arc<Index> {
        let now_us = self.now_us();
        {
            let known = self.overrides.0.read();
            if known.read_at_us.is_some_and(|at| (at..at + KEPT_US).contains(&now_us)) {
                return known.all.clone();
            }
        }
        // While one reads, others go on with what was known.
        self.overrides.0.write().read_at_us = Some(now_us);
        match self.store.acme_limit_overrides().await {
            Ok(rows) => self.overrides.0.write().all = Arc::new(Index::new(rows)),
            Err(error) => tracing::warn!(%error, "overrides of ACME limits cannot be read"),
        }
        self.overrides.0.read().all.clone()
    }
}

impl Index {
    fn new(rows: Vec<AcmeLimitOverride>) -> Self {
        let mut index = Self::default();
        for row in rows {
            let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == row.kind) else { continue };
            let limit = row.allowed.map(|count| Limit { count, seconds: row.seconds });
            match row.subject.parse::<IpNet>() {
                Ok(network) => index.networks.push((kind, network, limit)),
                Err(_) => drop(index.exact.insert((kind, row.subject.into()), limit)),
            }
        }
        // The narrowest first.
        index.networks.sort_by_key(|(_, network, _)| std::cmp::Reverse(network.prefix_len()));
        index
    }

    fn of(&self, kind: Kind, subject: &str) -> Option<Option<Limit>> {
        if let Some(limit) = self.exact.get(&(kind, subject.into())) {
            return Some(*limit);
        }
        let address = subject.parse::<IpAddr>().ok()?;
        let found =
            self.networks.iter().find(|(of, network, _)| *of == kind && network.contains(&address))?;
        Some(found.2)
    }
}

/// What counts as one client: an IPv4 address, an IPv6 network.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => Ipv6Net::new(address, IPV6_PREFIX)
            .map_or_else(|_| address.to_string(), |net| net.trunc().to_string()),
    }
}

impl Acme {
    /// Every override, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn limit_overrides(&self) -> Result<Vec<AcmeLimitOverride>, StoreError> {
        self.0.store.acme_limit_overrides().await
    }

    /// Stores an override in place of the one for the same limit and subject. In force here at once, on other nodes
    /// within ten seconds.
    ///
    /// # Errors
    /// [`BadOverride`].
    pub async fn put_limit_override(
        &self,
        new: NewOverride,
        actor: &str,
    ) -> Result<AcmeLimitOverride, BadOverride> {
        check(&new)?;
        let subject = new.subject.parse::<IpAddr>().map_or(new.subject, |one| IpNet::from(one).to_string());
        let mut row = AcmeLimitOverride {
            id: Uuid::now_v7(),
            kind: new.kind,
            subject,
            allowed: new.allowed,
            seconds: new.seconds,
            note: new.note,
            created_at_us: self.0.now_us(),
            created_by: actor.to_owned(),
        };
        let stored = row.clone();
        row.id = self
            .0
            .store
            .write("acme_limit_override", move |tx| {
                async move {
                    let id = put_acme_limit_override(tx, &stored).await?;
                    let details = json!({
                        "kind": stored.kind, "subject": stored.subject, "allowed": stored.allowed,
                        "seconds": stored.seconds, "note": stored.note,
                    });
                    audit(tx, vec![event(&stored, id, "acme_limit_override.put", details)]).await?;
                    Ok(id)
                }
                .boxed()
            })
            .await?;
        self.0.overrides.0.write().read_at_us = None;
        Ok(row)
    }

    /// Removes an override; false when there was none.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn delete_limit_override(&self, id: Uuid, actor: &str) -> Result<bool, StoreError> {
        let (at_us, actor) = (self.0.now_us(), actor.to_owned());
        let found = self
            .0
            .store
            .write("acme_limit_override_delete", move |tx| {
                async move {
                    let found = delete_acme_limit_override(tx, id).await?;
                    if found {
                        let (action, resource) =
                            ("acme_limit_override.delete", format!("acme-limit-override/{id}"));
                        audit(tx, vec![AuditEvent { at_us, actor, action, resource, details: json!({}) }])
                            .await?;
                    }
                    Ok(found)
                }
                .boxed()
            })
            .await?;
        self.0.overrides.0.write().read_at_us = None;
        Ok(found)
    }
}

fn event(row: &AcmeLimitOverride, id: Uuid, action: &'static str, details: serde_json::Value) -> AuditEvent {
    let resource = format!("acme-limit-override/{id}");
    AuditEvent { at_us: row.created_at_us, actor: row.created_by.clone(), action, resource, details }
}

fn check(new: &NewOverride) -> Result<(), BadOverride> {
    let bad = |field, reason: String| Err(BadOverride::Bad { field, reason });
    if !Kind::ALL.into_iter().any(|kind| kind.name() == new.kind) {
        let all = Kind::ALL.map(Kind::name).join(", ");
        return bad("kind", format!("{:?} is none of {all}", new.kind));
    }
    if new.subject.is_empty() || new.subject.len() > TEXT_MAX || new.note.len() > TEXT_MAX {
        return bad("subject", format!("give 1 to {TEXT_MAX} octets, and as many for the note at most"));
    }
    let network = new.subject.parse::<IpNet>().is_ok() || new.subject.parse::<IpAddr>().is_ok();
    if new.kind == Kind::NewAccounts.name() && !network {
        return bad("subject", "give an address or a network such as 10.0.0.0/8".to_owned());
    }
    if new.seconds == 0 {
        return bad("seconds", "give 1 or more".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, subject: &str, allowed: Option<u32>) -> AcmeLimitOverride {
        AcmeLimitOverride {
            id: Uuid::nil(),
            kind: kind.name().to_owned(),
            subject: subject.to_owned(),
            allowed,
            seconds: 60,
            note: String::new(),
            created_at_us: 0,
            created_by: String::new(),
        }
    }

    #[test]
    fn the_narrowest_network_decides() {
        let index = Index::new(vec![
            row(Kind::NewAccounts, "10.0.0.0/8", Some(1)),
            row(Kind::NewAccounts, "10.1.0.0/16", None),
            row(Kind::Orders, "account", Some(7)),
        ]);
        let limit = |count| Some(Some(Limit { count, seconds: 60 }));
        assert_eq!(index.of(Kind::NewAccounts, "10.2.0.1"), limit(1));
        assert_eq!(index.of(Kind::NewAccounts, "10.1.0.1"), Some(None));
        assert_eq!(index.of(Kind::NewAccounts, "11.0.0.1"), None);
        assert_eq!(index.of(Kind::Orders, "account"), limit(7));
        assert_eq!(index.of(Kind::Orders, "10.1.0.1"), None);
    }

    #[test]
    fn a_site_is_one_client() {
        assert_eq!(network("10.0.0.1".parse().unwrap()), "10.0.0.1");
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1");
        assert_eq!(network("2001:db8:1:2:3::4".parse().unwrap()), "2001:db8:1:2::/64");
    }

    #[test]
    fn overrides_that_make_no_sense_are_refused() {
        let new = |kind: &str, subject: &str, seconds| NewOverride {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            allowed: None,
            seconds,
            note: String::new(),
        };
        assert!(check(&new("orders", "a", 1)).is_ok());
        assert!(check(&new("new_accounts", "10.0.0.1", 1)).is_ok());
        for bad in
            [new("order", "a", 1), new("orders", "", 1), new("orders", "a", 0), new("new_accounts", "a", 1)]
        {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }
}
