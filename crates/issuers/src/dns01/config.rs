//! Configuration of DNS-01 publication.

use std::net::SocketAddr;

use keys::Secret;
use serde::{Deserialize, Serialize};

use crate::program_name::{FormerArgv, ProgramName};

/// How dns-01 records come into the DNS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dns01Config {
    /// The publisher.
    pub publisher: PublisherConfig,
    /// How we wait until the world sees it.
    #[serde(default)]
    pub propagation: Propagation,
    /// Time to live of the record, seconds.
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
        /// The zone's primary server.
        server: SocketAddr,
        /// The zone; found by its SOA when absent.
        #[serde(default)]
        zone: Option<String>,
        /// The key's name.
        tsig_name: String,
        /// The key's algorithm.
        #[serde(default)]
        tsig_algorithm: TsigAlgorithm,
        /// The key, in base64 as `tsig-keygen` prints it.
        tsig_secret: Secret,
    },
    /// A program of the server's configuration: `argv… present|cleanup NAME VALUE`.
    Exec {
        /// The program.
        program: ProgramName,
        /// Longest a run may take, seconds, where that is shorter than the program's own limit.
        #[serde(default)]
        seconds: Option<u32>,
        /// Refused: programs are named.
        #[serde(default)]
        argv: FormerArgv,
    },
    /// An HTTP service.
    Webhook {
        /// URL for changes.
        url: String,
        /// The key of the HMAC-SHA256 over what is posted.
        secret: Secret,
    },
}

impl PublisherConfig {
    /// The program that it runs, if it runs one.
    pub(crate) fn program(&self) -> Option<&ProgramName> {
        match self {
            Self::Exec { program, .. } => Some(program),
            Self::Rfc2136 { .. } | Self::Webhook { .. } => None,
        }
    }
}

/// MACs of TSIG.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum TsigAlgorithm {
    /// hmac-sha256
    #[default]
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// hmac-sha512
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

/// How we wait until every authoritative server has the record.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Propagation {
    /// Whether to check propagation.
    pub check: bool,
    /// Recursive servers to find zones and aliases with; this machine's when empty.
    pub resolvers: Vec<SocketAddr>,
    /// The authoritative servers to ask; found by the zone's NS records when empty.
    pub servers: Vec<SocketAddr>,
    /// The port of authoritative servers that are found by their names.
    pub port: u16,
    /// Longest to wait, seconds.
    pub wait_seconds: u32,
    /// Polling interval, milliseconds.
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
