//! Validation of a rule's settings.

use hyper::header::HeaderName;

pub(super) use crate::setting::{InvalidSetting, invalid};
use crate::url_path::plain_path;

/// Header fields for framing, connection or routing. Rules must not set them, because two servers could then interpret the same
/// bytes differently (request smuggling).
const RESERVED_FIELDS: [&str; 14] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-status",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "expect",
];

/// Checks a path pattern. Paths are compared in normal form, so any other spelling would never match.
pub(super) fn check_path(key: &'static str, path: &str) -> Result<(), InvalidSetting> {
    // The text before the first star is not necessarily a complete segment.
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    if plain_path(&whole) != whole {
        let hint = "write it in normal form: no %41 for A, %C3%A9 for \u{e9}, no dot segments, no //";
        return Err(invalid(key, format!("{path:?} never matches"), hint));
    }
    Ok(())
}

/// Returns the name of a header field that a rule may set.
pub(super) fn header_name(key: &'static str, text: &str) -> Result<HeaderName, InvalidSetting> {
    let hint = "a header name such as X-Team";
    let name: HeaderName =
        text.parse().map_err(|_| invalid(key, format!("{text:?} is not a header name"), hint))?;
    if RESERVED_FIELDS.contains(&name.as_str()) {
        let hint = "the header belongs to the connection, or sets the length or the host of a message (use rewrite.host for the host)";
        return Err(invalid(key, format!("rules cannot change {name}"), hint));
    }
    Ok(name)
}
