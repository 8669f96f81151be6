//! Rotation policies of names and paths, and the rotations planned by them.

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Cursor, Page, StoreError};

use super::plan::plan;
use crate::name::PermissionPath;
use crate::tables;
use crate::tables::{
    PlannedNames, PlannedRotation, ROTATION_POLICIES_MAX, Requester, RotationPolicyRow, put_rotation_policy,
    remove_rotation_policy, rotations_now,
};
use crate::{CredentialError, Credentials, Operation};

/// Minimum time between two rotations, s: users of a value need time to load the new one.
pub const ROTATE_EVERY_MIN_S: u32 = 3_600;
/// Maximum of every period in a policy, s: ten years.
pub const ROTATE_PERIOD_MAX_S: u32 = 3_650 * 86_400;
/// Minimum time in which both certificates of a CA are trusted, s.
pub const OVERLAP_MIN_S: u32 = 60;
/// Default time in which both certificates of a CA are trusted, s.
pub const OVERLAP_S: u32 = 7 * 86_400;
/// Default remaining part of a certificate's lifetime at which it is rotated, in percent.
pub const BEFORE_EXPIRY_PERCENT: u32 = 33;

/// A rotation policy of a name or path. Without `every` and `before_expiry`, certificates are rotated when a third of their
/// lifetime remains.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RotationPolicy {
    /// Age at which a value is rotated, s.
    pub every_s: Option<u32>,
    /// Remaining lifetime at which a certificate is rotated, s.
    pub before_expiry_s: Option<u32>,
    /// Remaining part of the lifetime at which a certificate is rotated, in percent: 1 to 90.
    pub before_expiry_percent: Option<u32>,
    /// Time for which both certificates of a CA are trusted before each further step, s. At most a third of the remaining lifetime.
    pub overlap_s: Option<u32>,
    /// Name of the hook that must agree to a new value, or is notified about it.
    pub hook: Option<String>,
}

impl RotationPolicy {
    fn checked(mut self) -> Result<Self, CredentialError> {
        let check_period = |what: &str, given: Option<u32>, least: u32| match given {
            Some(seconds) if !(least..=ROTATE_PERIOD_MAX_S).contains(&seconds) => Err(CredentialError::bad(
                format!("{what} is {seconds} s; it must be between {least} and {ROTATE_PERIOD_MAX_S} s."),
            )),
            _ => Ok(()),
        };
        check_period("every", self.every_s, ROTATE_EVERY_MIN_S)?;
        check_period("before_expiry", self.before_expiry_s, ROTATE_EVERY_MIN_S)?;
        check_period("overlap", self.overlap_s, OVERLAP_MIN_S)?;
        if self.before_expiry_percent.is_some_and(|part| !(1..=90).contains(&part)) {
            return Err(CredentialError::bad("before_expiry must be between 1 % and 90 % of the lifetime."));
        }
        if self.before_expiry_s.is_some() && self.before_expiry_percent.is_some() {
            return Err(CredentialError::bad(
                "Give before_expiry as a duration or as a part of the lifetime, not both.",
            ));
        }
        if self.every_s.is_none() && self.before_expiry_s.is_none() && self.before_expiry_percent.is_none() {
            self.before_expiry_percent = Some(BEFORE_EXPIRY_PERCENT);
        }
        Ok(self)
    }
}

impl Credentials {
    /// Sets the policy of a name or path, and replaces an existing one. Requires write permission there.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for invalid periods, an unknown hook or too many policies; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn set_rotation_policy(
        &self,
        requester: &Requester,
        path: &PermissionPath,
        policy: RotationPolicy,
    ) -> Result<RotationPolicyRow, CredentialError> {
        let policy = policy.checked()?;
        self.require_write(requester, path).await?;
        if let Some(hook) = &policy.hook
            && !tables::Credentials::of(self.store()).hooks().await?.iter().any(|known| known.name == *hook)
        {
            return Err(CredentialError::bad(format!(
                "There is no hook {hook:?}. Create it first: `bulla credential rotation hook set`."
            )));
        }
        let placed = RotationPolicyRow {
            path: path.as_str().to_owned(),
            path_key: path.key().to_owned(),
            every_s: policy.every_s.map(i64::from),
            before_expiry_s: policy.before_expiry_s.map(i64::from),
            before_expiry_percent: policy.before_expiry_percent.map(i64::from),
            overlap_s: policy.overlap_s.unwrap_or(OVERLAP_S).into(),
            hook: policy.hook,
            set_at_us: self.now_us(),
            set_by: requester.actor.clone(),
        };
        let details = json!({
            "every_s": placed.every_s, "before_expiry_s": placed.before_expiry_s,
            "before_expiry_percent": placed.before_expiry_percent, "overlap_s": placed.overlap_s, "hook": placed.hook,
        });
        let (event, row) =
            (self.policy_event(requester, "credential.rotation_policy", path, details), placed.clone());
        let put = self.store().write("credential_rotation_policy_put", move |tx| {
            async move {
                let put = put_rotation_policy(tx, &row).await?;
                if put {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(put)
            }
            .boxed()
        });
        if put.await? {
            self.rotation_requested().notify_one();
            return Ok(placed);
        }
        Err(CredentialError::bad(format!(
            "The limit of {ROTATION_POLICIES_MAX} policies is reached. Replace several policies with one for a shorter path."
        )))
    }

    /// Removes the policy of a name or path. Its names then follow the policy of the closest parent path, if any.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`]; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn remove_rotation_policy(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<(), CredentialError> {
        self.require_write(requester, path).await?;
        let event = self.policy_event(requester, "credential.rotation_policy_removed", path, json!({}));
        let key = path.key().to_owned();
        let removed = self.store().write("credential_rotation_policy_remove", move |tx| {
            async move {
                let removed = remove_rotation_policy(tx, &key, event.at_us, &event.actor).await?;
                if removed {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(removed)
            }
            .boxed()
        });
        if !removed.await? {
            return Err(CredentialError::NotFound);
        }
        self.rotation_requested().notify_one();
        Ok(())
    }

    /// Returns a page of the policies for names that the caller may read, sorted by path.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a cursor of another listing.
    #[crate::boxed]
    pub async fn rotation_policies(
        &self,
        requester: &Requester,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RotationPolicyRow>, CredentialError> {
        let tables = tables::Credentials::of(self.store());
        let read = |after: Option<Cursor>, limit| async move {
            tables.rotation_policies(requester, after.as_ref(), limit).await
        };
        self.visible(requester, (after, limit), read, |policy| &policy.path).await
    }

    /// Returns a page of the planned rotations below a path that the caller may read, earliest first.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a cursor of another listing.
    #[crate::boxed]
    pub async fn rotations(
        &self,
        requester: &Requester,
        path: &PermissionPath,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PlannedRotation>, CredentialError> {
        let tables = tables::Credentials::of(self.store());
        let read = |after: Option<Cursor>, limit| async move {
            tables.rotations(requester, path.key(), after.as_ref(), limit).await
        };
        self.visible(requester, (after, limit), read, |planned| &planned.name).await
    }

    /// Makes a name, or all planned names below a path, due now. Skips names that the caller is not permitted to write, and names
    /// whose rotation has begun. Returns the number of names. The rotation runs in the background.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a name without a policy; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn rotate_now(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<u64, CredentialError> {
        let one = !path.key().ends_with('*');
        if one {
            self.require_write(requester, path).await?;
        }
        let event = self.policy_event(requester, "credential.rotation_now", path, json!({}));
        let (key, who) = (path.key().to_owned(), requester.clone());
        let count = self.store().write("credential_rotations_now", move |tx| {
            async move {
                if one {
                    // Records the current version first. Otherwise the event of this version would later move the due time back.
                    plan(tx, std::slice::from_ref(&key), PlannedNames::Changed, event.at_us).await?;
                }
                let count = rotations_now(tx, &who, &key, event.at_us).await?;
                if count > 0 {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(count)
            }
            .boxed()
        });
        let count = count.await?;
        if count == 0 && one {
            return Err(CredentialError::bad(
                "No rotation is scheduled for this name, or one is in progress. Set a policy first: `bulla credential \
                 rotation set`; or regenerate the credential immediately: `bulla credential regenerate`.",
            ));
        }
        self.rotation_requested().notify_one();
        Ok(count)
    }

    /// Reads a page of rows. Leaves out rows whose name the caller's limits exclude.
    async fn visible<T, F>(
        &self,
        requester: &Requester,
        (after, limit): (Option<&Cursor>, usize),
        read: impl Fn(Option<Cursor>, usize) -> F,
        name: impl Fn(&T) -> &String,
    ) -> Result<Page<T>, CredentialError>
    where
        F: Future<Output = Result<Page<T>, StoreError>>,
    {
        let keystore = self.keystore();
        let after = after.map(|cursor| keystore.reveal_cursor(cursor)).transpose();
        let after = after.map_err(map_cursor_error)?;
        let found =
            store::visible_page((after.as_ref(), limit), read, |row| requester.lists(name(row))).await;
        let found = found.map_err(map_cursor_error)?;
        let hide = |next| if found.is_cursor_secret { keystore.hide_cursor(&next) } else { next };
        Ok(Page { rows: found.page.rows, next: found.page.next.map(hide) })
    }

    async fn require_write(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<(), CredentialError> {
        let may = tables::Credentials::of(self.store()).may(requester, path.key(), Operation::Write).await?;
        if may { Ok(()) } else { Err(CredentialError::Forbidden) }
    }

    fn policy_event(
        &self,
        requester: &Requester,
        action: &'static str,
        path: &PermissionPath,
        details: serde_json::Value,
    ) -> AuditEvent {
        self.event(requester, action, path.as_str(), details)
    }
}

/// Converts a cursor error into an error of the caller.
pub(crate) fn map_cursor_error(error: StoreError) -> CredentialError {
    match error {
        StoreError::BadCursor => {
            CredentialError::bad("The cursor is not valid for this list. Start without a cursor.")
        }
        other => other.into(),
    }
}
