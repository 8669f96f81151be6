//! Rules for URIs (RFC 3986), including SPIFFE IDs.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Maximum length of a URI in bytes; the same as for a SPIFFE ID (SPIFFE-ID section 2.3).
const LENGTH_MAX: usize = 2_048;

/// A URI and all URIs below it. `spiffe://trust.example` is the whole trust domain; `https://a.example/devices` is that resource
/// and all resources with a path that continues after a slash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UriRule(Uri);

/// A URI with an authority, in normalized form for comparison.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Uri {
    /// Scheme in lower case.
    scheme: String,
    /// Host and port in lower case.
    authority: String,
    /// Path, not normalized; empty or beginning with a slash.
    path: String,
}

impl UriRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// Describes the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut uri =
            Uri::parse(text.trim_end_matches('/')).map_err(|reason| format!("{text:?}: {reason}"))?;
        uri.path.truncate(uri.path.trim_end_matches('/').len());
        Ok(Self(uri))
    }

    fn allows(&self, uri: &Uri) -> bool {
        let path = uri.path.strip_prefix(self.0.path.as_str());
        uri.scheme == self.0.scheme
            && uri.authority == self.0.authority
            && path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Uri {
    fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("longer than {LENGTH_MAX} bytes"));
        }
        if let Some(bad) = text.chars().find(|c| {
            !c.is_ascii_graphic() || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')
        }) {
            return Err(format!("{bad:?} is not allowed in a URI"));
        }
        if text.contains(['?', '#']) {
            return Err("a query or fragment is not allowed".to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or("write SCHEME://HOST/PATH")?;
        let is_scheme_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(is_scheme_char) {
            return Err("the scheme is not valid".to_owned());
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.is_empty() {
            return Err("the host is missing".to_owned());
        }
        if authority.contains('@') {
            return Err("user information is not allowed".to_owned());
        }
        // Clients may resolve dot segments in the path later and so leave the allowed prefix.
        let decoded = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
        if decoded.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err("the path has a segment . or ..".to_owned());
        }
        let uri = Self {
            scheme: scheme.to_ascii_lowercase(),
            authority: authority.to_ascii_lowercase(),
            path: path.to_owned(),
        };
        if uri.scheme == "spiffe" {
            uri.check_spiffe(authority)?;
        }
        Ok(uri)
    }

    /// Checks the rules of SPIFFE-ID section 2.
    fn check_spiffe(&self, authority: &str) -> Result<(), String> {
        let domain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        if !authority.chars().all(domain) {
            return Err("a SPIFFE trust domain may have lower-case letters, digits, dots, hyphens and underscores only"
                .to_owned());
        }
        let segment = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let good = |s: &str| !s.is_empty() && s.chars().all(segment);
        if !self.path.is_empty() && !self.path[1..].split('/').all(good) {
            return Err(
                "the segments of a SPIFFE path may have letters, digits, dots, hyphens and underscores only"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Returns the reason why `name` is not allowed; `None` if it is allowed.
pub(super) fn refusal(allowed: &[UriRule], name: &str) -> Option<String> {
    if allowed.is_empty() {
        return Some("this profile does not allow URIs".to_owned());
    }
    match Uri::parse(name) {
        Err(reason) => Some(reason),
        Ok(uri) if allowed.iter().any(|rule| rule.allows(&uri)) => None,
        Ok(_) => Some("outside the URIs this profile allows".to_owned()),
    }
}

impl fmt::Display for UriRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.0.scheme, self.0.authority, self.0.path)
    }
}

impl Serialize for UriRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UriRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_rule_matches_whole_path_segments() {
        let table = [
            ("spiffe://td.example", "spiffe://td.example/a/b", true),
            ("spiffe://td.example/", "spiffe://td.example/a", true),
            ("spiffe://td.example", "spiffe://td.example", true),
            ("spiffe://td.example", "spiffe://td.example.evil/a", false),
            ("spiffe://td.example", "spiffe://td.example:1/a", false),
            ("spiffe://td.example", "spiffe://TD.example/a", false),
            ("spiffe://td.example", "spiffe://td.example/a/", false),
            ("spiffe://td.example", "spiffe://td.example//a", false),
            ("spiffe://td.example", "spiffe://td.example/a?b", false),
            ("spiffe://td.example/ns/a", "spiffe://td.example/ns/a", true),
            ("spiffe://td.example/ns/a", "spiffe://td.example/ns/ab", false),
            ("spiffe://td.example/ns/a", "spiffe://td.example/ns/a/../b", false),
            ("https://a.example/x", "HTTPS://A.example/x/y", true),
            ("https://a.example/x", "https://a.example/x/%2e%2E/y", false),
            ("https://a.example/x", "https://a.example/x%2f..%2fy", false),
            ("https://a.example/x", "https://u@a.example/x", false),
            ("https://a.example", "http://a.example/", false),
            ("https://a.example", "https://a.example/ b", false),
            ("https://a.example", "urn:a", false),
        ];
        for (rule, name, allowed) in table {
            let rule = UriRule::parse(rule).unwrap();
            let refused = refusal(std::slice::from_ref(&rule), name);
            assert_eq!(refused.is_none(), allowed, "{rule} {name} {refused:?}");
        }
        for bad in ["", "a.example", "spiffe://", "spiffe://A.example", "https://a.example/?x", "1a://b"] {
            assert!(UriRule::parse(bad).is_err(), "{bad}");
        }
    }
}
