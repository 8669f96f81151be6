//! Where things are kept: the data folder and the inventory in it.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::config::StoreSettings;
use crate::exit::{Exit, Outcome, Problem};

/// A folder of the XDG base directory specification; `None` without a home.
pub(crate) fn base(variable: &str, under_home: &str) -> Option<PathBuf> {
    // The specification says to ignore relative paths.
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    given.or_else(|| {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(under_home))
    })
}

/// `$BULLA_DATA`, else `$XDG_DATA_HOME/bulla`, else `~/.local/share/bulla`.
pub(crate) fn folder() -> Outcome<PathBuf> {
    if let Some(folder) = std::env::var_os("BULLA_DATA").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    base("XDG_DATA_HOME", ".local/share").map(|base| base.join("bulla")).ok_or_else(|| {
        Problem::usage("there is no folder for the inventory: HOME is not set")
            .hint("set BULLA_DATA to a folder, name a database with --db, or use --no-store")
    })
}

/// The inventory's address: `--db`, else the configuration's, else the file in the data folder,
/// whose folder is made (0700).
pub(crate) fn inventory_url(flag: Option<&str>, settings: &StoreSettings) -> Outcome<store::StoreUrl> {
    let given = flag.or(Some(settings.url.as_str()).filter(|url| !url.is_empty()));
    if let Some(text) = given {
        return text.parse().map_err(|error: store::StoreError| {
            Problem::usage(crate::exit::chain(&error))
                .hint("give a file, sqlite:FILE or postgres://USER@HOST/DATABASE")
        });
    }
    let folder = folder()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
        Problem::new(
            Exit::Inventory,
            format_args!("cannot make the data folder {}: {error}", folder.display()),
        )
        .hint("set BULLA_DATA to a folder you may write to, or use --no-store")
    })?;
    Ok(store::StoreUrl::sqlite(folder.join("inventory.db")))
}
