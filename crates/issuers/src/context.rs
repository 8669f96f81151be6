//! The objects that issuers need: database, clock, internal CA, key store, DNS resolver, host policy and challenge responders.

use authority::Authority;
use authority::keystore::KeyStore;
use outbound::resolve::Resolver;
use store::{Clock, Store};

use crate::host_policy::HostPolicy;
use crate::responder::Responders;

/// Dependencies of issuers. Cheap to clone.
#[derive(Clone)]
pub struct IssuerContext {
    /// Database of orders, accounts and health.
    pub store: Store,
    /// Source of the current time; tests replace it.
    pub clock: Clock,
    /// The internal CA, for issuers of type `internal`.
    pub authority: Authority,
    /// Key store for the private keys of ACME accounts.
    pub keystore: KeyStore,
    /// DNS resolver for issuers' host names.
    pub resolver: Resolver,
    /// Programs, files and addresses that the host's configuration allows issuers to use.
    pub host: HostPolicy,
    /// Responders for challenge validations.
    pub responders: Responders,
}

impl std::fmt::Debug for IssuerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuerContext").finish_non_exhaustive()
    }
}
