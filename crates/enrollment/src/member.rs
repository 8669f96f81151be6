//! API identities of members (agents and nodes).

use store::{IdentityKind, IdentitySettings, NewIdentity, Store, StoreError};
use uuid::Uuid;

use crate::certify::IdentityHasher;

/// Builds the identity of a new member, recognized by the URI in its certificate. `kind` is also the name of the member's role.
#[must_use]
pub fn identity_of(kind: &str, id: Uuid, uri: &str, key: &IdentityHasher, at_us: i64) -> NewIdentity {
    NewIdentity {
        id,
        kind: IdentityKind::Certificate,
        key_hash: key(uri),
        label: format!("uri:{uri}"),
        settings: IdentitySettings {
            name: format!("{kind}-{id}"),
            email: None,
            grants: format!(r#"[{{"role":"{kind}","scope":"any"}}]"#),
            enabled: true,
            expires_at_us: None,
        },
        created_at_us: at_us,
        created_by: format!("{kind}:{id}"),
    }
}

/// Returns the revision of a member's identity, which is needed to delete it.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn identity_revision(store: &Store, id: Uuid) -> Result<Option<i64>, StoreError> {
    Ok(store::Access::of(store).identity(IdentityKind::Certificate, id).await?.map(|known| known.revision))
}
