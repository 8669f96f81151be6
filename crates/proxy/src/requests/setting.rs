//! Validation of a rule's settings.

use hyper::header::HeaderName;

pub(super) use crate::setting::{InvalidSetting, invalid};
use crate::url_path::plain_path;

/// Header fields for framing, connection or routing. Rules must not set them, because two servers could then interpret the same
/// bytes differently (request smuggling).
const NOT_OURS: [&str; 14] = [
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
        let hint = "write it plain: no %41 for A, %C3%A9 for \u{e9}, no dot segments, no // in it";
        return Err(invalid(key, format!("{path:?} would never be met"), hint));
    }
    Ok(())
}

/// Returns the name of a header field that a rule may set.
pub(super) fn header_name(key: &'static str, text: &str) -> Result<HeaderName, InvalidSetting> {
    let hint = "a name as in HTTP: X-Team";
    let name: HeaderName = text.parse().map_err(|_| invalid(key, format!("{text:?} is no header"), hint))?;
    if NOT_OURS.contains(&name.as_str()) {
        let hint =
            "it is the connection's, or says how long a message is or whom it is for (rewrite.host does)";
        return Err(invalid(key, format!("{name} is not a rule's to change"), hint));
    }
    Ok(name)
}
