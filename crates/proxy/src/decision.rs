//! What the rules say of a connection, by the addresses that it would be made to where they go by these.

use http_relay::target::Target;
use x509::HostOrIp;

use super::proxy::Proxy;
use super::rules::{Action, Rules};

impl Proxy {
    /// The decision for a connection to `target` as `name`. If no list contains the name and a list contains networks, the name
    /// is resolved; the dialled address is checked again.
    pub(super) async fn action_of(&self, target: &Target, name: &HostOrIp) -> Action {
        self.action_by(&self.rules.now().names, target, name).await
    }

    /// As [`Self::action_of`], by the rules of one time.
    pub(super) async fn action_by(&self, rules: &Rules, target: &Target, name: &HostOrIp) -> Action {
        let is_listed = name.dns().is_some() && rules.listed(name, target.port).is_some();
        if is_listed || !rules.go_by_address() {
            return rules.decide(name, target.port);
        }
        let addresses = match (&target.name, name) {
            (HostOrIp::Ip(address), _) if target.redirected => vec![*address],
            (_, HostOrIp::Ip(address)) => vec![*address],
            (_, HostOrIp::Dns(_)) => self.upstreams.addresses(name).await,
        };
        rules.at_addresses(name, &addresses, target.port)
    }

    /// Whether a connection is tunnelled before its client says anything: a redirected one by its address alone.
    pub(super) async fn is_tunnelled_at_once(&self, target: &Target) -> bool {
        match target.redirected {
            true => self.rules.now().names.of_target(target) == Some(Action::Tunnel),
            false => self.action_of(target, &target.name).await == Action::Tunnel,
        }
    }
}
