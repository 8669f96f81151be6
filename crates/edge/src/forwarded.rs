//! Header fields that describe the client to upstreams: `Forwarded` (RFC 7239) and the older X-Forwarded fields.

use std::net::IpAddr;

use http_relay::fields;
use hyper::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Prefixes of header fields that reverse proxies set and servers trust: client address, client certificate, scheme, host and path.
/// `-` also matches other characters that upstreams treat as `-`.
const SET_BY_PROXIES: [&str; 43] = [
    "x-forward",
    "x-real-ip",
    "x-client-ip",
    "x-client-port",
    "x-client-cert",
    "x-client-verify",
    "x-client-dn",
    "x-client-s-dn",
    "x-client-i-dn",
    "x-client-subject",
    "x-client-issuer",
    "x-client-ssl",
    "client-ip",
    "true-client-ip",
    "cf-",
    "fastly-",
    "fly-client-ip",
    "x-cluster-client-ip",
    "x-azure-",
    "x-appengine-",
    "x-envoy-",
    "x-amzn-mtls-",
    "x-arr-",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-proxyuser-ip",
    "x-host",
    "x-http-host-override",
    "x-original-",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
    "front-end-https",
    "x-ssl",
    "x-tls",
    "x-mtls",
    "ssl-",
    "tls-client-",
    // RFC 9440 and its predecessors.
    "client-cert",
    "x-remote-",
    "remote-user",
    "x-auth-request-",
    "x-webauth-",
];

/// Adds the client's address, the host and the scheme to the header. Removes all such fields that the client sent. If the client is
/// a trusted proxy, keeps its fields and appends to its lists.
pub(super) fn set_fields(headers: &mut HeaderMap, client: IpAddr, authority: &HeaderValue, is_trusted: bool) {
    let untrue: Vec<HeaderName> = headers
        .keys()
        .filter(|name| (!is_trusted || is_respelled(name)) && identifies_client(name))
        .cloned()
        .collect();
    for name in untrue {
        headers.remove(name);
    }
    append(headers, X_FORWARDED_FOR, client.to_string());
    append(headers, FORWARDED, element(client, authority));
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("https"));
    headers.entry(X_FORWARDED_HOST).or_insert_with(|| authority.clone());
}

/// Removes header fields about the client from trailers.
pub(super) fn clean_trailers(trailers: &mut HeaderMap) {
    fields::clean_trailers(trailers);
    let client_fields: Vec<HeaderName> =
        trailers.keys().filter(|name| identifies_client(name)).cloned().collect();
    for name in client_fields {
        trailers.remove(name);
    }
}

/// Returns whether the name contains a character other than letters, digits and `-`. Upstreams may read such a character as `-`.
fn is_respelled(name: &HeaderName) -> bool {
    name.as_str().bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-')
}

/// Returns whether upstreams may read the field as information about the client. Some upstreams treat `_`, or any character except
/// letters and digits, like `-` (CGI variables, RFC 3875 section 4.1.18).
fn identifies_client(name: &HeaderName) -> bool {
    let begins = |wanted: &str| {
        let bytes = name.as_str().bytes().map(|byte| if byte.is_ascii_alphanumeric() { byte } else { b'-' });
        name.as_str().len() >= wanted.len() && bytes.zip(wanted.bytes()).all(|(is, wanted)| is == wanted)
    };
    *name == FORWARDED || SET_BY_PROXIES.into_iter().any(begins)
}

/// Appends `last` to the field's list of values.
fn append(headers: &mut HeaderMap, name: HeaderName, last: String) {
    let mut list: Vec<u8> = Vec::new();
    for before in headers.get_all(&name) {
        list.extend(before.as_bytes());
        list.extend(b", ");
    }
    list.extend(last.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

/// Returns a `Forwarded` element (RFC 7239 sections 4 and 6).
fn element(client: IpAddr, authority: &HeaderValue) -> String {
    let client = match client {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    // A valid authority contains neither quotes nor backslashes (RFC 3986 section 3.2).
    format!("for={client};host=\"{}\";proto=https", authority.to_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_fields(sent: &[(&str, &str)], client: &str, is_trusted: bool) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let authority = HeaderValue::from_static("a.example:8443");
        set_fields(&mut headers, client.parse().unwrap(), &authority, is_trusted);
        let mut client_fields: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        client_fields.sort();
        client_fields
    }

    const SENT: [(&str, &str); 13] = [
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-For", "10.0.0.2"),
        ("x_forwarded_for", "10.0.0.3"),
        ("X-Forwarded_Proto", "http"),
        ("X.Forwarded.For", "10.0.0.6"),
        ("X-Forwarded.Host", "b.example"),
        ("X~Real|IP", "10.0.0.7"),
        ("X!Forwarded-For", "10.0.0.8"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Prefix", "/admin"),
        ("X-Real-IP", "10.0.0.4"),
        ("Forwarded", "for=10.0.0.5"),
        ("X-Other", "stays"),
    ];

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn client_supplied_forwarded_headers_are_replaced() {
        let wanted = pairs(&[
            ("forwarded", "for=192.0.2.7;host=\"a.example:8443\";proto=https"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "a.example:8443"),
            ("x-forwarded-proto", "https"),
            ("x-other", "stays"),
        ]);
        assert_eq!(client_fields(&SENT, "192.0.2.7", false), wanted);
        let six = client_fields(&[], "2001:db8::7", false);
        assert!(six.contains(&pairs(&[("x-forwarded-for", "2001:db8::7")])[0]), "{six:?}");
        assert!(six[0].1.starts_with("for=\"[2001:db8::7]\";"), "{six:?}");
    }

    #[test]
    fn client_identity_headers_of_untrusted_clients_are_removed() {
        for name in [
            "X-SSL-Client-Verify",
            "X-SSL-Client-S-DN",
            "X_SSL_Client_Cert",
            "X-SSL-Cert",
            "X-SSL",
            "X-Client-Cert",
            "X-Client-Cert-Chain",
            "X-Client-Certificate",
            "X-Forwarded-Client-Cert",
            "X-Forwarded-Tls-Client-Cert",
            "X-Forward-For",
            "Client-Cert",
            "Client-Cert-Chain",
            "ssl-client-verify",
            "ssl-client-subject-dn",
            "X-TLS-Client-Cert",
            "X-Amzn-Mtls-Clientcert",
            "X-ARR-ClientCert",
            "X-Original-URL",
            "X-Original-Host",
            "X-Original-Forwarded-For",
            "X-Rewrite-URL",
            "True-Client-IP",
            "CF-Connecting-IP",
            "CF_Connecting_IPv6",
            "Fastly-Client-IP",
            "X-Client-IP",
            "Client-IP",
            "X-Cluster-Client-IP",
            "X-Envoy-External-Address",
            "X-Envoy-Original-Path",
            "X-Azure-ClientIP",
            "X-Host",
            "X-Scheme",
            "Front-End-Https",
            "X-Remote-User",
            "Remote.User",
        ] {
            let is_forwarded = |is_trusted| {
                let sent = client_fields(&[(name, "said")], "192.0.2.7", is_trusted);
                sent.iter().any(|(_, value)| value == "said")
            };
            assert!(!is_forwarded(false), "{name}");
            let is_respelled = name.contains(['_', '.']);
            assert_eq!(is_forwarded(true), !is_respelled, "{name}, of a trusted proxy");
        }
    }

    #[test]
    fn forwarding_and_connection_fields_are_removed_from_trailers() {
        let mut trailers: HeaderMap = SENT
            .iter()
            .chain(&[("Keep-Alive", "1"), ("Proxy-Authorization", "1"), ("Host", "b"), ("X-Sum", "7")])
            .map(|(name, value)| (HeaderName::try_from(*name).unwrap(), HeaderValue::from_static(value)))
            .collect();
        clean_trailers(&mut trailers);
        let mut left: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["x-other", "x-sum"]);
    }

    #[test]
    fn forwarded_headers_of_trusted_proxies_are_extended() {
        let wanted = pairs(&[
            ("forwarded", "for=10.0.0.5, for=192.0.2.7;host=\"a.example:8443\";proto=https"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 192.0.2.7"),
            ("x-forwarded-host", "a.example:8443"),
            ("x-forwarded-prefix", "/admin"),
            ("x-forwarded-proto", "http"),
            ("x-other", "stays"),
            ("x-real-ip", "10.0.0.4"),
        ]);
        assert_eq!(client_fields(&SENT, "192.0.2.7", true), wanted);
    }
}
