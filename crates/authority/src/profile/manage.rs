//! Storage of profiles in the database, and their cache.

use std::sync::Arc;
use std::time::Duration;

use events::{Event, ProfileChanged};
use flight::{Failed, Fresh};
use serde_json::json;
use store::{AuditEvent, Cursor, Page, Store, StoreError, audit, emit, new_event};

use super::Profile;
use super::error::ProfileError;
use crate::Authority;
use crate::tables;
use crate::tables::ProfileRow;

/// Time for which the absence of a profile is cached.
const ABSENCE_CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// A profile with its database metadata.
#[derive(Clone, Debug)]
pub struct ProfileRecord {
    /// The parsed profile.
    pub profile: Arc<Profile>,
    /// Revision, from 1. Every change increases it.
    pub revision: i64,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Time of the last change in microseconds.
    pub updated_at_us: i64,
}

impl ProfileRecord {
    fn of(row: ProfileRow) -> Result<Self, ProfileError> {
        let ProfileRow { name, body, revision, created_at_us, updated_at_us } = row;
        let profile =
            Profile::from_json(&body).map_err(|reason| ProfileError::Unreadable { name, reason })?;
        Ok(Self { profile: Arc::new(profile), revision, created_at_us, updated_at_us })
    }
}

impl Authority {
    /// Returns the profile with this name from the cache or the database. A change on another node takes effect within
    /// [`crate::AuthorityOptions::cache_lifetime`].
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], [`ProfileError::Unreadable`], or an error of the database.
    #[crate::boxed]
    pub async fn profile(&self, name: &str) -> Result<Arc<Profile>, ProfileError> {
        let key = name.to_owned();
        if let Some(cached) = self.profiles_cache().0.get(&key) {
            return cached.outcome.clone();
        }
        let (store, lifetime) = (self.store().clone(), self.options().cache_lifetime);
        let wanted = key.clone();
        let make = move || async move {
            let found = async {
                let row = tables::Profiles::of(&store)
                    .get(&wanted)
                    .await?
                    .ok_or_else(|| ProfileError::Unknown(wanted.clone()))?;
                ProfileRecord::of(row)
            };
            match found.await {
                Ok(record) => Ok(Fresh { value: record.profile, lifetime }),
                Err(error @ ProfileError::Unknown(_)) => {
                    Err(Failed { error, lifetime: ABSENCE_CACHE_LIFETIME })
                }
                Err(error) => Err(Failed { error, lifetime: Duration::ZERO }),
            }
        };
        self.profiles_cache().0.fetch(&key, make).await
    }

    /// Returns the profile as stored now, with its revision.
    ///
    /// # Errors
    /// The errors of [`Authority::profile`].
    #[crate::boxed]
    pub async fn profile_record(&self, name: &str) -> Result<ProfileRecord, ProfileError> {
        let row = tables::Profiles::of(self.store()).get(name).await?;
        ProfileRecord::of(row.ok_or_else(|| ProfileError::Unknown(name.to_owned()))?)
    }

    /// Returns a page of profiles in the order of their names.
    ///
    /// # Errors
    /// [`ProfileError::Unreadable`], or an error of the database.
    #[crate::boxed]
    pub async fn profiles(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ProfileRecord>, ProfileError> {
        let Page { rows, next } = tables::Profiles::of(self.store()).page(after, limit).await?;
        let rows = rows.into_iter().map(ProfileRecord::of).collect::<Result<_, _>>()?;
        Ok(Page { rows, next })
    }

    /// Stores a profile under its name. `expected` is the revision to replace: `None` for any, 0 for a new profile.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`], [`ProfileError::Stale`], or an error of the database.
    #[crate::boxed]
    pub async fn put_profile(
        &self,
        profile: Profile,
        expected: Option<i64>,
        actor: &str,
    ) -> Result<ProfileRecord, ProfileError> {
        profile.validate().map_err(ProfileError::Invalid)?;
        let body =
            serde_json::to_string(&profile).map_err(|error| ProfileError::Invalid(error.to_string()))?;
        let (name, now_us, actor) = (profile.name.clone(), self.clock().now_us(), actor.to_owned());
        let details = json!({ "profile": profile });
        let row = self.store().write("profile_put", move |tx| {
            Box::pin(async move {
                let Some(row) = tables::put_profile(tx, &name, &body, now_us, expected).await? else {
                    return Ok(None);
                };
                audit_and_emit(tx, "profile.put", &name, actor, now_us, details).await?;
                Ok(Some(row))
            })
        });
        let row = row.await?.ok_or_else(|| ProfileError::Stale(profile.name.clone()))?;
        self.profiles_cache().0.invalidate(&profile.name);
        ProfileRecord::of(row)
    }

    /// Deletes a profile, so that no more certificates are issued with it. Issued certificates stay valid. `expected` is the
    /// revision to delete, as in [`Authority::put_profile`].
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], [`ProfileError::Stale`], or an error of the database.
    #[crate::boxed]
    pub async fn delete_profile(
        &self,
        name: &str,
        expected: Option<i64>,
        actor: &str,
    ) -> Result<(), ProfileError> {
        if tables::Profiles::of(self.store()).get(name).await?.is_none() {
            return Err(ProfileError::Unknown(name.to_owned()));
        }
        let (key, now_us, actor) = (name.to_owned(), self.clock().now_us(), actor.to_owned());
        let deleted = self.store().write("profile_delete", move |tx| {
            Box::pin(async move {
                if !tables::delete_profile(tx, &key, expected).await? {
                    return Ok(false);
                }
                audit_and_emit(tx, "profile.delete", &key, actor, now_us, json!({})).await?;
                Ok(true)
            })
        });
        let deleted = deleted.await?;
        self.profiles_cache().0.invalidate(&name.to_owned());
        if deleted { Ok(()) } else { Err(ProfileError::Stale(name.to_owned())) }
    }
}

/// The name of a stored profile, and the profile; `None` if this version cannot parse it.
pub type StoredProfile = (String, Option<Profile>);

/// Returns the profiles that require approval. A profile that this version cannot parse counts as requiring approval.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn profiles_requiring_approval(store: &Store) -> Result<Vec<StoredProfile>, StoreError> {
    let rows = tables::Profiles::of(store).all().await?;
    let read = rows.into_iter().map(|row| (row.name, Profile::from_json(&row.body).ok()));
    Ok(read.filter(|(_, read)| read.as_ref().is_none_or(|read| read.requires_approval)).collect())
}

async fn audit_and_emit(
    tx: &mut store::Tx,
    action: &'static str,
    name: &str,
    actor: String,
    at_us: i64,
    details: serde_json::Value,
) -> Result<(), StoreError> {
    let resource = format!("profile/{name}");
    audit(tx, vec![AuditEvent { at_us, actor, action, resource: resource.clone(), details }]).await?;
    let changed = Event::ProfileChanged(ProfileChanged {});
    emit(tx, vec![new_event(at_us, resource, &changed)]).await
}
