//! What tokens, users and client certificates show and take alike.

use api::access::{IdentityPatch, IdentityView};
use store::Identity;

use crate::access::AccessControl;
use crate::access::admin::{self, Patch};
use crate::access::grants_of;
use crate::problem::Problem;
use crate::time::{maybe_shown, shown};

pub(crate) fn identity_view(row: Identity) -> Result<IdentityView, Problem> {
    let grants = grants_of(&row)?;
    Ok(IdentityView {
        id: row.id,
        name: row.name,
        label: row.label,
        email: row.email,
        grants,
        enabled: row.enabled,
        created_at: shown(row.created_at_us),
        created_by: row.created_by,
        expires_at: maybe_shown(row.expires_at_us),
        last_used_at: maybe_shown(row.last_used_at_us),
    })
}

pub(crate) fn identity_change(body: IdentityPatch, access: &AccessControl) -> Result<Patch, Problem> {
    let expires_at_us = match body.expires_at {
        Some(end) => Some(admin::end(access, end.as_deref())?),
        None => None,
    };
    Ok(Patch {
        name: body.name,
        email: body.email,
        grants: body.grants,
        enabled: body.enabled,
        expires_at_us,
    })
}
