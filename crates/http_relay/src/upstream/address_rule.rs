//! Rules for the addresses of a name.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use x509::HostOrIp;

type AddressPredicate = dyn Fn(&HostOrIp, IpAddr, u16) -> bool + Send + Sync;

/// Rule that decides whether an address may be dialled for a name and a port. The default permits all addresses.
#[derive(Clone, Default)]
pub struct AddressRule(Option<Arc<AddressPredicate>>);

impl AddressRule {
    /// Creates a rule that is called for each address before it is dialled.
    pub fn new(may_reach: impl Fn(&HostOrIp, IpAddr, u16) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(may_reach)))
    }

    /// Returns whether `address` may be dialled for `name`.
    pub(super) fn allows(&self, name: &HostOrIp, address: IpAddr, port: u16) -> bool {
        self.0.as_ref().is_none_or(|may_reach| may_reach(name, address, port))
    }
}

impl fmt::Debug for AddressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressRule").finish_non_exhaustive()
    }
}
