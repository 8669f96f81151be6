//! Health of the server.

use serde::Serialize;

/// How the server is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`.
    pub status: String,
}
