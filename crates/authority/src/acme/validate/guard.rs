//! Address filter of validations. Clients choose the names, which must not give access to internal services or to cloud metadata
//! (server-side request forgery).

use std::net::IpAddr;

use ipnet::IpNet;
use outbound::guard::{self, address_and_embedded};

use crate::acme::options::ValidationOptions;

/// IPv4 networks that contain no public hosts, with their names.
const NON_PUBLIC_V4: [(&str, &str); 9] = [
    ("0.0.0.0/8", "this network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local, which includes cloud metadata services"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.2.0/24", "documentation"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
];
/// IPv6 networks that contain no public hosts, with their names.
const NON_PUBLIC_V6: [(&str, &str); 7] = [
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("100::/64", "discard"),
    ("2001:db8::/32", "documentation"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
];
const PRIVATE: [&str; 6] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "198.18.0.0/15"];

#[derive(Clone, Debug)]
pub(crate) struct AddressFilter {
    allow: Vec<IpNet>,
    deny: Vec<(IpNet, &'static str)>,
}

impl AddressFilter {
    pub(crate) fn new(options: &ValidationOptions) -> Self {
        let net = |(text, what): &(&str, &'static str)| text.parse::<IpNet>().ok().map(|net| (net, *what));
        let mut deny: Vec<(IpNet, &'static str)> =
            NON_PUBLIC_V4.iter().chain(&NON_PUBLIC_V6).filter_map(net).collect();
        if !options.allow_private {
            deny.extend(PRIVATE.iter().filter_map(|text| Some((text.parse().ok()?, "private"))));
        }
        deny.extend(options.deny_networks.iter().map(|net| (*net, "denied by the configuration")));
        Self { allow: options.allow_networks.clone(), deny }
    }

    /// Checks that `address` may be contacted.
    ///
    /// # Errors
    /// Describes the forbidden kind of address.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        // An address of a translator (NAT64, 6to4) is allowed only if its embedded IPv4 address is allowed, too.
        let allowed = |candidate: IpAddr| self.allow.iter().any(|net| net.contains(&candidate));
        if address_and_embedded(address).all(allowed) {
            return Ok(());
        }
        for candidate in address_and_embedded(address) {
            if let Some((_, what)) = self.deny.iter().find(|(net, _)| net.contains(&candidate)) {
                return Err(what);
            }
        }
        // The list of metadata services that applies to all outgoing connections.
        let all = guard::Guard::default().address(address);
        all.map_err(|_| "link-local, or a cloud metadata service")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(guard: &AddressFilter, address: &str) -> bool {
        guard.check(address.parse().unwrap()).is_ok()
    }

    #[test]
    fn default_guard_blocks_local_and_metadata_addresses() {
        let guard = AddressFilter::new(&ValidationOptions::default());
        for good in
            ["10.1.2.3", "192.168.0.1", "172.16.0.1", "8.8.8.8", "fd12::1", "2606:4700::1", "100.64.0.1"]
        {
            assert!(allowed(&guard, good), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "168.63.129.16",
            "fd20:ce::254",
            "fd00:42::42",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2001:db8:1::5efe:a9fe:a9fe",
            "2001:0:7f00:1::",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:0:1:2:3:4:80ff:fffe",
            "::127.0.0.1",
        ] {
            assert!(!allowed(&guard, bad), "{bad}");
        }
    }

    #[test]
    fn allowed_translator_network_does_not_allow_the_addresses_behind_it() {
        let of = |networks: &[&str]| {
            let allow_networks = networks.iter().map(|net| net.parse().unwrap()).collect();
            AddressFilter::new(&ValidationOptions { allow_networks, ..ValidationOptions::default() })
        };
        let translator = of(&["64:ff9b::/96"]);
        assert!(allowed(&translator, "64:ff9b::8.8.8.8"));
        for address in ["64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1"] {
            assert!(!allowed(&translator, address), "{address}");
        }
        assert!(allowed(&of(&["64:ff9b::/96", "127.0.0.1/32"]), "64:ff9b::127.0.0.1"));
    }

    #[test]
    fn configured_networks_override_the_guard_defaults() {
        let options = ValidationOptions {
            allow_private: false,
            allow_networks: vec!["127.0.0.1/32".parse().unwrap(), "10.1.0.0/16".parse().unwrap()],
            deny_networks: vec!["8.0.0.0/8".parse().unwrap()],
            ..ValidationOptions::default()
        };
        let guard = AddressFilter::new(&options);
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.1.2.3", true),
            ("10.2.0.1", false),
            ("::ffff:10.2.0.1", false),
            ("fd12::1", false),
            ("8.8.8.8", false),
            ("9.9.9.9", true),
        ] {
            assert_eq!(allowed(&guard, address), expected, "{address}");
        }
    }
}
