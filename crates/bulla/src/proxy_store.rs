//! What keeps the proxy's leaves behind memory: opened, and its master key proven.

use authority::keystore::KeyStore;
use intercept::certificate_store::SecondLevel;
use outbound::resolve::Resolver;
use store::{Clock, Store, StoreUrl};

use crate::config::{LeafBackend, Settings, StoreSettings};
use crate::exit::{Exit, Outcome, Problem, chain};
use crate::serve_command::{files, master_keys};

/// The disk's file, in the data folder or the one that is named.
const FILE: &str = "proxy-leaves.db";

/// The level of the settings; none where leaves are in memory alone.
pub(crate) async fn of(settings: &Settings) -> Outcome<Option<SecondLevel>> {
    let own = &settings.proxy.store;
    let url = match own.backend {
        LeafBackend::Memory => return Ok(None),
        LeafBackend::Disk => file(settings)?,
        LeafBackend::Database => own.database(&settings.store)?,
    };
    let how = StoreSettings { connections: own.connections, ..StoreSettings::default() };
    let store = crate::scan_command::open(&url, &how).await.map_err(|problem| away(problem, own.backend))?;
    let keystore = keystore(settings, &store).await?;
    Ok(Some(SecondLevel::new(store, keystore.ring(), own.options())))
}

fn file(settings: &Settings) -> Outcome<StoreUrl> {
    let folder = match settings.proxy.store.folder.as_os_str().is_empty() {
        true => files::folder()?,
        false => settings.proxy.store.folder.clone(),
    };
    Ok(StoreUrl::sqlite(folder.join(FILE)))
}

/// A master key is made where nothing can have been sealed under another one.
async fn keystore(settings: &Settings, store: &Store) -> Outcome<KeyStore> {
    let resolver = Resolver::system()
        .map_err(|error| Problem::new(Exit::Machine, chain(&error)).hint("check /etc/resolv.conf"))?;
    let known = store.master_keys().await.map_err(|error| Problem::inventory(&error))?;
    let create = known.is_empty();
    let opened = master_keys::keystore(settings, store, &Clock::system(), &resolver, create).await;
    opened.map_err(|problem| match create || problem.exit == Exit::Usage {
        true => problem,
        false => problem.hint(
            "what is kept is sealed under the master key of whoever kept it first: copy master.key of its data folder to this one's, \
             or name it in authority.master_key_file",
        ),
    })
}

fn away(problem: Problem, backend: LeafBackend) -> Problem {
    match backend {
        _ if problem.exit == Exit::Usage => problem,
        LeafBackend::Disk => problem.hint("check the folder's owner and mode, or name another: proxy.store.folder"),
        _ => problem.hint(
            "start the database, or correct proxy.store.url; a proxy that runs goes on while it is away, one that starts needs it",
        ),
    }
}
