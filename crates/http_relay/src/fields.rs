//! Header fields of requests and responses: removal of hop-by-hop fields (RFC 9110 section 7.6.1), and conversion between HTTP
//! versions.

use hyper::body::Body as _;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme, Uri};
use hyper::{Request, Version};
use x509::HostOrIp;

use super::target::Origin;
use crate::request_body::RequestBody;

const WEBSOCKET: &str = "websocket";

/// Hop-by-hop fields, in addition to those that `Connection` lists.
const HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("http2-settings"),
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Returns the host of a request, from HTTP/2's `:authority` or from `Host` (RFC 9112 section 3.2).
///
/// # Errors
/// The request has no host, several, or an invalid one. The rules could not decide about such a host.
pub fn authority_of<B>(request: &Request<B>) -> Result<(HeaderValue, HostOrIp), &'static str> {
    const UNREADABLE: &str = "the host is not a name or address";
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return Err("the request names more than one host");
    }
    let authority = match request.uri().authority() {
        // The host in an absolute URL takes precedence over the Host field.
        Some(authority) => authority.clone(),
        None => {
            let host = host.ok_or("the request has no host")?;
            Authority::try_from(host.as_bytes()).map_err(|_| UNREADABLE)?
        }
    };
    if authority.as_str().contains('@') {
        return Err("a user name in the host is not allowed");
    }
    let host = authority.host();
    let name = HostOrIp::parse(host).map_err(|_| UNREADABLE)?;
    let value = match port_of(&authority)? {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
        None => HeaderValue::try_from(host),
    };
    Ok((value.map_err(|_| UNREADABLE)?, name))
}

/// Returns the port of an authority. The HTTP library does not check the text after the host: it must be empty, or a colon and a
/// port (RFC 3986 section 3.2.3, but with a nonempty port).
fn port_of(authority: &Authority) -> Result<Option<u16>, &'static str> {
    let behind = authority.as_str().strip_prefix(authority.host()).unwrap_or(authority.as_str());
    if behind.is_empty() {
        return Ok(None);
    }
    let port = behind.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    port.and_then(|port| port.parse().ok()).map(Some).ok_or("the port after the host is not valid")
}

/// Converts the request to the form of the origin's HTTP version: HTTP/2, or HTTP/1.1 for any other `version`.
pub fn address(
    request: &mut Request<RequestBody>,
    origin: &Origin,
    authority: &HeaderValue,
    version: Version,
) {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut parts = Parts::default();
    parts.path_and_query = Some(path);
    if version == Version::HTTP_2 {
        parts.scheme = Some(if origin.server.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = authority.to_str().ok().and_then(|authority| authority.parse().ok());
        request.headers_mut().remove(HOST);
        *request.version_mut() = Version::HTTP_2;
    } else {
        request.headers_mut().insert(HOST, authority.clone());
        join_cookies(request.headers_mut());
        // Without this field, the library drops a body of unknown length for methods that usually have no body.
        if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        *request.version_mut() = Version::HTTP_11;
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Joins several `Cookie` fields into one, as HTTP/1.1 requires (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, whole);
    }
}

/// Protocols that a client may upgrade to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Upgrades {
    /// WebSocket only.
    Websocket,
    /// All protocols except HTTP, TLS and tunnels of datagrams (RFC 9298, RFC 9484), which would hide requests from the proxy.
    NotHttp,
}

impl Upgrades {
    /// Returns whether the protocol, which may have a version (RFC 9110 section 7.8), is permitted.
    fn has(self, protocol: &str) -> bool {
        let is_one_of = |names: &[&str]| {
            let name = protocol.split('/').next().unwrap_or_default().trim();
            names.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        match self {
            Self::Websocket => protocol.eq_ignore_ascii_case(WEBSOCKET),
            Self::NotHttp => !is_one_of(&["h2c", "h2", "http", "tls", "connect-udp", "connect-ip"]),
        }
    }
}

/// Returns the requested upgrade protocols (RFC 9110 section 7.8) that are permitted.
pub fn permitted_upgrade(headers: &HeaderMap, may: Upgrades) -> Option<HeaderValue> {
    if !connection_options(headers).any(|name| name.eq_ignore_ascii_case("upgrade")) {
        return None;
    }
    let mut wanted: Vec<&str> = listed(headers, &UPGRADE).filter(|one| may.has(one)).collect();
    if may == Upgrades::Websocket {
        wanted.truncate(1);
    }
    if wanted.is_empty() { None } else { HeaderValue::try_from(wanted.join(", ")).ok() }
}

/// Returns whether the response switches to a protocol in `requested`.
pub(crate) fn switches_as_requested(answer: &HeaderMap, requested: &HeaderValue) -> bool {
    let requested = requested.to_str().unwrap_or_default();
    let is_requested =
        |one: &str| requested.split(',').any(|requested| requested.trim().eq_ignore_ascii_case(one));
    listed(answer, &UPGRADE).next().is_some() && listed(answer, &UPGRADE).all(is_requested)
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    listed(headers, &CONNECTION)
}

/// Returns the elements of a list field in all its lines (RFC 9110 section 5.6.1), without empty elements.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',').map(str::trim)).filter(|one| !one.is_empty())
}

/// Returns whether a field belongs to one connection, and is never forwarded.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Removes hop-by-hop fields from trailers, and fields that would change routing or framing (RFC 9110 section 6.5.1).
pub fn clean_trailers(trailers: &mut HeaderMap) {
    for name in HOP_BY_HOP.iter().chain(&[CONTENT_LENGTH, HOST, TE]) {
        trailers.remove(name);
    }
}

/// Removes hop-by-hop fields. `TE: trailers` stays, because the proxy forwards trailers.
pub fn clean(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> =
            connection_options(headers).filter_map(|name| name.parse().ok()).collect();
        for name in named {
            headers.remove(name);
        }
    }
    // `strict` rejects messages with both `Transfer-Encoding` and `Content-Length`. Otherwise the transfer coding takes precedence
    // (RFC 9112 section 6.3), and the body is framed again.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if let Some(te) = headers.get(TE) {
        let trailers =
            te.to_str().is_ok_and(|te| te.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")));
        headers.remove(TE);
        if trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(uri: &str, host: Option<&str>) -> Result<(String, String), &'static str> {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let (value, name) = authority_of(&request.body(()).unwrap())?;
        Ok((value.to_str().unwrap().to_owned(), name.to_string()))
    }

    #[test]
    fn host_is_parsed_as_name_and_optional_port() {
        for (host_text, value, name) in [
            ("a.example", "a.example", "a.example"),
            ("A.Example.:8443", "A.Example.:8443", "a.example"),
            ("a.example:080", "a.example:80", "a.example"),
            ("a.example:65535", "a.example:65535", "a.example"),
            ("[::1]", "[::1]", "::1"),
            ("[::1]:443", "[::1]:443", "::1"),
            ("127.0.0.1:443", "127.0.0.1:443", "127.0.0.1"),
        ] {
            let wanted = Ok((value.to_owned(), name.to_owned()));
            assert_eq!(requested("/", Some(host_text)), wanted, "{host_text}");
            assert_eq!(requested(&format!("https://{host_text}/"), Some("other")), wanted, "{host_text}");
        }
    }

    fn upgrades(lines: &[&'static str]) -> HeaderMap {
        let lines = lines.iter().map(|line| (UPGRADE, HeaderValue::from_static(line)));
        lines.chain([(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"))]).collect()
    }

    #[test]
    fn upgrades_to_http_and_tls_are_removed() {
        for (lines, websocket, any) in [
            (&["websocket"][..], Some("websocket"), Some("websocket")),
            (&["WebSocket"], Some("WebSocket"), Some("WebSocket")),
            (&["websocket, h2c"], Some("websocket"), Some("websocket")),
            (&["h2c,websocket"], Some("websocket"), Some("websocket")),
            (&["websocket", "h2c"], Some("websocket"), Some("websocket")),
            (&["websocket, websocket"], Some("websocket"), Some("websocket, websocket")),
            (&["h2c"], None, None),
            (&["H2C,"], None, None),
            (&[",h2c"], None, None),
            (&["h2c", "h2c"], None, None),
            (&["h2c, h2"], None, None),
            (&["TLS/1.0, HTTP/2.0"], None, None),
            (&["tls/1.2 , http/1.1"], None, None),
            (&["connect-udp"], None, None),
            (&["Connect-IP, connect-udp"], None, None),
            (&["IRC/6.9, tcp"], None, Some("IRC/6.9, tcp")),
            (&["websocket/13"], None, Some("websocket/13")),
            (&[""], None, None),
            (&[], None, None),
        ] {
            let headers = upgrades(lines);
            let of = |may| permitted_upgrade(&headers, may).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(of(Upgrades::Websocket).as_deref(), websocket, "{lines:?}");
            assert_eq!(of(Upgrades::NotHttp).as_deref(), any, "{lines:?}");
        }
        let mut unnamed = upgrades(&["websocket"]);
        unnamed.remove(CONNECTION);
        assert_eq!(permitted_upgrade(&unnamed, Upgrades::Websocket), None, "Connection names it");
    }

    #[test]
    fn upstream_upgrade_must_be_one_of_the_requested_protocols() {
        let requested = HeaderValue::from_static("websocket, tcp");
        for (lines, is_requested) in [
            (&["WebSocket"][..], true),
            (&["tcp"], true),
            (&["h2c"], false),
            (&["websocket, h2c"], false),
            (&["websocket", "h2c"], false),
            (&[""], false),
            (&[], false),
        ] {
            assert_eq!(switches_as_requested(&upgrades(lines), &requested), is_requested, "{lines:?}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for host_text in [
            "a.example:x,b.example",
            "a.example:",
            "a.example:99999",
            "a.example:+80",
            "a.example:80:80",
            "a.example:80,b.example",
            "[::1]b",
            "[::1]b:80",
            "[::1]:",
            "a@b.example",
            "",
        ] {
            assert!(requested("/", Some(host_text)).is_err(), "{host_text}");
            let Ok(uri) = format!("https://{host_text}/").parse::<Uri>() else { continue };
            assert!(requested(&uri.to_string(), None).is_err(), "{host_text}");
        }
        assert!(requested("/", None).is_err());
    }
}
