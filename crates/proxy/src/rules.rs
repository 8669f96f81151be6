//! Rules that decide about connections, by host name and address.

use std::collections::HashMap;
use std::net::IpAddr;

use http_relay::names::{BadRule, Names};
use http_relay::target::Target;
use outbound::guard::address_and_embedded;
use x509::HostOrIp;

use crate::destination::{Destination, Networks};

/// Decision for a connection: intercept, mirror, tunnel or reject.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Action {
    /// Intercept TLS, and process each request.
    #[default]
    Intercept,
    /// Intercept TLS with a leaf that mirrors the server's certificate.
    Mirror,
    /// Pass the bytes through without interception.
    Tunnel,
    /// Reject the connection, with an error page if possible.
    Reject,
}

impl Action {
    /// Returns whether the action intercepts TLS: [`Self::Intercept`] or [`Self::Mirror`].
    #[must_use]
    pub fn intercepts(self) -> bool {
        matches!(self, Self::Intercept | Self::Mirror)
    }
}

/// All connection rules. Precedence: an exact name, then the nearest parent domain; smaller networks before larger ones. Of equally
/// precise patterns, a pattern with a port takes precedence. If no pattern matches, the default applies.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    names: Names<Action>,
    /// Name patterns that have a port, by that port.
    names_at: HashMap<u16, Names<Action>>,
    networks: Networks<Action>,
    default: Action,
}

impl Rules {
    /// Creates rules with `default` for hosts that no pattern matches.
    #[must_use]
    pub fn new(default: Action) -> Self {
        Self { default, ..Self::default() }
    }

    /// Adds patterns: `NAME`, `*.NAME`, an address or a network, each with or without a port.
    ///
    /// # Errors
    /// [`BadRule`]
    pub fn add(&mut self, patterns: &[String], action: Action) -> Result<(), BadRule> {
        patterns.iter().try_for_each(|pattern| match Destination::parse(pattern)? {
            Destination::Network(..) if self.networks.is_full() => Err(BadRule::TooMany),
            Destination::Network(network, port) => match self.networks.insert(network, port, action) {
                true => Ok(()),
                false => Err(BadRule::Twice(pattern.clone())),
            },
            Destination::Name(name, None) => self.names.add(name, action),
            Destination::Name(name, Some(port)) => {
                let names = self.names_at.entry(port).or_default();
                names.add(name, action).map_err(|error| match error {
                    BadRule::Twice(_) => BadRule::Twice(pattern.clone()),
                    other => other,
                })
            }
        })
    }

    /// Decides by name and port only, without name resolution.
    #[must_use]
    pub fn decide(&self, name: &HostOrIp, port: u16) -> Action {
        self.listed(name, port).unwrap_or(self.default)
    }

    /// Returns the action for `target` before the client has sent anything. `None` if the connection is redirected and no list
    /// contains its address: the action then depends on the host name, which the client has not sent yet.
    pub(crate) fn of_target(&self, target: &Target) -> Option<Action> {
        let listed = self.listed(&target.name, target.port);
        if target.redirected { listed } else { listed.or(Some(self.default)) }
    }

    /// Returns the action of the pattern that matches the name, a parent domain, or the network of the address; `None` if no
    /// pattern matches.
    pub(crate) fn listed(&self, name: &HostOrIp, port: u16) -> Option<Action> {
        match name {
            HostOrIp::Ip(address) => self.of_address(*address, port),
            HostOrIp::Dns(_) => {
                let at = self.names_at.get(&port).and_then(|names| names.nearest(name));
                let of_any = self.names.nearest(name);
                // `max_by_key` returns the last of equal matches: the pattern with the port.
                of_any.into_iter().chain(at).max_by_key(|(near, _)| *near).map(|(_, action)| *action)
            }
        }
    }

    /// Decides about an address of `name`. A rejected network takes precedence. Otherwise the rule for the name applies, then the
    /// rule for the address, then the default.
    pub(crate) fn action_at_address(&self, name: &HostOrIp, address: IpAddr, port: u16) -> Action {
        match self.of_address(address, port) {
            Some(Action::Reject) => Action::Reject,
            of_address => self.listed(name, port).or(of_address).unwrap_or(self.default),
        }
    }

    /// Decides about `name` with its `addresses`. Rejected addresses are not dialled. If the rules for the other addresses differ,
    /// the connection is intercepted.
    pub(crate) fn action_at_addresses(&self, name: &HostOrIp, addresses: &[IpAddr], port: u16) -> Action {
        let each = addresses.iter().map(|address| self.action_at_address(name, *address, port));
        let left: Vec<Action> = each.filter(|action| *action != Action::Reject).collect();
        match left.iter().find(|action| action.intercepts()).or(left.first()) {
            Some(action) => *action,
            None if addresses.is_empty() => self.decide(name, port),
            None => Action::Reject,
        }
    }

    /// Returns whether a name that no pattern matches must be resolved before the decision.
    pub(crate) fn needs_address(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Returns the action of an address. An address that embeds an IPv4 address, for example for a NAT64 translator, is also
    /// rejected if the IPv4 address is rejected.
    fn of_address(&self, address: IpAddr, port: u16) -> Option<Action> {
        let find = |address: IpAddr| self.networks.get(address.to_canonical(), port).copied();
        let is_within = address_and_embedded(address).skip(1).any(|one| find(one) == Some(Action::Reject));
        if is_within { Some(Action::Reject) } else { find(address) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_pattern_decides() {
        let mut rules = Rules::new(Action::Intercept);
        let list = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        rules.add(&list(&["*.bank.example", "10.0.0.1", "[2001:db8::1]"]), Action::Tunnel).unwrap();
        rules.add(&list(&["*.ads.bank.example", "Evil.example"]), Action::Reject).unwrap();
        let decide = |name: &str| rules.decide(&HostOrIp::parse(name).unwrap(), 443);
        assert_eq!(decide("a.b.bank.example"), Action::Tunnel);
        assert_eq!(decide("bank.example"), Action::Intercept);
        assert_eq!(decide("x.ads.bank.example"), Action::Reject);
        assert_eq!(decide("ads.bank.example"), Action::Tunnel);
        assert_eq!(decide("EVIL.example."), Action::Reject);
        assert_eq!(decide("10.0.0.1"), Action::Tunnel);
        assert_eq!(decide("2001:db8::1"), Action::Tunnel);
        assert_eq!(decide("10.0.0.2"), Action::Intercept);
        let twice = rules.add(&list(&["evil.example"]), Action::Tunnel);
        assert_eq!(twice, Err(BadRule::Twice("evil.example".into())));
        assert!(matches!(rules.add(&list(&["a*.example"]), Action::Tunnel), Err(BadRule::Destination(_))));
    }

    fn rules(default: Action, lists: &[(Action, &[&str])]) -> Rules {
        let mut rules = Rules::new(default);
        for (action, patterns) in lists {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            rules.add(&patterns, *action).unwrap();
        }
        rules
    }

    #[test]
    fn rules_match_networks_and_ports() {
        use Action::{Intercept, Reject, Tunnel};
        let rules = rules(
            Intercept,
            &[
                (
                    Reject,
                    &[
                        "10.0.0.0/8",
                        "[fd00::]/8:443",
                        "2001:db8::/32",
                        "a.example:8443",
                        "*.b.example:25",
                        "192.0.2.1:22",
                        "[::ffff:198.51.100.0]/120",
                    ],
                ),
                (Tunnel, &["10.1.0.0/16", "*.b.example", "10.1.2.3:443", "x.b.example:443", "[2001:db8::7]"]),
                (Intercept, &["10.1.2.3", "10.1.0.0/16:8080"]),
            ],
        );
        for (name, port, wanted) in [
            ("10.9.9.9", 1, Reject),
            ("10.1.9.9", 1, Tunnel),
            ("10.1.9.9", 8080, Intercept),
            ("10.1.2.3", 443, Tunnel),
            ("10.1.2.3", 80, Intercept),
            ("::ffff:10.9.9.9", 1, Reject),
            ("64:ff9b::a09:909", 1, Reject),
            ("2002:a09:909::", 1, Reject),
            ("fd12::1", 443, Reject),
            ("fd12::1", 444, Intercept),
            ("2001:db8::8", 1, Reject),
            ("2001:db8::7", 1, Tunnel),
            ("192.0.2.1", 22, Reject),
            ("192.0.2.1", 23, Intercept),
            ("198.51.100.9", 1, Reject),
            ("a.example", 8443, Reject),
            ("a.example", 443, Intercept),
            ("c.b.example", 25, Reject),
            ("c.b.example", 26, Tunnel),
            ("x.b.example", 443, Tunnel),
        ] {
            assert_eq!(rules.decide(&HostOrIp::parse(name).unwrap(), port), wanted, "{name} {port}");
        }
    }

    #[test]
    fn address_rules_apply_to_names_that_resolve_to_them() {
        use Action::{Intercept, Reject, Tunnel};
        let lists: [(Action, &[&str]); 2] =
            [(Reject, &["10.0.0.0/8"]), (Tunnel, &["192.0.2.0/24:443", "tunnel.example"])];
        for (default, name, addresses, wanted) in [
            (Intercept, "a.example", &["10.0.0.1"][..], Reject),
            (Intercept, "a.example", &["64:ff9b::a00:1"], Reject),
            (Intercept, "tunnel.example", &["10.0.0.1"], Reject),
            (Intercept, "tunnel.example", &["203.0.113.1"], Tunnel),
            (Intercept, "a.example", &["192.0.2.1"], Tunnel),
            // A tunneled address does not exempt the other addresses.
            (Intercept, "a.example", &["192.0.2.1", "203.0.113.1"], Intercept),
            (Intercept, "a.example", &["192.0.2.1", "10.0.0.1"], Tunnel),
            (Reject, "a.example", &["192.0.2.1"], Tunnel),
            (Reject, "a.example", &["203.0.113.1"], Reject),
            (Reject, "a.example", &[], Reject),
        ] {
            let rules = rules(default, &lists);
            let parsed: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            let decided = rules.action_at_addresses(&HostOrIp::parse(name).unwrap(), &parsed, 443);
            assert_eq!(decided, wanted, "{default:?}: {name} at {addresses:?}");
        }
    }
}
