//! Restricts destinations that come from configuration or requests. Link-local and cloud metadata addresses are denied unless the
//! configuration file allows them, and the operator can deny more.
//!
//! Issuers, DNS services, webhooks and logs are configured by operators and are often in private networks. Private addresses are
//! therefore allowed unless the configuration file denies them ([`Networks`]). Link-local addresses are denied by default:
//! `169.254.169.254` returns the credentials of a cloud machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::resolve::{Families, Resolver};

/// Timeout of a DNS lookup.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

/// Reason why an address or URL is not allowed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The text is not an http or https URL with a host.
    #[error("{0:?} is not an http or https URL with a host")]
    NotHttp(String),
    /// The URL contains credentials, which would appear in logs.
    #[error("a URL must not contain a user name or password")]
    Credentials,
    /// The address is link-local, a metadata service, multicast or unspecified.
    #[error(
        "{0} is a link-local, metadata or unusable address; allow_link_local in the configuration file allows link-local \
         and metadata addresses"
    )]
    Address(IpAddr),
    /// The address is in a network that the configuration denies.
    #[error(
        "{0} is in a network that the configuration denies: outbound.deny_networks, or outbound.allow_private = false"
    )]
    Network(IpAddr),
}

/// Loopback addresses and private networks.
const PRIVATE: [&str; 9] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "198.18.0.0/15",
    "::1/128",
    "fc00::/7",
    "fec0::/10",
];

/// Networks that the configuration allows and denies.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Networks {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

impl Networks {
    /// Creates the lists; `allow` takes precedence over `deny`.
    #[must_use]
    pub fn new(allow: Vec<IpNet>, deny: Vec<IpNet>) -> Self {
        Self { allow, deny }
    }

    /// Returns the same lists, with loopback and private networks denied.
    #[must_use]
    pub fn deny_private(mut self) -> Self {
        self.deny.extend(PRIVATE.iter().filter_map(|text| text.parse::<IpNet>().ok()));
        self
    }

    /// Returns a static reference for guards. The configuration is read once per process, so the memory is never freed.
    #[must_use]
    pub fn into_static(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Returns whether the address and all IPv4 addresses embedded in it are allowed.
    fn allows(&self, address: IpAddr) -> bool {
        address_and_embedded(address).all(|inner| self.allow.iter().any(|network| network.contains(&inner)))
    }

    /// Returns whether the address or an IPv4 address embedded in it is denied.
    fn denies(&self, address: IpAddr) -> bool {
        address_and_embedded(address).any(|inner| self.deny.iter().any(|network| network.contains(&inner)))
    }
}

/// Rules for the addresses to which connections are allowed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Guard {
    /// Whether link-local and metadata addresses are allowed.
    pub allow_link_local: bool,
    /// Additional networks that the configuration allows and denies; `None`: none.
    pub networks: Option<&'static Networks>,
}

impl Guard {
    /// Checks whether `address` may be connected to. IPv4 addresses embedded in it are checked too.
    ///
    /// # Errors
    /// [`Refused::Address`], [`Refused::Network`].
    pub fn address(self, address: IpAddr) -> Result<(), Refused> {
        let is_local = !self.allow_link_local && address_and_embedded(address).any(is_local_service);
        // If several IPv4 addresses are possible, those that are unusable are ignored.
        let mut embedded = address_and_embedded(address).skip(1).peekable();
        let is_unreachable = is_unusable(address) || embedded.peek().is_some() && embedded.all(is_unusable);
        if is_unreachable {
            return Err(Refused::Address(address));
        }
        match self.networks {
            Some(networks) if networks.allows(address) => Ok(()),
            _ if is_local => Err(Refused::Address(address)),
            Some(networks) if networks.denies(address) => Err(Refused::Network(address)),
            _ => Ok(()),
        }
    }

    /// Parses a URL and checks its text. Host names are checked again after resolution.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn url(self, text: &str) -> Result<Url, Refused> {
        let not_http = || Refused::NotHttp(text.chars().take(200).collect());
        let url = Url::parse(text).map_err(|_| not_http())?;
        let host =
            url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")).ok_or_else(not_http)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Credentials);
        }
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = literal.parse::<IpAddr>() {
            self.address(address)?;
        }
        Ok(url)
    }
}

/// Returns `address`, and every IPv4 address that a translator or tunnel may derive from it. Address rules apply to all of them.
pub fn address_and_embedded(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let embedded = match address {
        IpAddr::V4(_) => [None; 4],
        IpAddr::V6(six) => embedded(six),
    };
    std::iter::once(address).chain(embedded.into_iter().flatten().map(IpAddr::V4))
}

/// Returns the IPv4 addresses embedded in `six`.
fn embedded(six: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let s = six.segments();
    let four = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    let last = four(s[6], s[7]);
    match s {
        // Loopback and the unspecified address contain no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        // IPv4-compatible and IPv4-mapped (RFC 4291 section 2.5.5), IPv4-translated (RFC 2765), NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            [last, None, None, None]
        }
        // NAT64 prefix for local use (RFC 8215), with each network length that RFC 6052 section 2.2 allows in it: 48, 56, 64 and
        // 96. The byte after the first 64 bits is not part of the address.
        [0x64, 0xff9b, 1, ..] => {
            let b = six.octets();
            let of = |octets: [u8; 4]| Some(Ipv4Addr::from(octets));
            [
                of([b[6], b[7], b[9], b[10]]),
                of([b[7], b[9], b[10], b[11]]),
                of([b[9], b[10], b[11], b[12]]),
                last,
            ]
        }
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [four(high, low), None, None, None],
        // Teredo (RFC 4380 section 4): the server, and the client with inverted bits.
        [0x2001, 0, high, low, ..] => [four(high, low), four(!s[6], !s[7]), None, None],
        // ISATAP (RFC 5214 section 6.1), in any network.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [last, None, None, None],
        _ => [None; 4],
    }
}

fn is_unusable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_unspecified() || four.is_multicast() || four.is_broadcast(),
        IpAddr::V6(six) => six.is_unspecified() || six.is_multicast(),
    }
}

/// Returns whether the address is link-local or a metadata service with another address.
fn is_local_service(address: IpAddr) -> bool {
    /// Metadata services of Alibaba Cloud and Oracle Cloud, and the host agent of Azure.
    const METADATA_4: [Ipv4Addr; 3] =
        [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];
    /// Metadata services of Google Cloud, Oracle Cloud, Scaleway and Akamai (Linode).
    const METADATA_6: [Ipv6Addr; 4] = [
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
        Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
        Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1),
    ];
    match address {
        IpAddr::V4(four) => four.is_link_local() || METADATA_4.contains(&four),
        IpAddr::V6(six) => {
            let s = six.segments();
            // All instance services of AWS are in fd00:ec2::/32.
            s[0] & 0xffc0 == 0xfe80 || s[..2] == [0xfd00, 0xec2] || METADATA_6.contains(&six)
        }
    }
}

/// DNS resolver for HTTP clients that removes addresses the guard rejects.
#[derive(Clone)]
pub struct GuardedResolver {
    resolver: Resolver,
    guard: Guard,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let found = this.resolver.resolve(name.as_str(), Families::Both, LOOKUP_LIMIT).await?;
            let mut refused = None;
            let mut allowed = Vec::with_capacity(found.addresses.len());
            for address in found.addresses {
                match this.guard.address(address) {
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(error) => refused = Some(error),
                }
            }
            match (allowed.is_empty(), refused) {
                (true, Some(error)) => Err(error.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// Creates a guarded resolver as an `Arc`, as HTTP clients require.
#[must_use]
pub fn resolver(resolver: Resolver, guard: Guard) -> Arc<GuardedResolver> {
    Arc::new(GuardedResolver { resolver, guard })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_blocks_metadata_and_link_local_addresses() {
        let table = [
            ("https://ca.internal:9000/", true, true),
            ("http://10.0.0.1/", true, true),
            ("https://127.0.0.1:8200/", true, true),
            ("https://[::1]/", true, true),
            ("http://169.254.169.254/latest/meta-data", false, true),
            ("http://[fe80::1]/", false, true),
            ("http://[::ffff:169.254.169.254]/", false, true),
            ("http://[64:ff9b::a9fe:a9fe]/", false, true),
            ("http://[2002:a9fe:a9fe::]/", false, true),
            ("http://2852039166/", false, true),
            ("http://0xa9fea9fe/", false, true),
            ("http://100.100.100.200/", false, true),
            ("http://192.0.0.192/", false, true),
            ("http://168.63.129.16/", false, true),
            ("http://169.254.170.2/", false, true),
            ("http://[fd00:ec2::254]/", false, true),
            ("http://[fd00:ec2::23]/", false, true),
            ("http://[fd20:ce::254]/", false, true),
            ("http://[fd00:c1::a9fe:a9fe]/", false, true),
            ("http://[fd00:42::42]/", false, true),
            ("http://[fd00:a9fe:a9fe::1]/", false, true),
            ("http://[::a9fe:a9fe]/", false, true),
            ("http://[::ffff:0:a9fe:a9fe]/", false, true),
            ("http://[64:ff9b:1:a9fe:a9:fe00::]/", false, true),
            ("http://[64:ff9b:1:a9:fe:a9fe::]/", false, true),
            ("http://[64:ff9b:1:0:a9:fea9:fe00:0]/", false, true),
            ("http://[64:ff9b:1::a9fe:a9fe]/", false, true),
            ("http://[64:ff9b::a83f:8110]/", false, true),
            ("http://[2001:0:a9fe:a9fe::]/", false, true),
            ("http://[2001:0:5ef5:79fb:0:0:5601:5601]/", false, true),
            ("http://[2001:0:5ef5:79fb:0:0:57c0:7eef]/", false, true),
            ("http://[2001:db8::5efe:a9fe:a9fe]/", false, true),
            ("http://[2001:db8::200:5efe:a9fe:a9fe]/", false, true),
            ("http://[64:ff9b::a00:1]/", true, true),
            ("http://[2002:a00:1::]/", true, true),
            ("http://[2001:4860:4860::8888]/", true, true),
            ("http://[fd00::1]/", true, true),
            ("http://[::ffff:0.0.0.0]/", false, false),
            ("http://[64:ff9b::e000:1]/", false, false),
            ("http://0.0.0.0/", false, false),
            ("http://224.0.0.1/", false, false),
            ("http://[ff02::1]/", false, false),
            ("ftp://ca.internal/", false, false),
            ("file:///etc/passwd", false, false),
            ("https://user:secret@ca.internal/", false, false),
            ("https://user@ca.internal/", false, false),
            ("https://:secret@ca.internal/", false, false),
            ("https:///", false, false),
            ("ca.internal", false, false),
        ];
        for (url, plain, with_link_local) in table {
            assert_eq!(Guard::default().url(url).is_ok(), plain, "{url}");
            let opened = Guard { allow_link_local: true, ..Guard::default() };
            assert_eq!(opened.url(url).is_ok(), with_link_local, "{url}, allowed");
        }
    }

    #[test]
    fn configured_networks_override_the_guard_defaults() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let networks = Networks::new(nets(&["10.1.0.0/16", "169.254.7.0/24"]), nets(&["192.0.2.0/24"]));
        let guard = Guard { networks: Some(networks.deny_private().into_static()), ..Guard::default() };
        for (address, expected) in [
            ("10.1.2.3", true),
            ("169.254.7.1", true),
            ("8.8.8.8", true),
            ("2606:4700::1", true),
            ("10.2.0.1", false),
            ("127.0.0.1", false),
            ("::1", false),
            ("192.168.1.1", false),
            ("fd00::1", false),
            ("192.0.2.1", false),
            ("169.254.169.254", false),
            ("::ffff:10.2.0.1", false),
            ("64:ff9b::c000:201", false),
            ("2002:a02:1::", false),
            // The IPv6 address itself is in no allowed network.
            ("::ffff:169.254.7.1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(guard.address(address.parse().unwrap()).is_ok(), expected, "{address}");
        }
    }

    /// The IPv6 loopback address contains no IPv4 address, so a network that allows it is enough.
    #[test]
    fn allowed_loopback_of_ipv6_needs_no_ipv4_network() {
        assert_eq!(address_and_embedded(Ipv6Addr::LOCALHOST.into()).count(), 1);
        let networks = Networks::new(vec!["::1/128".parse().unwrap()], Vec::new());
        let guard = Guard { networks: Some(networks.deny_private().into_static()), ..Guard::default() };
        assert_eq!(guard.address(Ipv6Addr::LOCALHOST.into()), Ok(()));
        assert!(guard.address(Ipv4Addr::LOCALHOST.into()).is_err());
    }
}
