//! The first token.

use futures_util::FutureExt;
use secrecy::SecretString;
use serde_json::json;
use store::{
    AccessChange, AuditEvent, Clock, IdentityKind, IdentitySettings, NewIdentity, Store, StoreError,
};
use uuid::Uuid;

use crate::access::grant::to_store;
use crate::access::{Grant, Scope, secret};

/// The first token's name.
const FIRST: &str = "first-admin";

/// Why there is no first token.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The database did not keep it.
    #[error("the first token could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The system gave no random numbers.
    #[error("the first token could not be made: {0}")]
    Random(String),
}

/// Whether nobody can enter yet: no token, no person, no client certificate is known.
///
/// # Errors
/// Those of the database.
pub async fn nobody_can_enter(store: &Store) -> Result<bool, StoreError> {
    for kind in [IdentityKind::Token, IdentityKind::User, IdentityKind::Certificate] {
        if store::Access::of(store).has_identities(kind).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// [`bootstrap_into`] that only answers the token.
///
/// # Errors
/// [`BootstrapError`].
pub async fn bootstrap(store: &Store, clock: &Clock) -> Result<Option<SecretString>, BootstrapError> {
    bootstrap_into(store, clock, |_| Ok(())).await
}

/// Makes a token for everything (`admin`, scope `any`) where nobody can enter yet; `None` where somebody can. It is
/// shown this once; of several servers that start at once, one makes it.
///
/// `hand_over` brings it to whoever will use it, and is called before the token counts: a crash in between leaves a
/// token that is worth nothing, and the next start makes another. The other way about it would leave a system that
/// nobody can enter.
///
/// # Errors
/// [`BootstrapError`]; one of `hand_over` leaves no token.
pub async fn bootstrap_into(
    store: &Store,
    clock: &Clock,
    hand_over: impl FnOnce(&SecretString) -> Result<(), String> + Send + 'static,
) -> Result<Option<SecretString>, BootstrapError> {
    if !nobody_can_enter(store).await? {
        return Ok(None);
    }
    let token = secret::new_token().map_err(|problem| BootstrapError::Random(problem.to_string()))?;
    let now = clock.now_us();
    let new = NewIdentity {
        id: Uuid::now_v7(),
        kind: IdentityKind::Token,
        key_hash: secret::token_hash(&token),
        label: secret::label_of(&token),
        settings: IdentitySettings {
            name: FIRST.to_owned(),
            email: None,
            grants: to_store(&[Grant { role: "admin".to_owned(), scope: Scope::Any }]),
            enabled: true,
            expires_at_us: None,
        },
        created_at_us: now,
        created_by: "system:bootstrap".to_owned(),
    };
    let event = AuditEvent {
        at_us: now,
        actor: "system:bootstrap".to_owned(),
        action: "token.create",
        resource: format!("token/{}", new.id),
        details: json!({ "name": FIRST, "role": "admin" }),
    };
    let token = SecretString::from(token.as_str().to_owned());
    let handed = token.clone();
    let change = store
        .write("access_bootstrap", move |tx| {
            async move {
                let change = store::insert_identity(tx, &new).await?;
                if change == AccessChange::Done {
                    store::audit(tx, vec![event]).await?;
                    hand_over(&handed).map_err(|error| StoreError::Unavailable { source: error.into() })?;
                }
                Ok(change)
            }
            .boxed()
        })
        .await?;
    Ok((change == AccessChange::Done).then_some(token))
}
