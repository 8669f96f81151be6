//! Endpoints of the inventory in text form, as users type and read them.

use inventory::record::identity;
use scan::target::HostName;
use store::EndpointKey;

/// Returns the label of an endpoint for output.
pub(crate) fn label(key: &EndpointKey) -> String {
    identity(key).unwrap_or_else(|| format!("{}://{}:{}", key.protocol, key.host, key.port))
}

/// Splits `HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]:PORT` or a path into the inventory's form of a host and a port.
pub(crate) fn host_and_port(text: &str) -> (String, Option<u16>) {
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        return (address.to_string(), None);
    }
    if let Ok(socket) = text.parse::<std::net::SocketAddr>() {
        return (socket.ip().to_string(), Some(socket.port()));
    }
    // Users may paste labels, which contain a scheme, a server name and an address.
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
    let bare = bare.split(['=', '@']).next().unwrap_or(bare);
    let (host, port) = match bare.rsplit_once(':') {
        Some((host, port)) => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (bare, None),
        },
        None => (bare, None),
    };
    match HostName::parse(host) {
        Ok(name) => (name.as_str().to_owned(), port),
        Err(_) if text.contains('/') => {
            (std::path::absolute(text).map_or_else(|_| text.to_owned(), |p| p.display().to_string()), None)
        }
        Err(_) => (host.to_owned(), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, port: u16, protocol: &str, server_name: &str, address: &str) -> EndpointKey {
        EndpointKey {
            host: host.into(),
            port,
            protocol: protocol.into(),
            server_name: server_name.into(),
            address: address.into(),
        }
    }

    #[test]
    fn endpoint_label_uses_scan_target_syntax() {
        for (key, wanted) in [
            (key("a.example", 443, "tls", "a.example", ""), "a.example:443"),
            (key("192.0.2.1", 443, "tls", "", ""), "192.0.2.1:443"),
            (key("192.0.2.1", 443, "tls", "a.example", ""), "192.0.2.1:443=a.example"),
            (key("2001:db8::1", 25, "smtp", "", ""), "smtp://[2001:db8::1]:25"),
            (key("a.example", 443, "tls", "a.example", "192.0.2.7"), "a.example:443@192.0.2.7"),
            (key("/etc/x.pem", 0, "file", "", ""), "/etc/x.pem"),
            (
                key("arn:aws:acm:x:1:certificate/c", 0, "aws-acm", "", ""),
                "aws-acm:arn:aws:acm:x:1:certificate/c",
            ),
        ] {
            assert_eq!(label(&key), wanted);
        }
    }

    #[test]
    fn host_and_port_are_parsed_from_scan_targets() {
        for (text, host, port) in [
            ("A.example", "a.example", None),
            ("a.example:8443", "a.example", Some(8443)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]:443", "2001:db8::1", Some(443)),
            ("smtp://mail.example:25", "mail.example", Some(25)),
            ("192.0.2.1:443=a.example", "192.0.2.1", Some(443)),
        ] {
            assert_eq!(host_and_port(text), (host.to_owned(), port), "{text}");
        }
    }
}
