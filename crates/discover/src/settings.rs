//! `[scan]`, `[store]` and `[inventory]`: the settings of the scanner.

use std::path::{Path, PathBuf};

use crate::output::ReportFormat;
use cli::configuration::{Key, Kind, Layers, UnknownVariables};
use cli::exit::{Outcome, Problem};
use serde::{Deserialize, Serialize};

use crate::fail_on::FailOn;
use crate::store_settings::StoreSettings;

/// Maximum of a time limit in milliseconds: ten minutes. A phase that takes longer has failed.
const LIMIT_MS_MAX: u64 = 600_000;

/// The keys of `[scan]`, `[store]` and `[inventory]` with their meaning.
pub const KEYS: &[Key] = &[
    ("scan.ports", Kind::Text, "default ports of targets without a port; empty: 443"),
    ("scan.families", Kind::Text, "address families to scan: any, ipv4 or ipv6"),
    ("scan.all_addresses", Kind::Boolean, "scan every address of a host name as a separate endpoint"),
    ("scan.max_addresses", Kind::Number, "maximum addresses of one network"),
    ("scan.ca_files", Kind::List, "files with additional trust anchors (PEM)"),
    ("scan.system_roots", Kind::Boolean, "trust the roots of this system and of the Mozilla root program"),
    (
        "scan.expiring_within_days",
        Kind::Number,
        "a certificate counts as expiring this many days before it expires",
    ),
    (
        "scan.expiring_fraction",
        Kind::Number,
        "a certificate counts as expiring when this fraction of its lifetime remains",
    ),
    (
        "scan.fail_on",
        Kind::Text,
        "lowest severity that makes the scan fail: never, info, low, medium, high or critical; no-answer",
    ),
    (
        "scan.accepted",
        Kind::Boolean,
        "test whether the server accepts obsolete versions and weak cipher suites",
    ),
    ("scan.dns", Kind::List, "DNS servers to use; empty: the system's"),
    (
        "scan.in_flight",
        Kind::Number,
        "maximum concurrent probes; 0: as many as the limit of open files allows",
    ),
    ("scan.per_address", Kind::Number, "maximum concurrent probes of one address"),
    ("scan.timeout_ms", Kind::Number, "timeout of each phase in the first attempt"),
    ("scan.retry_timeout_ms", Kind::Number, "timeout of each phase in the last attempt"),
    ("scan.retry", Kind::Boolean, "retry endpoints that did not answer"),
    ("scan.finish_handshakes", Kind::Boolean, "complete handshakes"),
    ("scan.revocation", Kind::Text, "revocation check: off, crl or ocsp"),
    ("scan.output", Kind::Text, "output format: table, wide, json, jsonl, csv or html"),
    ("scan.table_rows", Kind::Number, "maximum rows of the table; 0: all"),
    ("store.enabled", Kind::Boolean, "keep results in the inventory"),
    ("store.url", Kind::Text, "URL of the database; empty: a file in the data folder"),
    (
        "store.connections",
        Kind::Number,
        "maximum connections to PostgreSQL; one third for reads, the others for writes",
    ),
    ("store.patience_s", Kind::Number, "how long to wait for an unreachable database"),
    (
        "store.replica_url",
        Kind::Text,
        "URL of a standby of the database, used for reads while the primary is unreachable",
    ),
    ("store.replica_alone_s", Kind::Number, "maximum time that reads are served from the standby alone"),
    (
        "inventory.observations_days",
        Kind::Number,
        "days for which observations stay after the end of their scan; 0: without a limit",
    ),
];

/// The sections of the configuration that the scanner reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ScannerSettings {
    /// Configuration section `[scan]`.
    pub scan: ScanSettings,
    /// Configuration section `[store]`.
    pub store: StoreSettings,
    /// Configuration section `[inventory]`.
    pub inventory: InventorySettings,
}

impl ScannerSettings {
    /// Reads the configuration file (`given`, else the default file if it exists) and the environment. Other sections are not
    /// checked.
    pub fn load(given: Option<&Path>) -> Outcome<Self> {
        let (settings, _) = Layers::load::<Self>(given, KEYS, UnknownVariables::Ignored)?;
        settings.check()?;
        Ok(settings)
    }

    /// Checks bounds that the types do not express.
    pub fn check(&self) -> Outcome<()> {
        self.scan.check()?;
        self.store.check()?;
        self.inventory.check()
    }
}

/// Configuration section `[inventory]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct InventorySettings {
    /// Days for which observations are stored after the end of their scan; 0: without a limit.
    pub observations_days: u32,
}

impl InventorySettings {
    /// Maximum number of days, about a century.
    const DAYS_MAX: u32 = 36_500;

    /// Returns the retention of observations in days; `None`: no limit.
    pub fn days(&self) -> Option<u32> {
        (self.observations_days > 0).then_some(self.observations_days)
    }

    /// Checks bounds that the types do not express.
    pub fn check(&self) -> Outcome<()> {
        if self.observations_days > Self::DAYS_MAX {
            return Err(Problem::usage(format_args!(
                "inventory.observations_days is {}",
                self.observations_days
            ))
            .hint(format!("give 1 to {} days, or 0 to keep observations without a limit", Self::DAYS_MAX)));
        }
        Ok(())
    }
}

impl Default for InventorySettings {
    fn default() -> Self {
        Self { observations_days: 90 }
    }
}

/// Configuration section `[scan]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScanSettings {
    /// Default ports of targets without a port; empty: 443.
    pub ports: String,
    /// Address families to scan.
    pub families: FamilySetting,
    /// Scan every address of a host name as a separate endpoint.
    pub all_addresses: bool,
    /// Maximum addresses of one network.
    pub max_addresses: u64,
    /// Files with additional trust anchors (PEM).
    pub ca_files: Vec<PathBuf>,
    /// Trust the roots of this system and of the Mozilla root program.
    pub system_roots: bool,
    /// Days before expiry from which a certificate is reported.
    pub expiring_within_days: u32,
    /// Fraction of a certificate's lifetime, from 0 to 1, from which it is reported.
    pub expiring_fraction: f64,
    /// Lowest severity that makes the scan fail, in the syntax of `--fail-on`. Default: `never`.
    pub fail_on: String,
    /// Test which old versions and weak suites a server accepts.
    pub accepted: bool,
    /// DNS servers; empty: the system's.
    pub dns: Vec<String>,
    /// Maximum concurrent probes; 0: as many as this machine allows.
    pub in_flight: usize,
    /// Maximum concurrent probes of one address.
    pub per_address: usize,
    /// Timeout of each phase in the first attempt.
    pub timeout_ms: u64,
    /// Timeout of each phase in the last attempt.
    pub retry_timeout_ms: u64,
    /// Retry endpoints that did not answer.
    pub retry: bool,
    /// Complete TLS 1.3 handshakes, so that servers log no aborted handshake and send their session tickets.
    pub finish_handshakes: bool,
    /// Sources of revocation status. Default: no revocation check.
    pub revocation: RevocationSetting,
    /// Output format of `bulla scan` without `--output`.
    pub output: ReportFormat,
    /// Maximum rows of the table; 0: all.
    pub table_rows: usize,
}

/// Address families that a scan uses.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FamilySetting {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// Sources of revocation status.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RevocationSetting {
    /// No revocation check.
    #[default]
    Off,
    /// Stapled OCSP responses, then CRLs.
    Crl,
    /// Stapled OCSP responses, then CRLs, then OCSP responders.
    Ocsp,
}

impl Default for ScanSettings {
    fn default() -> Self {
        let engine = scan::ScanOptions::default();
        let ms = |limit: std::time::Duration| limit.as_millis() as u64;
        Self {
            ports: String::new(),
            families: FamilySetting::Any,
            all_addresses: engine.all_addresses,
            max_addresses: scan::target::CIDR_ADDRESSES_MAX,
            ca_files: Vec::new(),
            system_roots: true,
            expiring_within_days: engine.expiring_within_days,
            expiring_fraction: engine.expiring_fraction,
            fail_on: "never".into(),
            accepted: engine.accepted,
            dns: Vec::new(),
            in_flight: 0,
            per_address: engine.per_address,
            timeout_ms: ms(engine.first.handshake),
            retry_timeout_ms: ms(engine.second.handshake),
            retry: engine.second_pass,
            finish_handshakes: engine.finish_handshake,
            revocation: RevocationSetting::Off,
            output: ReportFormat::Table,
            // About two terminal screens.
            table_rows: 50,
        }
    }
}

impl ScanSettings {
    /// Checks bounds that the types do not express.
    pub fn check(&self) -> Outcome<()> {
        let refuse = |what: &str| Err(Problem::usage(what).hint("see `bulla config show`"));
        let scan = self;
        if !(1..=LIMIT_MS_MAX).contains(&scan.timeout_ms) {
            return refuse("scan.timeout_ms must be from 1 to 600000");
        }
        if !(1..=LIMIT_MS_MAX).contains(&scan.retry_timeout_ms) {
            return refuse("scan.retry_timeout_ms must be from 1 to 600000");
        }
        if scan.per_address == 0 {
            return refuse("scan.per_address must be at least 1");
        }
        if !(0.0..=1.0).contains(&scan.expiring_fraction) {
            return refuse("scan.expiring_fraction must be from 0 to 1");
        }
        self.fail_on().map(drop)
    }

    /// Returns the findings that make the exit code of a scan 1.
    pub fn fail_on(&self) -> Outcome<FailOn> {
        self.fail_on.parse().map_err(|error: String| {
            Problem::usage(format_args!("scan.fail_on: {error}")).hint("or use \"never\"")
        })
    }
}
