//! The console as a relying party of WebAuthn: its host name and its origin.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

use crate::problem::Problem;

/// The host name and the origin at which a browser reached the server.
///
/// Both come from the request. A key works only for the host name that it was registered for, so that a browser at another host
/// name cannot use it. A service at another port of the host name can relay requests with its own port, so the host name must
/// belong to this server alone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Site {
    /// The host name without port: the relying party identifier.
    pub(crate) rp_id: String,
    /// The origin, such as `https://bulla.example:9443`.
    pub(crate) origin: String,
}

impl Site {
    /// Returns the site of a request.
    ///
    /// # Errors
    /// 409 if the browser uses an IP address: browsers have security keys for host names only.
    pub(crate) fn of(parts: &Parts) -> Result<Self, Problem> {
        // In HTTP/2 the host is in the URI.
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| parts.uri.authority().map(Authority::as_str)).unwrap_or_default();
        let unusable = || {
            Problem::conflict("security keys need a host name: this request names an IP address or no host")
                .hint("open the console by the server's host name, such as https://localhost:9443/console")
        };
        let authority: Authority = host.to_ascii_lowercase().parse().map_err(|_| unusable())?;
        let name = authority.host();
        let is_name = name.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
        // No top-level domain is a number.
        let last_is_number =
            name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_name || last_is_number || authority.as_str().contains('@') {
            return Err(unusable());
        }
        let port = authority.port_u16().filter(|port| *port != 443);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self { origin: format!("https://{name}{port}"), rp_id: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str) -> Option<(String, String)> {
        let (parts, ()) = http::Request::builder().header("host", host).body(()).unwrap().into_parts();
        Site::of(&parts).ok().map(|site| (site.rp_id, site.origin))
    }

    #[test]
    fn a_site_has_a_host_name() {
        let pair = |name: &str, origin: &str| Some((name.to_owned(), origin.to_owned()));
        assert_eq!(of("localhost:9443"), pair("localhost", "https://localhost:9443"));
        assert_eq!(of("Bulla.Example"), pair("bulla.example", "https://bulla.example"));
        assert_eq!(of("bulla.example:443"), pair("bulla.example", "https://bulla.example"));
        for bad in
            ["", "127.0.0.1", "127.0.0.1:9443", "[::1]:9443", "a@b.example", "a..b", "a_b.example", "x.1"]
        {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
