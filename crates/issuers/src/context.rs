//! What issuers are built with.

use authority::Authority;
use authority::keystore::KeyStore;
use outbound::resolve::Resolver;
use store::{Clock, Store};

use crate::host_policy::HostPolicy;
use crate::responder::Responders;

/// What issuers are built with. Cheap to clone.
#[derive(Clone)]
pub struct IssuerContext {
    /// Orders, accounts, health.
    pub store: Store,
    /// The time.
    pub clock: Clock,
    /// Our own CA, for issuers of type `internal`.
    pub authority: Authority,
    /// Account keys.
    pub keystore: KeyStore,
    /// Names of issuers to addresses.
    pub resolver: Resolver,
    /// What the host lets issuers use.
    pub host: HostPolicy,
    /// Answers to validations.
    pub responders: Responders,
}

impl std::fmt::Debug for IssuerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuerContext").finish_non_exhaustive()
    }
}
