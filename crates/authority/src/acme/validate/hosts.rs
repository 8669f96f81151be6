//! Resolution of hostnames to addresses that a validation may contact.

use std::net::IpAddr;
use std::time::Duration;

use outbound::resolve::{Families, Resolver};

use super::guard::AddressFilter;
use super::proof::Failure;
use crate::acme::problem::Kind;

/// Maximum number of addresses of a name to try.
const ADDRESSES_MAX: usize = 16;

/// Resolver that returns only allowed addresses.
pub(crate) struct Hosts {
    pub(super) resolver: Resolver,
    pub(super) guard: AddressFilter,
    pub(super) families: Families,
}

impl Hosts {
    /// Returns the allowed addresses of a host.
    pub(super) async fn resolve_allowed(&self, host: &str, limit: Duration) -> Result<Vec<IpAddr>, Failure> {
        // The final dot prevents the use of search domains: names in certificates are fully qualified.
        let whole = format!("{host}.");
        let found = self.resolver.resolve(&whole, self.families, limit).await;
        let found = found
            .map_err(|error| Failure::transient(Kind::Dns, format!("cannot resolve {host}: {error}")))?;
        self.allowed(host, found.addresses)
    }

    pub(super) fn allowed(&self, host: &str, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, Failure> {
        let mut refused = None;
        let mut permitted = Vec::new();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.guard.check(address) {
                Ok(()) => permitted.push(address),
                Err(what) => refused = Some(format!("{address} is {what}")),
            }
        }
        if permitted.is_empty() {
            let why = refused.unwrap_or_else(|| "the name has no address".to_owned());
            let detail = format!("validation does not connect to {host}: {why}");
            return Err(Failure::permanent(Kind::Connection, detail));
        }
        Ok(permitted)
    }
}
