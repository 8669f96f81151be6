//! Host names as entered by users.

use std::borrow::Cow;

use x509::{HostName, InvalidHostName};

/// Reason why a text is not a host name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidHost {
    /// The text is not a valid ASCII host name.
    #[error(transparent)]
    Invalid(#[from] InvalidHostName),
    /// The internationalized name is invalid according to UTS #46.
    #[error("the name is not a valid internationalized name; try its xn-- form")]
    International,
}

/// Parses a host name. Internationalized names are converted to A-labels (UTS #46, RFC 5890).
///
/// # Errors
/// [`InvalidHost`], which states why the name is invalid.
pub fn host_name(text: &str) -> Result<HostName, InvalidHost> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let ascii = if text.is_ascii() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(idna::domain_to_ascii_strict(text).map_err(|_| InvalidHost::International)?)
    };
    Ok(HostName::parse(&ascii)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_normalized_to_lower_case_a_labels() {
        let cases: [(&str, Result<&str, InvalidHost>); 8] = [
            ("WWW.Example.COM.", Ok("www.example.com")),
            ("xn--bcher-kva.example", Ok("xn--bcher-kva.example")),
            ("Bücher.example", Ok("xn--bcher-kva.example")),
            ("bücher.example.", Ok("xn--bcher-kva.example")),
            ("", Err(InvalidHost::Invalid(InvalidHostName::Empty))),
            ("*.example.com", Err(InvalidHost::Invalid(InvalidHostName::Wildcard))),
            ("a\u{fffd}.example", Err(InvalidHost::International)),
            ("ü_ü.example", Err(InvalidHost::International)),
        ];
        for (text, expected) in cases {
            let name = host_name(text);
            assert_eq!(name.as_ref().map(HostName::as_str).map_err(|e| *e), expected, "{text:?}");
        }
    }
}
