//! Validation of settings that rules on requests and the policy share.

use hyper::Method;

/// An invalid setting: key, error, and fix.
#[derive(Debug)]
pub(crate) struct InvalidSetting {
    pub(crate) key: &'static str,
    pub(crate) why: String,
    pub(crate) hint: &'static str,
}

/// Creates an error for setting `key`.
pub(crate) fn invalid(key: &'static str, why: impl Into<String>, hint: &'static str) -> InvalidSetting {
    InvalidSetting { key, why: why.into(), hint }
}

/// Parses HTTP methods, which must be in upper case: `get` would never match.
pub(crate) fn methods(texts: &[String]) -> Result<Vec<Method>, InvalidSetting> {
    let read = |text: &String| {
        let known = Method::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains(char::is_lowercase));
        known.ok_or_else(|| {
            invalid("method", format!("{text:?} is not an HTTP method"), "for example GET, in upper case")
        })
    };
    texts.iter().map(read).collect()
}

/// Returns whether the host of a URL is this machine.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.parse().is_ok_and(|address: std::net::IpAddr| address.to_canonical().is_loopback())
}
