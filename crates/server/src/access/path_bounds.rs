//! The credential paths to which a caller is limited.

use std::sync::Arc;

use authority::teams::Ownership;
use credentials::{Bounds, NameBounds};

use crate::access::{Caller, Granted, Object, Permission, Scope};

impl Caller {
    /// Returns the credential names that the caller is limited to: names below a `path:` bound, without names that another team
    /// owns. A caller with an unrestricted grant has no limits.
    pub(crate) fn bounds(&self) -> Bounds {
        let granted = self.granted();
        if granted.iter().any(|granted| granted.scope == Scope::Any) {
            return Bounds::default();
        }
        let manages = granted.iter().any(|granted| granted.permissions.has(Permission::CredentialManage));
        if !manages && !granted.iter().any(has_path) && self.teams().is_empty() {
            return Bounds::default();
        }
        Bounds::to(Arc::new(PathBounds(self.clone())))
    }
}

fn has_path(granted: &Granted) -> bool {
    granted.scope.bounds().iter().any(|bound| matches!(bound, Scope::Path(_)))
}

struct PathBounds(Caller);

impl PathBounds {
    fn ownership(&self) -> &Ownership {
        self.0.ownership()
    }
}

impl NameBounds for PathBounds {
    fn reaches(&self, name_key: &str) -> bool {
        let object = Object::path(name_key);
        let granted = self.0.granted();
        let mut paths = granted.iter().filter(|granted| has_path(granted)).peekable();
        if paths.peek().is_some() {
            return paths.any(|granted| self.ownership().admits(&granted.scope, &object));
        }
        let (owners, teams) = (self.ownership().owners(&object), self.0.teams());
        owners.is_empty() || teams.is_empty() || owners.is_subset(&teams)
    }

    fn manages(&self, name_key: &str) -> bool {
        // A grant has full access below its own path, or below a path that its team owns.
        self.0.granted().iter().any(|granted| {
            granted.permissions.has(Permission::CredentialManage)
                && self.ownership().admits(&granted.scope, &Object::path(name_key))
        })
    }

    fn manages_some(&self) -> bool {
        self.0.granted().iter().any(|granted| granted.permissions.has(Permission::CredentialManage))
    }
}
