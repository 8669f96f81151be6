//! Configuration of how dns-01 records are published.

use std::net::SocketAddr;

use keys::Secret;
use serde::{Deserialize, Serialize};

use crate::program_name::{FormerArgv, ProgramName};

/// Configuration of the publication of dns-01 records.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dns01Config {
    /// How the records are published: by DNS UPDATE, a program or a service.
    pub publisher: PublisherConfig,
    /// How to wait until the record is visible.
    #[serde(default)]
    pub propagation: Propagation,
    /// Time to live of the record in seconds.
    #[serde(default = "record_ttl")]
    pub ttl: u32,
}

fn record_ttl() -> u32 {
    60
}

/// A publisher of DNS records.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum PublisherConfig {
    /// DNS UPDATE (RFC 2136), signed with TSIG (RFC 8945).
    Rfc2136 {
        /// Address of the zone's primary server.
        server: SocketAddr,
        /// Name of the zone. Default: found by its SOA record.
        #[serde(default)]
        zone: Option<String>,
        /// Name of the TSIG key.
        tsig_name: String,
        /// Algorithm of the TSIG key.
        #[serde(default)]
        tsig_algorithm: TsigAlgorithm,
        /// The TSIG key in base64, as `tsig-keygen` prints it.
        tsig_secret: Secret,
    },
    /// A configured program, run as `argv… present|cleanup NAME VALUE`.
    Exec {
        /// Name of the program in the server's configuration, `[programs.NAME]`.
        program: ProgramName,
        /// Timeout of a run in seconds, if shorter than the program's own.
        #[serde(default)]
        seconds: Option<u32>,
        /// Rejected: a program is referenced by name.
        #[serde(default)]
        argv: FormerArgv,
    },
    /// An HTTP service.
    Webhook {
        /// URL to which changes are posted.
        url: String,
        /// Key of the HMAC-SHA256 over request bodies.
        secret: Secret,
    },
}

impl PublisherConfig {
    /// Returns the program that the publisher runs, if any.
    pub(crate) fn program(&self) -> Option<&ProgramName> {
        match self {
            Self::Exec { program, .. } => Some(program),
            Self::Rfc2136 { .. } | Self::Webhook { .. } => None,
        }
    }
}

/// MAC algorithm of a TSIG key (RFC 8945).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum TsigAlgorithm {
    /// HMAC-SHA256.
    #[default]
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// HMAC-SHA512.
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

/// How to wait until every authoritative server has the record.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Propagation {
    /// Whether to wait until all authoritative servers have the record.
    pub check: bool,
    /// Recursive servers for finding zones and aliases. Empty: this machine's resolvers.
    pub resolvers: Vec<SocketAddr>,
    /// Authoritative servers to query. Empty: found by the zone's NS records.
    pub servers: Vec<SocketAddr>,
    /// Port of authoritative servers that are found by name.
    pub port: u16,
    /// Maximum time to wait until all authoritative servers have the record, in seconds.
    pub wait_seconds: u32,
    /// Polling interval in milliseconds.
    pub interval_ms: u32,
}

impl Default for Propagation {
    fn default() -> Self {
        Self {
            check: true,
            resolvers: Vec::new(),
            servers: Vec::new(),
            port: 53,
            wait_seconds: 120,
            interval_ms: 2_000,
        }
    }
}
