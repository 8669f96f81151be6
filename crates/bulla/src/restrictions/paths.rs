//! Files and folders that settings, flags and the environment name.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use toml::Value;

use crate::config::Settings;

/// Suffixes of variables whose values are files or folders: `SSL_CERT_FILE`, `SSL_CERT_DIR`, `CREDENTIALS_DIRECTORY`.
const VARIABLES: [&str; 3] = ["_FILE", "_DIR", "_DIRECTORY"];
/// Files that are created at startup if they are missing. Later they are only read.
const CREATED_AT_STARTUP: [&str; 5] =
    ["master_key_file", "wrapped_file", "parameters_file", "ca_certificate_file", "ca_key_file"];
/// System files that are links to locations that depend on the distribution.
const LINKS: [&str; 3] = ["/etc/resolv.conf", "/etc/localtime", "/etc/hosts"];

/// Returns the folders that settings, flags and the environment name, and the folders of the files that they name. A replaced
/// file is a new file, which only a rule about its folder covers.
pub(super) fn named(settings: &Settings) -> Vec<PathBuf> {
    let mut texts: Vec<String> = std::env::args().skip(1).collect();
    let is_path_variable = |name: &str| VARIABLES.iter().any(|end| name.ends_with(end));
    texts.extend(std::env::vars().filter(|(name, _)| is_path_variable(name)).map(|(_, value)| value));
    texts.extend(LINKS.map(str::to_owned));
    let table = toml::Table::try_from(settings).unwrap_or_default();
    visit(&table.into(), "", &mut |_, text| texts.push(text.to_owned()));
    let mut found: Vec<PathBuf> = texts.iter().flat_map(|text| paths_in(text)).collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the paths in one text: `/a/b`, `unix:/a/b`, `sqlite:/a/b`, `--flag=/a/b`, `postgres://…?sslrootcert=/a/b`.
fn paths_in(text: &str) -> Vec<PathBuf> {
    let parts = text.split([':', '=', '&', '?', ',', ' ']).chain([text]);
    let paths = parts.filter(|part| !part.is_empty() && !part.starts_with('-')).map(Path::new);
    let allowed_folder = |path: &Path| if path.is_dir() { no_root(path) } else { folder_of_file(path) };
    let mut found: Vec<PathBuf> = paths.filter_map(allowed_folder).collect();
    // The whole text is also one of the pieces.
    found.dedup();
    found
}

fn folder_of_file(path: &Path) -> Option<PathBuf> {
    let file = path.canonicalize().ok().filter(|file| file.is_file())?;
    // For a file in the root folder, allow only the file.
    Some(file.parent().and_then(no_root).unwrap_or(file))
}

/// Excludes the root folder, which would allow all files.
fn no_root(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|path| path.parent().is_some())
}

/// Returns the missing files that are created at startup.
pub(super) fn missing_files(settings: &Settings) -> Vec<PathBuf> {
    let table = toml::Table::try_from(settings).unwrap_or_default();
    let mut missing = Vec::new();
    visit(&table.into(), "", &mut |key, text| {
        if CREATED_AT_STARTUP.contains(&key) && !text.is_empty() && !Path::new(text).exists() {
            missing.push(text.into());
        }
    });
    missing
}

/// Returns the files of the configured SQLite databases.
pub(super) fn databases(settings: &Settings) -> Vec<PathBuf> {
    let urls = [&settings.store.url, &settings.proxy.store.url];
    let url = |text: &&String| text.parse::<store::StoreUrl>().ok().filter(|_| !text.is_empty());
    urls.iter().filter_map(url).filter_map(|url| url.sqlite_path().map(PathBuf::from)).collect()
}

/// Creates missing folders, accessible to their owner only. Returns the folders that now exist, without the root folder.
pub(super) fn create_missing(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700);
    // Code that needs the folder reports the error.
    let make = |folder: &&PathBuf| is_path(folder) && private.create(folder).is_ok();
    folders.iter().filter(make).filter_map(|folder| no_root(folder)).collect()
}

/// Returns the folder that a file is in, or will be in.
pub(super) fn folder_of(file: &Path) -> Option<PathBuf> {
    if !is_path(file) {
        return None;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    no_root(folder)
}

/// Returns whether a setting is a path. Other values are an empty text, `none`, and `-` for standard output.
fn is_path(path: &Path) -> bool {
    !["", "none", "-"].iter().any(|word| path.as_os_str() == *word)
}

fn visit(value: &Value, key: &str, with: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => with(key, text),
        Value::Array(all) => all.iter().for_each(|value| visit(value, key, with)),
        Value::Table(all) => all.iter().for_each(|(key, value)| visit(value, key, with)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_paths_in_settings_map_to_their_folder() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let file = home.join("key.pem");
        std::fs::write(&file, "").unwrap();
        let file = file.display();
        for text in [
            format!("{file}"),
            format!("unix:{file}"),
            format!("--key={file}"),
            format!("postgres://u@host/db?sslmode=verify-full&sslrootcert={file}"),
        ] {
            assert_eq!(paths_in(&text), std::slice::from_ref(&home), "{text}");
        }
        assert_eq!(paths_in(&home.display().to_string())[0], home);
        for text in
            ["", "/", "https://host", "https://host/", "none", "/no/such/file", "--help", "0.0.0.0:443"]
        {
            assert!(paths_in(text).is_empty(), "{text}: {:?}", paths_in(text));
        }
    }

    #[test]
    fn paths_in_settings_are_found_and_missing_files_listed() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in ["tls", "crl", "seed"] {
            std::fs::create_dir(home.join(folder)).unwrap();
        }
        std::fs::write(home.join("tls/chain.pem"), "").unwrap();
        std::fs::write(home.join("crl/a.crl"), "").unwrap();
        let text = format!(
            "[server]\ncertificate_file = \"{0}/tls/chain.pem\"\nclient_crl_files = [\"{0}/crl/a.crl\"]\n\
             [authority]\nmaster_key = {{ program = {{ command = [\"/bin/cat\"], wrapped_file = \"{0}/seed/wrapped\" }} }}\n",
            home.display()
        );
        let settings: Settings = toml::from_str(&text).unwrap();
        let found = named(&settings);
        assert!(found.contains(&home.join("tls")) && found.contains(&home.join("crl")), "{found:?}");
        assert!(!found.contains(&home.join("seed")), "{found:?}");
        assert_eq!(missing_files(&settings), [home.join("seed/wrapped")]);
        assert_eq!(folder_of(&home.join("seed/wrapped")), Some(home.join("seed")));
    }
}
