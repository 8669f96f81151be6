//! The data folder: its creation, and writing files to it.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cli::connection::local;
use cli::exit::{Exit, Outcome, Problem};

/// Returns the data folder. A missing folder is created, with access for its owner only.
pub(crate) fn folder() -> Outcome<PathBuf> {
    let folder = cli::data::folder()?;
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(&folder).map_err(|error| refused(&folder, &error))?;
    Ok(folder)
}

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;
const OTHERS_ENTER: u32 = 0o007;
const STICKY: u32 = 0o1000;

/// Rejects a data folder in which other users could replace the master key, and an admin token that other users can read.
pub(crate) fn check() -> Outcome<()> {
    let folder = folder()?;
    let mode = |path: &Path| path.metadata().map(|found| found.permissions().mode() & 0o7777).ok();
    let found = mode(&folder).unwrap_or_default();
    if found & OTHERS_WRITE != 0 && found & STICKY == 0 {
        return Err(insecure_mode(&folder, "written", found, "700"));
    }
    if found & OTHERS_ENTER != 0 {
        let folder = folder.display();
        tracing::warn!("every user of this host can enter the data folder; run: chmod 700 {folder}");
    }
    let token = folder.join(local::TOKEN);
    match mode(&token).filter(|found| found & OTHERS != 0) {
        Some(found) => Err(insecure_mode(&token, "read", found, "600")),
        None => Ok(()),
    }
}

fn insecure_mode(path: &Path, what: &str, found: u32, mode: &str) -> Problem {
    let path = path.display();
    Problem::new(Exit::Machine, format_args!("{path} can be {what} by others (mode {found:04o})"))
        .hint(format!("run: chmod {mode} {path}"))
}

/// Writes a file atomically, so that a reader never sees a partial file. A file with the same text is not written again, so that a
/// server also starts on a full disk.
pub(crate) fn put(path: &Path, text: &str) -> Outcome<()> {
    let text = format!("{}\n", text.trim_end());
    match std::fs::read(path) {
        Ok(found) if found == text.as_bytes() => Ok(()),
        _ => put_bytes(path, text.as_bytes()),
    }
}

/// Like [`put`], for bytes.
pub(crate) fn put_bytes(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        // Sync the folder too, so that the new file name survives a crash.
        path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
    };
    write().map_err(|error| {
        // A partial file is useless and takes disk space.
        let _ = std::fs::remove_file(&new);
        refused(path, &error)
    })
}

fn refused(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
        .hint("set BULLA_DATA to a folder you may write to")
}
