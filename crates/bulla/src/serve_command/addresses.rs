//! The URLs and host names of a control plane, and parsing of configured networks.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use cli::exit::{Outcome, Problem};

use crate::config::ServerSettings;
use crate::listening::socket;

/// The URLs and names of the server.
pub(super) struct Addresses {
    pub(super) listen: SocketAddr,
    pub(super) public: Option<SocketAddr>,
    /// The API's URL for clients, without a trailing slash; empty: derived from the bound address.
    url: String,
    /// The URL of CRLs and OCSP for clients.
    pub(super) public_url: String,
    /// Names of the server's own certificate.
    pub(super) names: Vec<String>,
}

impl Addresses {
    /// Returns the addresses of a server. `credential_url` is the URL of its credential store for clients, if configured.
    pub(super) fn of(settings: &ServerSettings, credential_url: &str) -> Outcome<Self> {
        let listen = socket("server.listen", &settings.listen)?;
        let public = match settings.public_listen.as_str() {
            "" => None,
            text => Some(socket("server.public_listen", text)?),
        };
        let host = host_name(&settings.listen);
        let url = settings.url.trim_end_matches('/').to_owned();
        let public_url = match (settings.public_url.trim_end_matches('/'), public) {
            ("", Some(public)) => format!("http://{}", at(&host, public.port(), 80)),
            ("", None) => format!("http://{host}"),
            (given, _) => given.to_owned(),
        };
        let mut names = vec![host, "localhost".to_owned()];
        names.extend(host_of(&url));
        names.extend(host_of(credential_url));
        if !listen.ip().is_unspecified() {
            names.push(listen.ip().to_string());
        } else {
            names.push("127.0.0.1".to_owned());
        }
        names.sort();
        names.dedup();
        Ok(Self { listen, public, url, public_url, names })
    }

    /// Returns the API's URL for clients, once the port is known.
    pub(super) fn url(&self) -> String {
        self.url_at(self.listen)
    }

    pub(super) fn url_at(&self, address: SocketAddr) -> String {
        if self.url.is_empty() { self.url_of(address) } else { self.url.clone() }
    }

    /// Returns the URL of a listener at `address`.
    pub(super) fn url_of(&self, address: SocketAddr) -> String {
        let host = if address.ip().is_loopback() {
            "localhost".to_owned()
        } else {
            self.names.iter().find(|name| *name != "localhost").cloned().unwrap_or_default()
        };
        format!("https://{}", at(&host, address.port(), 443))
    }
}

fn at(host: &str, port: u16, usual: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == usual { host } else { format!("{host}:{port}") }
}

/// Returns the host of `HOST:PORT`, or this machine's name for a wildcard address.
fn host_name(listen: &str) -> String {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>().ok();
    if address.is_some_and(|address| address.is_loopback()) {
        return "localhost".to_owned();
    }
    if host.is_empty() || address.is_some_and(|address| address.is_unspecified()) {
        let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        return if name.is_empty() { "localhost".to_owned() } else { name };
    }
    host.to_owned()
}

fn host_of(url: &str) -> Option<String> {
    reqwest::Url::parse(url).ok()?.host_str().map(|host| host.trim_matches(['[', ']']).to_owned())
}

/// Parses networks such as `10.0.0.0/8`, or addresses.
pub(super) fn networks<N: FromStr + From<IpAddr>>(key: &str, all: &[String]) -> Outcome<Vec<N>> {
    let one = |text: &String| {
        let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(N::from));
        network.ok_or_else(|| {
            Problem::usage(format_args!("{key}: {text:?} is not a network"))
                .hint("write networks as 10.0.0.0/8 or fd00::/8")
        })
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_url_and_names_are_derived_from_listen_and_url() {
        let of = |listen: &str, url: &str| {
            let settings =
                ServerSettings { listen: listen.into(), url: url.into(), ..ServerSettings::default() };
            Addresses::of(&settings, "https://store.example:8844").unwrap()
        };
        assert_eq!(of("127.0.0.1:8443", "").url(), "https://localhost:8443");
        assert_eq!(of("127.0.0.1:443", "").url(), "https://localhost");
        let named = of("0.0.0.0:8443", "https://pki.example/");
        assert_eq!(named.url(), "https://pki.example");
        for name in ["pki.example", "store.example"] {
            assert!(named.names.contains(&name.to_owned()), "{:?}", named.names);
        }
        assert!(of("[::1]:8443", "").names.contains(&"::1".to_owned()));
        assert!(
            Addresses::of(&ServerSettings { listen: "nonsense".into(), ..ServerSettings::default() }, "")
                .is_err()
        );
    }
}
