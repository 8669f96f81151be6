//! Settings of a rule: what may stand there, and how a wrong one is reported.

use hyper::header::HeaderName;

pub(super) use crate::setting::{InvalidSetting, invalid};
use crate::url_path::plain_path;

/// What frames a message, is of one connection, or says whom it is for: no rule writes it, as two servers could read the same
/// bytes differently then (request smuggling).
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

/// Paths are compared in one spelling: another is never met.
pub(super) fn check_path(key: &'static str, path: &str) -> Result<(), InvalidSetting> {
    // What stands before a first star is no segment of its own.
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    if plain_path(&whole) != whole {
        let hint = "write it plain: no %41 for A, %C3%A9 for \u{e9}, no dot segments, no // in it";
        return Err(invalid(key, format!("{path:?} would never be met"), hint));
    }
    Ok(())
}

/// A header's name that a rule may write.
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
