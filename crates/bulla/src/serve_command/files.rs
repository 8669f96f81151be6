//! What a server leaves in the data folder for the commands on the same machine.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

use crate::api::local;
use crate::exit::{Exit, Outcome, Problem};

/// The server's address, its root, and the first token, readable by their owner only.
pub(super) fn write(url: &str, root_pem: &str, token: Option<&SecretString>) -> Outcome<()> {
    let folder = crate::data::folder()?;
    std::fs::create_dir_all(&folder).map_err(|error| refused(&folder, &error))?;
    put(&folder.join(local::URL), url)?;
    put(&folder.join(local::ROOT), root_pem)?;
    match token {
        Some(token) => put(&folder.join(local::TOKEN), token.expose_secret()),
        None => Ok(()),
    }
}

/// In one step, so that a reader never sees half of it.
fn put(path: &Path, text: &str) -> Outcome<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{}", text.trim_end())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    write().map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
        .hint("set BULLA_DATA to a folder you may write to")
}
