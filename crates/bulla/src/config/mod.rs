//! Configuration: built-in defaults, then one TOML file, then the environment, then flags.

mod agent;
mod audit_log;
mod edge;
mod edge_upstreams;
mod effective_limits;
mod key_clouds;
mod key_service;
mod limits;
mod master_key;
mod pkcs11;
mod programs;
mod proxy;
mod restrictions;
mod role;
mod signer;
mod table;
mod telemetry;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cli::GlobalArgs;
use cli::configuration::{
    ClientConfiguration, ClientSettings, FIRST_PROFILE, Layers, UnknownVariables, lookup, variable_of,
};
use cli::exit::{Outcome, Problem};
use discover::{InventorySettings, ScanSettings, ScannerSettings, StoreSettings};
use ipnet::IpNet;
use issuers::{ProgramError, Programs};
use outbound::guard::{Guard, Networks};
use serde::{Deserialize, Serialize};
use server::routes::credhub::ActorRule;

use audit_log::AuditSettings;
pub(crate) use audit_log::WitnessSettings;
use programs::ProgramConfigs;
use table::KEYS;

pub(crate) use agent::AgentSettings;
pub(crate) use edge::{EdgeSettings, ForwardingMode};
pub(crate) use edge_upstreams::ReferencedFiles;
#[cfg(feature = "aws")]
pub(crate) use key_clouds::AwsKeySettings;
#[cfg(feature = "azure")]
pub(crate) use key_clouds::AzureKeySettings;
#[cfg(feature = "gcp")]
pub(crate) use key_clouds::GcpKeySettings;
pub(crate) use key_service::{KeyServiceSettings, NodeSettings};
pub(crate) use limits::LimitSettings;
pub(crate) use master_key::{AuthoritySettings, AwsKmsSettings, MasterKeySettings, ModuleSettings};
pub(crate) use pkcs11::Pkcs11Settings;
pub(crate) use proxy::{
    DatabaseListenerSettings, DatabaseTls, DefaultAction, HoldWebhook, HoldWebhookFormat, HookSettings,
    LeafBackend, ProxyAuthoritySettings, ProxySettings,
};
pub(crate) use restrictions::SandboxSettings;
pub(crate) use role::Role;
pub(crate) use signer::SignerSettings;
pub(crate) use telemetry::TelemetrySettings;

/// Settings of the configuration file and of environment variables.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// The roles of the process; empty: the default roles of the command.
    pub(crate) roles: Vec<Role>,
    pub(crate) scan: ScanSettings,
    pub(crate) store: StoreSettings,
    pub(crate) server: ServerSettings,
    pub(crate) limits: LimitSettings,
    pub(crate) credentials: CredentialSettings,
    pub(crate) audit: AuditSettings,
    pub(crate) authority: AuthoritySettings,
    pub(crate) acme: authority::acme::AcmeOptions,
    pub(crate) est: EstSettings,
    pub(crate) scep: ScepSettings,
    pub(crate) oidc: OidcSettings,
    pub(crate) pkcs11: Pkcs11Settings,
    pub(crate) signer: SignerSettings,
    pub(crate) ct: TransparencySettings,
    pub(crate) watch: WatchSettings,
    pub(crate) inventory: InventorySettings,
    pub(crate) client: ClientSettings,
    pub(crate) keys: KeyServiceSettings,
    pub(crate) edge: EdgeSettings,
    pub(crate) proxy: ProxySettings,
    pub(crate) agent: AgentSettings,
    /// `[programs.NAME]`: programs that issuers, DNS-01 hooks and the master key may run.
    pub(crate) programs: ProgramConfigs,
    pub(crate) files: FileSettings,
    pub(crate) sandbox: SandboxSettings,
    pub(crate) outbound: OutboundSettings,
    pub(crate) telemetry: TelemetrySettings,
}

/// Configuration section `[server]`: listeners, certificates and limits of the control plane.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSettings {
    pub(crate) listen: String,
    pub(crate) public_listen: String,
    pub(crate) url: String,
    pub(crate) public_url: String,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    pub(crate) client_ca_files: Vec<PathBuf>,
    pub(crate) client_crl_files: Vec<PathBuf>,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    pub(crate) connections_per_certificate_max: usize,
    pub(crate) head_timeout_s: u64,
    pub(crate) read_timeout_s: u64,
    pub(crate) answer_memory_mb: usize,
    pub(crate) stop_s: u64,
    pub(crate) console: bool,
    pub(crate) signed_approvals: bool,
    pub(crate) core_dumps: bool,
}

/// Configuration section `[credentials]`: the credential store.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CredentialSettings {
    pub(crate) listen: String,
    pub(crate) url: String,
    pub(crate) exact_name_like: Vec<String>,
    pub(crate) concatenate_cas: bool,
    pub(crate) any_key: bool,
    pub(crate) ca_minimum_days: u32,
    pub(crate) leaf_minimum_days: u32,
    pub(crate) undelete_days: u32,
    pub(crate) retention: Vec<String>,
    pub(crate) audit: credentials::ReadAudit,
    pub(crate) uaa_url: String,
    pub(crate) uaa_ca_file: PathBuf,
    pub(crate) uaa_audience: Vec<String>,
    pub(crate) uaa_scopes: Vec<String>,
    pub(crate) uaa_actor: String,
    pub(crate) app_ca_files: Vec<PathBuf>,
}

impl CredentialSettings {
    /// Returns the rules that define which versions of a credential are kept.
    pub(crate) fn retention(&self) -> Outcome<Vec<credentials::Retention>> {
        let read = |text: &String| {
            text.parse().map_err(|error| {
                Problem::usage(format!("credentials.retention: {error}"))
                    .hint("correct credentials.retention, or leave it out to keep all versions")
            })
        };
        self.retention.iter().map(read).collect()
    }

    /// Returns the rule that derives the actor's name from a token of `uaa_url`.
    pub(crate) fn actor_rule(&self) -> Outcome<ActorRule> {
        if self.uaa_actor.is_empty() {
            return Ok(ActorRule::Uaa);
        }
        let template = self.uaa_actor.parse().map_err(|error| {
            Problem::usage(format_args!("credentials.uaa_actor: {error}"))
                .hint("give a prefix and claims in braces, for example k8s:{sub}, or leave it out if the issuer is a UAA")
        })?;
        if self.uaa_audience.is_empty() {
            return Err(Problem::usage("credentials.uaa_actor needs credentials.uaa_audience").hint(
                "set the audience of tokens for this server: without an audience, tokens for any other service are accepted",
            ));
        }
        Ok(ActorRule::Claims(template))
    }

    fn check(&self) -> Outcome<()> {
        self.actor_rule()?;
        let most = credentials::DURATION_MAX;
        let days = [("ca_minimum_days", self.ca_minimum_days), ("leaf_minimum_days", self.leaf_minimum_days)];
        for (key, days) in days {
            if days > most {
                return Err(Problem::usage(format_args!("credentials.{key} is {days}"))
                    .hint(format!("give 0 to {most} days")));
            }
        }
        self.retention().map(drop)
    }
}

/// Configuration section `[files]`: folders in which issuers that are created over the API may name files.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FileSettings {
    pub(crate) readable_folders: Vec<PathBuf>,
}

impl FileSettings {
    fn check(&self) -> Outcome<()> {
        match self.readable_folders.iter().find(|folder| !folder.is_absolute()) {
            None => Ok(()),
            Some(folder) => Err(Problem::usage(format_args!(
                "files.readable_folders: {} is not an absolute path",
                folder.display()
            ))
            .hint("give absolute paths, such as /var/run/secrets/kubernetes.io/serviceaccount")),
        }
    }
}

/// Configuration section `[outbound]`: networks to which outbound connections are allowed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OutboundSettings {
    pub(crate) allow_link_local: bool,
    pub(crate) allow_private: bool,
    pub(crate) allow_networks: Vec<IpNet>,
    pub(crate) deny_networks: Vec<IpNet>,
}

impl Default for OutboundSettings {
    fn default() -> Self {
        Self {
            allow_link_local: false,
            allow_private: true,
            allow_networks: Vec::new(),
            deny_networks: Vec::new(),
        }
    }
}

impl OutboundSettings {
    /// Returns the guard for outbound connections that requests cause.
    pub(crate) fn guard(&self) -> Guard {
        let networks = Networks::new(self.allow_networks.clone(), self.deny_networks.clone());
        let networks = if self.allow_private { networks } else { networks.deny_private() };
        let networks = (networks != Networks::default()).then(|| networks.into_static());
        Guard { allow_link_local: self.allow_link_local, networks }
    }
}

/// Configuration section `[est]`: the EST protocol (RFC 7030).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EstSettings {
    pub(crate) profiles: Vec<String>,
    pub(crate) default_profile: String,
    pub(crate) require_channel_binding: bool,
    pub(crate) registrars: Vec<x509::SpkiHash>,
    pub(crate) client_cas: Vec<String>,
}

/// Configuration section `[scep]`: the SCEP protocol (RFC 8894).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScepSettings {
    pub(crate) profiles: Vec<String>,
    pub(crate) default_profile: String,
    pub(crate) allow_sha1: bool,
}

/// Configuration section `[oidc]`: logins with OpenID Connect.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OidcSettings {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) client_secret_file: PathBuf,
    pub(crate) groups: Vec<String>,
    pub(crate) groups_claim: String,
    pub(crate) name_claim: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) ca_file: PathBuf,
}

/// Configuration section `[ct]`: the Certificate Transparency monitor.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TransparencySettings {
    pub(crate) certspotter_url: String,
    pub(crate) certspotter_token_file: PathBuf,
    pub(crate) certspotter_per_minute: u32,
    pub(crate) crtsh_url: String,
    pub(crate) crtsh_per_minute: u32,
    pub(crate) poll_s: u64,
    pub(crate) grace_s: u64,
    pub(crate) behind_s: u64,
    pub(crate) log_list_urls: Vec<String>,
    pub(crate) log_list_files: Vec<PathBuf>,
    pub(crate) checkpoint_s: u64,
    pub(crate) ca_files: Vec<PathBuf>,
}

/// Configuration section `[watch]`: sources of the server's scheduled scans.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WatchSettings {
    pub(crate) clouds_file: PathBuf,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8443".into(),
            public_listen: "127.0.0.1:8080".into(),
            url: String::new(),
            public_url: String::new(),
            certificate_file: PathBuf::new(),
            key_file: PathBuf::new(),
            client_ca_files: Vec::new(),
            client_crl_files: Vec::new(),
            trusted_proxies: Vec::new(),
            // Each connection takes at most 64 KiB, so a listener takes at most 256 MiB.
            connections_max: 4_096,
            connections_per_address_max: 0,
            connections_per_certificate_max: 0,
            head_timeout_s: 10,
            read_timeout_s: 30,
            answer_memory_mb: 256,
            stop_s: 20,
            console: true,
            signed_approvals: false,
            core_dumps: false,
        }
    }
}

impl Default for CredentialSettings {
    fn default() -> Self {
        Self {
            // The default port of CredHub.
            listen: "127.0.0.1:8844".into(),
            url: String::new(),
            exact_name_like: Vec::new(),
            concatenate_cas: true,
            any_key: false,
            ca_minimum_days: 0,
            leaf_minimum_days: 0,
            undelete_days: 7,
            retention: Vec::new(),
            audit: credentials::ReadAudit::Durable,
            uaa_url: String::new(),
            uaa_ca_file: PathBuf::new(),
            uaa_audience: Vec::new(),
            uaa_scopes: vec!["credhub.read".into(), "credhub.write".into()],
            uaa_actor: String::new(),
            app_ca_files: Vec::new(),
        }
    }
}

impl Default for EstSettings {
    fn default() -> Self {
        Self {
            profiles: vec![FIRST_PROFILE.into()],
            default_profile: FIRST_PROFILE.into(),
            require_channel_binding: false,
            registrars: Vec::new(),
            client_cas: Vec::new(),
        }
    }
}

impl Default for ScepSettings {
    fn default() -> Self {
        Self {
            profiles: vec![FIRST_PROFILE.into()],
            default_profile: FIRST_PROFILE.into(),
            allow_sha1: false,
        }
    }
}

impl Default for OidcSettings {
    fn default() -> Self {
        let usual = server::access::oidc::OidcOptions::new("", "", "");
        Self {
            issuer: usual.issuer,
            client_id: usual.client_id,
            client_secret_file: PathBuf::new(),
            groups: Vec::new(),
            groups_claim: usual.groups_claim,
            name_claim: usual.name_claim,
            scopes: usual.scopes,
            ca_file: PathBuf::new(),
        }
    }
}

impl Default for TransparencySettings {
    fn default() -> Self {
        let usual = ct::MonitorOptions::default();
        Self {
            certspotter_url: "https://api.certspotter.com".into(),
            certspotter_token_file: PathBuf::new(),
            certspotter_per_minute: 30,
            crtsh_url: "https://crt.sh".into(),
            crtsh_per_minute: 5,
            poll_s: usual.poll_every.as_secs(),
            grace_s: usual.grace.as_secs(),
            behind_s: usual.behind_after.as_secs(),
            log_list_urls: Vec::new(),
            log_list_files: Vec::new(),
            checkpoint_s: usual.checkpoint_every.as_secs(),
            ca_files: Vec::new(),
        }
    }
}

/// Settings with the origin of each value.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    layers: Layers,
}

impl Configuration {
    /// Reads the configuration file (`given`, else the default file if it exists) and the environment.
    pub(crate) fn load(given: Option<&Path>) -> Outcome<Self> {
        Self::checked(Layers::load(given, KEYS, UnknownVariables::Refused)?)
    }

    fn checked((settings, layers): (Settings, Layers)) -> Outcome<Self> {
        settings.check()?;
        Ok(Self { settings, layers })
    }

    #[cfg(test)]
    pub(crate) fn from_parts(
        file: Option<(PathBuf, String)>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Outcome<Self> {
        Self::checked(Layers::from_parts(file, variables, KEYS, UnknownVariables::Refused)?)
    }

    /// Returns every key with its default value; `None` for keys without a default.
    #[cfg(test)]
    pub(crate) fn defaults() -> Vec<(&'static str, Option<String>)> {
        let values = toml::Table::try_from(Settings::default()).unwrap_or_default();
        KEYS.iter().map(|(key, ..)| (*key, lookup(&values, key).map(ToString::to_string))).collect()
    }

    /// Returns the path of the file that was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.layers.file()
    }

    /// Reads and checks the whole configuration, so that an error in any section fails every command. Returns the settings that
    /// client commands need.
    pub(crate) fn load_client_settings(global: &GlobalArgs) -> Outcome<ClientConfiguration> {
        Ok(Self::load(global.config.as_deref())?.client_configuration())
    }

    /// Returns the settings that client commands need.
    pub(crate) fn client_configuration(&self) -> ClientConfiguration {
        ClientConfiguration {
            client: self.settings.client.clone(),
            core_dumps: self.settings.server.core_dumps,
        }
    }

    /// Returns every key with its value, meaning and origin, as a valid TOML file.
    pub(crate) fn show(&self) -> String {
        let values = toml::Table::try_from(&self.settings).unwrap_or_default();
        let mut out = String::new();
        let mut section = "";
        for (key, _, meaning) in KEYS {
            let (name, leaf) = key.rsplit_once('.').unwrap_or(("", key));
            if name != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                let _ = writeln!(out, "{gap}[{name}]");
                section = name;
            }
            let origin = self.layers.origin(key);
            let value = match (*key, lookup(&values, key)) {
                ("store.url" | "proxy.store.url", Some(toml::Value::String(url))) => {
                    toml::Value::String(without_password(url)).to_string()
                }
                (_, Some(value)) => value.to_string(),
                (_, None) => continue,
            };
            let _ = writeln!(out, "# {meaning} ({}; from: {origin})", variable_of(key));
            let _ = writeln!(out, "{leaf} = {value}");
        }
        out
    }
}

/// Returns the URL without its password, for output.
fn without_password(url: &str) -> String {
    match url.parse::<store::StoreUrl>() {
        Ok(url) => url.to_string(),
        Err(_) if url.is_empty() => String::new(),
        Err(_) => "(not usable)".to_owned(),
    }
}

impl Settings {
    /// Checks bounds that the types do not express.
    pub(crate) fn check(&self) -> Outcome<()> {
        let refuse = |what: &str| Err(Problem::usage(what).hint("see `bulla config show`"));
        self.scan.check()?;
        self.limits.options()?;
        let server = &self.server;
        if [server.head_timeout_s, server.read_timeout_s].iter().any(|limit| !(1..=600).contains(limit)) {
            return refuse("server.head_timeout_s and server.read_timeout_s must be from 1 to 600");
        }
        if !(1..=1 << 20).contains(&server.answer_memory_mb) {
            return refuse("server.answer_memory_mb must be from 1 to 1048576");
        }
        self.store.check()?;
        self.inventory.check()?;
        self.ct.check()?;
        self.credentials.check()?;
        self.audit.check()?;
        self.authority.check_masters(&self.pkcs11, &self.programs)?;
        self.keys.check()?;
        self.edge.check()?;
        self.proxy.check()?;
        self.telemetry.check()?;
        self.signer.check()?;
        self.programs.iter().try_for_each(|(name, config)| config.check(name)).map_err(invalid_program)?;
        self.files.check()?;
        self.sandbox.check()?;
        Ok(())
    }

    /// Returns warnings about valid settings that may have surprising effects. They are logged at startup and by `bulla config
    /// check`.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let standby_without_values =
            !self.store.replica_url.is_empty() && self.credentials.audit == credentials::ReadAudit::Durable;
        let mut warnings = Vec::new();
        if standby_without_values {
            warnings.push(
                "store.replica_url is set, and credentials.audit is \"durable\": while the primary database is unreachable, \
                 credential values cannot be read (503), because audit records cannot be written. With credentials.audit = \
                 \"buffered\", the standby serves the values, but a crash loses audit records (docs/credentials.md#at-rest)"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Returns the sections that the scanner reads.
    pub(crate) fn scanner(self) -> ScannerSettings {
        ScannerSettings { scan: self.scan, store: self.store, inventory: self.inventory }
    }

    /// Returns the programs of `[programs.NAME]`, for the process that runs them. Looks up the users that the programs run as.
    pub(crate) fn programs(&self) -> Outcome<Programs> {
        Programs::new(&self.programs).map_err(invalid_program)
    }

    /// Returns only the program `name` of `[programs.NAME]`. For commands that need no other program and may run as another user
    /// than the server.
    pub(crate) fn program(&self, name: &str) -> Outcome<Programs> {
        let one = self.programs.iter().filter(|(known, _)| *known == name);
        let one = one.map(|(name, config)| (name.clone(), config.clone())).collect();
        Programs::new(&one).map_err(invalid_program)
    }
}

fn invalid_program(error: ProgramError) -> Problem {
    Problem::usage(error).hint("correct that section: argv, user, environment, timeout_s")
}

impl TransparencySettings {
    fn check(&self) -> Outcome<()> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Problem::usage(format_args!("ct.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`"))
        };
        // Ten per second: more than any plan of Cert Spotter allows.
        within("certspotter_per_minute", self.certspotter_per_minute.into(), 1, 600)?;
        // The operator of crt.sh permits at most 60 requests per minute.
        within("crtsh_per_minute", self.crtsh_per_minute.into(), 1, 60)?;
        const MONTH: u64 = 30 * 86_400;
        within("poll_s", self.poll_s, 60, MONTH)?;
        within("grace_s", self.grace_s, 0, 86_400)?;
        within("behind_s", self.behind_s, 60, MONTH)?;
        within("checkpoint_s", self.checkpoint_s, 1, 86_400)?;
        let lists = self.log_list_urls.len() + self.log_list_files.len();
        within("log_list_urls and log_list_files together", lists as u64, 0, 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: Option<&str>, variables: &[(&str, &str)]) -> Outcome<Configuration> {
        Configuration::from_parts(
            file.map(|text| ("bulla.toml".into(), text.to_owned())),
            variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
    }

    #[test]
    fn config_file_overrides_defaults_and_environment_overrides_file() {
        let file = "[scan]\ntimeout_ms = 900\nper_address = 4\n";
        let loaded = load(Some(file), &[("BULLA_SCAN_PER_ADDRESS", "8"), ("HOME", "/root")]).unwrap();
        assert_eq!(loaded.settings.scan.timeout_ms, 900);
        assert_eq!(loaded.settings.scan.per_address, 8);
        assert_eq!(loaded.settings.scan.expiring_within_days, 30);
        let shown = loaded.show();
        assert!(shown.contains("(BULLA_SCAN_TIMEOUT_MS; from: bulla.toml)\ntimeout_ms = 900\n"), "{shown}");
        assert!(shown.contains("(BULLA_SCAN_PER_ADDRESS; from: BULLA_SCAN_PER_ADDRESS)\nper_address = 8\n"));
    }

    #[test]
    fn config_show_output_loads_again_and_lists_every_key() {
        let shown = load(None, &[]).unwrap().show();
        let reloaded = load(Some(&shown), &[]).unwrap();
        assert_eq!(reloaded.show().replace("bulla.toml", "default"), shown);
        let values = toml::Table::try_from(Settings::default()).unwrap();
        let mut leaves = Vec::new();
        leaves_of("", &values, &mut leaves);
        // `acme.base_url` depends on the server's URL. Limits by profile are tables, which only the file can set.
        leaves.retain(|key| key != "acme.base_url" && !key.starts_with("acme.limits."));
        let mut keys: Vec<String> = KEYS.iter().map(|(key, ..)| (*key).to_owned()).collect();
        // These keys are absent unless configured.
        keys.retain(|key| key != "authority.master_key" && key != "keys.node.seed_key");
        leaves.sort();
        keys.sort();
        assert_eq!(leaves, keys);
    }

    #[test]
    fn every_config_key_has_a_distinct_environment_variable() {
        let mut variables: Vec<String> = KEYS.iter().map(|(key, ..)| variable_of(key)).collect();
        variables.sort();
        variables.dedup();
        assert_eq!(variables.len(), KEYS.len());
    }

    fn leaves_of(prefix: &str, table: &toml::Table, all: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => leaves_of(&format!("{prefix}{key}."), inner, all),
                _ => all.push(format!("{prefix}{key}")),
            }
        }
    }

    #[test]
    fn named_programs_are_parsed_and_invalid_ones_rejected() {
        let file = "[programs.sign]\nargv = [\"/usr/local/bin/sign\", \"--fast\"]\ntimeout_s = 30\n\
                    [programs.sign.environment]\nREGION = \"north\"\n";
        let loaded = load(Some(file), &[]).unwrap().settings;
        let sign = &loaded.programs["sign"];
        assert_eq!((sign.argv.len(), sign.timeout_s, sign.environment["REGION"].as_str()), (2, 30, "north"));
        for (wrong, word) in [
            ("argv = []", "full path"),
            ("argv = [\"sign\"]", "full path"),
            ("argv = [\"/bin/true\"]\nshell = true", "shell"),
            ("argv = [\"/bin/true\"]\ntimeout_s = 0", "timeout_s"),
        ] {
            let error = load(Some(&format!("[programs.sign]\n{wrong}\n")), &[]).unwrap_err();
            assert_eq!(error.exit, cli::exit::Exit::Usage, "{wrong}");
            assert!(error.message.contains(word), "{wrong}: {}", error.message);
        }
        // Loading does not look up the program's user. Only the process that runs the program does.
        let user = "[programs.sign]\nargv = [\"/bin/true\"]\nuser = \"no-such-user\"\n";
        let loaded = load(Some(user), &[]).unwrap().settings;
        assert!(loaded.program("other").is_ok());
        for error in [loaded.programs().unwrap_err(), loaded.program("sign").unwrap_err()] {
            assert!(error.message.contains("no-such-user") && error.hint.is_some(), "{}", error.message);
        }
    }

    #[test]
    fn unknown_keys_and_invalid_variables_are_rejected() {
        let error = load(Some("[scan]\n\ntimeout = 5\n"), &[]).unwrap_err();
        assert!(error.message.contains("line 3") && error.message.contains("timeout"), "{}", error.message);
        for (variable, text) in [
            ("BULLA_SCAN_TIMEOUT", "5"),
            ("BULLA_SCAN_TIMEOUT_MS", "soon"),
            ("BULLA_SCAN_FAIL_ON", "bad"),
            ("BULLA_SCAN_OUTPUT", "xml"),
            ("BULLA_STORE_ENABLED", "1"),
            ("BULLA_STORE_CONNECTIONS", "1"),
            ("BULLA_STORE_CONNECTIONS", "1001"),
        ] {
            let error = load(None, &[(variable, text)]).unwrap_err();
            assert_eq!(error.exit, cli::exit::Exit::Usage, "{variable}");
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn replica_without_buffered_audit_gives_a_warning() {
        let standby =
            "[store]\nurl = \"postgres://u@db/bulla\"\nreplica_url = \"postgres://u@standby/bulla\"\n";
        let warnings = |file: &str| load(Some(file), &[]).unwrap().settings.warnings();
        assert_eq!(warnings(""), [""; 0]);
        assert_eq!(warnings(&format!("{standby}[credentials]\naudit = \"buffered\"\n")), [""; 0]);
        let found = warnings(standby);
        assert!(
            found.len() == 1 && found[0].contains("503") && found[0].contains("credentials.audit"),
            "{found:?}"
        );
    }

    #[test]
    fn passwords_are_removed_from_shown_database_urls() {
        for url in ["postgres://u:hidden@db/bulla", "postgres://u@db/bulla?password=hidden"] {
            let shown = without_password(url);
            assert!(shown.contains("db/bulla") && !shown.contains("hidden"), "{shown}");
        }
    }
}
