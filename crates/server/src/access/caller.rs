//! The authenticated caller of a request.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use authority::VerifiedClient;
use authority::principal::Principal;
use authority::teams::{OwnedKind, Ownership, Standing};
use axum::extract::FromRequestParts;
use coded::named;
use http::StatusCode;
use http::request::Parts;
use uuid::Uuid;

use crate::access::proof::{CallerSession, PROOF_LIFETIME};
use crate::access::{Object, Permission, Permissions, Scope};
use crate::problem::Problem;

named! {
    /// How the caller has shown who they are.
    pub enum CallerKind: "kind of caller" {
        /// An API token.
        Token => "token",
        /// A person, with a session cookie.
        User => "user",
        /// A client certificate mapped to an identity.
        Certificate => "certificate",
        /// An agent, by its own credential.
        Agent => "agent",
    }
}

/// Permissions within a scope: a grant with its role looked up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    /// The permissions.
    pub permissions: Permissions,
    /// The scope.
    pub scope: Scope,
}

/// What a caller may see of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reach {
    /// All objects.
    Everything,
    /// What lies in one of these, sorted. None of them is [`Scope::Any`].
    Only(Vec<Scope>),
}

/// An authenticated caller. Handlers take it as an argument; the guard put it there.
#[derive(Clone)]
pub struct Caller(Arc<CallerParts>);

struct CallerParts {
    principal: Principal,
    kind: CallerKind,
    id: Uuid,
    granted: Vec<Granted>,
    /// The certificate that they have shown, if that is how they are known.
    client: Option<VerifiedClient>,
    /// The session that the request came with.
    session: Option<Arc<CallerSession>>,
    /// The names of the roles of these.
    roles: Vec<String>,
    /// Which team owned what when the caller was authenticated.
    ownership: Arc<Ownership>,
    /// Whether this request's handler has asked how far the caller reaches.
    asked: AtomicBool,
}

impl Caller {
    /// For the authenticator, and for tests.
    #[must_use]
    pub fn new(actor: String, kind: CallerKind, id: Uuid, granted: Vec<Granted>) -> Self {
        Self::of_principal(Principal::of_actor(&actor), kind, id, granted)
    }

    /// As [`Caller::new`], for a principal with more marks than the actor's name.
    pub(crate) fn of_principal(
        principal: Principal,
        kind: CallerKind,
        id: Uuid,
        granted: Vec<Granted>,
    ) -> Self {
        let (roles, ownership, asked) = (Vec::new(), Arc::default(), AtomicBool::new(false));
        let (client, session) = (None, None);
        let parts = CallerParts { principal, kind, id, granted, client, session, roles, ownership, asked };
        Self(Arc::new(parts))
    }

    /// Who the caller is, whichever way they logged in.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// The user who made the caller's token, directly or by another token; else the caller itself.
    pub(crate) fn owner(&self) -> &str {
        self.0.principal.marks().find(|mark| mark.starts_with("user:")).unwrap_or_else(|| self.actor())
    }

    /// The same, known by this certificate.
    pub(super) fn showing(self, client: VerifiedClient) -> Self {
        Self(Arc::new(CallerParts {
            principal: self.0.principal.clone(),
            kind: self.0.kind,
            id: self.0.id,
            granted: self.0.granted.clone(),
            client: Some(client),
            session: self.0.session.clone(),
            roles: self.0.roles.clone(),
            ownership: Arc::clone(&self.0.ownership),
            asked: AtomicBool::new(self.was_asked()),
        }))
    }

    /// A caller that has not asked for anything yet, with the names of its roles.
    #[must_use]
    pub fn with_roles(self, roles: Vec<String>) -> Self {
        let mut caller = self;
        if let Some(parts) = Arc::get_mut(&mut caller.0) {
            parts.roles = roles;
        }
        caller
    }

    /// A caller that has not asked for anything yet, with which team owns what.
    #[must_use]
    pub fn among(self, ownership: Arc<Ownership>) -> Self {
        let mut caller = self;
        if let Some(parts) = Arc::get_mut(&mut caller.0) {
            parts.ownership = ownership;
        }
        caller
    }

    /// A caller that has not asked for anything yet, with the session that the request came with.
    #[must_use]
    pub(crate) fn in_session(self, session: Option<Arc<CallerSession>>) -> Self {
        let mut caller = self;
        if let Some(parts) = Arc::get_mut(&mut caller.0) {
            parts.session = session;
        }
        caller
    }

    /// The session that the request came with; `None` for a token or a client certificate of the connection.
    pub(crate) fn session(&self) -> Option<&CallerSession> {
        self.0.session.as_deref()
    }

    /// Refuses a session whose person did not prove lately who they are. Tokens and client certificates prove it with each request.
    ///
    /// # Errors
    /// 403 `reauthentication-required`.
    pub(crate) fn proved_recently(&self, now_us: i64) -> Result<(), Problem> {
        match self.session() {
            Some(session) if session.proved_until(now_us).is_none() => Err(reauthentication_required()),
            _ => Ok(()),
        }
    }

    /// The client certificate of the connection, if that is how the caller is known.
    pub(crate) fn client(&self) -> Option<&VerifiedClient> {
        self.0.client.as_ref()
    }

    /// The teams that its grants act for, each once; none for a caller with a grant that reaches everything.
    pub(crate) fn teams(&self) -> BTreeSet<&str> {
        if self.0.granted.iter().any(|granted| granted.scope == Scope::Any) {
            return BTreeSet::new();
        }
        self.0.granted.iter().flat_map(|granted| self.0.ownership.teams_of(&granted.scope)).collect()
    }

    /// Whether it depends on an object's targets what the caller may do with it.
    pub(crate) fn minds_targets(&self) -> bool {
        let bounds = || self.0.granted.iter().flat_map(|granted| granted.scope.bounds());
        bounds().any(|bound| matches!(bound, Scope::Target(_)))
            || self.0.ownership.owns_any(OwnedKind::Target)
    }

    /// Which team owned what when the caller was authenticated.
    pub(crate) fn ownership(&self) -> &Ownership {
        &self.0.ownership
    }

    /// Returns whether one of its grants has the role of this name. Permissions say what it may do; this is for limits.
    #[must_use]
    pub(crate) fn has_role(&self, name: &str) -> bool {
        self.0.roles.iter().any(|role| role == name)
    }

    /// As the audit trail names them: `token:ci`, `user:alice@example.org`, `certificate:agent-7`.
    #[must_use]
    pub fn actor(&self) -> &str {
        self.0.principal.actor()
    }

    /// How they have shown who they are.
    #[must_use]
    pub fn kind(&self) -> CallerKind {
        self.0.kind
    }

    /// The certificate that one who joined shows: `who` is `an agent` or `a node`. Whether the key in it is theirs is asked
    /// next; somebody else's certificate may have their name.
    ///
    /// # Errors
    /// 403 for who is known by anything else.
    pub(crate) fn shows(&self, who: &str) -> Result<&[u8], Problem> {
        let client = self.0.client.as_ref().ok_or_else(|| {
            Problem::forbidden(format_args!("only {who} may do this, and it shows its client certificate"))
        })?;
        Ok(&client.certificate().der)
    }

    /// The row of the token, user or certificate identity.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.0.id
    }

    /// All that is granted.
    #[must_use]
    pub fn granted(&self) -> &[Granted] {
        &self.0.granted
    }

    /// Whether the permission is held in any scope at all.
    #[must_use]
    pub fn holds(&self, permission: Permission) -> bool {
        self.0.granted.iter().any(|granted| granted.permissions.has(permission))
    }

    /// Whether the permission is held everywhere.
    #[must_use]
    pub fn holds_everywhere(&self, permission: Permission) -> bool {
        self.0
            .granted
            .iter()
            .any(|granted| granted.scope == Scope::Any && granted.permissions.has(permission))
    }

    /// Asks for a permission on an object: within all bounds of one grant, and of the grant's team where a team owns what the object
    /// names. See [`Ownership::admits`], which decides.
    ///
    /// # Errors
    /// 403 when no grant reaches it.
    pub fn may(&self, permission: Permission, object: impl Into<Object>) -> Result<(), Problem> {
        let object = object.into();
        self.ask(permission, |scope| self.0.ownership.admits(scope, &object))
    }

    /// As [`Caller::may`], by a grant that names this team or reaches everything: for what is the team's alone.
    ///
    /// # Errors
    /// 403 when there is none.
    pub fn may_for_team(
        &self,
        permission: Permission,
        team: &str,
        object: impl Into<Object>,
    ) -> Result<(), Problem> {
        let (team, object) = (Scope::team(team), object.into());
        self.ask(permission, |scope| {
            let names = *scope == Scope::Any || scope.bounds().contains(&team);
            names && self.0.ownership.admits(scope, &object)
        })
    }

    /// As [`Caller::may`]; for which team, by the first grant that reaches the object.
    ///
    /// # Errors
    /// 403 when no grant reaches it.
    pub fn acts(&self, permission: Permission, object: impl Into<Object>) -> Result<Standing, Problem> {
        let object = object.into();
        self.may(permission, &object)?;
        if self.holds_everywhere(permission) {
            return Ok(Standing::Everything);
        }
        let ownership = &self.0.ownership;
        let reaching =
            self.0.granted.iter().find(|granted| {
                granted.permissions.has(permission) && ownership.admits(&granted.scope, &object)
            });
        let team = reaching.and_then(|granted| ownership.teams_of(&granted.scope).into_iter().next());
        Ok(team.map_or(Standing::Nobody, |team| Standing::Team(team.to_owned())))
    }

    fn ask(&self, permission: Permission, reaches: impl Fn(&Scope) -> bool) -> Result<(), Problem> {
        self.0.asked.store(true, Ordering::Relaxed);
        let held = |granted: &Granted| granted.permissions.has(permission) && reaches(&granted.scope);
        if self.0.granted.iter().any(held) { Ok(()) } else { Err(forbidden(permission)) }
    }

    /// How far a permission reaches, to narrow a listing by.
    #[must_use]
    pub fn reach(&self, permission: Permission) -> Reach {
        self.0.asked.store(true, Ordering::Relaxed);
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

    /// Whether the grants include all of `other`: callers cannot grant permissions that they do not have.
    #[must_use]
    pub fn covers(&self, other: &Granted) -> bool {
        let held = self.0.granted.iter().filter(|granted| granted.scope.covers(&other.scope));
        held.fold(Permissions::NONE, |all, granted| all.union(granted.permissions)).covers(other.permissions)
    }

    /// Whether this request's handler has asked how far the caller reaches.
    pub(crate) fn was_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }
}

fn reauthentication_required() -> Problem {
    let minutes = PROOF_LIFETIME.as_secs() / 60;
    Problem::new(StatusCode::FORBIDDEN, "reauthentication-required", "Confirm who you are")
        .detail(format_args!(
            "this needs a session whose person signed in, or confirmed it, in the last {minutes} minutes"
        ))
        .hint(
            "POST /api/v1/auth/sessions/confirm with your password or the code of a new one-time link, or log in again at \
             /api/v1/auth/login?confirm=true, then repeat the request",
        )
}

pub(crate) fn forbidden(permission: Permission) -> Problem {
    Problem::forbidden(format_args!("this needs the permission {permission}"))
        .hint("ask an administrator for a role that holds it, in the scope of what you want to reach")
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
        caller.ok_or_else(|| Problem::unauthenticated("this needs an authenticated caller"))
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
    fn a_grant_reaches_what_lies_in_its_scope() {
        let web = caller(&[("issuer", Scope::profile("web")), ("viewer", Scope::team("core"))]);
        let request = Permission::CertificateRequest;
        assert!(web.may(request, &[Scope::profile("web"), Scope::team("other")]).is_ok());
        assert!(web.may(request, &[Scope::profile("mail")]).is_err());
        assert!(web.may(request, &[]).is_err());
        assert!(web.may(request, &[Scope::Any]).is_err());
        assert!(web.may(Permission::CertificateRead, &[Scope::team("core")]).is_ok());
        assert!(web.may(request, &[Scope::team("core")]).is_err());
        assert!(web.holds(request) && !web.holds_everywhere(request));
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
    fn listings_are_narrowed_to_the_reach() {
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
    fn nobody_gives_away_what_they_do_not_have() {
        let of = |role: &str, scope| Granted { permissions: built_in_role(role).unwrap().permissions, scope };
        let operator = caller(&[("operator", Scope::Any)]);
        assert!(operator.covers(&of("viewer", Scope::team("a"))));
        assert!(!operator.covers(&of("admin", Scope::team("a"))));
        let narrow = caller(&[("operator", Scope::team("a"))]);
        assert!(narrow.covers(&of("viewer", Scope::team("a"))));
        assert!(!narrow.covers(&of("viewer", Scope::Any)));
    }
}
