//! Endpoints: where a certificate was seen.

use serde::{Deserialize, Serialize};

/// An endpoint, as it tells one from another.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = InventoryEndpoint))]
pub struct EndpointBody {
    /// Name, address or path.
    pub host: String,
    /// Port; 0 for files.
    pub port: u16,
    /// `tls`, `smtp`, …; `file` for files.
    pub protocol: String,
    /// The SNI sent; empty when none was.
    pub server_name: String,
    /// The address probed, when each address is an endpoint of its own; otherwise empty.
    #[serde(default)]
    pub address: String,
}
