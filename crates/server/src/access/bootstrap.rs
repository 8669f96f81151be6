//! Creation of the first API token, and of break-glass tokens.

use futures_util::FutureExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use store::{
    AccessChange, AuditEvent, Clock, IdentityKind, IdentitySettings, NewIdentity, Store, StoreError,
};
use uuid::Uuid;

use crate::access::grant::to_store;
use crate::access::{Grant, Scope, secret};

/// Name of the first token.
const FIRST: &str = "first-admin";

/// Lifetime of a token of [`break_glass`], µs: a day.
const BREAK_GLASS_US: i64 = 86_400 * 1_000_000;

/// Reason why the first token could not be created.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The database did not store the token.
    #[error("the first token could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The operating system returned no random numbers.
    #[error("the first token could not be created: {0}")]
    Random(String),
}

/// Returns whether no credential exists yet: no token, no user and no client certificate.
///
/// # Errors
/// Errors of the database.
pub async fn has_no_credentials(store: &Store) -> Result<bool, StoreError> {
    for kind in [IdentityKind::Token, IdentityKind::User, IdentityKind::Certificate] {
        if store::Access::of(store).has_identities(kind).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates a token with full access, without storing it.
fn admin_token(
    clock: &Clock,
    name: &str,
    by: &str,
    expires_at_us: Option<i64>,
) -> Result<(SecretString, NewIdentity), BootstrapError> {
    let token = secret::new_token().map_err(|problem| BootstrapError::Random(problem.to_string()))?;
    let new = NewIdentity {
        id: Uuid::now_v7(),
        kind: IdentityKind::Token,
        key_hash: secret::token_hash(&token),
        label: secret::label_of(&token),
        settings: IdentitySettings {
            name: name.to_owned(),
            email: None,
            grants: to_store(&[Grant { role: "admin".to_owned(), scope: Scope::Any }]),
            enabled: true,
            expires_at_us,
        },
        created_at_us: clock.now_us(),
        created_by: by.to_owned(),
    };
    Ok((SecretString::from(token.as_str().to_owned()), new))
}

fn created(new: &NewIdentity, details: Value) -> AuditEvent {
    AuditEvent {
        at_us: new.created_at_us,
        actor: new.created_by.clone(),
        action: "token.create",
        resource: format!("token/{}", new.id),
        details,
    }
}

/// Creates a token with full access (`admin`, scope `any`) that expires after a day. Use it when no second person can approve a
/// change of access. Only a user of the host with write access to the database can call this function. The audit log records the
/// reason.
///
/// # Errors
/// [`BootstrapError`].
pub async fn break_glass(store: &Store, clock: &Clock, reason: &str) -> Result<SecretString, BootstrapError> {
    let ends = clock.now_us().saturating_add(BREAK_GLASS_US);
    let name = format!("break-glass-{}", clock.now_us());
    let (token, new) = admin_token(clock, &name, "system:host", Some(ends))?;
    let event =
        created(&new, json!({ "name": name, "role": "admin", "break_glass": true, "reason": reason }));
    let stored = store.write("access_break_glass", move |tx| {
        async move {
            let change = store::insert_identity(tx, &new).await?;
            if change == AccessChange::Done {
                store::audit(tx, vec![event]).await?;
            }
            Ok(change)
        }
        .boxed()
    });
    match stored.await? {
        AccessChange::Done => Ok(token),
        AccessChange::Taken | AccessChange::Stale => {
            Err(BootstrapError::Random(format!("the token {name} already exists: try again")))
        }
    }
}

/// Like [`bootstrap_with_handover`], but only returns the token.
///
/// # Errors
/// [`BootstrapError`].
pub async fn bootstrap(store: &Store, clock: &Clock) -> Result<Option<SecretString>, BootstrapError> {
    bootstrap_with_handover(store, clock, |_| Ok(())).await
}

/// Creates a token with full access (`admin`, scope `any`) if no credential exists yet; `None` if one exists. The token cannot be
/// retrieved later. If several servers start concurrently, only one creates a token.
///
/// `hand_over` delivers the token to its user, before the token becomes valid. A crash in between leaves an invalid token, and the
/// next startup creates another. The opposite order could lock everybody out.
///
/// # Errors
/// [`BootstrapError`]; an error of `hand_over` leaves no token.
pub async fn bootstrap_with_handover(
    store: &Store,
    clock: &Clock,
    hand_over: impl FnOnce(&SecretString) -> Result<(), String> + Send + 'static,
) -> Result<Option<SecretString>, BootstrapError> {
    if !has_no_credentials(store).await? {
        return Ok(None);
    }
    let (token, new) = admin_token(clock, FIRST, "system:bootstrap", None)?;
    let event = created(&new, json!({ "name": FIRST, "role": "admin" }));
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
