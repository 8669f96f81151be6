//! Leases: creation, renewal, listing, revocation.

use futures_util::FutureExt;
use keys::Secret;
use serde_json::json;
use store::{Cursor, Page, StoreError};
use uuid::Uuid;

use super::connection::target;
use super::role::{self, Values};
use super::{CONFIRM_US, CREATE_LIMIT};
use crate::generate::PasswordParameters;
use crate::name::PermissionPath;
use crate::rotation::map_cursor_error;
use crate::tables::{
    self, ConnectionRow, LEASES_AT_ONCE, LEASES_OF_ONE_MAX, LeaseRow, LeaseSelection, LeaseState, Requester,
    RoleRow, activate_lease, end_leases, forget_lease, insert_lease, renew_lease,
};
use crate::{CredentialError, Credentials, Name, Operation};
use callout::{DatabaseSession, RemoteError};

/// Length of a generated password in characters: 190 bits of entropy.
const PASSWORD_CHARS: u32 = 32;

/// A request for a dynamic credential and its lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseRequest {
    /// Lifetime in seconds; `None`: the role's default.
    pub ttl_s: Option<u32>,
    /// Whether to shorten a lifetime above the role's maximum, as Vault does, instead of rejecting the request.
    pub clamps_ttl: bool,
}

/// A new lease with its password. The password cannot be read again later.
#[derive(Clone, Debug)]
pub struct NewLease {
    /// The lease, as stored.
    pub lease: LeaseRow,
    /// Password of the role [`LeaseRow::username`].
    pub password: Secret,
}

/// Returns the key of the advisory lock that serializes the creation and the removal of a lease's database role.
pub(super) fn lock_of(lease: Uuid) -> i64 {
    let mut low = [0; 8];
    low.copy_from_slice(&lease.as_bytes()[8..]);
    i64::from_be_bytes(low)
}

fn seconds(seconds: u32) -> i64 {
    i64::from(seconds) * 1_000_000
}

impl LeaseRequest {
    fn lifetime(&self, role: &RoleRow) -> Result<u32, CredentialError> {
        let wanted = self.ttl_s.filter(|ttl| *ttl > 0).unwrap_or(role.default_ttl_s);
        if wanted > role.max_ttl_s && !self.clamps_ttl {
            return Err(CredentialError::bad(format!(
                "The lifetime of a lease of {} is at most {} seconds, not {wanted}.",
                role.name, role.max_ttl_s
            )));
        }
        Ok(wanted.min(role.max_ttl_s))
    }
}

impl Credentials {
    /// Creates a role at the database, and its lease. The lease and its audit record are durable before the role exists. Requires
    /// read permission at the name of the role.
    ///
    /// # Errors
    /// [`CredentialError::NoRole`]; [`CredentialError::Remote`] when the database does not create the role;
    /// [`CredentialError::Bad`] for a lifetime that is too long, or when the caller has 1,000 leases.
    #[crate::boxed]
    pub async fn create_lease(
        &self,
        requester: &Requester,
        name: &Name,
        request: LeaseRequest,
    ) -> Result<NewLease, CredentialError> {
        if self.is_read_only() {
            return Err(CredentialError::Remote("the credential store is in read-only mode".to_owned()));
        }
        let rows = tables::Credentials::of(self.store());
        let role = rows.role(requester, name.key()).await?.ok_or(CredentialError::NoRole)?;
        let ttl = request.lifetime(&role)?;
        let (connection, password) = self.opened_connection(&role.connection).await?;
        let databases = self.sessions()?;
        let secret = PasswordParameters { length: PASSWORD_CHARS, ..PasswordParameters::default() }.make()?;
        let lease = self.new_lease(requester, name, &role, ttl);
        let values = Values {
            username: &lease.username,
            password: &secret,
            expires_at_us: lease.max_expires_at_us.min(lease.expires_at_us),
        };
        let statements = role::creation(&role, &values)?;
        self.insert_lease(requester, &lease, &connection).await?;
        let created = async {
            // No statement is sent before the session exists. If the session fails, the role certainly does not exist.
            let session = databases.session(&target(&connection, &password)).await;
            let session = session.map_err(|error| (error, true))?;
            session.run(lock_of(lease.id), &statements).await.map_err(|error| {
                let certain = matches!(error, RemoteError::Rejected { .. });
                (error, certain)
            })?;
            session.keep();
            Ok(())
        };
        let created = tokio::time::timeout(CREATE_LIMIT, created).await.unwrap_or_else(|_| {
            Err((RemoteError::Unavailable("the creation took too long".to_owned()), false))
        });
        if let Err((error, certain)) = created {
            self.abandon_lease(requester, &lease, certain).await;
            // A message of the database may quote a statement.
            let text = error.to_string().replace(secret.expose(), "…");
            return Err(CredentialError::Remote(text));
        }
        let (id, now_us) = (lease.id, self.now_us());
        let activate = self.store().write("credential_lease_activate", move |tx| {
            async move { activate_lease(tx, id, now_us).await }.boxed()
        });
        if !activate.await? {
            return Err(CredentialError::Remote("the lease was revoked while it was created".to_owned()));
        }
        let lease = LeaseRow { state: LeaseState::Active, next_at_us: lease.expires_at_us, ..lease };
        Ok(NewLease { lease, password: secret })
    }

    fn new_lease(&self, requester: &Requester, name: &Name, role: &RoleRow, ttl: u32) -> LeaseRow {
        let (id, now_us) = (Uuid::now_v7(), self.now_us());
        let username = role::username(name, id);
        LeaseRow {
            id,
            name_key: name.key().to_owned(),
            name: role.name.clone(),
            connection: role.connection.clone(),
            revocation: role::revocation(role, &username),
            username,
            actor: requester.actor.clone(),
            identity: requester.identity,
            login: requester.login,
            state: LeaseState::Creating,
            created_at_us: now_us,
            expires_at_us: now_us.saturating_add(seconds(ttl)),
            max_expires_at_us: now_us.saturating_add(seconds(role.max_ttl_s)),
            next_at_us: now_us.saturating_add(CONFIRM_US),
            tries: 0,
            error: None,
            ended_by: None,
        }
    }

    async fn insert_lease(
        &self,
        requester: &Requester,
        lease: &LeaseRow,
        connection: &ConnectionRow,
    ) -> Result<(), CredentialError> {
        let details = json!({
            "lease": lease.id, "user": lease.username, "connection": lease.connection, "expires_at_us": lease.expires_at_us,
        });
        let event = self.event(requester, "credential.lease", &lease.name, details);
        let (row, revision) = (lease.clone(), connection.id);
        let inserted = self.store().write("credential_lease_insert", move |tx| {
            async move {
                let inserted = insert_lease(tx, &row, revision).await?;
                if inserted {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(inserted)
            }
            .boxed()
        });
        // A credential is created only after its audit record is durable, as for reads of values.
        match inserted.await.map_err(|error| CredentialError::Unlogged(error.into()))? {
            true => Ok(()),
            false => Err(CredentialError::bad(format!(
                "You have {LEASES_OF_ONE_MAX} leases already, or the connection was changed at this moment. Revoke leases that you \
                 no longer need, or try again."
            ))),
        }
    }

    /// Ends a lease whose creation failed. Deletes the lease if its role certainly does not exist; otherwise marks the lease for
    /// revocation.
    async fn abandon_lease(&self, requester: &Requester, lease: &LeaseRow, certain: bool) {
        let (id, now_us) = (lease.id, self.now_us());
        let event = self.event(
            requester,
            "credential.lease_failed",
            &lease.name,
            json!({ "lease": id, "user": lease.username }),
        );
        let ended = self.store().write("credential_lease_abandon", move |tx| {
            async move {
                if certain {
                    forget_lease(tx, id).await?;
                } else {
                    end_leases(tx, LeaseSelection::One(id), now_us, "failed creation").await?;
                }
                store::audit(tx, vec![event]).await
            }
            .boxed()
        });
        if let Err(error) = ended.await {
            // The lease is revoked later, because its creation was never confirmed.
            tracing::warn!(%error, lease = %id, "a failed lease could not be ended yet");
        }
        self.lease_upkeep().request();
    }

    /// Returns a connection with its password.
    pub(super) async fn opened_connection(
        &self,
        name: &str,
    ) -> Result<(ConnectionRow, Secret), CredentialError> {
        let row = tables::Credentials::of(self.store()).connection(name).await?;
        let row =
            row.ok_or_else(|| CredentialError::Remote(format!("the connection {name} does not exist")))?;
        let password = self.password(&row)?;
        Ok((row, password))
    }

    pub(super) fn sessions(&self) -> Result<&callout::Databases, CredentialError> {
        let missing = || CredentialError::Remote("this process connects to no databases".to_owned());
        self.databases().ok_or_else(missing)
    }

    /// Renews a lease of the caller. The lease then expires after the requested lifetime, or else the role's default lifetime,
    /// counted from now. Never exceeds the maximum expiry of the lease. Requires read permission at the name of the role.
    ///
    /// # Errors
    /// [`CredentialError::NoLease`] for a lease of another caller, or for a lease that has ended; [`CredentialError::NoRole`];
    /// [`CredentialError::Remote`].
    #[crate::boxed]
    pub async fn renew_lease(
        &self,
        requester: &Requester,
        id: Uuid,
        request: LeaseRequest,
    ) -> Result<LeaseRow, CredentialError> {
        let rows = tables::Credentials::of(self.store());
        let lease = rows.lease(id).await?.filter(|lease| is_own(requester, lease));
        let lease = lease.ok_or(CredentialError::NoLease)?;
        let role = rows.role(requester, &lease.name_key).await?.ok_or(CredentialError::NoRole)?;
        let now_us = self.now_us();
        if lease.state != LeaseState::Active || lease.expires_at_us <= now_us {
            return Err(CredentialError::NoLease);
        }
        let wanted = request.ttl_s.filter(|ttl| *ttl > 0).unwrap_or(role.default_ttl_s);
        let expires_at_us = now_us.saturating_add(seconds(wanted)).min(lease.max_expires_at_us);
        let (connection, password) = self.opened_connection(&lease.connection).await?;
        let extended = async {
            let session = self.sessions()?.session(&target(&connection, &password)).await?;
            session.extend_role(&lease.username, &role::time(expires_at_us)).await?;
            session.keep();
            Ok::<_, CredentialError>(())
        };
        tokio::time::timeout(CREATE_LIMIT, extended).await.unwrap_or_else(|_| {
            Err(CredentialError::Remote("the database did not answer in time".to_owned()))
        })?;
        let details = json!({ "lease": id, "expires_at_us": expires_at_us });
        let event = self.event(requester, "credential.lease_renew", &lease.name, details);
        let renewed = self.store().write("credential_lease_renew", move |tx| {
            async move {
                let renewed = renew_lease(tx, id, expires_at_us, now_us).await?;
                if renewed {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(renewed)
            }
            .boxed()
        });
        if !renewed.await? {
            return Err(CredentialError::NoLease);
        }
        Ok(LeaseRow { expires_at_us, next_at_us: expires_at_us, ..lease })
    }

    /// Returns a lease of the caller, or a lease of another caller if the caller has delete permission for the role's name.
    ///
    /// # Errors
    /// [`CredentialError::NoLease`].
    #[crate::boxed]
    pub async fn lease(&self, requester: &Requester, id: Uuid) -> Result<LeaseRow, CredentialError> {
        let rows = tables::Credentials::of(self.store());
        let lease = rows.lease(id).await?.ok_or(CredentialError::NoLease)?;
        if is_own(requester, &lease) || rows.may(requester, &lease.name_key, Operation::Delete).await? {
            return Ok(lease);
        }
        Err(CredentialError::NoLease)
    }

    /// Lists the caller's leases. With a path, lists all leases of roles at or below the path, which requires delete permission.
    ///
    /// # Errors
    /// [`CredentialError::Forbidden`]; [`CredentialError::Bad`] for a cursor of another listing.
    #[crate::boxed]
    pub async fn leases(
        &self,
        requester: &Requester,
        path: Option<&PermissionPath>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<LeaseRow>, CredentialError> {
        let rows = tables::Credentials::of(self.store());
        let page = match path {
            None => rows.leases_of(&requester.actor, after, limit).await,
            Some(path) => {
                self.require_delete(requester, path).await?;
                rows.leases_below(path.key(), after, limit).await
            }
        };
        page.map_err(map_cursor_error)
    }

    async fn require_delete(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<(), CredentialError> {
        let may = tables::Credentials::of(self.store()).may(requester, path.key(), Operation::Delete).await?;
        if may { Ok(()) } else { Err(CredentialError::Forbidden) }
    }

    /// Revokes a lease of the caller, or a lease of another caller if the caller has delete permission for the role's name. Tries
    /// immediately to drop the database role. Returns false if the database did not drop the role yet; background rounds then
    /// retry.
    ///
    /// # Errors
    /// [`CredentialError::NoLease`].
    #[crate::boxed]
    pub async fn revoke_lease(&self, requester: &Requester, id: Uuid) -> Result<bool, CredentialError> {
        let lease = self.lease(requester, id).await?;
        let event = self.event(requester, "credential.lease_revoke", &lease.name, json!({ "lease": id }));
        self.mark_leases(requester, LeaseSelection::One(id), event).await?;
        match self.revoke_marked(&lease).await {
            Ok(done) => Ok(done),
            Err(error) => {
                tracing::warn!(%error, lease = %id, "a lease could not be revoked yet");
                self.lease_upkeep().request();
                Ok(false)
            }
        }
    }

    /// Revokes the leases of a role, or of all roles below a path; requires delete permission there. At most 1,000; returns their
    /// number. Background rounds then drop the database roles of these leases.
    ///
    /// # Errors
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn revoke_leases_below(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<u64, CredentialError> {
        self.require_delete(requester, path).await?;
        let event = self.event(requester, "credential.lease_revoke", path.as_str(), json!({}));
        self.mark_leases(requester, LeaseSelection::Path(path.key().to_owned()), event).await
    }

    /// Revokes the leases of an actor. Requires full access, unless the caller is this actor. At most 1,000; returns their number.
    ///
    /// # Errors
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn revoke_leases_of(&self, requester: &Requester, actor: &str) -> Result<u64, CredentialError> {
        if !requester.full_access && requester.actor != actor {
            return Err(CredentialError::Forbidden);
        }
        let event = self.event(requester, "credential.lease_revoke", "", json!({ "actor": actor }));
        self.mark_leases(requester, LeaseSelection::Actor(actor.to_owned()), event).await
    }

    /// Revokes the leases that were created with a login token.
    pub(crate) async fn end_leases_of_login(&self, login: Uuid) -> Result<(), CredentialError> {
        let actor = Requester::actor("logout");
        let most = u64::try_from(LEASES_AT_ONCE).unwrap_or(u64::MAX);
        loop {
            let event = self.event(&actor, "credential.lease_revoke", "", json!({ "login": login }));
            if self.mark_leases(&actor, LeaseSelection::Login(login), event).await? < most {
                return Ok(());
            }
        }
    }

    /// Marks leases for revocation, and starts a round.
    async fn mark_leases(
        &self,
        requester: &Requester,
        selection: LeaseSelection,
        event: store::AuditEvent,
    ) -> Result<u64, CredentialError> {
        let by = requester.actor.clone();
        let marked = self.store().write("credential_leases_end", move |tx| {
            async move {
                let count = end_leases(tx, selection, event.at_us, &by).await?;
                if count > 0 {
                    store::audit(tx, vec![with_count(event, count)]).await?;
                }
                Ok::<_, StoreError>(count)
            }
            .boxed()
        });
        let count = marked.await?;
        if count > 0 {
            self.lease_upkeep().request();
        }
        Ok(count)
    }
}

fn with_count(mut event: store::AuditEvent, count: u64) -> store::AuditEvent {
    debug_assert!(i64::try_from(count).is_ok_and(|count| count <= LEASES_AT_ONCE));
    event.details["count"] = count.into();
    event
}

/// Returns whether the lease belongs to the caller.
fn is_own(requester: &Requester, lease: &LeaseRow) -> bool {
    // The revocation of a lease clears its identity.
    requester.actor == lease.actor && (lease.identity.is_none() || lease.identity == requester.identity)
}

impl From<RemoteError> for CredentialError {
    fn from(error: RemoteError) -> Self {
        Self::Remote(error.to_string())
    }
}

/// Drops the role of a lease. Returns false if there was none.
pub(super) async fn end_role(session: &DatabaseSession, lease: &LeaseRow) -> Result<bool, RemoteError> {
    session.end_role(lock_of(lease.id), &lease.username, &lease.revocation).await
}
