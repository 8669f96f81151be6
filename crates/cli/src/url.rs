//! Detects URLs whose requests are not encrypted.

use std::net::IpAddr;

/// Returns whether data sent to `url` crosses a network unencrypted.
pub fn is_unencrypted(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && !is_local
}
