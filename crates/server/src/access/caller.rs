//! The authenticated caller of a request.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use authority::VerifiedClient;
use authority::principal::{Principal, is_person};
use authority::teams::{OwnedKind, Ownership, OwnershipRights};
use axum::extract::FromRequestParts;
use coded::named;
use http::StatusCode;
use http::request::Parts;
use uuid::Uuid;

use crate::access::proof::{CallerSession, PROOF_LIFETIME};
use crate::access::{Object, Permission, Permissions, Scope};
use crate::problem::Problem;

named! {
    /// Method by which the caller authenticated.
    pub enum CallerKind: "kind of caller" {
        /// An API token, or a session that was started with an API token.
        Token => "token",
        /// A person, with a session cookie.
        User => "user",
        /// A client certificate mapped to an identity.
        Certificate => "certificate",
        /// An agent, with its own credential.
        Agent => "agent",
    }
}

/// Permissions within a scope: a grant with its role resolved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    /// Permissions of the grant's role, built-in or custom.
    pub permissions: Permissions,
    /// Objects to which the permissions apply.
    pub scope: Scope,
}

/// The objects of a listing that a caller may see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reach {
    /// All objects.
    Everything,
    /// Objects in one of these scopes, sorted. None of them is [`Scope::Any`].
    Only(Vec<Scope>),
}

/// An authenticated caller. The authentication layer adds it to the request, and handlers take it as an argument.
#[derive(Clone)]
pub struct Caller(Arc<CallerParts>);

struct CallerParts {
    principal: Principal,
    kind: CallerKind,
    id: Uuid,
    granted: Vec<Granted>,
    /// The client certificate that the caller authenticated with, if any.
    client: Option<VerifiedClient>,
    /// The session of the request, if any.
    session: Option<Arc<CallerSession>>,
    /// Names of the roles in the grants.
    roles: Vec<String>,
    /// The objects that each team owned when the caller was authenticated.
    ownership: Arc<Ownership>,
    /// Whether the handler of this request has checked a permission of the caller.
    permission_checked: AtomicBool,
}

impl Clone for CallerParts {
    fn clone(&self) -> Self {
        Self {
            principal: self.principal.clone(),
            kind: self.kind,
            id: self.id,
            granted: self.granted.clone(),
            client: self.client.clone(),
            session: self.session.clone(),
            roles: self.roles.clone(),
            ownership: Arc::clone(&self.ownership),
            permission_checked: AtomicBool::new(self.permission_checked.load(Ordering::Relaxed)),
        }
    }
}

impl Caller {
    /// Creates a caller, for authenticators and tests.
    #[must_use]
    pub fn new(actor: String, kind: CallerKind, id: Uuid, granted: Vec<Granted>) -> Self {
        Self::from_principal(Principal::from_actor(&actor), kind, id, granted)
    }

    /// Creates a caller like [`Caller::new`], for a principal with more identifiers than the actor's name.
    pub(crate) fn from_principal(
        principal: Principal,
        kind: CallerKind,
        id: Uuid,
        granted: Vec<Granted>,
    ) -> Self {
        let (roles, ownership, permission_checked) = (Vec::new(), Arc::default(), AtomicBool::new(false));
        let (client, session) = (None, None);
        let parts = CallerParts {
            principal,
            kind,
            id,
            granted,
            client,
            session,
            roles,
            ownership,
            permission_checked,
        };
        Self(Arc::new(parts))
    }

    /// Returns the caller's identity, independent of the login method.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// Returns the owner of the caller: for a token, the user or client certificate that created it, directly or through another
    /// token; otherwise the caller itself.
    pub(crate) fn owner(&self) -> &str {
        self.0.principal.marks().find(|mark| is_person(mark)).unwrap_or_else(|| self.actor())
    }

    /// Returns the same caller, authenticated by this certificate.
    pub(super) fn with_client_certificate(self, client: VerifiedClient) -> Self {
        self.with(|parts| parts.client = Some(client))
    }

    /// Returns the same caller with these role names.
    #[must_use]
    pub fn with_roles(self, roles: Vec<String>) -> Self {
        self.with(|parts| parts.roles = roles)
    }

    /// Returns the same caller with this ownership: the objects that each team owns.
    #[must_use]
    pub fn with_ownership(self, ownership: Arc<Ownership>) -> Self {
        self.with(|parts| parts.ownership = ownership)
    }

    /// Returns the same caller with this session of the request.
    #[must_use]
    pub(crate) fn with_session(self, session: Option<Arc<CallerSession>>) -> Self {
        self.with(|parts| parts.session = session)
    }

    /// Returns a changed caller. Clones of this caller remain unchanged.
    fn with(mut self, change: impl FnOnce(&mut CallerParts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Returns the session of the request; `None` for a token or a client certificate.
    pub(crate) fn session(&self) -> Option<&CallerSession> {
        self.0.session.as_deref()
    }

    /// Rejects a session whose user did not sign in or confirm recently. Tokens and client certificates authenticate with each
    /// request and always pass.
    ///
    /// # Errors
    /// 403 `reauthentication-required`.
    pub(crate) fn require_recent_proof(&self, now_us: i64) -> Result<(), Problem> {
        match self.session() {
            Some(session) if session.proved_until(now_us).is_none() => Err(reauthentication_required()),
            _ => Ok(()),
        }
    }

    /// Returns the client certificate of the connection, if the caller authenticated with it.
    pub(crate) fn client(&self) -> Option<&VerifiedClient> {
        self.0.client.as_ref()
    }

    /// Returns the teams of the caller's grants, without duplicates. Empty for a caller with an unrestricted grant.
    pub(crate) fn teams(&self) -> BTreeSet<&str> {
        if self.0.granted.iter().any(|granted| granted.scope == Scope::Any) {
            return BTreeSet::new();
        }
        self.0.granted.iter().flat_map(|granted| self.0.ownership.acting_teams(&granted.scope)).collect()
    }

    /// Returns whether the caller's permissions on an object depend on the object's deployment targets.
    pub(crate) fn depends_on_targets(&self) -> bool {
        let bounds = || self.0.granted.iter().flat_map(|granted| granted.scope.bounds());
        bounds().any(|bound| matches!(bound, Scope::Target(_)))
            || self.0.ownership.owns_any(OwnedKind::Target)
    }

    /// Returns the objects that each team owned when the caller was authenticated.
    pub(crate) fn ownership(&self) -> &Ownership {
        &self.0.ownership
    }

    /// Returns whether one of the grants has the role of this name. Use this function for limits only; permissions decide what the
    /// caller may do.
    #[must_use]
    pub(crate) fn has_role(&self, name: &str) -> bool {
        self.0.roles.iter().any(|role| role == name)
    }

    /// Returns the actor for the audit log: `token:ci`, `user:alice@example.org`, `certificate:agent-7`.
    #[must_use]
    pub fn actor(&self) -> &str {
        self.0.principal.actor()
    }

    /// Returns how the caller authenticated.
    #[must_use]
    pub fn kind(&self) -> CallerKind {
        self.0.kind
    }

    /// Returns the client certificate (DER) of an enrolled agent or node. `who` is `an agent` or `a node`, for the error text. The
    /// caller of this function must still compare the public key, because another certificate may have the same name.
    ///
    /// # Errors
    /// 403 for a caller without a client certificate.
    pub(crate) fn enrolled_certificate(&self, who: &str) -> Result<&[u8], Problem> {
        let client = self.0.client.as_ref().ok_or_else(|| {
            Problem::forbidden(format_args!(
                "only {who} may do this, authenticated by its client certificate"
            ))
        })?;
        Ok(&client.certificate().der)
    }

    /// Returns the row ID of the token, user or certificate identity.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.0.id
    }

    /// Returns all grants, each with the permissions of its role.
    #[must_use]
    pub fn granted(&self) -> &[Granted] {
        &self.0.granted
    }

    /// Returns whether the caller has the permission in any scope.
    #[must_use]
    pub fn has_permission(&self, permission: Permission) -> bool {
        self.0.granted.iter().any(|granted| granted.permissions.has(permission))
    }

    /// Returns whether the caller has the permission in all scopes.
    #[must_use]
    pub fn has_permission_everywhere(&self, permission: Permission) -> bool {
        self.0
            .granted
            .iter()
            .any(|granted| granted.scope == Scope::Any && granted.permissions.has(permission))
    }

    /// Checks a permission on an object. One grant must cover the object with all its bounds. If a team owns a name of the object,
    /// the grant must also be of that team. [`Ownership::admits`] decides.
    ///
    /// # Errors
    /// 403 when no grant covers the object.
    pub fn may(&self, permission: Permission, object: impl Into<Object>) -> Result<(), Problem> {
        let object = object.into();
        self.require_grant(permission, |scope| self.0.ownership.admits(scope, &object))
    }

    /// Checks a permission on an object that a request names. If the caller may not even read the object, returns `missing`, the
    /// error for an object that does not exist.
    ///
    /// # Errors
    /// 403 when no grant covers the object, but the caller may read it; `missing` otherwise.
    pub(crate) fn may_or_missing(
        &self,
        (permission, read): (Permission, Permission),
        object: impl Into<Object>,
        missing: impl FnOnce() -> Problem,
    ) -> Result<(), Problem> {
        let object = object.into();
        let Err(refused) = self.may(permission, &object) else { return Ok(()) };
        if self.may(read, &object).is_ok() { Err(refused) } else { Err(missing()) }
    }

    /// Checks a permission like [`Caller::may`], but only with grants that name this team or are unrestricted. For objects that
    /// belong to the team alone.
    ///
    /// # Errors
    /// 403 when no grant covers the object.
    pub fn may_for_team(
        &self,
        permission: Permission,
        team: &str,
        object: impl Into<Object>,
    ) -> Result<(), Problem> {
        let (team, object) = (Scope::team(team), object.into());
        self.require_grant(permission, |scope| {
            let names = *scope == Scope::Any || scope.bounds().contains(&team);
            names && self.0.ownership.admits(scope, &object)
        })
    }

    /// Checks a permission like [`Caller::may`], and returns the team of the first grant that covers the object.
    ///
    /// # Errors
    /// 403 when no grant covers the object.
    pub fn check_ownership_rights(
        &self,
        permission: Permission,
        object: impl Into<Object>,
    ) -> Result<OwnershipRights, Problem> {
        let object = object.into();
        self.may(permission, &object)?;
        if self.has_permission_everywhere(permission) {
            return Ok(OwnershipRights::Everything);
        }
        let ownership = &self.0.ownership;
        let reaching =
            self.0.granted.iter().find(|granted| {
                granted.permissions.has(permission) && ownership.admits(&granted.scope, &object)
            });
        let team = reaching.and_then(|granted| ownership.acting_teams(&granted.scope).into_iter().next());
        Ok(team.map_or(OwnershipRights::Nobody, |team| OwnershipRights::Team(team.to_owned())))
    }

    fn require_grant(&self, permission: Permission, reaches: impl Fn(&Scope) -> bool) -> Result<(), Problem> {
        self.0.permission_checked.store(true, Ordering::Relaxed);
        let matching = |granted: &Granted| granted.permissions.has(permission) && reaches(&granted.scope);
        if self.0.granted.iter().any(matching) { Ok(()) } else { Err(forbidden(permission)) }
    }

    /// Returns the objects on which the caller has a permission, to filter a listing.
    #[must_use]
    pub fn reach(&self, permission: Permission) -> Reach {
        self.0.permission_checked.store(true, Ordering::Relaxed);
        let mut scopes = Vec::new();
        for granted in &self.0.granted {
            if !granted.permissions.has(permission) {
                continue;
            }
            if granted.scope == Scope::Any {
                return Reach::Everything;
            }
            scopes.push(granted.scope.clone());
        }
        scopes.sort();
        scopes.dedup();
        Reach::Only(scopes)
    }

    /// Returns whether the caller's grants include all permissions of `other`. A caller cannot grant permissions that it does not
    /// have.
    #[must_use]
    pub fn covers(&self, other: &Granted) -> bool {
        let matching = self.0.granted.iter().filter(|granted| granted.scope.covers(&other.scope));
        matching
            .fold(Permissions::NONE, |all, granted| all.union(granted.permissions))
            .covers(other.permissions)
    }

    /// Returns whether the handler of this request has checked the caller's permissions.
    pub(crate) fn was_permission_checked(&self) -> bool {
        self.0.permission_checked.load(Ordering::Relaxed)
    }
}

fn reauthentication_required() -> Problem {
    let minutes = PROOF_LIFETIME.as_secs() / 60;
    Problem::new(StatusCode::FORBIDDEN, "reauthentication-required", "Confirm your identity")
        .detail(format_args!(
            "this request needs a session that was signed in or confirmed within the last {minutes} minutes"
        ))
        .hint(
            "POST /api/v1/auth/sessions/confirm with your password or the code of a new one-time link, or log in again at \
             /api/v1/auth/login?confirm=true, then repeat the request",
        )
}

pub(crate) fn forbidden(permission: Permission) -> Problem {
    Problem::forbidden(format_args!("the permission {permission} is required"))
        .hint("ask an administrator for a role with this permission, in a scope that includes the object")
        .with("permission", permission.name())
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("actor", &self.actor())
            .field("kind", &self.0.kind)
            .finish_non_exhaustive()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Problem::unauthenticated("this request needs an authenticated caller"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::built_in_role;

    fn caller(grants: &[(&str, Scope)]) -> Caller {
        let granted = grants
            .iter()
            .map(|(role, scope)| Granted {
                permissions: built_in_role(role).unwrap().permissions,
                scope: scope.clone(),
            })
            .collect();
        Caller::new("token:test".to_owned(), CallerKind::Token, Uuid::nil(), granted)
    }

    #[test]
    fn grants_permit_only_objects_in_their_scope() {
        let web = caller(&[("issuer", Scope::profile("web")), ("viewer", Scope::team("core"))]);
        let request = Permission::CertificateRequest;
        assert!(web.may(request, &[Scope::profile("web"), Scope::team("other")]).is_ok());
        assert!(web.may(request, &[Scope::profile("mail")]).is_err());
        assert!(web.may(request, &[]).is_err());
        assert!(web.may(request, &[Scope::Any]).is_err());
        assert!(web.may(Permission::CertificateRead, &[Scope::team("core")]).is_ok());
        assert!(web.may(request, &[Scope::team("core")]).is_err());
        assert!(web.has_permission(request) && !web.has_permission_everywhere(request));
        assert!(caller(&[("admin", Scope::Any)]).may(request, &[]).is_ok());
        let both = caller(&[("issuer", "team:core,profile:web".parse().unwrap())]);
        assert!(both.may(request, &[Scope::profile("web"), Scope::team("core")]).is_ok());
        assert!(both.may(request, &[Scope::profile("web"), Scope::team("other")]).is_err());
        assert!(both.may(request, &[Scope::profile("web")]).is_err());
        let all = [Scope::profile("web"), Scope::team("core")];
        assert!(both.may_for_team(request, "core", &all).is_ok());
        assert!(web.may_for_team(request, "core", &all).is_err());
    }

    #[test]
    fn roles_of_a_cloned_caller_change_independently() {
        let first = caller(&[("viewer", Scope::Any)]);
        let changed = first.clone().with_roles(vec!["viewer".to_owned()]);
        assert!(changed.has_role("viewer") && !first.has_role("viewer"));
    }

    #[test]
    fn listing_reach_is_limited_to_granted_scopes() {
        let two = caller(&[("viewer", Scope::team("b")), ("issuer", Scope::team("a"))]);
        assert_eq!(
            two.reach(Permission::CertificateRead),
            Reach::Only(vec![Scope::team("a"), Scope::team("b")])
        );
        assert_eq!(two.reach(Permission::KeyBlock), Reach::Only(Vec::new()));
        let all = caller(&[("viewer", Scope::Any), ("issuer", Scope::team("a"))]);
        assert_eq!(all.reach(Permission::CertificateRead), Reach::Everything);
    }

    #[test]
    fn callers_cannot_grant_more_than_they_hold() {
        let of = |role: &str, scope| Granted { permissions: built_in_role(role).unwrap().permissions, scope };
        let operator = caller(&[("operator", Scope::Any)]);
        assert!(operator.covers(&of("viewer", Scope::team("a"))));
        assert!(!operator.covers(&of("admin", Scope::team("a"))));
        let narrow = caller(&[("operator", Scope::team("a"))]);
        assert!(narrow.covers(&of("viewer", Scope::team("a"))));
        assert!(!narrow.covers(&of("viewer", Scope::Any)));
    }
}
