//! Deletion of credentials and versions: undelete within the retention period, destruction after it.

use events::CredentialChange;
use futures_util::FutureExt;
use serde_json::json;
use store::{DAY_US, NewEvent, StoreError};
use tokio_util::sync::CancellationToken;

use crate::rotation::resolution_events;
use crate::tables;
pub use crate::tables::DeletedCredential as Deleted;
use crate::tables::{
    Requester, VersionsChange as Change, change_credential_versions, destroy_expired_versions,
    restore_credential,
};
use crate::{CredentialError, Credentials, History, Name, VersionView};

/// Maximum deleted credentials in one listing.
const DELETED_MAX: usize = 1_000;

/// Maximum children of one path in a listing.
const CHILDREN_MAX: usize = 100_000;

/// Maximum versions of one name in a listing.
const LISTED_MAX: usize = 10_000;

/// Deletion, restoration or permanent destruction of versions of a credential.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionsChange {
    /// Delete the versions. They can be restored for [`CredentialsOptions::undelete_days`].
    ///
    /// [`CredentialsOptions::undelete_days`]: crate::CredentialsOptions::undelete_days
    Delete,
    /// Restore deleted versions.
    Undelete,
    /// Destroy the versions permanently. The name is removed with its last version.
    Destroy,
}

impl Credentials {
    /// Lists the deleted or expired credentials that the caller can restore, newest deletion first, at most 1,000.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn deleted(&self, requester: &Requester) -> Result<Vec<Deleted>, CredentialError> {
        let times = (self.since_us(self.options().undelete_days), self.now_us());
        Ok(tables::Credentials::of(self.store()).deleted(requester, times, DELETED_MAX).await?)
    }

    /// Returns the time `days` ago, µs since 1970-01-01 UTC.
    fn since_us(&self, days: u32) -> i64 {
        self.now_us().saturating_sub(i64::from(days).saturating_mul(DAY_US))
    }

    /// Restores a name. If its newest version has expired or was deleted, restores this version, without a time to live that has
    /// passed. Otherwise restores the most recently deleted credential of that name, with all its versions.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when no deleted credential exists, its retention period has passed, or the caller is not
    /// permitted to write there; [`CredentialError::Changed`] when the name is in use.
    #[crate::boxed]
    pub async fn undelete(&self, requester: &Requester, name: &Name) -> Result<Deleted, CredentialError> {
        let event = self.event(requester, "credential.undelete", name.as_str(), json!({}));
        let outbox_event = self.changed(requester, name, event.at_us);
        let (key, requester) = (name.key().to_owned(), requester.clone());
        let times = (self.since_us(self.options().undelete_days), self.now_us());
        let restored = self.store().write_indexed("credential_restore", move |tx| {
            async move {
                let restored = restore_credential(tx, &requester, &key, times).await?;
                if restored.is_some() {
                    store::audit(tx, vec![event]).await?;
                    store::emit(tx, vec![outbox_event]).await?;
                }
                Ok(restored)
            }
            .boxed()
        });
        match restored.await {
            Ok(restored) => restored.ok_or(CredentialError::NotFound),
            Err(StoreError::Conflict { .. }) => Err(CredentialError::Changed),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes, restores or destroys versions of a name by their numbers; without numbers the newest version.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when the name does not exist or the caller lacks the permission.
    #[crate::boxed]
    pub async fn change_versions(
        &self,
        requester: &Requester,
        name: &Name,
        numbers: Option<Vec<u64>>,
        change: VersionsChange,
    ) -> Result<(), CredentialError> {
        let now_us = self.now_us();
        let outbox_event = match change {
            VersionsChange::Undelete => self.changed(requester, name, now_us),
            VersionsChange::Delete | VersionsChange::Destroy => self.removed(requester, name, now_us),
        };
        let (action, change) = match change {
            VersionsChange::Delete if self.options().undelete_days == 0 => {
                ("credential.destroy_versions", Change::EndForGood(now_us))
            }
            VersionsChange::Delete => ("credential.delete_versions", Change::End(now_us)),
            VersionsChange::Undelete => ("credential.undelete_versions", Change::Restore(now_us)),
            VersionsChange::Destroy => ("credential.destroy_versions", Change::Destroy),
        };
        let event = self.event(requester, action, name.as_str(), json!({ "versions": numbers }));
        let (key, requester) = (name.key().to_owned(), requester.clone());
        let changed = self.store().write_indexed("credential_versions_change", move |tx| {
            async move {
                let changed =
                    change_credential_versions(tx, &requester, &key, numbers.as_deref(), change).await?;
                if changed {
                    store::audit(tx, vec![event]).await?;
                    store::emit(tx, vec![outbox_event]).await?;
                }
                Ok(changed)
            }
            .boxed()
        });
        if changed.await? { Ok(()) } else { Err(CredentialError::NotFound) }
    }

    /// Lists the versions of a name, newest first, including expired versions, at most 10,000. Decrypts no value.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`].
    #[crate::boxed]
    pub async fn list_versions(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<History, CredentialError> {
        let listed =
            tables::Credentials::of(self.store()).version_listing(requester, name.key(), LISTED_MAX).await?;
        let first = listed.versions.first().ok_or(CredentialError::NotFound)?;
        Ok(History {
            name: first.name.clone(),
            kind: first.kind,
            created_at_us: listed.created_at_us,
            last_number: listed.last_number,
            metadata: listed.metadata.and_then(|text| serde_json::from_str(&text).ok()),
            versions: listed.versions.into_iter().map(VersionView::from).collect(),
        })
    }

    /// Lists the children of a path below which the caller may read something: `name` for a credential, `name/` for a path with
    /// children. `None` is the root. Costs one index probe for each child.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] when there are more than 100,000 children.
    #[crate::boxed]
    pub async fn children(
        &self,
        requester: &Requester,
        path: Option<&Name>,
    ) -> Result<Vec<String>, CredentialError> {
        let path = path.map_or_else(|| "/".to_owned(), |path| format!("{}/", path.key()));
        let children = tables::Credentials::of(self.store())
            .children(requester, &path, CHILDREN_MAX + 1, self.now_us())
            .await?;
        if children.len() > CHILDREN_MAX {
            return Err(CredentialError::bad(format!("{path} has more than {CHILDREN_MAX} children.")));
        }
        Ok(children)
    }

    /// Destroys all versions whose retention period has passed, a few hundred in each transaction.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn destroy_past(&self, stop: &CancellationToken) -> Result<(), StoreError> {
        let now_us = self.now_us();
        let retained_since_us = self.since_us(self.options().undelete_days);
        let is_running = || !stop.is_cancelled() && !self.is_read_only();
        while is_running()
            && tables::Credentials::of(self.store()).destroy_deleted(retained_since_us).await? > 0
        {}
        while is_running() && self.destroy_expired_batch(retained_since_us, now_us).await? {}
        if self.options().retention.iter().all(|retention| retention.days.is_none()) {
            return Ok(());
        }
        let since_of = |name: &str| self.options().retention_of(name)?.days.map(|days| self.since_us(days));
        let (mut after, mut ended) = (0, false);
        while !ended && is_running() {
            let (walk, _) =
                tables::Credentials::of(self.store()).destroy_old_versions(after, since_of).await?;
            (after, ended) = (walk.after, walk.ended);
        }
        Ok(())
    }

    /// Destroys a few hundred versions that expired before a time. Returns false when no such version is left.
    async fn destroy_expired_batch(&self, ended_by_us: i64, now_us: i64) -> Result<bool, StoreError> {
        let ended = tables::Credentials::of(self.store()).expired_versions(ended_by_us).await?;
        if ended.is_empty() {
            return Ok(false);
        }
        let destroyed = self.store().write("credential_versions_destroy", move |tx| {
            async move {
                let recovered = destroy_expired_versions(tx, &ended, ended_by_us, now_us).await?;
                store::emit(tx, resolution_events(&recovered, now_us)).await
            }
            .boxed()
        });
        destroyed.await?;
        Ok(true)
    }

    /// Returns the event for a credential that changed without a new version.
    pub(crate) fn changed(&self, requester: &Requester, name: &Name, at_us: i64) -> NewEvent {
        store::new_event(
            at_us,
            format!("credential{name}"),
            &events::Event::CredentialChanged(change(requester, name)),
        )
    }

    /// Returns the event for a deleted credential, or for deleted versions of a credential.
    pub(crate) fn removed(&self, requester: &Requester, name: &Name, at_us: i64) -> NewEvent {
        store::new_event(
            at_us,
            format!("credential{name}"),
            &events::Event::CredentialDeleted(change(requester, name)),
        )
    }
}

fn change(requester: &Requester, name: &Name) -> CredentialChange {
    CredentialChange { name: name.to_string(), by: requester.actor.clone(), kind: None, version: None }
}
