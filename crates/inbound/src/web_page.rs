//! Requests that a web page makes a browser send.

use http::HeaderMap;
use http::header::ORIGIN;

/// Whether a web page made a browser send this request. A browser adds `Origin` or `Sec-Fetch-Site` (W3C Fetch Metadata) to it;
/// programs send neither. `Sec-Fetch-Site: none` is a person who typed the address.
///
/// A listener that needs no token (a loopback port, a client certificate that the browser sends by itself) refuses such a request:
/// any site can make the browsers of its visitors send one.
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
    fn browsers_say_that_a_page_sends_the_request() {
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
