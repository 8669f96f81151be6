//! Detection of requests that a web page makes a browser send.

use http::HeaderMap;
use http::header::ORIGIN;

/// Returns whether a web page made a browser send this request. Browsers add `Origin` or `Sec-Fetch-Site` (W3C Fetch Metadata) to
/// such requests; programs send neither. `Sec-Fetch-Site: none` means that the user typed the address.
///
/// A listener that needs no token (a loopback port, or a client certificate that browsers send automatically) rejects such
/// requests: any site can make its visitors' browsers send them.
#[must_use]
pub fn is_sent_by_web_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    headers.contains_key(ORIGIN) || site.is_some_and(|site| site != "none")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn requests_sent_by_web_pages_are_detected() {
        for (name, value, by_page) in [
            ("accept", "*/*", false),
            ("sec-fetch-site", "none", false),
            ("sec-fetch-site", "same-origin", true),
            ("sec-fetch-site", "cross-site", true),
            ("origin", "null", true),
            ("origin", "https://evil.example", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(is_sent_by_web_page(&headers), by_page, "{name}: {value}");
        }
    }
}
