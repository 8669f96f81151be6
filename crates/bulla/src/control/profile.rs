//! Profiles: what may be issued.

use reqwest::Method;

use super::document::Document;
use crate::api::Columns;

/// Profiles.
#[derive(Debug)]
pub(crate) struct ProfileDocument;

impl Document for ProfileDocument {
    const PATH: &'static str = "/api/v1/profiles";
    const COLUMNS: Columns = &[
        ("Name", "/name"),
        ("Description", "/description"),
        ("CA", "/ca"),
        ("Key types", "/key_types"),
        ("Lifetime s", "/validity/default_seconds"),
        ("Approval", "/requires_approval"),
    ];
    const REPLACE: Method = Method::PUT;
}
