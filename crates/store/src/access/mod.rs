//! Access control: identities, sessions, custom roles, and stored responses to repeated requests.

pub(crate) mod ending;
mod handle;
pub(crate) mod idempotency;
pub(crate) mod identity;
pub(crate) mod role;
pub(crate) mod security_key;
pub(crate) mod session;
pub(crate) mod sign_in;
pub(crate) mod usable;

pub use ending::{delete_identity, rekey_identity};
pub use handle::Access;
pub use idempotency::{IdempotencyState, StoredResponse};
pub use identity::{
    AccessChange, Identity, IdentityKind, IdentitySettings, NewIdentity, insert_identity, update_identity,
};
pub use role::{Role, RoleChange, delete_role, put_role, roles_in};
pub use security_key::{
    ApprovalSignatureRow, CeremonyPurpose, KeyCeremony, SECURITY_KEYS_MAX, SecurityKey, SecurityKeyUse,
    delete_security_key, insert_key_ceremony, insert_security_key, put_approval_signature, security_key_used,
    security_keys_in, take_key_ceremony,
};
pub use session::{
    NewSession, SESSIONS_MAX, Session, SignInMethod, delete_other_sessions, delete_session,
    delete_sessions_of, insert_session, prove_session,
};
pub use sign_in::{
    LINKS_MAX, NewPassword, SignInLink, insert_sign_in_link, put_password, sign_out, sign_out_others,
    use_sign_in_link,
};
pub use usable::{UsableIdentity, lock_access, usable_identities};
