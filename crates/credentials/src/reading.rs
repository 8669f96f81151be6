//! Reads and searches of credentials.

use std::collections::HashMap;

use keys::keyring::Keyring;
use store::DAY_US;
use uuid::Uuid;

use crate::read_log::Reading;
use crate::tables;
use crate::tables::{
    CredentialRow, FoundCredential, NAMES_UNBOUNDED, Requester, SEALED_BYTES_MAX, SEALED_CREDENTIALS,
    SearchLimits,
};
use crate::version::Version;
use crate::{CredentialError, Credentials, Name};

/// Maximum names in the result of a search. A narrower path returns fewer.
pub const FIND_MAX: usize = 200_000;

/// Maximum names in one lookup.
const LOOKUP_MAX: usize = 1_000;

/// Maximum versions of one name in a response.
const VERSIONS_MAX: usize = 10_000;

/// Filter of a search for credential names.
#[derive(Clone, Debug)]
pub enum SearchFilter {
    /// All names below a path; `/` matches everything.
    Path(String),
    /// All names that contain this text.
    NameLike(String),
}

/// Number of versions by the master key that encrypts them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyUsage {
    /// Versions encrypted with the current master key.
    pub active: u64,
    /// Versions encrypted with an older master key that is still configured.
    pub inactive: u64,
    /// Versions encrypted with a master key that is not configured. These values cannot be read.
    pub unknown: u64,
}

impl Credentials {
    /// Returns the current versions of a name: the active one and, for a CA that is being replaced, the transitional one.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`]; [`CredentialError::Sealed`]; [`CredentialError::Unlogged`].
    #[crate::boxed]
    pub async fn current(&self, requester: &Requester, name: &Name) -> Result<Vec<Version>, CredentialError> {
        let versions = self.current_or_empty(requester, name).await?;
        if versions.is_empty() {
            return Err(CredentialError::NotFound);
        }
        self.log_reading(requester, &versions[..1]).await?;
        Ok(versions)
    }

    /// Like [`Self::current`], but returns an empty list for an unknown name, and writes no audit record.
    pub(crate) async fn current_or_empty(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<Vec<Version>, CredentialError> {
        let rows = self.rows_of((requester.clone(), name.key().to_owned())).await?;
        rows.into_iter().map(|row| self.open_row(row)).collect()
    }

    /// Returns the newest version of a name. Does not check permissions.
    pub(crate) async fn newest(&self, name: &Name) -> Result<Option<Version>, CredentialError> {
        Ok(self.newest_versions(std::slice::from_ref(name)).await?.into_iter().next())
    }

    /// Returns the newest version of each name that exists, in no particular order. Does not check permissions. Uses one statement.
    pub(crate) async fn newest_versions(&self, names: &[Name]) -> Result<Vec<Version>, CredentialError> {
        let keys: Vec<String> = names.iter().map(|name| name.key().to_owned()).collect();
        let rows = tables::Credentials::of(self.store()).newest(&keys, self.now_us()).await?;
        rows.into_iter().map(|row| self.open_row(row)).collect()
    }

    /// Returns the active version of each name, in the order of the names; `None` if a name does not exist or the caller is not
    /// permitted to read it. Uses one statement.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for more than 1,000 names, or values of more than 64 MiB in total, where a repeated name counts
    /// each time; [`CredentialError::Unlogged`]. A value that cannot be decrypted is an error of that name only.
    #[crate::boxed]
    pub async fn lookup(
        &self,
        requester: &Requester,
        names: &[Name],
    ) -> Result<Vec<Option<Result<Version, CredentialError>>>, CredentialError> {
        if names.len() > LOOKUP_MAX {
            return Err(CredentialError::bad(format!("A lookup can have at most {LOOKUP_MAX} names.")));
        }
        let mut keys: Vec<String> = names.iter().map(|name| name.key().to_owned()).collect();
        keys.sort_unstable();
        keys.dedup();
        let lookup_keys: Vec<_> = keys.into_iter().map(|key| (requester.clone(), key)).collect();
        let mut found: HashMap<&str, CredentialRow> = HashMap::new();
        for (index, row) in tables::Credentials::of(self.store()).current(&lookup_keys, self.now_us()).await?
        {
            // The active version is the first row of a name.
            found.entry(&lookup_keys[index].1).or_insert(row);
        }
        let bytes = names.iter().filter_map(|name| found.get(name.key()));
        let left_out = found.values().any(|row| row.sealed.is_empty());
        let bytes = bytes.fold(0_i64, |sum, row| sum.saturating_add_unsigned(row.sealed.len() as u64));
        if left_out || bytes > SEALED_BYTES_MAX {
            return Err(response_too_large("These names", "Request fewer at a time."));
        }
        let mut opened = HashMap::with_capacity(found.len());
        let (mut readings, at_us) = (Vec::with_capacity(found.len()), self.now_us());
        for (key, row) in found {
            let (name, id) = (row.name.clone(), row.version);
            let answer = self.open_row(row);
            if answer.is_ok() {
                readings.push((at_us, Reading { actor: requester.actor.clone(), name, version: id }));
            }
            opened.insert(key, answer);
        }
        self.reads().record(readings).await?;
        Ok(names.iter().map(|name| opened.get(name.key()).cloned()).collect())
    }

    /// Returns the newest versions of a name, newest first: at most `limit`, and at most 10,000.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`]; [`CredentialError::Sealed`]; [`CredentialError::Bad`] when the versions have more than 64 MiB
    /// in total.
    #[crate::boxed]
    pub async fn versions(
        &self,
        requester: &Requester,
        name: &Name,
        limit: Option<usize>,
    ) -> Result<Vec<Version>, CredentialError> {
        let (limit, now_us) = (limit.unwrap_or(VERSIONS_MAX).min(VERSIONS_MAX), self.now_us());
        if limit > NAMES_UNBOUNDED {
            let bytes = tables::Credentials::of(self.store())
                .versions_byte_size(requester, name.key(), limit, now_us)
                .await?;
            if bytes > SEALED_BYTES_MAX {
                return Err(response_too_large(
                    "Its versions",
                    "Request only the newest versions: versions=10.",
                ));
            }
        }
        let rows =
            tables::Credentials::of(self.store()).versions(requester, name.key(), limit, now_us).await?;
        let versions = rows.into_iter().map(|row| self.open_row(row)).collect::<Result<Vec<_>, _>>()?;
        if versions.is_empty() {
            return Err(CredentialError::NotFound);
        }
        self.log_reading(requester, &versions).await?;
        Ok(versions)
    }

    /// Returns a version by its id.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`]; [`CredentialError::Sealed`].
    #[crate::boxed]
    pub async fn version(&self, requester: &Requester, id: Uuid) -> Result<Version, CredentialError> {
        let version = self.version_of(requester, id).await?;
        self.log_reading(requester, std::slice::from_ref(&version)).await?;
        Ok(version)
    }

    /// Like [`Self::version`], but writes no audit record.
    pub(crate) async fn version_of(
        &self,
        requester: &Requester,
        id: Uuid,
    ) -> Result<Version, CredentialError> {
        let row = tables::Credentials::of(self.store()).version(requester, id, self.now_us()).await?;
        self.open_row(row.ok_or(CredentialError::NotFound)?)
    }

    /// Finds names that the caller may read, newest first. An exact match of the search text comes before all others. With `days`,
    /// returns only certificates that expire within that time.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] when more than [`FIND_MAX`] names match.
    #[crate::boxed]
    pub async fn find(
        &self,
        requester: &Requester,
        what: &SearchFilter,
        days: Option<i64>,
    ) -> Result<Vec<FoundCredential>, CredentialError> {
        let now = self.now_us();
        let ends = days.map(|days| now.saturating_add(days.saturating_mul(DAY_US)));
        let limit = FIND_MAX + 1;
        let mut found = match what {
            SearchFilter::Path(path) => {
                let path = format!("/{}", path.trim_matches('/')).to_ascii_lowercase();
                let from = if path == "/" { path } else { format!("{path}/") };
                // `0` is the character after the slash: an upper bound of all names below the path.
                let before = format!("{}0", &from[..from.len() - 1]);
                tables::Credentials::of(self.store())
                    .names_in_range(requester, (&from, &before), ends, limit, now)
                    .await?
            }
            SearchFilter::NameLike(part) => {
                // Same as CredHub: a percent sign matches any text, an underscore only itself.
                let limits = SearchLimits { ends_by_us: ends, limit, now_us: now };
                tables::Credentials::of(self.store())
                    .names_containing(requester, &part.to_ascii_lowercase(), limits)
                    .await?
            }
        };
        if found.len() > FIND_MAX {
            return Err(CredentialError::bad(format!(
                "More than {FIND_MAX} credentials match. Give a longer path or name."
            )));
        }
        found.sort_by(|a, b| b.created_at_us.cmp(&a.created_at_us).then_with(|| b.name.cmp(&a.name)));
        // A search for a complete name returns that name first.
        if let SearchFilter::NameLike(part) = what
            && let Some(exact) = found.iter().position(|found| found.name.eq_ignore_ascii_case(part))
        {
            found[..=exact].rotate_right(1);
        }
        Ok(found)
    }

    /// Returns names that begin with `prefix` (lower case, with its slash) and that the caller may read, sorted by name, at most
    /// `limit`.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn names_with_prefix(
        &self,
        requester: &Requester,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<FoundCredential>, CredentialError> {
        let before = format!("{prefix}\u{10ffff}");
        let credentials = tables::Credentials::of(self.store());
        Ok(credentials.names_in_range(requester, (prefix, &before), None, limit, self.now_us()).await?)
    }

    /// Returns the exact name as a search result, if it exists and the caller may read it. Uses one index probe.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn find_exactly(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<Option<FoundCredential>, CredentialError> {
        Ok(tables::Credentials::of(self.store()).found(requester, name.key(), self.now_us()).await?)
    }

    /// Counts the versions under each master key.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn key_usage(&self) -> Result<KeyUsage, CredentialError> {
        let mut usage = KeyUsage::default();
        let (current, known) = (self.keyring().current(), self.keyring().masters());
        for (head, count) in store::Keys::of(self.store()).sealed_heads(&SEALED_CREDENTIALS).await? {
            match Keyring::master_key_id_of_header(&head) {
                Some(master) if master == current => usage.active += count,
                Some(master) if known.contains(&master) => usage.inactive += count,
                _ => usage.unknown += count,
            }
        }
        Ok(usage)
    }

    /// Waits until the reads of these versions are in the log. Callers must return the versions only afterwards.
    pub(crate) async fn log_reading(
        &self,
        requester: &Requester,
        versions: &[Version],
    ) -> Result<(), CredentialError> {
        let at_us = self.now_us();
        let reading = |version: &Version| {
            let (actor, name) = (requester.actor.clone(), version.name.clone());
            (at_us, Reading { actor, name, version: version.id })
        };
        self.reads().record(versions.iter().map(reading).collect()).await
    }
}

/// Returns the error for a response that would exceed the size limit.
fn response_too_large(what: &str, hint: &str) -> CredentialError {
    CredentialError::bad(format!("{what} are larger than {} MiB in total. {hint}", SEALED_BYTES_MAX >> 20))
}
