//! On whose behalf a statement runs, and what it must hold.

use std::sync::Arc;

use db::Value;

/// What may be done with what lies at a path: bits of a permission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CredentialOperation {
    /// Read values.
    Read = 1,
    /// Set and generate.
    Write = 2,
    /// Delete.
    Delete = 4,
    /// See permissions.
    ReadAcl = 8,
    /// Change permissions.
    WriteAcl = 16,
}

/// Names (lower case) that an actor is bound to, whatever permissions say: those of its own team, or of a grant.
pub trait NameBounds: Send + Sync {
    /// Whether permissions count at a name or path.
    fn reaches(&self, name_key: &str) -> bool;

    /// Whether everything is allowed at a name or path.
    fn manages(&self, name_key: &str) -> bool;

    /// Whether there is a name where everything is allowed.
    fn manages_some(&self) -> bool;
}

/// The names that an actor is bound to; all of them by default.
#[derive(Clone, Default)]
pub struct Bounds(Option<Arc<dyn NameBounds>>);

impl Bounds {
    /// These alone.
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

/// On whose behalf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CredentialAsker {
    /// As permissions name them.
    pub actor: String,
    /// Whether everything is allowed, whatever permissions say.
    pub everything: bool,
    /// Names that the actor is bound to.
    pub bounds: Bounds,
}

impl CredentialAsker {
    /// The store itself: what a request does beside what its caller asked for.
    #[must_use]
    pub fn system() -> Self {
        Self::manager("system:credentials")
    }

    /// The same actor with all permissions, for consequences of a permitted operation.
    #[must_use]
    pub fn with_everything(&self) -> Self {
        Self::manager(&self.actor)
    }

    /// An actor who may do what permissions say.
    #[must_use]
    pub fn actor(name: &str) -> Self {
        Self { actor: name.to_owned(), everything: false, bounds: Bounds::default() }
    }

    /// An actor who may do everything.
    #[must_use]
    pub fn manager(name: &str) -> Self {
        Self { everything: true, ..Self::actor(name) }
    }

    /// The same caller, limited to these names.
    #[must_use]
    pub fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Whether everything is allowed at a name or path (lower case), and for whom permissions are looked up there: for nobody outside
    /// the bounds. Statements about one name take their parameters from here alone.
    pub(crate) fn at(&self, name_key: &str) -> (bool, &str) {
        match &self.bounds.0 {
            None => (self.everything, &self.actor),
            Some(bounds) if self.everything || bounds.manages(name_key) => (true, &self.actor),
            Some(bounds) if bounds.reaches(name_key) => (false, &self.actor),
            // No permission is without an actor.
            Some(_) => (false, ""),
        }
    }

    pub(crate) fn values_at(&self, name_key: &str) -> [Value; 2] {
        let (everything, actor) = self.at(name_key);
        [everything.into(), actor.into()]
    }

    /// For a listing, of which [`Self::lists`] picks the rows afterwards.
    pub(crate) fn values_listed(&self) -> [Value; 2] {
        let manages = self.bounds.0.as_ref().is_some_and(|bounds| bounds.manages_some());
        [(self.everything || manages).into(), self.actor.as_str().into()]
    }

    /// Whether a row of a listing is within the bounds.
    pub(crate) fn lists(&self, name: &str) -> bool {
        let Some(bounds) = self.bounds.0.as_ref().filter(|_| !self.everything) else { return true };
        let key = name.to_lowercase();
        // What is managed was listed whatever permissions say, so that the rest is left out.
        if bounds.manages_some() { bounds.manages(&key) } else { bounds.reaches(&key) }
    }

    /// Whether it is bound to some names.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bounds.0.is_some() && !self.everything
    }
}

/// Whether the asker (`$all`, `$actor`) holds one of the operations `$bits` on the name of `c`.
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
