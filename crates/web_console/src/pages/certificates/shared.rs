//! What the pages of certificates share: their addresses, and a certificate as a row.

use serde_json::Value;

use crate::cell::{Cell, Tone};
use crate::json;
use crate::query::item;
use crate::session::Session;

/// The list of certificates.
pub(super) const PAGE: &str = "/console/certificates";

/// Where the API has them.
pub(super) const LIST: &str = "/api/v1/certificates";

/// The heads of [`row`].
pub(super) const COLUMNS: &[&str] = &["Name", "State", "Expires", "Served", "Issuer", "Owner", "Key"];

/// Where the API has a certificate.
pub(super) fn api_path(id: &str) -> String {
    item(LIST, id)
}

/// Whether what endpoints show is the current version.
pub(super) fn served_state(certificate: &Value) -> Cell {
    let state = json::text(certificate, "/served_status");
    let tone = match state {
        "" => return Cell::Empty,
        "newest" => Tone::Good,
        "older" => Tone::Warn,
        _ => Tone::Calm,
    };
    Cell::badge(tone, state.replace('_', " "))
}

/// A certificate in a table.
pub(super) fn row(session: &Session, certificate: &Value) -> Vec<Cell> {
    let id = json::text(certificate, "/id");
    vec![
        Cell::link(item(PAGE, id), json::text(certificate, "/name")),
        Cell::state(json::text(certificate, "/status")),
        Cell::time(json::text(certificate, "/ends_at"), session.now),
        served_state(certificate),
        Cell::text(json::text(certificate, "/issuer")),
        Cell::text(json::text(certificate, "/owner")),
        Cell::text(json::text(certificate, "/key_type")),
    ]
}
