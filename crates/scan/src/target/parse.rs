//! Parses one target as entered by the user.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::IpNet;
use x509::HostName;

use super::error::TargetProblem;
use super::host_name::host_name;
use super::ports;
use super::protocol::{self, Protocol};

/// A parsed target, before default ports and server names are applied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Spec {
    Endpoints(Endpoints),
    /// A file or folder with certificates.
    Path(PathBuf),
    /// A file with a list of targets (`@file`).
    List(PathBuf),
    /// A list of targets on standard input (`-`).
    StandardInput,
}

/// One host, or a network of hosts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Endpoints {
    pub(super) hosts: Hosts,
    /// The port as written, or the default port of the scheme.
    pub(super) port: Option<u16>,
    /// STARTTLS protocol of the scheme; `None` without a scheme.
    pub(super) protocol: Option<Protocol>,
    /// The server names after `=`.
    pub(super) server_names: Vec<HostName>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Hosts {
    Name(HostName),
    Address(IpAddr),
    Network(IpNet),
}

/// Parses a target. Does not access the file system: the caller checks whether a word exists as a path.
pub(super) fn spec(text: &str) -> Result<Spec, TargetProblem> {
    let text = text.trim();
    if text.is_empty() {
        return Err(TargetProblem::Empty);
    }
    if text == "-" {
        return Ok(Spec::StandardInput);
    }
    if let Some(list) = text.strip_prefix('@') {
        return if list.is_empty() { Err(TargetProblem::Empty) } else { Ok(Spec::List(list.into())) };
    }
    if let Some(path) = path(text)? {
        return Ok(Spec::Path(path));
    }
    let endpoints = match text.split_once("://") {
        Some((scheme, rest)) => url(scheme, rest)?,
        None => bare(text)?,
    };
    Ok(Spec::Endpoints(endpoints))
}

/// Returns the path if the form of the text marks it as a path, such as `./x` or `file:x`.
fn path(text: &str) -> Result<Option<PathBuf>, TargetProblem> {
    if let Some(rest) = text.strip_prefix("file:") {
        let rest = match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
            None => return Ok(Some(rest.into())),
        };
        return if rest.starts_with('/') { Ok(Some(rest.into())) } else { Err(TargetProblem::FileHost) };
    }
    let is_path =
        matches!(text, "." | "..") || ["/", "./", "../"].iter().any(|prefix| text.starts_with(prefix));
    Ok(is_path.then(|| text.into()))
}

/// Parses a URL (RFC 3986 section 3). User, password, path, query and fragment are ignored.
fn url(scheme: &str, rest: &str) -> Result<Endpoints, TargetProblem> {
    let scheme = scheme.to_ascii_lowercase();
    if matches!(scheme.as_str(), "http" | "ws") {
        return Err(TargetProblem::PlainHttp);
    }
    let (protocol, default_port) =
        protocol::from_scheme(&scheme).ok_or_else(|| TargetProblem::Scheme(super::error::shown(&scheme)))?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mut endpoints = bare(host)?;
    endpoints.port.get_or_insert(default_port);
    endpoints.protocol = Some(protocol);
    Ok(endpoints)
}

/// Parses `host`, `host:port`, `[v6]:port` or a network, each with optional server names (`=name,name`).
fn bare(text: &str) -> Result<Endpoints, TargetProblem> {
    let (location, names) = match text.split_once('=') {
        Some((location, names)) => (location, server_names(names)?),
        None => (text, Vec::new()),
    };
    let (host, port) = split_port(location)?;
    let port = port.map(ports::port).transpose()?;
    Ok(Endpoints { hosts: hosts(host)?, port, protocol: None, server_names: names })
}

fn server_names(text: &str) -> Result<Vec<HostName>, TargetProblem> {
    text.split(',').map(|name| host_name(name.trim()).map_err(TargetProblem::ServerName)).collect()
}

/// Splits into the host or network without brackets, and the text of the port.
fn split_port(text: &str) -> Result<(&str, Option<&str>), TargetProblem> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']').ok_or(TargetProblem::Ipv6)?;
        if !inside.contains(':') {
            return Err(TargetProblem::Ipv6);
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((inside, Some(port))),
            None if after.is_empty() => Ok((inside, None)),
            None => Err(TargetProblem::Ipv6),
        };
    }
    match text.split_once(':') {
        // Two or more colons without brackets: the whole text is an IPv6 address.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn hosts(text: &str) -> Result<Hosts, TargetProblem> {
    if let Some((address, length)) = text.split_once('/') {
        return network(address, length).map(Hosts::Network);
    }
    if text.is_empty() {
        return Err(TargetProblem::Empty);
    }
    if text.contains(':') {
        return v6(text).map(|address| Hosts::Address(address.into()));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let address = text.parse::<Ipv4Addr>().map_err(|_| TargetProblem::Ipv4)?;
        return Ok(Hosts::Address(address.into()));
    }
    Ok(Hosts::Name(host_name(text)?))
}

fn v6(text: &str) -> Result<Ipv6Addr, TargetProblem> {
    if text.contains('%') {
        return Err(TargetProblem::Zone);
    }
    text.parse().map_err(|_| TargetProblem::Ipv6)
}

/// Parses a network. Host bits may be set, as in the address of an interface; they are cleared.
fn network(address: &str, length: &str) -> Result<IpNet, TargetProblem> {
    let address: IpAddr = address.parse().map_err(|_| TargetProblem::Network)?;
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length: u8 = length.parse().ok().filter(|_| digits).ok_or(TargetProblem::Network)?;
    let network = IpNet::new(address, length).map_err(|_| TargetProblem::Network)?;
    Ok(network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Formats host, port, protocol and server names as one line, for comparison in tests.
    fn read(text: &str) -> String {
        match spec(text) {
            Ok(Spec::Endpoints(endpoints)) => {
                let host = match endpoints.hosts {
                    Hosts::Name(name) => format!("name {name}"),
                    Hosts::Address(address) => format!("address {address}"),
                    Hosts::Network(network) => format!("network {network}"),
                };
                let port = endpoints.port.map(|port| format!(" port {port}")).unwrap_or_default();
                let by = endpoints.protocol.map(|by| format!(" by {by}")).unwrap_or_default();
                let names: String = endpoints.server_names.iter().map(|name| format!(" ={name}")).collect();
                format!("{host}{port}{by}{names}")
            }
            Ok(Spec::Path(path)) => format!("path {}", path.display()),
            Ok(Spec::List(path)) => format!("list {}", path.display()),
            Ok(Spec::StandardInput) => "standard input".into(),
            Err(problem) => format!("refused: {problem}"),
        }
    }

    #[test]
    fn every_target_form_is_parsed() {
        let cases = [
            ("example.com", "name example.com"),
            ("Example.COM.:8443", "name example.com port 8443"),
            ("192.0.2.1", "address 192.0.2.1"),
            ("192.0.2.1:25", "address 192.0.2.1 port 25"),
            ("2001:db8::1", "address 2001:db8::1"),
            ("[2001:db8::1]", "address 2001:db8::1"),
            ("[2001:db8::1]:443", "address 2001:db8::1 port 443"),
            ("10.0.0.0/24", "network 10.0.0.0/24"),
            ("10.0.0.7/24", "network 10.0.0.0/24"),
            ("10.0.0.0/24:8443", "network 10.0.0.0/24 port 8443"),
            ("2001:db8::/120", "network 2001:db8::/120"),
            ("[2001:db8::/120]:443", "network 2001:db8::/120 port 443"),
            ("192.0.2.1:443=a.example,B.example", "address 192.0.2.1 port 443 =a.example =b.example"),
            ("10.0.0.0/30=a.example", "network 10.0.0.0/30 =a.example"),
            ("https://h.example:8443/x?y=z#w", "name h.example port 8443 by tls"),
            ("HTTPS://h.example", "name h.example port 443 by tls"),
            ("smtp://192.0.2.1=mx.example", "address 192.0.2.1 port 25 by smtp =mx.example"),
            ("smtps://mx.example", "name mx.example port 465 by tls"),
            ("submission://mx.example", "name mx.example port 587 by smtp"),
            ("ldap://[2001:db8::1]/dc=example", "address 2001:db8::1 port 389 by ldap"),
            ("ldaps://dir.example", "name dir.example port 636 by tls"),
            (
                "postgresql://user:p@ss@db.example/app?sslmode=require",
                "name db.example port 5432 by postgres",
            ),
            ("xmpp-server://chat.example", "name chat.example port 5269 by xmpp-server"),
            ("file:///etc/ssl/x.pem", "path /etc/ssl/x.pem"),
            ("file://localhost/etc/ssl", "path /etc/ssl"),
            ("file:certs", "path certs"),
            ("./certs", "path ./certs"),
            ("../certs", "path ../certs"),
            ("/etc/ssl", "path /etc/ssl"),
            (".", "path ."),
            ("@hosts.txt", "list hosts.txt"),
            ("-", "standard input"),
            ("  example.com ", "name example.com"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn invalid_targets_are_rejected_with_a_precise_reason() {
        let cases = [
            ("", "the target is empty"),
            ("@", "the target is empty"),
            ("=a.example", "the target is empty"),
            (":443", "the target is empty"),
            ("https://", "the target is empty"),
            ("*.example.com", "a wildcard is not a host"),
            ("exa mple", "' ' is not allowed"),
            ("a..b", "each label must have"),
            ("example.com:0", "`0` is not a port"),
            ("example.com:https", "`https` is not a port"),
            ("example.com:", "a port is missing"),
            ("256.1.1.1", "not an IPv4 address"),
            ("1.2.3", "not an IPv4 address"),
            ("010.0.0.1", "not an IPv4 address"),
            ("2001:db8::g", "not an IPv6 address"),
            ("[2001:db8::1", "not an IPv6 address"),
            ("[2001:db8::1]443", "not an IPv6 address"),
            ("[example.com]:443", "not an IPv6 address"),
            ("fe80::1%eth0", "an address with a zone"),
            ("10.0.0.0/33", "not a network"),
            ("10.0.0.0/", "not a network"),
            ("10.0.0.0/+8", "not a network"),
            ("example.com/path", "not a network"),
            ("192.0.2.1=", "not a server name after `=`: a host name must not be empty"),
            ("192.0.2.1=*.example", "not a server name after `=`: a wildcard is not a host"),
            ("http://example.com", "http:// does not use TLS"),
            ("gopher://example.com", "`gopher://` is not a supported scheme"),
            ("file://server/share", "a file:// URL must not name a host"),
        ];
        for (text, expected) in cases {
            let result = read(text);
            assert!(result.starts_with("refused: ") && result.contains(expected), "{text}: {result}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,60}") {
            let _ = spec(&text);
        }

        #[test]
        fn near_valid_text_does_not_panic(text in "[\\[\\]:/=@.,%a-z0-9ü-]{0,24}") {
            let _ = spec(&text);
        }
    }
}
