//! Files that the command must not read or write: the data folder, and the keys, passwords, credentials and logs that the
//! configuration names. Also environment variables with secrets.

use std::path::{Path, PathBuf};

use cli::exit::Outcome;
use toml::Value;

use crate::config::Configuration;
use crate::data_folder;
use discover::database;

/// Last parts of the names of settings whose values are files with secrets.
const NAMES: [&str; 14] = [
    "key_file",
    "key_files",
    "keys_file",
    "auth_file",
    "clouds_file",
    "credentials_file",
    "password_file",
    "pin_file",
    "secret_file",
    "token_file",
    "users_file",
    "wrapped_file",
    "log_file",
    "record_folder",
];
/// Name of several settings, such as the file of a rule's credential and the file of a passphrase.
const FILE: &str = "file";
/// Suffixes of a database's files: the file itself, its log, and the log's index.
const SQLITE_FILES: [&str; 3] = ["", "-wal", "-shm"];
/// Name of the setting for the variable of a passphrase.
const VARIABLE: &str = "variable";

/// Returns the paths of hidden files, without symbolic links. Files that the proxy creates at startup are included.
pub(super) fn files(configuration: &Configuration) -> Outcome<Vec<PathBuf>> {
    let settings = &configuration.settings;
    // Create the folder now, because a folder that another process creates later would not be hidden. This fails for a user without
    // a home folder.
    let data = data_folder::folder().or_else(|_| cli::data::folder())?;
    let mut found = vec![data, settings.agent.state.clone(), settings.proxy.store.folder.clone()];
    found.extend(settings.keys.directories.iter().cloned());
    found.push(settings.keys.node.folder.clone());
    found.extend(Some(&settings.keys.records).filter(|records| *records != "none").map(PathBuf::from));
    if let Some(path) = database::inventory_url(None, &settings.store)?.sqlite_path() {
        found.extend(SQLITE_FILES.map(|end| suffixed(path, end)));
    }
    let named = |key: &str| key == FILE || NAMES.iter().any(|name| key.ends_with(name));
    found.extend(texts(configuration, &named).into_iter().map(PathBuf::from));
    found.retain(|path| !path.as_os_str().is_empty());
    let mut found: Vec<PathBuf> = found.iter().filter_map(|path| resolved(path)).collect();
    found.sort();
    found.dedup();
    // A path inside a hidden folder does not exist for the command.
    let folders: Vec<PathBuf> = found.iter().filter(|path| path.is_dir()).cloned().collect();
    found.retain(|path| !folders.iter().any(|folder| path != folder && path.starts_with(folder)));
    Ok(found)
}

fn suffixed(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Returns a path with its symbolic links resolved.
fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    })
}

/// Returns the environment variables from which the configuration reads passphrases.
pub(super) fn variables(configuration: &Configuration) -> Vec<String> {
    let mut names = texts(configuration, &|key| key == VARIABLE);
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the values of all text settings whose last name part satisfies `named`.
fn texts(configuration: &Configuration, named: &dyn Fn(&str) -> bool) -> Vec<String> {
    let table = toml::Table::try_from(&configuration.settings).unwrap_or_default();
    let mut found = Vec::new();
    visit(&table.into(), false, named, &mut found);
    found
}

fn visit(value: &Value, is_named: bool, named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) if is_named => found.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|value| visit(value, is_named, named, found)),
        Value::Table(all) => all.iter().for_each(|(key, value)| visit(value, named(key), named, found)),
        _ => {}
    }
}
