//! Pages of the proxy itself: proxy auto-configuration file, help for trusting the CA, and rejections.

use std::net::SocketAddr;

use http_relay::page::{Body, problem};
use http_relay::target::Target;
use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::{Authority, Uri};
use hyper::{Response, StatusCode};

/// Address and scheme of the proxy, as a client reached it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxyEndpoint {
    /// Local address of the client's connection.
    pub(super) at: SocketAddr,
    pub(super) by_tls: bool,
}

/// Host name of the proxy's pages for clients that use the proxy.
pub(super) const OWN_NAME: &str = "bulla.proxy";

/// Returns the page for a target that the rules reject.
pub(super) fn rejected_page(target: &Target) -> Response<Body> {
    let detail = format!("connections to {} are not allowed here", target.name);
    problem(StatusCode::FORBIDDEN, "http_request_denied", &detail)
}

/// Returns a proxy auto-configuration file with the address by which the client reached the proxy.
pub(super) fn pac(reached: ProxyEndpoint, uri: &Uri, headers: &HeaderMap) -> String {
    let of_header = || headers.get(HOST).and_then(|host| host.to_str().ok());
    let named = uri.authority().map(Authority::as_str).or_else(of_header);
    // Client input becomes part of a script, so only a plain host and port are permitted.
    let is_plain = |host: &&str| {
        host.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']'))
    };
    // The proxy's own host name resolves only through the proxy, so it is not used.
    let resolves_to_proxy = |host: &&str| {
        let name = host.rsplit_once(':').map_or(*host, |(name, _)| name);
        !name.eq_ignore_ascii_case(OWN_NAME) && !name.is_empty()
    };
    let own = SocketAddr::new(reached.at.ip().to_canonical(), reached.at.port()).to_string();
    let address = named.filter(is_plain).filter(resolves_to_proxy).unwrap_or(&own);
    let proxy_type = if reached.by_tls { "HTTPS" } else { "PROXY" };
    format!("function FindProxyForURL(url, host) {{\n  return \"{proxy_type} {address}\";\n}}\n")
}

/// Returns a page that explains how to trust the CA.
pub(super) fn about(subject: &str, fingerprint: &str) -> String {
    include_str!("about.html").replace("{subject}", &escaped(subject)).replace("{fingerprint}", fingerprint)
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn pac_file_names_the_proxy_address_of_the_client() {
        let reached = |by_tls| ProxyEndpoint { at: "[::ffff:10.0.0.7]:3128".parse().unwrap(), by_tls };
        let directive = |by_tls: bool, uri: &str, host: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.extend(host.map(|host| (HOST, HeaderValue::from_static(host))));
            let pac = pac(reached(by_tls), &uri.parse().unwrap(), &headers);
            pac.split('"').nth(1).unwrap().to_owned()
        };
        for (by_tls, uri, host, wanted) in [
            (false, "/proxy.pac", Some("p.example:3128"), "PROXY p.example:3128"),
            (true, "/proxy.pac", Some("p.example:3128"), "HTTPS p.example:3128"),
            // The host is in the URL: HTTP/2, and requests with absolute URLs.
            (true, "https://p.example:3128/proxy.pac", None, "HTTPS p.example:3128"),
            (false, "http://bulla.proxy/proxy.pac", Some("bulla.proxy"), "PROXY 10.0.0.7:3128"),
            (false, "http://Bulla.Proxy:80/proxy.pac", None, "PROXY 10.0.0.7:3128"),
            (false, "/proxy.pac", None, "PROXY 10.0.0.7:3128"),
            (false, "/proxy.pac", Some("x\"; alert(1)"), "PROXY 10.0.0.7:3128"),
        ] {
            assert_eq!(directive(by_tls, uri, host), wanted, "{uri} {host:?}");
        }
    }
}
