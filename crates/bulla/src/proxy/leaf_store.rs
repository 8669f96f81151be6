//! Opens the persistent store of the proxy's leaves, and verifies its master key. A database that is unavailable at startup is
//! opened later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use cli::exit::{Exit, Outcome, Problem, chain};
use futures_util::FutureExt;
use outbound::resolve::Resolver;
use proxy::certificate_store::{Opened, SecondLevel};
use store::{Clock, Store, StoreError, StoreOptions, StoreUrl};
use tokio::sync::Mutex;

use crate::config::{LeafBackend, Settings};
use crate::data_folder;
use crate::master_keys;
use discover::StoreSettings;
use discover::database;
use discover::database::check_connection_limit;

/// File of the disk store, in the data folder or in the configured folder.
const FILE: &str = "proxy-leaves.db";

/// The reason why the leaf store is not open.
enum OpenError {
    /// The server is unreachable or rejects the login. A later attempt may succeed.
    Unavailable(String),
    /// A permanent problem: waiting does not help.
    Problem(Problem),
    /// A permanent problem of the master key. Each attempt may use up a PIN try of a token, a second of CPU time, or a paid
    /// request.
    Key(Problem),
}

/// Delay of the first retry after a permanent problem. Each further delay doubles, up to a maximum.
const RETRY_FIRST: Duration = Duration::from_secs(60);
/// Maximum delay between two retries.
const RETRY_LAST: Duration = Duration::from_secs(3_600);

/// The last permanent failure to open a leaf store after startup, and the time of the next attempt.
#[derive(Default)]
struct RetryState {
    why: String,
    pause: Duration,
    /// Time of the next retry. A token is never retried, because it locks after some wrong PINs.
    until: Option<Instant>,
}

impl RetryState {
    /// Returns the reason why no attempt is made now, if there is one.
    fn now(&self) -> Option<String> {
        let is_over = self.until.is_some_and(|until| until <= Instant::now());
        (!self.why.is_empty() && !is_over).then(|| self.why.clone())
    }

    fn next(&self, why: String, is_final: bool) -> Self {
        let pause = (2 * self.pause).clamp(RETRY_FIRST, RETRY_LAST);
        match is_final {
            true => Self { why: format!("{why}; not retried: restart the proxy"), pause, until: None },
            false => Self { why, pause, until: Some(Instant::now() + pause) },
        }
    }
}

impl OpenError {
    /// Converts an error of the store. The error is permanent if `url` names a file, and may be temporary for a database server.
    fn of(error: &StoreError, url: &StoreUrl) -> Self {
        let may_come = error.is_transient() || matches!(error, StoreError::Open { .. });
        match url.is_postgres() && may_come {
            true => Self::Unavailable(chain(error)),
            false => Self::Problem(database::problem(error)),
        }
    }
}

/// Opens the persistent store of leaves, the second level after the memory cache; `None` if leaves are only in memory.
pub(crate) async fn open(settings: &Settings) -> Outcome<Option<SecondLevel>> {
    let own = &settings.proxy.store;
    let url = match own.backend {
        LeafBackend::Memory => return Ok(None),
        LeafBackend::Disk => file(settings)?,
        LeafBackend::Database => own.database(&settings.store)?,
    };
    match opened(settings, &url).await {
        Ok((store, keystore)) => Ok(Some(SecondLevel::new(store, keystore.ring(), own.options()))),
        Err(OpenError::Problem(problem) | OpenError::Key(problem)) => {
            Err(with_backend_hint(problem, own.backend))
        }
        Err(OpenError::Unavailable(why)) => {
            eprintln!("warning: the store of leaf certificates is unreachable: {why}");
            eprintln!(
                "hint: start the database, or correct proxy.store.url; the proxy reconnects automatically, and until then \
                 applies proxy.store.when_away"
            );
            Ok(Some(open_when_available(settings, url)))
        }
    }
}

/// Returns a store that is opened once the database is available. An error of the schema or the master key is not retried every second.
fn open_when_available(settings: &Settings, url: StoreUrl) -> SecondLevel {
    let (settings, options) = (Arc::new(settings.clone()), settings.proxy.store.options());
    let retry: Arc<Mutex<RetryState>> = Arc::default();
    let opening = move || {
        let (settings, url, retry) = (Arc::clone(&settings), url.clone(), Arc::clone(&retry));
        async move {
            if let Some(why) = retry.lock().await.now() {
                return Err(why);
            }
            let (problem, is_final) = match opened(&settings, &url).await {
                Ok((store, keystore)) => return Ok(Opened::new(store, keystore.ring())),
                Err(OpenError::Unavailable(why)) => return Err(why),
                Err(OpenError::Problem(problem)) => (problem, false),
                Err(OpenError::Key(problem)) => (problem, !settings.pkcs11.module.as_os_str().is_empty()),
            };
            let mut retry = retry.lock().await;
            *retry = retry.next(problem.message, is_final);
            Err(retry.why.clone())
        }
        .boxed()
    };
    SecondLevel::open_when_available(Box::new(opening), options)
}

async fn opened(settings: &Settings, url: &StoreUrl) -> Result<(Store, KeyStore), OpenError> {
    let connections = settings.proxy.store.connections;
    let how = StoreSettings { connections, ..StoreSettings::default() };
    // Lost leaves are minted again.
    let how = StoreOptions { lossy: true, ..how.options().map_err(OpenError::Problem)? };
    let open_error = |error: StoreError| OpenError::of(&error, url);
    let store = Store::open_with(url, &how).await.map_err(open_error)?;
    check_connection_limit(store.connections().await.map_err(open_error)?).map_err(OpenError::Problem)?;
    // Create a master key only if nothing can have been sealed under another one.
    let create = store::Keys::of(&store).master().await.map_err(open_error)?.is_empty();
    let keystore = keystore(settings, &store, create).await.map_err(OpenError::Key)?;
    Ok((store, keystore))
}

fn file(settings: &Settings) -> Outcome<StoreUrl> {
    let folder = match settings.proxy.store.folder.as_os_str().is_empty() {
        true => data_folder::folder()?,
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
            "the stored leaf certificates are encrypted with the master key of the first proxy: copy master.key from its \
             data folder to this one, or name it in authority.master_key_file",
        ),
    })
}

fn with_backend_hint(problem: Problem, backend: LeafBackend) -> Problem {
    match backend {
        // `Exit::Inventory` is an error of the schema or of the database driver.
        LeafBackend::Disk if problem.exit == Exit::Inventory => {
            problem.hint("check the folder's owner and mode, or name another: proxy.store.folder")
        }
        LeafBackend::Database if problem.exit == Exit::Inventory => {
            problem.hint("check the database, or correct proxy.store.url")
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_errors_back_off_to_one_hour_and_pin_errors_stop_retries() {
        let none = RetryState::default();
        assert_eq!(none.now(), None);
        let mut retry = none.next("no key".to_owned(), false);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(retry.now().as_deref(), Some("no key"));
            pauses.push(retry.pause.as_secs());
            retry.until = Some(Instant::now());
            assert_eq!(retry.now(), None, "it is time");
            retry = retry.next("no key".to_owned(), false);
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
        let stopped = retry.next("the PIN is wrong".to_owned(), true);
        assert!(
            stopped.until.is_none() && stopped.now().is_some_and(|why| why.contains("restart the proxy"))
        );
    }
}
