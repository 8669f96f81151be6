//! Shared parts of the certificate pages: their URLs, and the table row of a certificate.

use serde_json::Value;

use crate::cell::{Cell, Tone};
use crate::json;
use crate::query::item;
use crate::session::Session;

/// Console path of the certificate list.
pub(super) const PAGE: &str = "/console/certificates";

/// API path of the certificate list.
pub(super) const LIST: &str = "/api/v1/certificates";

/// The column headings of [`row`].
pub(super) const COLUMNS: &[&str] = &["Name", "State", "Expires", "Served", "Issuer", "Owner", "Key"];

/// Returns the API path of a certificate.
pub(super) fn api_path(id: &str) -> String {
    item(LIST, id)
}

/// Returns whether endpoints present the current version.
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

/// Returns a certificate as a table row.
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
