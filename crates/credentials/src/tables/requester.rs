//! The caller on whose behalf a statement runs, and the limits of the caller's permissions.

use std::sync::Arc;

use db::Value;
use uuid::Uuid;

/// An operation on credentials. The value is its bit in a permission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CredentialOperation {
    /// Read values.
    Read = 1,
    /// Set and generate values.
    Write = 2,
    /// Delete values.
    Delete = 4,
    /// See permissions.
    ReadAcl = 8,
    /// Change permissions.
    WriteAcl = 16,
}

/// Limits of an actor to some names (lower case), such as the names of its team. The limits apply in addition to permissions.
pub trait NameBounds: Send + Sync {
    /// Returns whether the actor's permissions apply at a name or path.
    fn reaches(&self, name_key: &str) -> bool;

    /// Returns whether the actor has full access at a name or path.
    fn manages(&self, name_key: &str) -> bool;

    /// Returns whether the actor has full access to any name.
    fn manages_some(&self) -> bool;
}

/// The limits of an actor to some names. The default has no limits.
#[derive(Clone, Default)]
pub struct Bounds(Option<Arc<dyn NameBounds>>);

impl Bounds {
    /// Creates limits that restrict an actor to these names.
    #[must_use]
    pub fn to(bounds: Arc<dyn NameBounds>) -> Self {
        Self(Some(bounds))
    }
}

impl std::fmt::Debug for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Bounds" } else { "unbounded" })
    }
}

impl PartialEq for Bounds {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Bounds {}

/// The caller on whose behalf a statement runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requester {
    /// The actor, as named in permissions.
    pub actor: String,
    /// Whether the caller has full access, independent of permissions.
    pub full_access: bool,
    /// Names that the actor is limited to.
    pub bounds: Bounds,
    /// Whether the caller may configure connections to databases, and the roles that are created there.
    pub manages_databases: bool,
    /// Token, person or certificate of the caller. When this identity ends, the caller's leases are revoked.
    pub identity: Option<Uuid>,
    /// Login token of the caller. When this token is revoked, so are the leases that were created with it.
    pub login: Option<Uuid>,
}

impl Requester {
    /// Returns the caller for the store's own operations, with full access.
    #[must_use]
    pub fn system() -> Self {
        Self::manager("system:credentials")
    }

    /// Returns the same actor with full access. For changes that follow from a permitted operation.
    #[must_use]
    pub fn with_full_access(&self) -> Self {
        Self::manager(&self.actor)
    }

    /// Creates a caller with the actor's permissions.
    #[must_use]
    pub fn actor(name: &str) -> Self {
        Self {
            actor: name.to_owned(),
            full_access: false,
            bounds: Bounds::default(),
            manages_databases: false,
            identity: None,
            login: None,
        }
    }

    /// Creates a caller with full access.
    #[must_use]
    pub fn manager(name: &str) -> Self {
        Self { full_access: true, ..Self::actor(name) }
    }

    /// Returns the same caller, limited to these names.
    #[must_use]
    pub fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Returns whether the caller has full access at a name or path (lower case), and the actor whose permissions apply there.
    /// Outside the caller's limits, the actor is empty. All statements about one name must take their parameters from this
    /// function.
    pub(crate) fn at(&self, name_key: &str) -> (bool, &str) {
        match &self.bounds.0 {
            None => (self.full_access, &self.actor),
            Some(bounds) if self.full_access || bounds.manages(name_key) => (true, &self.actor),
            Some(bounds) if bounds.reaches(name_key) => (false, &self.actor),
            // No permission has an empty actor.
            Some(_) => (false, ""),
        }
    }

    pub(crate) fn name_access_parameters(&self, name_key: &str) -> [Value; 2] {
        let (full_access, actor) = self.at(name_key);
        [full_access.into(), actor.into()]
    }

    /// Returns the parameters of a listing statement. The rows must then be filtered by [`Self::lists`].
    pub(crate) fn listing_parameters(&self) -> [Value; 2] {
        let manages = self.bounds.0.as_ref().is_some_and(|bounds| bounds.manages_some());
        [(self.full_access || manages).into(), self.actor.as_str().into()]
    }

    /// Returns whether the caller's limits permit a row of a listing.
    pub(crate) fn lists(&self, name: &str) -> bool {
        let Some(bounds) = self.bounds.0.as_ref().filter(|_| !self.full_access) else { return true };
        let key = name.to_lowercase();
        // A listing with full access ignores permissions, so that names without full access must be left out.
        if bounds.manages_some() { bounds.manages(&key) } else { bounds.reaches(&key) }
    }

    /// Returns whether the caller is limited to some names.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.bounds.0.is_some() && !self.full_access
    }
}

/// SQL condition: the caller (`$all`, `$actor`) may perform one of the operations `$bits` on the name of `c`.
macro_rules! may {
    ($bits:literal, $all:literal, $actor:literal) => {
        concat!(
            "(",
            $all,
            " = 1 OR EXISTS (SELECT 1 FROM credential_permissions p WHERE p.actor = ",
            $actor,
            " AND p.operations & ",
            $bits,
            " <> 0 AND (p.path_key = c.name_key OR substr(c.name_key, 1, length(p.prefix)) = p.prefix)))"
        )
    };
}
pub(super) use may;
