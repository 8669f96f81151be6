//! Applies the connection rules to a host name and its resolved addresses.

use http_relay::target::Target;
use x509::HostOrIp;

use super::proxy::Proxy;
use super::rules::{Action, Rules};

impl Proxy {
    /// Returns the action for a connection to `target` under the host name `name`. Resolves the name only if no rule lists the name
    /// and some rule lists networks. The dialled address is checked again.
    pub(super) async fn action_of(&self, target: &Target, name: &HostOrIp) -> Action {
        self.action_with_rules(&self.rules.now().names, target, name).await
    }

    /// Like [`Self::action_of`], with the given rules.
    pub(super) async fn action_with_rules(&self, rules: &Rules, target: &Target, name: &HostOrIp) -> Action {
        let is_listed = name.dns().is_some() && rules.listed(name, target.port).is_some();
        if is_listed || !rules.needs_address() {
            return rules.decide(name, target.port);
        }
        let addresses = match (&target.name, name) {
            (HostOrIp::Ip(address), _) if target.redirected => vec![*address],
            (_, HostOrIp::Ip(address)) => vec![*address],
            (_, HostOrIp::Dns(_)) => self.upstreams.addresses(name).await,
        };
        rules.action_at_addresses(name, &addresses, target.port)
    }

    /// Returns whether a connection is tunneled before the client sends anything. For a redirected connection, only the address
    /// decides.
    pub(super) async fn is_tunnelled_immediately(&self, target: &Target) -> bool {
        match target.redirected {
            true => self.rules.now().names.of_target(target) == Some(Action::Tunnel),
            false => self.action_of(target, &target.name).await == Action::Tunnel,
        }
    }
}
