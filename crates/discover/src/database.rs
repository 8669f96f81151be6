//! The database of the configuration: its address, its options, and the conversion of its errors.

use std::os::unix::fs::DirBuilderExt;

use cli::exit::{Exit, Outcome, Problem, chain};
use clouds::Database;
use store::{Connections, Store, StoreError, StoreUrl};

use crate::store_settings::StoreSettings;

/// Returns the inventory's address: `--db`, else the configured database, else the file in the data folder. A missing data folder is
/// created (0700).
pub fn inventory_url(flag: Option<&str>, settings: &StoreSettings) -> Outcome<StoreUrl> {
    let given = flag.or(Some(settings.url.as_str()).filter(|url| !url.is_empty()));
    if let Some(text) = given {
        return text.parse().map_err(|error: StoreError| {
            Problem::usage(chain(&error)).hint("give a file, sqlite:FILE or postgres://USER@HOST/DATABASE")
        });
    }
    let folder = cli::data::folder()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
        Problem::new(
            Exit::Inventory,
            format_args!("cannot create the data folder {}: {error}", folder.display()),
        )
        .hint("set BULLA_DATA to a folder you may write to, or use --no-store")
    })?;
    Ok(StoreUrl::sqlite(folder.join("inventory.db")))
}

/// Opens the inventory, with as many connections as the server and this machine allow.
pub async fn open(url: &StoreUrl, settings: &StoreSettings) -> Outcome<Store> {
    let store = Store::open_with(url, &settings.options()?).await;
    let store = store.map_err(|error| problem(&error))?;
    check_connection_limit(store.connections().await.map_err(|error| problem(&error))?)?;
    Ok(store)
}

/// Returns an error if the database server or this machine allows fewer connections than configured.
pub fn check_connection_limit(connections: Connections) -> Outcome<()> {
    let database = Database { connections: connections.ours, connections_max: connections.servers };
    let check_connection_limit = database.check(outbound::limits::descriptor_budget());
    check_connection_limit.map_err(|error| Problem::usage(&error).hint(error.hint()))
}

/// Converts a database error to the problem that the program reports.
pub fn problem(error: &StoreError) -> Problem {
    Problem::new(Exit::Inventory, chain(error))
        .hint("check --db, BULLA_STORE_URL and the permissions of the folder, or scan without a database with --no-store")
}
