//! Endpoints at which certificates were found.

use serde::{Deserialize, Serialize};

/// Properties that together identify an endpoint.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = InventoryEndpoint))]
pub struct EndpointBody {
    /// Hostname, IP address or file path.
    pub host: String,
    /// Port; 0 for a file.
    pub port: u16,
    /// Protocol, such as `tls` or `smtp`; `file` for a file.
    pub protocol: String,
    /// Server name that the probe sent (SNI); empty without SNI.
    pub server_name: String,
    /// Probed IP address, if each address is a separate endpoint; otherwise empty.
    #[serde(default)]
    pub address: String,
}
