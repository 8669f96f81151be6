//! Grants: the identities that may use a credential.

use std::sync::Arc;

use http_relay::client::Ended;

use super::identity::Identity;
use super::text::Grants;

/// Client of a request, with the properties that decide which credentials it may use.
#[derive(Clone, Debug, Default)]
pub struct Grantee {
    /// Identity of the client; `None` if no identity of the policy matches.
    pub identity: Option<Arc<Identity>>,
    /// Whether a credential needs an explicit grant. False if no identities are configured: then all clients may use it.
    pub needs_grant: bool,
    /// Signals that the client's password or access token was removed or changed; `None` if the client has not authenticated by one
    /// of these.
    pub ended: Option<Ended>,
}

fn includes(grants: &Grants, identity: &Identity) -> bool {
    let any =
        |list: &[String], names: &[Arc<str>]| list.iter().any(|one| names.iter().any(|name| **name == **one));
    grants.identities.iter().any(|name| *identity.name == **name)
        || any(&grants.teams, &identity.teams)
        || any(&grants.tags, &identity.tags)
}

impl Grantee {
    /// Returns whether the client may use a credential with these grants.
    #[must_use]
    pub fn has(&self, grants: &Grants) -> bool {
        match &self.identity {
            _ if grants.is_empty() => !self.needs_grant,
            Some(identity) => includes(grants, identity),
            None => false,
        }
    }
}
