//! Files that the command must not read or write: the data folder, and the keys, passwords, credentials and logs that the configuration names.

use std::path::{Path, PathBuf};

use cli::exit::Outcome;
use toml::Value;

use crate::config::Configuration;

/// Settings whose values are such files: the last words of their names.
const NAMES: [&str; 9] = [
    "key_file",
    "password_file",
    "pin_file",
    "secret_file",
    "token_file",
    "users_file",
    "wrapped_file",
    "log_file",
    "record_folder",
];
/// A credential's, in a rule.
const OF_RULE: &str = "file";

/// Where they are, or will be once the proxy has started.
pub(super) fn files(configuration: &Configuration) -> Outcome<Vec<PathBuf>> {
    let mut found = vec![cli::data::folder()?];
    let table = toml::Table::try_from(&configuration.settings).unwrap_or_default();
    visit(&table.into(), false, &mut found);
    found.retain(|path| !path.as_os_str().is_empty());
    let mut found: Vec<PathBuf> = found.iter().filter_map(|path| real(path)).collect();
    found.sort();
    found.dedup();
    // What is below a hidden folder cannot be hidden once more.
    let folders: Vec<PathBuf> = found.iter().filter(|path| path.is_dir()).cloned().collect();
    found.retain(|path| !folders.iter().any(|folder| path != folder && path.starts_with(folder)));
    Ok(found)
}

/// A path without links.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    })
}

fn visit(value: &Value, is_secret: bool, found: &mut Vec<PathBuf>) {
    match value {
        Value::String(text) if is_secret => found.push(text.into()),
        Value::Array(all) => all.iter().for_each(|value| visit(value, is_secret, found)),
        Value::Table(all) => {
            for (key, value) in all {
                let is_secret = key == OF_RULE || NAMES.iter().any(|name| key.ends_with(name));
                visit(value, is_secret, found);
            }
        }
        _ => {}
    }
}
