//! What keeps the proxy's leaves behind memory: opened, and its master key proven. A database that is away at the start is
//! opened once it is there.

use std::sync::Arc;

use authority::keystore::KeyStore;
use futures_util::FutureExt;
use intercept::certificate_store::{Opened, SecondLevel};
use outbound::resolve::Resolver;
use store::{Clock, Store, StoreError, StoreUrl};

use crate::config::{LeafBackend, Settings, StoreSettings};
use crate::exit::{Exit, Outcome, Problem, chain};
use crate::scan_command::fits;
use crate::serve_command::{files, master_keys};

/// The disk's file, in the data folder or the one that is named.
const FILE: &str = "proxy-leaves.db";

/// Why it is not opened.
enum NotOpened {
    /// The server is not reached, or does not let us in; it may tomorrow.
    Away(String),
    /// Waiting does not heal it.
    Problem(Problem),
}

impl NotOpened {
    /// `url`: a file is there or not, and what is wrong with it does not pass.
    fn of(error: &StoreError, url: &StoreUrl) -> Self {
        let may_come = error.is_transient() || matches!(error, StoreError::Open { .. });
        match url.is_postgres() && may_come {
            true => Self::Away(chain(error)),
            false => Self::Problem(Problem::inventory(error)),
        }
    }
}

/// The level of the settings; none where leaves are in memory alone.
pub(crate) async fn of(settings: &Settings) -> Outcome<Option<SecondLevel>> {
    let own = &settings.proxy.store;
    let url = match own.backend {
        LeafBackend::Memory => return Ok(None),
        LeafBackend::Disk => file(settings)?,
        LeafBackend::Database => own.database(&settings.store)?,
    };
    match opened(settings, &url).await {
        Ok((store, keystore)) => Ok(Some(SecondLevel::new(store, keystore.ring(), own.options()))),
        Err(NotOpened::Problem(problem)) => Err(hinted(problem, own.backend)),
        Err(NotOpened::Away(why)) => {
            eprintln!("warning: what keeps leaves is away: {why}");
            eprintln!(
                "hint: start the database, or correct proxy.store.url; the proxy joins by itself, and until then goes by \
                 proxy.store.when_away"
            );
            Ok(Some(awaited(settings, url)))
        }
    }
}

/// Opened as soon as it can be: its schema and the master key are looked at then.
fn awaited(settings: &Settings, url: StoreUrl) -> SecondLevel {
    let (settings, options) = (Arc::new(settings.clone()), settings.proxy.store.options());
    let opening = move || {
        let (settings, url) = (Arc::clone(&settings), url.clone());
        async move {
            match opened(&settings, &url).await {
                Ok((store, keystore)) => Ok(Opened::new(store, keystore.ring())),
                Err(NotOpened::Away(why)) => Err(why),
                Err(NotOpened::Problem(problem)) => Err(problem.message),
            }
        }
        .boxed()
    };
    SecondLevel::awaited(Box::new(opening), options)
}

async fn opened(settings: &Settings, url: &StoreUrl) -> Result<(Store, KeyStore), NotOpened> {
    let connections = settings.proxy.store.connections;
    let how = StoreSettings { connections, ..StoreSettings::default() };
    let how = how.options().map_err(NotOpened::Problem)?;
    let away = |error: StoreError| NotOpened::of(&error, url);
    let store = Store::open_with(url, &how).await.map_err(away)?;
    fits(store.connections().await.map_err(away)?).map_err(NotOpened::Problem)?;
    // A master key is made where nothing can have been sealed under another one.
    let create = store.master_keys().await.map_err(away)?.is_empty();
    let keystore = keystore(settings, &store, create).await.map_err(NotOpened::Problem)?;
    Ok((store, keystore))
}

fn file(settings: &Settings) -> Outcome<StoreUrl> {
    let folder = match settings.proxy.store.folder.as_os_str().is_empty() {
        true => files::folder()?,
        false => settings.proxy.store.folder.clone(),
    };
    Ok(StoreUrl::sqlite(folder.join(FILE)))
}

async fn keystore(settings: &Settings, store: &Store, create: bool) -> Outcome<KeyStore> {
    let resolver = Resolver::system()
        .map_err(|error| Problem::new(Exit::Machine, chain(&error)).hint("check /etc/resolv.conf"))?;
    let opened = master_keys::keystore(settings, store, &Clock::system(), &resolver, create).await;
    opened.map_err(|problem| match create || problem.exit == Exit::Usage {
        true => problem,
        false => problem.hint(
            "what is kept is sealed under the master key of whoever kept it first: copy master.key of its data folder to this one's, \
             or name it in authority.master_key_file",
        ),
    })
}

fn hinted(problem: Problem, backend: LeafBackend) -> Problem {
    match backend {
        // What the schema or a driver says.
        LeafBackend::Disk if problem.exit == Exit::Inventory => {
            problem.hint("check the folder's owner and mode, or name another: proxy.store.folder")
        }
        LeafBackend::Database if problem.exit == Exit::Inventory => {
            problem.hint("check the database, or correct proxy.store.url")
        }
        _ => problem,
    }
}
