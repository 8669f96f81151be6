//! The identities that can manage access (`access.manage`). A change must not remove this permission from the last such identity,
//! because then no identity could restore it.

use store::{Identity, IdentityKind, IdentitySettings, Role, RoleChange, StoreError, Tx, UsableIdentity};
use uuid::Uuid;

use crate::access::grant::{self, RoleTable};
use crate::access::{Permission, Permissions, Scope};
use crate::problem::Problem;

/// Minimum remaining lifetime of an identity that counts as a lasting manager, µs: seven days. A break-glass token lives for one
/// day.
const LASTING_US: i64 = 7 * 86_400 * 1_000_000;

/// The label of a user without an OIDC issuer.
pub(crate) const LOCAL: &str = "local";

/// Whether an identity can manage access, and for how long.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ManagerLifetime {
    /// The identity cannot manage access.
    None,
    /// The identity can manage access, and expires within [`LASTING_US`].
    Ending,
    /// The identity can manage access, and does not expire soon.
    Lasting,
}

/// A change that may revoke `access.manage` from an identity.
#[derive(Clone, Copy)]
pub(crate) enum AccessRemoval<'a> {
    Update(Uuid, &'a IdentitySettings),
    Delete(Uuid),
    PutRole(&'a RoleChange),
    DeleteRole(&'a str),
}

/// The data that decides whether a change removes the last access manager.
struct ManagerCheck<'a> {
    change: AccessRemoval<'a>,
    /// Whether users can sign in through an OIDC issuer.
    logins: bool,
    now_us: i64,
    before: RoleTable,
    after: RoleTable,
}

/// Returns whether the change removes `access.manage` from all remaining identities, or leaves it only to identities that expire
/// soon. Locks access changes until the transaction ends.
pub(crate) async fn is_last(
    tx: &mut Tx,
    change: AccessRemoval<'_>,
    logins: bool,
    now_us: i64,
) -> Result<bool, StoreError> {
    store::lock_access(tx).await?;
    let before: RoleTable = store::roles_in(tx)
        .await?
        .into_iter()
        .map(|role| (role.name.clone(), permissions_of(&role)))
        .collect();
    let check = ManagerCheck { change, logins, now_us, after: after(change, &before), before };
    let (mut best, mut left, mut last_seen) = (ManagerLifetime::None, ManagerLifetime::None, Uuid::nil());
    while left < ManagerLifetime::Lasting {
        let page = store::usable_identities(tx, last_seen, now_us).await?;
        let Some(last) = page.last() else { break };
        last_seen = last.identity.id;
        for usable in &page {
            best = best.max(check.before(usable));
            left = left.max(check.after(usable));
        }
    }
    Ok(left < best)
}

/// Returns the error for a change that [`is_last`] rejects.
pub(crate) fn last_manager() -> Problem {
    Problem::conflict("this change would leave no identity that can manage access").hint(
        "first create another administrator, for example with `bulla token create NAME --role admin`, then repeat the \
         change. The other administrator must be valid for at least 7 days; a user needs a password or an OIDC login",
    )
}

fn permissions_of(role: &Role) -> Option<Permissions> {
    grant::permissions(role).ok().map(|permissions| Permissions::of(&permissions))
}

/// Returns the permissions of roles after the change.
fn after(change: AccessRemoval<'_>, before: &RoleTable) -> RoleTable {
    let mut after = before.clone();
    match change {
        AccessRemoval::PutRole(role) => {
            let permissions: Option<Vec<Permission>> = serde_json::from_str(&role.permissions).ok();
            after.insert(role.name.clone(), permissions.map(|permissions| Permissions::of(&permissions)));
        }
        AccessRemoval::DeleteRole(name) => {
            after.remove(name);
        }
        AccessRemoval::Update(..) | AccessRemoval::Delete(_) => {}
    }
    after
}

impl ManagerCheck<'_> {
    fn before(&self, usable: &UsableIdentity) -> ManagerLifetime {
        let Identity { grants, expires_at_us, .. } = &usable.identity;
        self.lifetime(usable, grants, *expires_at_us, &self.before)
    }

    fn after(&self, usable: &UsableIdentity) -> ManagerLifetime {
        let identity = &usable.identity;
        match self.change {
            AccessRemoval::Delete(id) if id == identity.id => ManagerLifetime::None,
            AccessRemoval::Update(id, settings) if id == identity.id => {
                let IdentitySettings { grants, enabled, expires_at_us, .. } = settings;
                if *enabled {
                    self.lifetime(usable, grants, *expires_at_us, &self.after)
                } else {
                    ManagerLifetime::None
                }
            }
            _ => self.lifetime(usable, &identity.grants, identity.expires_at_us, &self.after),
        }
    }

    fn lifetime(
        &self,
        usable: &UsableIdentity,
        grants: &str,
        expires_at_us: Option<i64>,
        roles: &RoleTable,
    ) -> ManagerLifetime {
        if !self.can_sign_in(usable) || !manages(grants, roles) {
            return ManagerLifetime::None;
        }
        match expires_at_us.map(|end| end.saturating_sub(self.now_us)) {
            Some(..=0) => ManagerLifetime::None,
            Some(left) if left < LASTING_US => ManagerLifetime::Ending,
            _ => ManagerLifetime::Lasting,
        }
    }

    /// Returns whether the identity can authenticate: a user needs a password or an issuer.
    fn can_sign_in(&self, usable: &UsableIdentity) -> bool {
        match usable.identity.kind {
            IdentityKind::Token | IdentityKind::Certificate => true,
            IdentityKind::User => usable.has_password || self.logins && usable.identity.label != LOCAL,
        }
    }
}

/// Returns whether stored grants include `access.manage` in all scopes. Unreadable grants include nothing.
fn manages(grants: &str, roles: &RoleTable) -> bool {
    grant::read(grants).is_ok_and(|grants| {
        grants
            .iter()
            .map(|grant| grant::resolved(grant, roles))
            .any(|granted| granted.scope == Scope::Any && granted.permissions.has(Permission::AccessManage))
    })
}
