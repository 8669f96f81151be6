//! Which values are made again and when: policies for names and paths, and what is planned by them.

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Cursor, Page, StoreError};

use super::plan::plan;
use crate::name::PermissionPath;
use crate::tables;
use crate::tables::{
    CredentialAsker, PlannedNames, PlannedRotation, ROTATION_POLICIES_MAX, RotationPolicyRow,
    put_rotation_policy, remove_rotation_policy, rotations_now,
};
use crate::{CredentialError, Credentials, Operation};

/// Shortest time between two values, s: what depends on a value has to learn of it.
pub const ROTATE_EVERY_MIN_S: u32 = 3_600;
/// Longest of every period of a policy, s: ten years.
pub const ROTATE_PERIOD_MAX_S: u32 = 3_650 * 86_400;
/// Shortest time in which both certificates of an authority are trusted, s.
pub const OVERLAP_MIN_S: u32 = 60;
/// The time in which both are trusted where nothing else is said, s.
pub const OVERLAP_S: u32 = 7 * 86_400;
/// The part of a certificate's life, in hundredths, at which it is made again where nothing else is said.
pub const BEFORE_EXPIRY_PERCENT: u32 = 33;

/// When values are made again. Without `every` and `before_expiry` certificates are, when a third of their life is left.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RotationPolicy {
    /// This long after they were made, s.
    pub every_s: Option<u32>,
    /// Certificates when this is left of their life, s.
    pub before_expiry_s: Option<u32>,
    /// Certificates when this part of their life is left, in hundredths: 1 to 90.
    pub before_expiry_percent: Option<u32>,
    /// How long both certificates of an authority are trusted before each further step, s; at most a third of what is left.
    pub overlap_s: Option<u32>,
    /// The name of the hook that is asked or told.
    pub hook: Option<String>,
}

impl RotationPolicy {
    fn checked(mut self) -> Result<Self, CredentialError> {
        let within = |what: &str, given: Option<u32>, least: u32| match given {
            Some(seconds) if !(least..=ROTATE_PERIOD_MAX_S).contains(&seconds) => Err(CredentialError::bad(
                format!("{what} is {seconds} s; it is between {least} and {ROTATE_PERIOD_MAX_S} s."),
            )),
            _ => Ok(()),
        };
        within("every", self.every_s, ROTATE_EVERY_MIN_S)?;
        within("before_expiry", self.before_expiry_s, ROTATE_EVERY_MIN_S)?;
        within("overlap", self.overlap_s, OVERLAP_MIN_S)?;
        if self.before_expiry_percent.is_some_and(|part| !(1..=90).contains(&part)) {
            return Err(CredentialError::bad("A part of a life is between 1 and 90 hundredths."));
        }
        if self.before_expiry_s.is_some() && self.before_expiry_percent.is_some() {
            return Err(CredentialError::bad("Give before_expiry as a time or as a part, not both."));
        }
        if self.every_s.is_none() && self.before_expiry_s.is_none() && self.before_expiry_percent.is_none() {
            self.before_expiry_percent = Some(BEFORE_EXPIRY_PERCENT);
        }
        Ok(self)
    }
}

impl Credentials {
    /// Sets the policy of a name or path, in place of the one it has. Anyone who may write there may.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for periods that make no sense, an unknown hook or too many policies;
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn set_rotation_policy(
        &self,
        asker: &CredentialAsker,
        path: &PermissionPath,
        policy: RotationPolicy,
    ) -> Result<RotationPolicyRow, CredentialError> {
        let policy = policy.checked()?;
        self.require_write(asker, path).await?;
        if let Some(hook) = &policy.hook
            && !tables::Credentials::of(self.store()).hooks().await?.iter().any(|known| known.name == *hook)
        {
            return Err(CredentialError::bad(format!(
                "There is no hook {hook:?}. Make it first: `bulla credential rotation hook set`."
            )));
        }
        let placed = RotationPolicyRow {
            path: path.as_str().to_owned(),
            path_key: path.key().to_owned(),
            every_s: policy.every_s.map(i64::from),
            before_s: policy.before_expiry_s.map(i64::from),
            before_percent: policy.before_expiry_percent.map(i64::from),
            overlap_s: policy.overlap_s.unwrap_or(OVERLAP_S).into(),
            hook: policy.hook,
            set_at_us: self.now_us(),
            set_by: asker.actor.clone(),
        };
        let details = json!({
            "every_s": placed.every_s, "before_expiry_s": placed.before_s,
            "before_expiry_percent": placed.before_percent, "overlap_s": placed.overlap_s, "hook": placed.hook,
        });
        let (event, row) =
            (self.policy_event(asker, "credential.rotation_policy", path, details), placed.clone());
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
            self.rotation_asked().notify_one();
            return Ok(placed);
        }
        Err(CredentialError::bad(format!(
            "There are {ROTATION_POLICIES_MAX} policies. Give one for a shorter path in place of many for names."
        )))
    }

    /// Takes the policy of a name or path away; what it counted for falls to the next one above, if there is one.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`]; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn remove_rotation_policy(
        &self,
        asker: &CredentialAsker,
        path: &PermissionPath,
    ) -> Result<(), CredentialError> {
        self.require_write(asker, path).await?;
        let event = self.policy_event(asker, "credential.rotation_policy_removed", path, json!({}));
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
        self.rotation_asked().notify_one();
        Ok(())
    }

    /// A page of the policies for what the asker may read, by path.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a cursor of another listing.
    #[crate::boxed]
    pub async fn rotation_policies(
        &self,
        asker: &CredentialAsker,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RotationPolicyRow>, CredentialError> {
        tables::Credentials::of(self.store()).rotation_policies(asker, after, limit).await.map_err(unpaged)
    }

    /// A page of what is planned below a path that the asker may read, the next first.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a cursor of another listing.
    #[crate::boxed]
    pub async fn rotations(
        &self,
        asker: &CredentialAsker,
        path: &PermissionPath,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PlannedRotation>, CredentialError> {
        tables::Credentials::of(self.store())
            .rotations(asker, path.key(), after, limit)
            .await
            .map_err(unpaged)
    }

    /// Makes a name, or what is planned below a path, due now: of what the asker may write and what has not begun. How
    /// many; they are made again in the background.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a name without a policy; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn rotate_now(
        &self,
        asker: &CredentialAsker,
        path: &PermissionPath,
    ) -> Result<u64, CredentialError> {
        let one = !path.key().ends_with('*');
        if one {
            self.require_write(asker, path).await?;
        }
        let event = self.policy_event(asker, "credential.rotation_now", path, json!({}));
        let (key, who) = (path.key().to_owned(), asker.clone());
        let count = self.store().write("credential_rotations_now", move |tx| {
            async move {
                if one {
                    // A version that is news to the plan would move its time later.
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
                "Nothing is planned for this name, or its change is under way. Give it a policy first: \
                 `bulla credential rotation set`; or make it anew at once: `bulla credential regenerate`.",
            ));
        }
        self.rotation_asked().notify_one();
        Ok(count)
    }

    async fn require_write(
        &self,
        asker: &CredentialAsker,
        path: &PermissionPath,
    ) -> Result<(), CredentialError> {
        let may = tables::Credentials::of(self.store()).may(asker, path.key(), Operation::Write).await?;
        if may { Ok(()) } else { Err(CredentialError::Forbidden) }
    }

    fn policy_event(
        &self,
        asker: &CredentialAsker,
        action: &'static str,
        path: &PermissionPath,
        details: serde_json::Value,
    ) -> AuditEvent {
        self.event(asker, action, path.as_str(), details)
    }
}

/// A cursor that does not fit is the caller's fault.
pub(crate) fn unpaged(error: StoreError) -> CredentialError {
    match error {
        StoreError::BadCursor => {
            CredentialError::bad("The cursor is not one of this listing. Begin without it.")
        }
        other => other.into(),
    }
}
