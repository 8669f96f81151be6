//! Concurrent, bounded requests to key services.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem, chain};
use futures_util::future::join_all;
use reqwest::StatusCode;
use serde::Serialize;

use crate::config::Configuration;

/// Maximum number of services: enough for one site.
const SERVICES_MAX: usize = 128;
/// Maximum bytes of one metrics response. The metrics of 1,000 tenants and 1,000 sites take 6 MB.
pub(super) const METRICS_MAX: usize = 16 << 20;
/// Maximum bytes of traces: a service returns at most 256 requests of at most 2 KB.
pub(super) const TRACES_MAX: usize = 1 << 20;
/// Timeout for one response, including the connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments for the metrics addresses of key services.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServicesArgs {
    /// Address of a key service's metrics; may be repeated [default: keys.monitor_urls, or else keys.metrics_listen, of the configuration]
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<String>,
}

/// Key services, each identified by its metrics address.
pub(super) struct Services {
    http: reqwest::Client,
    urls: Vec<String>,
}

/// A service that did not respond, and why.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct UnreachableService {
    pub(super) url: String,
    pub(super) why: String,
}

/// The body of a service's response, or the reason why the service did not respond.
pub(super) type Reply = Result<String, UnreachableService>;

/// Advice for a service that does not respond.
pub(super) const HINT: &str = "check that the service runs (`bulla key serve`), and that --url is its keys.metrics_listen; \
 by default that address is reachable from this host only";

impl Services {
    pub(super) fn open(args: &ServicesArgs, global: &GlobalArgs) -> Outcome<Self> {
        if args.urls.is_empty() {
            let keys = Configuration::load(global.config.as_deref())?.settings.keys;
            return Self::configured(&keys.monitor_urls, &keys.metrics_listen);
        }
        Self::at(args.urls.iter().map(|url| given(url)).collect::<Outcome<Vec<_>>>()?)
    }

    /// Returns the services in `keys.monitor_urls`, or else this host's own.
    pub(super) fn configured(urls: &[String], own_listen: &str) -> Outcome<Self> {
        match urls {
            [] => Self::at(vec![own(own_listen)?]),
            urls => Self::at(urls.iter().map(|url| given(url)).collect::<Outcome<Vec<_>>>()?),
        }
    }

    fn at(urls: Vec<String>) -> Outcome<Self> {
        let mut unique: Vec<String> = Vec::new();
        for url in urls {
            if !unique.contains(&url) {
                unique.push(url);
            }
        }
        if unique.len() > SERVICES_MAX {
            return Err(Problem::usage(format_args!(
                "{} services, but the maximum is {SERVICES_MAX}",
                unique.len()
            ))
            .hint("query them in smaller groups"));
        }
        // The addresses are in the local network, so no proxy is used.
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Problem::new(Exit::Machine, format_args!("cannot create an HTTP client: {error}"))
            })?;
        Ok(Self { http, urls: unique })
    }

    /// Requests `path` from each service. A response may have at most `bytes_max` bytes. Returns the responses in the order of the
    /// services.
    pub(super) async fn fetch_all(&self, path: &str, bytes_max: usize) -> Vec<(String, Reply)> {
        let fetches =
            self.urls.iter().map(|url| async { (url.clone(), self.fetch_one(url, path, bytes_max).await) });
        join_all(fetches).await
    }

    async fn fetch_one(&self, url: &str, path: &str, bytes_max: usize) -> Reply {
        let unreachable = |why: String| UnreachableService { url: url.to_owned(), why };
        let sent = self.http.get(format!("{url}{path}")).send().await;
        let mut answer = sent.map_err(|error| unreachable(cause(&error)))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(unreachable(format!("the service has no {path}: does it run this version?")));
            }
            status => return Err(unreachable(format!("the service answers {status}"))),
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| unreachable(cause(&error)))? {
            if body.len() + part.len() > bytes_max {
                return Err(unreachable(format!("its response is larger than {bytes_max} bytes")));
            }
            body.extend_from_slice(&part);
        }
        String::from_utf8(body).map_err(|_| unreachable("its response is not UTF-8 text".to_owned()))
    }
}

/// Returns the innermost cause. The outer errors only repeat the address.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no response within {} s", REQUEST_TIMEOUT.as_secs());
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    if deepest.to_string().is_empty() { chain(error) } else { deepest.to_string() }
}

/// Returns the metrics URL of the configured service. An unspecified listen address (0.0.0.0 or ::) becomes the loopback address.
fn own(listen: &str) -> Outcome<String> {
    let nowhere = |what: String| {
        Problem::usage(what)
            .hint("give --url http://HOST:PORT, or set keys.metrics_listen in the configuration")
    };
    if listen.is_empty() {
        return Err(nowhere("keys.metrics_listen is empty: the service exposes no metrics".to_owned()));
    }
    let mut address: SocketAddr =
        listen.parse().map_err(|_| nowhere(format!("keys.metrics_listen: {listen:?} is not an address")))?;
    if address.port() == 0 {
        return Err(nowhere(
            "keys.metrics_listen has port 0, so the service chooses a port that this command cannot know"
                .to_owned(),
        ));
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(format!("http://{address}"))
}

/// Parses `http://HOST:PORT`, `HOST:PORT` or a full metrics URL, and returns `http://HOST:PORT`.
fn given(text: &str) -> Outcome<String> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let none = || {
        Problem::usage(format_args!("{text:?} is not an address of a key service"))
            .hint("for example http://HOST:PORT")
    };
    let url = reqwest::Url::parse(&whole).map_err(|_| none())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(none());
    }
    let plain = whole.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    Ok(plain.strip_suffix("/metrics").unwrap_or(plain).trim_end_matches('/').to_owned())
}

/// Returns the exit code, and prints warnings for services that did not respond. Returns an error if no service responded.
pub(super) fn exit_code(unreachable: &[UnreachableService], answered: usize) -> Outcome<Exit> {
    if unreachable.is_empty() {
        return Ok(Exit::Ok);
    }
    if answered == 0 {
        let all: Vec<String> = unreachable
            .iter()
            .map(|unreachable| format!("{} is unreachable: {}", unreachable.url, unreachable.why))
            .collect();
        return Err(Problem::new(Exit::Server, all.join("; ")).hint(HINT));
    }
    for unreachable in unreachable {
        eprintln!("warning: {} is unreachable: {}", unreachable.url, unreachable.why);
    }
    eprintln!("hint: {HINT}");
    Ok(Exit::Incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_addresses_are_normalized_and_invalid_ones_rejected() {
        for (text, url) in [
            ("127.0.0.1:2406", "http://127.0.0.1:2406"),
            ("http://a.example:2406/", "http://a.example:2406"),
            ("http://a.example:2406/metrics", "http://a.example:2406"),
            ("https://a.example/keys/metrics?x=1", "https://a.example/keys"),
            ("[::1]:2406", "http://[::1]:2406"),
        ] {
            assert_eq!(given(text).unwrap(), url, "{text}");
        }
        for wrong in ["", "http://", "ftp://a.example", "a b"] {
            assert!(given(wrong).is_err(), "{wrong}");
        }
        for (listen, url) in [
            ("127.0.0.1:2406", "http://127.0.0.1:2406"),
            ("0.0.0.0:1", "http://127.0.0.1:1"),
            ("[::]:1", "http://[::1]:1"),
        ] {
            assert_eq!(own(listen).unwrap(), url);
        }
        for wrong in ["", "127.0.0.1:0", "here"] {
            assert!(own(wrong).unwrap_err().hint.is_some(), "{wrong}");
        }
    }

    #[test]
    fn unreachable_service_is_a_warning_unless_all_are_unreachable() {
        let unreachable = [UnreachableService { url: "http://a".to_owned(), why: "gone".to_owned() }];
        assert_eq!(exit_code(&[], 0).unwrap(), Exit::Ok);
        assert_eq!(exit_code(&unreachable, 1).unwrap(), Exit::Incomplete);
        let problem = exit_code(&unreachable, 0).unwrap_err();
        assert_eq!((problem.exit, problem.hint.as_deref()), (Exit::Server, Some(HINT)));
    }
}
