//! The layers of a configuration: built-in defaults, then one TOML file, then the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::data;
use crate::exit::{Outcome, Problem};

/// Type of the value of an environment variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Text, unchanged.
    Text,
    /// An integer or a decimal number.
    Number,
    /// A boolean, `true` or `false`.
    Boolean,
    /// A list, separated by commas.
    List,
    /// TOML, as after the equals sign in the file.
    Toml,
}

/// A configuration key, how its variable is parsed, and its meaning.
pub type Key = (&'static str, Kind, &'static str);

/// The configuration layer that sets a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The value is the built-in default.
    Default,
    /// The value is set in this configuration file.
    File(PathBuf),
    /// The value is set in this environment variable.
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

/// The treatment of environment variables that match a section but no key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnknownVariables {
    /// An unknown variable is an error, because the list of keys is complete.
    Refused,
    /// An unknown variable is ignored, because another program may read it.
    Ignored,
}

/// The origin of each configuration value, and the path of the file that was read.
#[derive(Clone, Debug)]
pub struct Layers {
    origins: BTreeMap<&'static str, Origin>,
    file: Option<PathBuf>,
}

impl Layers {
    /// Reads the configuration file (`given`, else the default file if it exists) and the environment, and parses them as settings.
    pub fn load<S: DeserializeOwned>(
        given: Option<&Path>,
        keys: &'static [Key],
        unknown: UnknownVariables,
    ) -> Outcome<(S, Self)> {
        let file = match given {
            Some(path) => Some(path.to_owned()),
            None => default_path().filter(|path| path.exists()),
        };
        let text = match &file {
            Some(path) => Some((path.clone(), read(path)?)),
            None => None,
        };
        Self::from_parts(text, std::env::vars(), keys, unknown)
    }

    /// Like [`Self::load`], with the text of a file and variables given by the caller.
    pub fn from_parts<S: DeserializeOwned>(
        file: Option<(PathBuf, String)>,
        variables: impl Iterator<Item = (String, String)>,
        keys: &'static [Key],
        unknown: UnknownVariables,
    ) -> Outcome<(S, Self)> {
        let mut table = toml::Table::new();
        let mut origins = BTreeMap::new();
        if let Some((path, text)) = &file {
            // Parse as settings first, because that error names the line and the key.
            let wrong = |error: toml::de::Error| {
                Problem::usage(format_args!("{}: {}", path.display(), error.to_string().trim_end()))
                    .hint("`bulla config show` lists every key with its meaning")
            };
            toml::from_str::<S>(text).map_err(wrong)?;
            table = toml::from_str(text).map_err(wrong)?;
            for (key, _, _) in keys {
                if lookup(&table, key).is_some() {
                    origins.insert(*key, Origin::File(path.clone()));
                }
            }
        }
        for (variable, text) in variables {
            let Some((key, kind)) = key_of(&variable, keys, unknown)? else { continue };
            insert(&mut table, key, value(kind, &text).ok_or_else(|| unreadable(&variable, &text, kind))?);
            origins.insert(key, Origin::Variable(variable));
        }
        // Serialise to text first, so that only one deserializer for `S` is compiled.
        let settings: S = toml::from_str(&table.to_string()).map_err(|error: toml::de::Error| {
            Problem::usage(format_args!("in the environment: {}", error.message()))
                .hint("`bulla config show` lists every key with its meaning")
        })?;
        Ok((settings, Self { origins, file: file.map(|(path, _)| path) }))
    }

    /// Returns the file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the layer that the value of `key` comes from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }
}

/// Returns `~/.config/bulla/bulla.toml`, or the path according to the XDG base directory specification.
pub fn default_path() -> Option<PathBuf> {
    let base = data::base("XDG_CONFIG_HOME", ".config")?;
    Some(base.join("bulla").join("bulla.toml"))
}

fn read(path: &Path) -> Outcome<String> {
    /// Maximum size of the configuration file, in bytes.
    const FILE_BYTES_MAX: u64 = 1024 * 1024;
    let refuse = |why: String| {
        Problem::usage(format_args!("cannot read the configuration {}: {why}", path.display()))
            .hint("check --config and BULLA_CONFIG")
    };
    let size = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(refuse(format!("{size} bytes are too many")));
    }
    std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))
}

/// Prefix of the environment variables that set configuration keys.
const PREFIX: &str = "BULLA_";

/// Returns the variable of a key: `BULLA_SCAN_PORTS` for `scan.ports`.
pub fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// Returns the key that a variable sets; `None` for a variable that does not match a section of `keys`. A variable that matches a
/// section but no key is an error with [`UnknownVariables::Refused`], and ignored with [`UnknownVariables::Ignored`].
fn key_of(
    variable: &str,
    keys: &'static [Key],
    unknown: UnknownVariables,
) -> Outcome<Option<(&'static str, Kind)>> {
    /// The variable with the client's token. It contains a secret, so it is not a key of the file.
    const TOKEN: &str = "BULLA_CLIENT_TOKEN";
    /// The variable from which `libbulla_pkcs11.so` reads its settings, in the process that loads it.
    const MODULE_CONFIG: &str = "BULLA_PKCS11_CONFIG";
    let ours = |section: &str| {
        keys.iter()
            .any(|(key, ..)| key.split('.').next().is_some_and(|own| own.eq_ignore_ascii_case(section)))
    };
    let Some(name) = variable.strip_prefix(PREFIX) else { return Ok(None) };
    let found = keys.iter().find(|(key, _, _)| variable_of(key) == variable);
    let is_section = name.split_once('_').is_some_and(|(section, _)| ours(section));
    if [TOKEN, MODULE_CONFIG].contains(&variable) || (found.is_none() && !is_section) {
        return Ok(None);
    }
    match found {
        Some((key, kind, _)) => Ok(Some((key, *kind))),
        None if unknown == UnknownVariables::Ignored => Ok(None),
        None => Err(Problem::usage(format_args!("the environment variable {variable} is unknown"))
            .hint("`bulla config show` lists every variable")),
    }
}

fn value(kind: Kind, text: &str) -> Option<toml::Value> {
    match kind {
        Kind::Text => Some(toml::Value::String(text.to_owned())),
        Kind::Boolean => text.parse().ok().map(toml::Value::Boolean),
        Kind::Number => match text.parse() {
            Ok(whole) => Some(toml::Value::Integer(whole)),
            Err(_) => text.parse().ok().map(toml::Value::Float),
        },
        Kind::Toml => format!("value = {text}").parse::<toml::Table>().ok()?.remove("value"),
        Kind::List => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(toml::Value::Array(items.map(|item| item.to_owned().into()).collect()))
        }
    }
}

fn unreadable(variable: &str, text: &str, kind: Kind) -> Problem {
    let wanted = match kind {
        Kind::Boolean => "true or false",
        Kind::Number => "a number",
        Kind::Text | Kind::List => "text",
        Kind::Toml => "a TOML value",
    };
    Problem::usage(format_args!("{variable}: {text:?} is not {wanted}"))
        .hint(format!("unset {variable} or correct it"))
}

/// Returns the value of a dotted key such as `scan.ports` in a table; `None` if the table does not contain it.
pub fn lookup<'t>(table: &'t toml::Table, key: &str) -> Option<&'t toml::Value> {
    match key.split_once('.') {
        Some((section, rest)) => lookup(table.get(section)?.as_table()?, rest),
        None => table.get(key),
    }
}

fn insert(table: &mut toml::Table, key: &str, value: toml::Value) {
    let Some((section, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return;
    };
    let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    if let Some(section) = section.as_table_mut() {
        insert(section, rest, value);
    }
}
