//! Grants: the identities that may use a credential.

use std::sync::Arc;

use super::identity::Identity;

/// The identities, teams and tags that a credential is granted to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// Names of identities.
    pub identities: Vec<String>,
    /// Teams.
    pub teams: Vec<String>,
    /// Tags.
    pub tags: Vec<String>,
}

/// The client of a request, as far as grants go by it.
#[derive(Clone, Debug, Default)]
pub struct Grantee {
    /// The identity of the client.
    pub identity: Option<Arc<Identity>>,
    /// Whether a credential that is granted to nobody by name is for nobody. Without identities it is for all clients.
    pub needs_grant: bool,
}

impl Grants {
    fn is_empty(&self) -> bool {
        self.identities.is_empty() && self.teams.is_empty() && self.tags.is_empty()
    }

    fn includes(&self, identity: &Identity) -> bool {
        let any = |list: &[String], names: &[Arc<str>]| {
            list.iter().any(|one| names.iter().any(|name| **name == **one))
        };
        self.identities.iter().any(|name| *identity.name == **name)
            || any(&self.teams, &identity.teams)
            || any(&self.tags, &identity.tags)
    }
}

impl Grantee {
    /// Whether the client may use a credential with these grants.
    #[must_use]
    pub fn has(&self, grants: &Grants) -> bool {
        match &self.identity {
            _ if grants.is_empty() => !self.needs_grant,
            Some(identity) => grants.includes(identity),
            None => false,
        }
    }
}
