//! Configuration: built-in defaults, then one TOML file, then the environment, then flags.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit::{Outcome, Problem};
use crate::output::Format;

/// All settings.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub(crate) scan: ScanSettings,
    pub(crate) store: StoreSettings,
}

/// `[scan]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScanSettings {
    pub(crate) ports: String,
    pub(crate) families: FamilySetting,
    pub(crate) all_addresses: bool,
    pub(crate) max_addresses: u64,
    pub(crate) ca_files: Vec<PathBuf>,
    pub(crate) system_roots: bool,
    pub(crate) expiring_within_days: u32,
    pub(crate) expiring_fraction: f64,
    pub(crate) fail_on: String,
    pub(crate) dns: Vec<String>,
    pub(crate) in_flight: usize,
    pub(crate) per_address: usize,
    pub(crate) timeout_ms: u64,
    pub(crate) retry_timeout_ms: u64,
    pub(crate) retry: bool,
    pub(crate) finish_handshakes: bool,
    pub(crate) output: Format,
    pub(crate) table_rows: usize,
}

/// `[store]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSettings {
    pub(crate) enabled: bool,
    pub(crate) url: String,
    pub(crate) patience_s: u64,
}

/// Which addresses to use.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FamilySetting {
    /// Both.
    #[default]
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
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
            dns: Vec::new(),
            in_flight: 0,
            per_address: engine.per_address,
            timeout_ms: ms(engine.first.handshake),
            retry_timeout_ms: ms(engine.second.handshake),
            retry: engine.second_pass,
            finish_handshakes: engine.finish_handshake,
            output: Format::Table,
            // Two screens: what fits in a glance, and a little more.
            table_rows: 50,
        }
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        // A minute: as long as a database takes to fail over.
        Self { enabled: true, url: String::new(), patience_s: 60 }
    }
}

/// How the text of an environment variable is read.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Number,
    Truth,
    /// Separated by commas.
    List,
}

/// Every key, in the order shown, with its meaning. The variable of `scan.ports` is
/// `BULLA_SCAN_PORTS`, and so on.
const KEYS: &[(&str, Kind, &str)] = &[
    ("scan.ports", Kind::Text, "ports for targets that name none; empty: 443"),
    ("scan.families", Kind::Text, "any, ipv4 or ipv6"),
    ("scan.all_addresses", Kind::Truth, "every address of a name is an endpoint of its own"),
    ("scan.max_addresses", Kind::Number, "addresses one network may have"),
    ("scan.ca_files", Kind::List, "files of certificates to trust too"),
    ("scan.system_roots", Kind::Truth, "trust this system's roots"),
    ("scan.expiring_within_days", Kind::Number, "days before its end a certificate is about to expire"),
    ("scan.expiring_fraction", Kind::Number, "the same as a fraction of its life"),
    ("scan.fail_on", Kind::Text, "never, info, low, medium, high or critical"),
    ("scan.dns", Kind::List, "name servers to ask; empty: the system's"),
    ("scan.in_flight", Kind::Number, "endpoints looked at at once; 0: what open files allow"),
    ("scan.per_address", Kind::Number, "the same behind one address"),
    ("scan.timeout_ms", Kind::Number, "limit of each phase at the first try"),
    ("scan.retry_timeout_ms", Kind::Number, "limit of each phase at the second try"),
    ("scan.retry", Kind::Truth, "the silent get a second try"),
    ("scan.finish_handshakes", Kind::Truth, "complete handshakes"),
    ("scan.output", Kind::Text, "table, json, jsonl, csv or html"),
    ("scan.table_rows", Kind::Number, "rows of the table; 0: all"),
    ("store.enabled", Kind::Truth, "keep results in the inventory"),
    ("store.url", Kind::Text, "the database; empty: a file in the data folder"),
    ("store.patience_s", Kind::Number, "how long to wait for a database that is gone"),
];

/// Where a value comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

/// Settings with the origin of each.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    origins: BTreeMap<&'static str, Origin>,
    file: Option<PathBuf>,
}

impl Configuration {
    /// Reads the file (`given`, else the default one if it exists) and the environment.
    pub(crate) fn load(given: Option<&Path>) -> Outcome<Self> {
        let file = match given {
            Some(path) => Some(path.to_owned()),
            None => default_path().filter(|path| path.exists()),
        };
        let text = match &file {
            Some(path) => Some((path.clone(), read(path)?)),
            None => None,
        };
        Self::from_parts(text, std::env::vars())
    }

    fn from_parts(
        file: Option<(PathBuf, String)>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Outcome<Self> {
        let mut table = toml::Table::new();
        let mut origins = BTreeMap::new();
        if let Some((path, text)) = &file {
            // Read as settings first: that error names the line and the key.
            let wrong = |error: toml::de::Error| {
                Problem::usage(format_args!("{}: {}", path.display(), error.to_string().trim_end()))
                    .hint("`bulla config show` lists every key with its meaning")
            };
            toml::from_str::<Settings>(text).map_err(wrong)?;
            table = toml::from_str(text).map_err(wrong)?;
            for (key, _, _) in KEYS {
                if lookup(&table, key).is_some() {
                    origins.insert(*key, Origin::File(path.clone()));
                }
            }
        }
        for (variable, text) in variables {
            let Some((key, kind)) = key_of(&variable)? else { continue };
            insert(&mut table, key, value(kind, &text).ok_or_else(|| unreadable(&variable, &text, kind))?);
            origins.insert(key, Origin::Variable(variable));
        }
        let settings: Settings = table.try_into().map_err(|error: toml::de::Error| {
            Problem::usage(format_args!("in the environment: {}", error.message()))
                .hint("`bulla config show` lists every key with its meaning")
        })?;
        settings.check()?;
        Ok(Self { settings, origins, file: file.map(|(path, _)| path) })
    }

    /// The file that was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Every key with its value, meaning and origin, as a TOML file that may be used as it is.
    pub(crate) fn show(&self) -> String {
        let values = toml::Table::try_from(&self.settings).unwrap_or_default();
        let mut out = String::new();
        let mut section = "";
        for (key, _, meaning) in KEYS {
            let (name, leaf) = key.split_once('.').unwrap_or(("", key));
            if name != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                let _ = writeln!(out, "{gap}[{name}]");
                section = name;
            }
            let origin = self.origins.get(key).unwrap_or(&Origin::Default);
            let value = match (*key, lookup(&values, key)) {
                ("store.url", Some(toml::Value::String(url))) => {
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

/// `~/.config/bulla/bulla.toml`, by the XDG base directory specification.
pub(crate) fn default_path() -> Option<PathBuf> {
    let base = crate::data::base("XDG_CONFIG_HOME", ".config")?;
    Some(base.join("bulla").join("bulla.toml"))
}

fn read(path: &Path) -> Outcome<String> {
    /// A configuration of a megabyte is not one.
    const FILE_OCTETS_MAX: u64 = 1024 * 1024;
    let refuse = |why: String| {
        Problem::usage(format_args!("cannot read the configuration {}: {why}", path.display()))
            .hint("check --config and BULLA_CONFIG")
    };
    let size = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?.len();
    if size > FILE_OCTETS_MAX {
        return Err(refuse(format!("{size} octets are too many")));
    }
    std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))
}

fn variable_of(key: &str) -> String {
    format!("BULLA_{}", key.replace('.', "_").to_uppercase())
}

/// The key a variable means; a variable that looks like one of ours and is none is a slip.
fn key_of(variable: &str) -> Outcome<Option<(&'static str, Kind)>> {
    if !variable.starts_with("BULLA_SCAN_") && !variable.starts_with("BULLA_STORE_") {
        return Ok(None);
    }
    match KEYS.iter().find(|(key, _, _)| variable_of(key) == variable) {
        Some((key, kind, _)) => Ok(Some((key, *kind))),
        None => Err(Problem::usage(format_args!("the environment has {variable}, which means nothing"))
            .hint("`bulla config show` lists every variable")),
    }
}

fn value(kind: Kind, text: &str) -> Option<toml::Value> {
    match kind {
        Kind::Text => Some(toml::Value::String(text.to_owned())),
        Kind::Truth => text.parse().ok().map(toml::Value::Boolean),
        Kind::Number => match text.parse() {
            Ok(whole) => Some(toml::Value::Integer(whole)),
            Err(_) => text.parse().ok().map(toml::Value::Float),
        },
        Kind::List => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(toml::Value::Array(items.map(|item| item.to_owned().into()).collect()))
        }
    }
}

fn unreadable(variable: &str, text: &str, kind: Kind) -> Problem {
    let wanted = match kind {
        Kind::Truth => "true or false",
        Kind::Number => "a number",
        Kind::Text | Kind::List => "text",
    };
    Problem::usage(format_args!("{variable} is {text:?} and should be {wanted}"))
        .hint(format!("unset {variable} or correct it"))
}

fn lookup<'t>(table: &'t toml::Table, key: &str) -> Option<&'t toml::Value> {
    let (section, leaf) = key.split_once('.')?;
    table.get(section)?.get(leaf)
}

fn insert(table: &mut toml::Table, key: &str, value: toml::Value) {
    let Some((section, leaf)) = key.split_once('.') else { return };
    let section =
        table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new())).as_table_mut();
    if let Some(section) = section {
        section.insert(leaf.to_owned(), value);
    }
}

/// The URL as it may be shown.
fn without_password(url: &str) -> String {
    match url.parse::<store::StoreUrl>() {
        Ok(url) => url.to_string(),
        Err(_) if url.is_empty() => String::new(),
        Err(_) => "(not usable)".to_owned(),
    }
}

impl Settings {
    /// Bounds that types do not express.
    pub(crate) fn check(&self) -> Outcome<()> {
        let refuse = |what: &str| Err(Problem::usage(what).hint("see `bulla config show`"));
        let scan = &self.scan;
        /// Ten minutes: a phase that takes longer is dead by anyone's measure.
        const LIMIT_MS_MAX: u64 = 600_000;
        if !(1..=LIMIT_MS_MAX).contains(&scan.timeout_ms) {
            return refuse("scan.timeout_ms is from 1 to 600000");
        }
        if !(1..=LIMIT_MS_MAX).contains(&scan.retry_timeout_ms) {
            return refuse("scan.retry_timeout_ms is from 1 to 600000");
        }
        if scan.per_address == 0 {
            return refuse("scan.per_address is at least 1");
        }
        if !(0.0..=1.0).contains(&scan.expiring_fraction) {
            return refuse("scan.expiring_fraction is from 0 to 1");
        }
        self.fail_on()?;
        Ok(())
    }

    /// The severity from which on the exit code is 1.
    pub(crate) fn fail_on(&self) -> Outcome<Option<x509::Severity>> {
        match self.scan.fail_on.as_str() {
            "never" => Ok(None),
            word => word.parse().map(Some).map_err(|error| {
                Problem::usage(format_args!("scan.fail_on: {error}")).hint("or use \"never\"")
            }),
        }
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
    fn the_file_overrides_defaults_and_the_environment_the_file() {
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
    fn what_is_shown_may_be_used_as_a_file_and_names_every_key() {
        let shown = load(None, &[]).unwrap().show();
        let again = load(Some(&shown), &[]).unwrap();
        assert_eq!(again.show().replace("bulla.toml", "default"), shown);
        let values = toml::Table::try_from(Settings::default()).unwrap();
        let keys: usize = values.values().filter_map(toml::Value::as_table).map(|t| t.len()).sum();
        assert_eq!(keys, KEYS.len());
    }

    #[test]
    fn slips_are_refused_with_their_line() {
        let error = load(Some("[scan]\n\ntimeout = 5\n"), &[]).unwrap_err();
        assert!(error.message.contains("line 3") && error.message.contains("timeout"), "{}", error.message);
        for (variable, text) in [
            ("BULLA_SCAN_TIMEOUT", "5"),
            ("BULLA_SCAN_TIMEOUT_MS", "soon"),
            ("BULLA_SCAN_FAIL_ON", "bad"),
            ("BULLA_SCAN_OUTPUT", "xml"),
            ("BULLA_STORE_ENABLED", "1"),
        ] {
            let error = load(None, &[(variable, text)]).unwrap_err();
            assert_eq!(error.exit, crate::exit::Exit::Usage, "{variable}");
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in ["postgres://u:hidden@db/bulla", "postgres://u@db/bulla?password=hidden"] {
            let shown = without_password(url);
            assert!(shown.contains("db/bulla") && !shown.contains("hidden"), "{shown}");
        }
    }
}
