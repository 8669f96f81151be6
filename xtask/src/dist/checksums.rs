//! `SHA256SUMS`, and its signature.
//!
//! The signature is Ed25519 by `openssl`, which exists on every machine that installs a package. Verifying minisign's format would
//! need minisign.

use std::path::{Path, PathBuf};

use crate::shell::{Failure, command, output_of, run as run_command};

use super::release;

/// Writes the checksums of `files`, which are in `folder`, and signs them with `key`. Returns the files that it wrote.
///
/// # Errors
/// `sha256sum` or `openssl` failed.
pub(super) fn write(folder: &Path, files: &[PathBuf], key: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let names = files.iter().filter_map(|file| file.file_name());
    let text = output_of(command("sha256sum").current_dir(folder).arg("--").args(names))
        .ok_or_else(|| Failure::Program("sha256sum failed".to_owned()))?;
    let sums = folder.join("SHA256SUMS");
    release::write(&sums, &text, 0o644)?;
    let signature = folder.join("SHA256SUMS.sig");
    let Some(key) = key else {
        // Remove a signature of an earlier run, which does not match the new checksums.
        let _absent = std::fs::remove_file(&signature);
        println!("not signed: no --key");
        return Ok(vec![sums]);
    };
    let mut sign = command("openssl");
    sign.args(["pkeyutl", "-sign", "-rawin", "-inkey"]).arg(key).arg("-in").arg(&sums);
    run_command(sign.arg("-out").arg(&signature))?;
    Ok(vec![sums, signature])
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
