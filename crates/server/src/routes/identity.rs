//! What tokens, users and client certificates show and take alike.

use serde::{Deserialize, Deserializer, Serialize};
use store::Identity;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::AccessControl;
use crate::access::admin::{self, Patch};
use crate::access::{Grant, grants_of};
use crate::problem::Problem;
use crate::time::{maybe_shown, shown};

/// An identity: a token, a person, a client certificate.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct IdentityView {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
    /// To recognise it by: a token's first characters, a person's subject, what a certificate is found by.
    label: String,
    /// A person's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    /// What it may do.
    grants: Vec<Grant>,
    /// Whether it is let in.
    enabled: bool,
    /// When it was made.
    created_at: String,
    /// By whom.
    created_by: String,
    /// When it ends; null for never.
    expires_at: Option<String>,
    /// When it was last used, to the hour; null for never.
    last_used_at: Option<String>,
}

impl IdentityView {
    pub(crate) fn of(row: Identity) -> Self {
        Self {
            id: row.id,
            name: row.name,
            label: row.label,
            email: row.email,
            grants: grants_of(&row.grants),
            enabled: row.enabled,
            created_at: shown(row.created_at_us),
            created_by: row.created_by,
            expires_at: maybe_shown(row.expires_at_us),
            last_used_at: maybe_shown(row.last_used_at_us),
        }
    }
}

/// A change; what is absent stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityPatch {
    /// Its new name.
    #[schema(min_length = 1, max_length = 128)]
    name: Option<String>,
    /// A person's new address; null for none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    email: Option<Option<String>>,
    /// What it may do from now on.
    grants: Option<Vec<Grant>>,
    /// Whether it is let in from now on.
    enabled: Option<bool>,
    /// When it ends; null for never.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Option<String>>,
}

/// Tells null from absent.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

impl IdentityPatch {
    pub(crate) fn checked(self, access: &AccessControl) -> Result<Patch, Problem> {
        let expires_at_us = match self.expires_at {
            Some(end) => Some(admin::end(access, end.as_deref())?),
            None => None,
        };
        Ok(Patch {
            name: self.name,
            email: self.email,
            grants: self.grants,
            enabled: self.enabled,
            expires_at_us,
        })
    }
}
