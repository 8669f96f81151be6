//! The data folder, and other folders of the user.

use std::path::PathBuf;

use crate::exit::{Outcome, Problem};

/// Returns a folder of the XDG base directory specification; `None` without a home folder.
pub fn base(variable: &str, under_home: &str) -> Option<PathBuf> {
    // The specification says to ignore relative paths.
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    given.or_else(|| {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(under_home))
    })
}

/// Returns the data directory: `$BULLA_DATA`, else `$XDG_DATA_HOME/bulla`, else `~/.local/share/bulla`.
pub fn folder() -> Outcome<PathBuf> {
    if let Some(folder) = std::env::var_os("BULLA_DATA").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    base("XDG_DATA_HOME", ".local/share").map(|base| base.join("bulla")).ok_or_else(|| {
        Problem::usage("no folder for the inventory: HOME is not set")
            .hint("set BULLA_DATA to a folder, name a database with --db, or use --no-store")
    })
}
