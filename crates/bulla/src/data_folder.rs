//! The data folder: made where it is missing, and files written to it.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cli::exit::{Exit, Outcome, Problem};

/// The data folder, made for its owner only when it is missing.
pub(crate) fn folder() -> Outcome<PathBuf> {
    let folder = cli::data::folder()?;
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(&folder).map_err(|error| refused(&folder, &error))?;
    Ok(folder)
}

/// In one step, so that a reader never sees half of it.
pub(crate) fn put(path: &Path, text: &str) -> Outcome<()> {
    put_bytes(path, format!("{}\n", text.trim_end()).as_bytes())
}

/// [`put`] of bytes as they are.
pub(crate) fn put_bytes(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        // The name too: the first token counts once this is done.
        path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
    };
    write().map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
        .hint("set BULLA_DATA to a folder you may write to")
}
