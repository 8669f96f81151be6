//! Checks of ACME rate limits, and management of their overrides.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use ipnet::IpNet;
use serde_json::json;
use store::{AuditEvent, StoreError, audit};
use uuid::Uuid;

use super::limits::{Key, Kind};
use super::options::Limit;
use super::override_index::Index;
use super::{Acme, Server};
use crate::tables;
use crate::tables::acme::{
    AcmeLimit, AcmeLimitOverride, delete_acme_limit_override, put_acme_limit_override,
};

/// Microseconds until the cache of overrides expires. A change by another node takes effect on this node after this time at the
/// latest.
const CACHE_LIFETIME_US: i64 = 10_000_000;
/// Maximum length in bytes of a note or subject.
const TEXT_MAX: usize = 500;

/// A limit override to store.
#[derive(Clone, Debug)]
pub struct NewOverride {
    /// Limit to override.
    pub kind: AcmeLimit,
    /// Subject of the limit: the identifier of an account; for `new_accounts` an address or network; for `failed_validations` and
    /// `duplicate_certificates` also a name (`dns:a.example`).
    pub subject: String,
    /// Number of events allowed in each period; `None` for no limit.
    pub allowed: Option<u32>,
    /// Length of the period in seconds.
    pub seconds: u32,
    /// Reason for the override.
    pub note: String,
}

/// Reason why an override was not stored.
#[derive(Debug, thiserror::Error)]
pub enum BadOverride {
    /// The request is invalid. The caller must correct it.
    #[error("{field}: {reason}")]
    Bad {
        /// Name of the invalid field.
        field: &'static str,
        /// Reason why the value of the field is invalid.
        reason: String,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Server {
    /// Counts one event of `kind` for `subject`, or returns the number of seconds to wait. Overrides may name the subject or one of
    /// `names`.
    pub(crate) async fn take(&self, kind: Kind, subject: &str, names: &[&str]) -> Result<(), u64> {
        match self.limit(kind, subject, names).await {
            Some(limit) => self.limiter.take(Key { kind, subject: subject.into(), limit }, self.now_us()),
            None => Ok(()),
        }
    }

    /// Checks that an event of `kind` for `subject` is allowed, without counting it.
    pub(crate) async fn check_rate_limit(
        &self,
        kind: Kind,
        subject: &str,
        names: &[&str],
    ) -> Result<(), u64> {
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
            let cached = self.overrides.0.read();
            if cached.read_at_us.is_some_and(|at| (at..at + CACHE_LIFETIME_US).contains(&now_us)) {
                return cached.all.clone();
            }
        }
        // While one task reads, the others continue with the cached overrides.
        self.overrides.0.write().read_at_us = Some(now_us);
        match tables::Acme::of(&self.store).limit_overrides().await {
            Ok(rows) => self.overrides.0.write().all = Arc::new(Index::new(rows)),
            Err(error) => tracing::warn!(%error, "cannot read the overrides of ACME limits"),
        }
        self.overrides.0.read().all.clone()
    }
}

impl Acme {
    /// Lists all overrides, oldest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn limit_overrides(&self) -> Result<Vec<AcmeLimitOverride>, StoreError> {
        tables::Acme::of(&self.0.store).limit_overrides().await
    }

    /// Stores an override, which replaces the one for the same limit and subject. It takes effect immediately on this node and
    /// within ten seconds on other nodes.
    ///
    /// # Errors
    /// [`BadOverride`].
    #[crate::boxed]
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

    /// Deletes an override. Returns false if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
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
    if new.subject.is_empty() || new.subject.len() > TEXT_MAX || new.subject.contains('\0') {
        return bad("subject", format!("give 1 to {TEXT_MAX} bytes and no null character"));
    }
    if new.note.len() > TEXT_MAX || new.note.contains('\0') {
        return bad("note", format!("give at most {TEXT_MAX} bytes and no null character"));
    }
    let network = new.subject.parse::<IpNet>().is_ok() || new.subject.parse::<IpAddr>().is_ok();
    if new.kind == Kind::NewAccounts && !network {
        return bad("subject", "give an IP address or a network such as 10.0.0.0/8".to_owned());
    }
    if new.seconds == 0 {
        return bad("seconds", "give 1 or more".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_overrides_are_rejected() {
        let new = |kind, subject: &str, seconds| NewOverride {
            kind,
            subject: subject.to_owned(),
            allowed: None,
            seconds,
            note: String::new(),
        };
        assert!(check(&new(Kind::Orders, "a", 1)).is_ok());
        assert!(check(&new(Kind::NewAccounts, "10.0.0.1", 1)).is_ok());
        for bad in [new(Kind::Orders, "", 1), new(Kind::Orders, "a", 0), new(Kind::NewAccounts, "a", 1)] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }
}
