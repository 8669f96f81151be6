//! On whose behalf a statement runs, and what it must hold.

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

/// On whose behalf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CredentialAsker {
    /// As permissions name them.
    pub actor: String,
    /// Whether everything is allowed, whatever permissions say.
    pub everything: bool,
}

impl CredentialAsker {
    /// The store itself: what a request does beside what its caller asked for.
    #[must_use]
    pub fn system() -> Self {
        Self { actor: "system:credentials".to_owned(), everything: true }
    }

    /// The same actor with every right: for what follows from what it may do.
    #[must_use]
    pub fn with_everything(&self) -> Self {
        Self { actor: self.actor.clone(), everything: true }
    }

    pub(crate) fn values(&self) -> [Value; 2] {
        [self.everything.into(), self.actor.as_str().into()]
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
