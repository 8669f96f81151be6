//! `SHA256SUMS`, and its signatures.
//!
//! Both signatures are made with the same Ed25519 key: `SHA256SUMS.sig` can be verified with `openssl`, which exists on every
//! machine that installs a package, and `SHA256SUMS.minisig` with minisign.

use std::path::{Path, PathBuf};

use crate::shell::{Failure, command, output_of};

use super::minisign;
use super::release::{self, Release};

/// Writes the checksums of `files`, which are in the folder of the release, and signs them with `key`. Returns the files that it wrote.
///
/// # Errors
/// `sha256sum`, `openssl` or `base64` failed.
pub(super) fn write(
    release: &Release,
    files: &[PathBuf],
    key: Option<&Path>,
) -> Result<Vec<PathBuf>, Failure> {
    let folder = &release.output;
    let names = files.iter().filter_map(|file| file.file_name());
    let text = output_of(command("sha256sum").current_dir(folder).arg("--").args(names))
        .ok_or_else(|| Failure::Program("sha256sum failed".to_owned()))?;
    let sums = folder.join("SHA256SUMS");
    release::write(&sums, &text, 0o644)?;
    let (signature, minisig) = (folder.join("SHA256SUMS.sig"), folder.join("SHA256SUMS.minisig"));
    let Some(key) = key else {
        // Remove signatures of an earlier run, which do not match the new checksums.
        for outdated in [&signature, &minisig] {
            let _absent = std::fs::remove_file(outdated);
        }
        println!("not signed: no --key");
        return Ok(vec![sums]);
    };
    minisign::sign_bytes(key, &sums, &signature)?;
    let comment = format!("Bulla {} SHA256SUMS", release.version);
    let (text, public) = minisign::sign(&sums, key, &comment, &release.work)?;
    release::write(&minisig, &text, 0o644)?;
    println!("minisign public key: {public}");
    Ok(vec![sums, signature, minisig])
}
