//! The fields of a request and its answer: what a proxy takes out of both (RFC 9110 section 7.6.1), and what it must not; the form
//! that either version has.

use hyper::body::Body as _;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme, Uri};
use hyper::{Request, Version};

use super::target::Origin;
use crate::mint::LeafName;
use crate::proxy::requests::RequestBody;

/// Those of a connection alone, beside what `Connection` names.
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

/// The host a request names: HTTP/2's `:authority`, or `Host`. One of the two, and one only (RFC 9112 section 3.2); one that
/// cannot be read is none, as nobody could say whether it is refused.
pub(crate) fn authority_of<B>(request: &Request<B>) -> Result<(HeaderValue, LeafName), &'static str> {
    const UNREADABLE: &str = "the host is no name or address";
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return Err("a request names one host");
    }
    let authority = match request.uri().authority() {
        // Host is what a request in full says, whatever else it carries.
        Some(authority) => authority.clone(),
        None => {
            let host = host.ok_or("the request names no host")?;
            Authority::try_from(host.as_bytes()).map_err(|_| UNREADABLE)?
        }
    };
    if authority.as_str().contains('@') {
        return Err("a host is named without a user");
    }
    let host = authority.host();
    let name = LeafName::parse(host).map_err(|_| UNREADABLE)?;
    let value = match port_of(&authority)? {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
        None => HeaderValue::try_from(host),
    };
    Ok((value.map_err(|_| UNREADABLE)?, name))
}

/// What stands behind the host, which the library takes as it comes: nothing, or a colon and a port (RFC 3986 section 3.2.3, but
/// that no port is empty).
fn port_of(authority: &Authority) -> Result<Option<u16>, &'static str> {
    let behind = authority.as_str().strip_prefix(authority.host()).unwrap_or(authority.as_str());
    if behind.is_empty() {
        return Ok(None);
    }
    let port = behind.strip_prefix(':').filter(|port| port.bytes().all(|octet| octet.is_ascii_digit()));
    port.and_then(|port| port.parse().ok()).map(Some).ok_or("behind the host is no port")
}

/// Puts the request into the form that the origin's protocol has.
pub(crate) fn address(
    request: &mut Request<RequestBody>,
    origin: &Origin,
    authority: &HeaderValue,
    http2: bool,
) {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut parts = Parts::default();
    parts.path_and_query = Some(path);
    if http2 {
        parts.scheme = Some(if origin.server.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = authority.to_str().ok().and_then(|authority| authority.parse().ok());
        request.headers_mut().remove(HOST);
        *request.version_mut() = Version::HTTP_2;
    } else {
        request.headers_mut().insert(HOST, authority.clone());
        join_cookies(request.headers_mut());
        // Else a body of unknown length would be none, with methods that seldom have one.
        if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        *request.version_mut() = Version::HTTP_11;
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// One line of cookies, as HTTP/1.1 has it (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, whole);
    }
}

/// The protocol a client wants to change to (RFC 9110 section 7.8); not HTTP/2, whose requests would not be seen.
pub(crate) fn take_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wanted = headers.get(UPGRADE).filter(|wanted| !wanted.as_bytes().eq_ignore_ascii_case(b"h2c"))?;
    named_by_connection(headers).any(|name| name.eq_ignore_ascii_case("upgrade")).then(|| wanted.clone())
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',').map(str::trim))
}

/// Takes out what is of one connection alone. `TE: trailers` stays, as both sides pass trailers on.
pub(crate) fn clean(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> =
            named_by_connection(headers).filter_map(|name| name.parse().ok()).collect();
        for name in named {
            headers.remove(name);
        }
    }
    // Where both are, the chunks count (RFC 9112 section 6.3).
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

    fn asked(uri: &str, host: Option<&str>) -> Result<(String, String), &'static str> {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let (value, name) = authority_of(&request.body(()).unwrap())?;
        Ok((value.to_str().unwrap().to_owned(), name.to_string()))
    }

    #[test]
    fn what_is_passed_on_for_a_host_is_a_name_and_a_port() {
        for (said, value, name) in [
            ("a.example", "a.example", "a.example"),
            ("A.Example.:8443", "A.Example.:8443", "a.example"),
            ("a.example:080", "a.example:80", "a.example"),
            ("a.example:65535", "a.example:65535", "a.example"),
            ("[::1]", "[::1]", "::1"),
            ("[::1]:443", "[::1]:443", "::1"),
            ("127.0.0.1:443", "127.0.0.1:443", "127.0.0.1"),
        ] {
            let wanted = Ok((value.to_owned(), name.to_owned()));
            assert_eq!(asked("/", Some(said)), wanted, "{said}");
            assert_eq!(asked(&format!("https://{said}/"), Some("other")), wanted, "{said}");
        }
    }

    #[test]
    fn what_is_neither_is_not_passed_on() {
        for said in [
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
            assert!(asked("/", Some(said)).is_err(), "{said}");
            let Ok(uri) = format!("https://{said}/").parse::<Uri>() else { continue };
            assert!(asked(&uri.to_string(), None).is_err(), "{said}");
        }
        assert!(asked("/", None).is_err());
    }
}
