//! Where we connect to on somebody's word: never to link-local or cloud metadata addresses, and never elsewhere than
//! the operator said.
//!
//! Issuers, DNS services, webhooks and logs are configured by operators and often live in private networks, so private
//! addresses are fine. Link-local ones never are: `169.254.169.254` hands out a cloud machine's credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::resolve::{Families, Resolver};

/// Time to look a name up.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

/// Why an address or URL is not connected to.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Not an http or https URL with a host.
    #[error("{0:?} is no http or https URL with a host")]
    NotHttp(String),
    /// Credentials in URLs end up in logs.
    #[error("a URL must not hold a user name or password")]
    Credentials,
    /// Link-local, metadata, multicast or no address at all.
    #[error(
        "{0} is a link-local, metadata or unusable address; set http.allow_link_local if it is really meant"
    )]
    Address(IpAddr),
}

/// What may be connected to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Guard {
    /// Link-local and metadata addresses too.
    pub allow_link_local: bool,
}

impl Guard {
    /// Whether `address` may be connected to.
    ///
    /// # Errors
    /// [`Refused::Address`].
    pub fn address(self, address: IpAddr) -> Result<(), Refused> {
        let plain = embedded(address);
        if is_unusable(plain) || (!self.allow_link_local && is_local_service(plain)) {
            return Err(Refused::Address(address));
        }
        Ok(())
    }

    /// Reads a URL that may be connected to, as far as the text tells; names are looked at again when resolved.
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

/// The IPv4 address an IPv6 one stands for: mapped (RFC 4291 section 2.5.5.2), NAT64 (RFC 6052), 6to4 (RFC 3056).
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let s = six.segments();
    let four = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => four(high, low),
        [0x2002, high, low, ..] => four(high, low),
        _ => address,
    }
}

fn is_unusable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_unspecified() || four.is_multicast() || four.is_broadcast(),
        IpAddr::V6(six) => six.is_unspecified() || six.is_multicast(),
    }
}

/// Link-local networks, and the metadata services that live elsewhere.
fn is_local_service(address: IpAddr) -> bool {
    /// Alibaba Cloud and Oracle Cloud.
    const METADATA_4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
    /// AWS, and Google Cloud.
    const METADATA_6: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    ];
    match address {
        IpAddr::V4(four) => four.is_link_local() || METADATA_4.contains(&four),
        IpAddr::V6(six) => six.segments()[0] & 0xffc0 == 0xfe80 || METADATA_6.contains(&six),
    }
}

/// Resolves names for HTTP clients, leaving out what the guard refuses.
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

/// A guarded resolver as an `Arc`, as clients take it.
#[must_use]
pub fn resolver(resolver: Resolver, guard: Guard) -> Arc<GuardedResolver> {
    Arc::new(GuardedResolver { resolver, guard })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_connected_to() {
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
            ("http://[fd00:ec2::254]/", false, true),
            ("http://0.0.0.0/", false, false),
            ("http://224.0.0.1/", false, false),
            ("http://[ff02::1]/", false, false),
            ("ftp://ca.internal/", false, false),
            ("file:///etc/passwd", false, false),
            ("https://user:secret@ca.internal/", false, false),
            ("https:///", false, false),
            ("ca.internal", false, false),
        ];
        for (url, plain, with_link_local) in table {
            assert_eq!(Guard::default().url(url).is_ok(), plain, "{url}");
            assert_eq!(Guard { allow_link_local: true }.url(url).is_ok(), with_link_local, "{url}, allowed");
        }
    }
}
