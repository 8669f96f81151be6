//! Common parts of all packages of a release: names, version, time, folders; and files with their modes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::shell::{Failure, command, output_of};

use super::options::{Compression, Options};

pub(super) const SUMMARY: &str = "Finds, issues, renews and keeps TLS certificates";
pub(super) const DESCRIPTION: &str = "One program: a scanner of TLS endpoints; a control plane with a certification authority, ACME, EST, SCEP, \
alerts and an audit log; agents that deploy certificates; a credential store; a key service for TLS terminators; \
a terminator and a forward proxy.";
/// Configuration files with passwords, and the group that may read each.
pub(super) const PRIVATE_CONFIGURATION: &[(&str, &str)] =
    &[("etc/bulla/bulla.toml", "bulla"), ("etc/bulla/signer.toml", "bulla-signer")];

/// A release on this machine's architecture.
pub(super) struct Release {
    pub(super) version: String,
    /// Timestamp of all files, in seconds since 1970.
    pub(super) epoch: String,
    pub(super) compression: Compression,
    pub(super) output: PathBuf,
    /// Folder with the files of a package, at their paths below `/`.
    pub(super) tree: PathBuf,
    /// Folder for temporary files.
    pub(super) work: PathBuf,
}

impl Release {
    /// Collects the properties of the release.
    ///
    /// # Errors
    /// There is no timestamp: neither `SOURCE_DATE_EPOCH` nor a commit.
    pub(super) fn new(options: &Options, work: &Path) -> Result<Self, Failure> {
        Ok(Self {
            version: options.version.clone(),
            epoch: epoch()?,
            compression: options.compression,
            output: options.output.clone(),
            tree: work.join("tree"),
            work: work.to_owned(),
        })
    }

    /// Returns the name of the architecture in Debian and in OCI images.
    pub(super) fn debian_architecture(&self) -> &'static str {
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    /// Writes a file of the package.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, path: &str, text: &str, mode: u32) -> Result<PathBuf, Failure> {
        let target = self.tree.join(path);
        write(&target, text, mode)?;
        Ok(target)
    }
}

/// Returns `SOURCE_DATE_EPOCH`, else the time of the last commit.
fn epoch() -> Result<String, Failure> {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let committed = || output_of(command("git").args(["log", "-1", "--format=%ct"]));
    let epoch = given.or_else(committed).map(|text| text.trim().to_owned());
    epoch.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(|| {
        Failure::Program("no commit has a time; set SOURCE_DATE_EPOCH (seconds since 1970)".to_owned())
    })
}

/// Returns the error for a file that cannot be used.
pub(super) fn failed(action: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Program(format!("cannot {action} {}: {error}", path.display()))
}

/// Creates an empty folder with the mode of package folders.
///
/// # Errors
/// The folder cannot be removed or created.
pub(super) fn recreate_folder(folder: &Path) -> Result<(), Failure> {
    remove(folder)?;
    fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))
}

/// Removes a file or folder, if it exists.
///
/// # Errors
/// It exists and cannot be removed.
pub(super) fn remove(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| failed("remove", folder, &error))?;
    }
    Ok(())
}

/// Reads a text file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| failed("read", path, &error))
}

/// Returns the SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// `sha256sum` failed.
pub(super) fn sha256(file: &Path) -> Result<String, Failure> {
    let line = output_of(command("sha256sum").arg("--").arg(file));
    line.and_then(|line| line.split_whitespace().next().map(str::to_owned))
        .ok_or_else(|| Failure::Program(format!("sha256sum failed for {}", file.display())))
}

/// Writes a file and its parent folders.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    make_parents(path)?;
    fs::write(path, text).map_err(|error| failed("write", path, &error))?;
    set_mode(path, mode)
}

/// Copies a file with the given mode, and creates its parent folders.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), Failure> {
    make_parents(to)?;
    fs::copy(from, to).map_err(|error| failed("copy", from, &error))?;
    set_mode(to, mode)
}

/// Creates the parent folders of a path.
///
/// # Errors
/// The folders cannot be created.
pub(super) fn make_parents(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))
}

/// Sets the mode of a file.
///
/// # Errors
/// The mode cannot be set.
pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| failed("set the mode of", path, &error))
}

/// Sets mode 0755 for the folders of packages, independent of the umask of this process.
///
/// # Errors
/// A folder cannot be read, or its mode cannot be set.
pub(super) fn set_folder_modes(folder: &Path) -> Result<(), Failure> {
    set_mode(folder, 0o755)?;
    for path in list(folder)? {
        if path.is_dir() && !path.is_symlink() {
            set_folder_modes(&path)?;
        }
    }
    Ok(())
}

/// Returns the entries of a folder, sorted.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| failed("read", folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Returns the paths of all files below a folder, relative to it and sorted. Links count as files.
///
/// # Errors
/// A folder cannot be read.
pub(super) fn files(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in list(&next)? {
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if let Ok(below) = path.strip_prefix(folder) {
                found.push(below.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}
