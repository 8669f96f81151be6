//! `[keys]`: the key service.

use std::path::PathBuf;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use inbound::TrustedProxies;
use ipnet::IpNet;
use keyless::records::{RecordsOptions, WhenFull};
use keyless::routing::RouterOptions;
use keyless::server::Options;
use keyless::tenant::{self, TenantOptions};
use keys::Batches;
use serde::{Deserialize, Serialize};

use super::MasterKeySettings;
use super::key_clouds::{self, AwsKeySettings, AzureKeySettings, GcpKeySettings};
use crate::data_folder;

/// Value that disables a setting in place of a path.
const NONE: &str = "none";
/// Folder of signature records, inside the node's folder.
const RECORDS: &str = "records";
/// Default port of the listener for requests from other nodes of the cluster.
const NODES_PORT: u16 = 2410;

/// Configuration section `[keys]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KeyServiceSettings {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) pkcs11_labels: Vec<String>,
    pub(crate) aws_kms: Vec<AwsKeySettings>,
    pub(crate) azure_keys: Vec<AzureKeySettings>,
    pub(crate) gcp_kms: Vec<GcpKeySettings>,
    pub(crate) inventory: bool,
    pub(crate) listen: String,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    pub(crate) client_ca_files: Vec<PathBuf>,
    pub(crate) client_crl_files: Vec<PathBuf>,
    pub(crate) socket: String,
    pub(crate) native_listen: String,
    pub(crate) native_socket: String,
    pub(crate) metrics_listen: String,
    pub(crate) monitor_urls: Vec<String>,
    pub(crate) reload_s: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) idle_s: u64,
    pub(crate) socket_idle_s: u64,
    pub(crate) ticket_key_s: u64,
    pub(crate) connections_max: usize,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) rsa_decrypt: bool,
    pub(crate) batches: Batches,
    pub(crate) records: String,
    pub(crate) records_full: WhenFull,
    pub(crate) tenant: Vec<TenantSettings>,
    pub(crate) node: NodeSettings,
}

/// `[keys.node]`: the service as a node of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeSettings {
    pub(crate) server: String,
    pub(crate) ca_file: PathBuf,
    pub(crate) ca_sha256: String,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) listen: String,
    pub(crate) advertise: String,
    pub(crate) shared_from: usize,
    pub(crate) seed_key: Option<MasterKeySettings>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            server: String::new(),
            ca_file: PathBuf::new(),
            ca_sha256: String::new(),
            name: String::new(),
            folder: PathBuf::new(),
            listen: format!("0.0.0.0:{NODES_PORT}"),
            advertise: String::new(),
            shared_from: RouterOptions::default().shared_from,
            seed_key: None,
        }
    }
}

impl NodeSettings {
    /// Returns whether the service is configured as a node of a cluster.
    pub(crate) fn is_configured(&self) -> bool {
        !self.server.is_empty()
    }

    fn check(&self) -> Outcome<()> {
        if !self.ca_file.as_os_str().is_empty() && !self.ca_sha256.is_empty() {
            return Err(Problem::usage("keys.node.ca_file and keys.node.ca_sha256 exclude each other")
                .hint("set only one of them"));
        }
        if self.listen.is_empty() {
            return Err(Problem::usage(
                "keys.node.listen is empty: other nodes could not connect to this node",
            )
            .hint("leave it out for the default"));
        }
        Ok(())
    }
}

/// Configuration of one entry of `[[keys.tenant]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantSettings {
    name: String,
    #[serde(default)]
    clients: Vec<String>,
    #[serde(default = "one")]
    share: u32,
    #[serde(default)]
    rate_per_s: u32,
    #[serde(default)]
    burst: u32,
    #[serde(default = "in_flight_max")]
    in_flight_max: usize,
    #[serde(default)]
    destination_in_flight_max: usize,
    #[serde(default)]
    connections_max: usize,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    rsa_decrypt: bool,
}

fn one() -> u32 {
    1
}

fn in_flight_max() -> usize {
    tenant::IN_FLIGHT_MAX
}

impl Default for KeyServiceSettings {
    fn default() -> Self {
        let usual = Options::default();
        Self {
            directories: Vec::new(),
            pkcs11_labels: Vec::new(),
            aws_kms: Vec::new(),
            azure_keys: Vec::new(),
            gcp_kms: Vec::new(),
            inventory: false,
            listen: format!("0.0.0.0:{}", keyless::server::PORT),
            certificate_file: PathBuf::new(),
            key_file: PathBuf::new(),
            client_ca_files: Vec::new(),
            client_crl_files: Vec::new(),
            socket: String::new(),
            native_listen: String::new(),
            native_socket: String::new(),
            // The next port below the Keyless protocol's (2407), as operators of Keyless servers expect.
            metrics_listen: "127.0.0.1:2406".into(),
            monitor_urls: Vec::new(),
            reload_s: 10,
            deadline_ms: usual.deadline.as_millis() as u64,
            idle_s: usual.idle.as_secs(),
            socket_idle_s: usual.socket_idle.as_secs(),
            ticket_key_s: usual.ticket_life.as_secs(),
            connections_max: usual.connections_max,
            trusted_proxies: Vec::new(),
            rsa_decrypt: false,
            batches: usual.batches,
            records: String::new(),
            records_full: WhenFull::Refuse,
            tenant: Vec::new(),
            node: NodeSettings::default(),
        }
    }
}

impl KeyServiceSettings {
    pub(crate) fn check(&self) -> Outcome<()> {
        const DAY_S: u64 = 86_400;
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Problem::usage(format_args!("keys.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`"))
        };
        within("reload_s", self.reload_s, 1, DAY_S)?;
        // A second is long for a signature. A minute is longer than any client waits.
        within("deadline_ms", self.deadline_ms, 1, 60_000)?;
        within("idle_s", self.idle_s, 1, DAY_S)?;
        within("socket_idle_s", self.socket_idle_s, 1, DAY_S)?;
        within("ticket_key_s", self.ticket_key_s, 0, 30 * DAY_S)?;
        within("connections_max", self.connections_max as u64, 1, 1_000_000)?;
        if self.certificate_file.as_os_str().is_empty() != self.key_file.as_os_str().is_empty() {
            return Err(Problem::usage("keys.certificate_file and keys.key_file must be set together")
                .hint("set both, or neither to serve only the socket"));
        }
        key_clouds::check(self.aws_kms.len(), self.azure_keys.len(), self.gcp_kms.len())?;
        self.node.check()?;
        tenant::check(&self.tenants()).map_err(|error| {
            Problem::usage(format_args!("keys.tenant: {error}")).hint("see docs/keys.md, \"Tenants\"")
        })
    }

    /// Returns the options of each tenant.
    pub(crate) fn tenants(&self) -> Vec<TenantOptions> {
        let options = |tenant: &TenantSettings| TenantOptions {
            name: tenant.name.clone(),
            clients: tenant.clients.clone(),
            share: tenant.share,
            rate_per_s: tenant.rate_per_s,
            burst: tenant.burst,
            in_flight_max: tenant.in_flight_max,
            destination_in_flight_max: tenant.destination_in_flight_max,
            connections_max: tenant.connections_max,
            keys: tenant.keys.clone(),
            rsa_decrypt: tenant.rsa_decrypt,
        };
        self.tenant.iter().map(options).collect()
    }

    /// Checks that all settings needed to run are present, from the file or from flags. `listen`: whether a TLS address was
    /// requested.
    pub(crate) fn check_required(&self, listen: bool) -> Outcome<()> {
        let in_clouds = self.aws_kms.len() + self.azure_keys.len() + self.gcp_kms.len();
        let is_empty = self.directories.is_empty() && self.pkcs11_labels.is_empty();
        if is_empty && in_clouds == 0 && !self.inventory && !self.node.is_configured() {
            return Err(Problem::usage("the key service has no keys to sign with")
                .hint("name a folder of *.key files: --dir, or keys.directories in the configuration; or use the keys of \
                 managed certificates: --inventory, or keys.inventory; or join a control plane as a node: --join"));
        }
        if self.speaks_tls() && self.client_ca_files.is_empty() {
            return Err(Problem::usage("keys.client_ca_files is empty: no client could authenticate")
                .hint("name the CA of the clients' certificates: --client-ca"));
        }
        if !self.native_listen.is_empty() && !self.speaks_tls() {
            return Err(Problem::usage("keys.native_listen needs TLS")
                .hint("give keys.certificate_file and keys.key_file, or use keys.native_socket"));
        }
        let is_required = listen || !self.client_ca_files.is_empty();
        if !is_required || !self.certificate_file.as_os_str().is_empty() {
            return Ok(());
        }
        Err(Problem::usage("TLS needs a certificate, but none is configured").hint(
            "give --certificate, --key and --client-ca, or leave out --listen and --client-ca to serve only the socket",
        ))
    }

    /// Returns whether the service has a certificate and an address for TLS.
    pub(crate) fn speaks_tls(&self) -> bool {
        !self.certificate_file.as_os_str().is_empty() && !self.listen.is_empty()
    }

    /// Returns the Unix socket; `None` if disabled.
    pub(crate) fn socket(&self) -> Outcome<Option<PathBuf>> {
        match self.socket.as_str() {
            NONE => Ok(None),
            "" => Ok(Some(data_folder::folder()?.join("keys.sock"))),
            path => Ok(Some(path.into())),
        }
    }

    /// Returns the options for records of signatures; `None` if disabled, or if no folder is configured and the service is not a node.
    pub(crate) fn records(&self, node_folder: Option<PathBuf>) -> Option<RecordsOptions> {
        let folder = match self.records.as_str() {
            NONE => None,
            "" => node_folder.map(|folder| folder.join(RECORDS)),
            path => Some(path.into()),
        };
        folder.map(|folder| RecordsOptions { when_full: self.records_full, ..RecordsOptions::new(folder) })
    }

    /// Returns the options of the server, without its listen addresses.
    pub(crate) fn options(&self) -> Options {
        Options {
            native_socket: Some(&self.native_socket).filter(|path| !path.is_empty()).map(PathBuf::from),
            tenants: self.tenants(),
            connections_max: self.connections_max,
            trusted_proxies: TrustedProxies::new(&self.trusted_proxies),
            idle: Duration::from_secs(self.idle_s),
            socket_idle: Duration::from_secs(self.socket_idle_s),
            deadline: Duration::from_millis(self.deadline_ms),
            ticket_life: Duration::from_secs(self.ticket_key_s),
            rsa_decrypt: self.rsa_decrypt,
            batches: self.batches,
            ..Options::default()
        }
    }
}
