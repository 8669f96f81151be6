//! A logged-in token with a pool of sessions.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::TokenError;

/// Access mode of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SessionMode {
    ReadOnly,
    /// Can create objects. Some tokens allow only few such sessions.
    ReadWrite,
}

/// Default number of sessions: modules run only a few calls concurrently, and many limit sessions to about this number.
const SESSIONS_DEFAULT: usize = 8;

/// Configuration of a token: where it is, and how to log in.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// Path of the PKCS#11 library, such as `/usr/lib/softhsm/libsofthsm2.so`.
    pub module: PathBuf,
    /// Label by which the token is found.
    pub label: String,
    /// PIN for the login as normal user (CKU_USER).
    pub pin: SecretString,
    /// Maximum open sessions, which also limits the concurrent calls; at least 1.
    pub sessions: usize,
    /// Name of the token in the database: `pkcs11`, unless there are several tokens.
    pub name: String,
}

impl TokenConfig {
    /// Creates a configuration with the default number of sessions and the default name.
    #[must_use]
    pub fn new(module: impl Into<PathBuf>, label: &str, pin: SecretString) -> Self {
        let name = "pkcs11".to_owned();
        Self { module: module.into(), label: label.to_owned(), pin, sessions: SESSIONS_DEFAULT, name }
    }
}

/// A logged-in token. Cheap to clone; clones share the sessions.
#[derive(Clone)]
pub struct Token {
    inner: Arc<TokenState>,
}

struct TokenState {
    config: TokenConfig,
    /// Name of the token in metrics.
    destination: String,
    context: Pkcs11,
    /// Permits for concurrent calls into the module.
    call_permits: Arc<Semaphore>,
    /// Open sessions that no call uses.
    idle: Mutex<Vec<Session>>,
    /// The session that logged in. All other sessions are logged in only while it is open.
    login: Mutex<Option<Session>>,
    /// Number of logins so far. If several calls find the connection lost, only the first logs in again.
    logins: AtomicU64,
}

/// Loaded PKCS#11 libraries of this process, by path.
static LOADED: LazyLock<Mutex<HashMap<PathBuf, Pkcs11>>> = LazyLock::new(Mutex::default);
/// Number of calls into the libraries that are in progress.
static MODULE_CALLS: AtomicUsize = AtomicUsize::new(0);

/// A guard for a call into a module: the call is counted until the guard is dropped.
struct ModuleCall;

impl ModuleCall {
    fn enter() -> Self {
        MODULE_CALLS.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for ModuleCall {
    fn drop(&mut self) {
        MODULE_CALLS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Finalizes all loaded modules (C_Finalize). It must be the last action of the process: some modules crash if they first clean up during
/// process exit, when libraries they depend on are already unloaded.
///
/// Does nothing while a call is in progress, because a module must be idle when it is finalized.
pub fn finish() {
    let mut loaded = LOADED.lock();
    if MODULE_CALLS.load(Ordering::Acquire) > 0 {
        return;
    }
    for (module, context) in loaded.drain() {
        if let Err(error) = context.finalize() {
            tracing::debug!(module = %module.display(), %error, "cannot finalize the PKCS#11 module");
        }
    }
}

/// Loads a library, and initialises it once for the whole process, whatever the number of tokens. It is finalized only when the
/// process ends, because other parts of the process may use it.
fn context_of(module: &Path) -> Result<Pkcs11, TokenError> {
    let mut loaded = LOADED.lock();
    if let Some(context) = loaded.get(module) {
        return Ok(context.clone());
    }
    let failed = |error: Error| TokenError::Module { module: module.to_owned(), reason: error.to_string() };
    let context = Pkcs11::new(module).map_err(failed)?;
    match context.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(error) => return Err(failed(error)),
    }
    loaded.insert(module.to_owned(), context.clone());
    Ok(context)
}

impl Token {
    /// Loads the module, finds the token and logs in, on this thread.
    ///
    /// # Errors
    /// [`TokenError::Module`], [`TokenError::NoToken`], [`TokenError::Pin`].
    pub fn open(config: TokenConfig) -> Result<Self, TokenError> {
        let _call = ModuleCall::enter();
        let context = context_of(&config.module)?;
        let inner = TokenState {
            call_permits: Arc::new(Semaphore::new(sessions(&config))),
            idle: Mutex::default(),
            login: Mutex::default(),
            logins: AtomicU64::new(0),
            destination: format!("pkcs11:{}", config.label),
            context,
            config,
        };
        inner.log_in(0)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs `work` with a session on a thread of its own. Retries once with a new session if the first one is lost. Returns at the
    /// deadline, but the call in the module cannot be cancelled.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        deadline: Instant,
        mode: SessionMode,
        work: impl Fn(&Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, TokenError> {
        let turn =
            tokio::time::timeout_at(deadline, Arc::clone(&self.inner.call_permits).acquire_owned()).await;
        let turn = turn.map_err(|_| TokenError::Late)?.map_err(|_| TokenError::Late)?;
        let inner = Arc::clone(&self.inner);
        let task = tokio::task::spawn_blocking(move || {
            let done = inner.call_now(mode, work);
            drop(turn);
            done
        });
        let done = tokio::time::timeout_at(deadline, task).await.map_err(|_| TokenError::Late)?;
        done.unwrap_or(Err(TokenError::Late))
    }

    /// Like [`Self::call`], on this thread.
    pub(super) fn call_now<T>(
        &self,
        mode: SessionMode,
        work: impl Fn(&Session) -> Result<T, Error>,
    ) -> Result<T, TokenError> {
        self.inner.call_now(mode, work)
    }

    /// Returns the token's label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.inner.config.label
    }

    /// Returns the name of the token in the database.
    pub(super) fn name_in_database(&self) -> &str {
        &self.inner.config.name
    }

    /// Returns `pkcs11:LABEL`.
    pub(super) fn destination(&self) -> &str {
        &self.inner.destination
    }

    /// Returns the maximum concurrent calls.
    pub(super) fn sessions(&self) -> usize {
        sessions(&self.inner.config)
    }
}

fn sessions(config: &TokenConfig) -> usize {
    config.sessions.clamp(1, 1_024)
}

impl TokenState {
    fn call_now<T>(
        &self,
        mode: SessionMode,
        work: impl Fn(&Session) -> Result<T, Error>,
    ) -> Result<T, TokenError> {
        let _call = ModuleCall::enter();
        let logins = self.logins.load(Ordering::Acquire);
        let idle = if mode == SessionMode::ReadWrite { None } else { self.idle.lock().pop() };
        let first = match idle {
            Some(session) => Ok(session),
            None => self.open_session(mode),
        };
        let lost = match first {
            Ok(session) => match work(&session) {
                Err(error) if is_lost(&error) => error,
                done => {
                    self.return_session(session, mode);
                    return done.map_err(call_error);
                }
            },
            Err(error) if is_lost(&error) => error,
            Err(error) => return Err(call_error(error)),
        };
        tracing::warn!(
            token = self.config.label,
            "the session with the token was lost; logging in again: {lost}"
        );
        self.log_in(logins)?;
        let session = self.open_session(mode).map_err(call_error)?;
        let done = work(&session);
        self.return_session(session, mode);
        done.map_err(call_error)
    }

    fn open_session(&self, mode: SessionMode) -> Result<Session, Error> {
        let slot = self
            .slot()
            .map_err(|_| Error::Pkcs11(RvError::TokenNotPresent, cryptoki::context::Function::GetSlotList))?;
        match mode {
            SessionMode::ReadOnly => self.context.open_ro_session(slot),
            SessionMode::ReadWrite => self.context.open_rw_session(slot),
        }
    }

    /// Returns a session to the pool. Closes read-write sessions, because some tokens allow only few.
    fn return_session(&self, session: Session, mode: SessionMode) {
        if mode == SessionMode::ReadOnly {
            self.idle.lock().push(session);
        }
    }

    fn slot(&self) -> Result<Slot, TokenError> {
        let slots = self.context.get_slots_with_initialized_token().map_err(call_error)?;
        let mut available = Vec::new();
        for slot in slots {
            let Ok(info) = self.context.get_token_info(slot) else { continue };
            if info.label() == self.config.label {
                return Ok(slot);
            }
            available.push(info.label().to_owned());
        }
        Err(TokenError::NoToken { label: self.config.label.clone(), available: available.join(", ") })
    }

    /// Logs in again, unless another call did so after `logins` was read.
    fn log_in(&self, logins: u64) -> Result<(), TokenError> {
        let mut login = self.login.lock();
        if self.logins.load(Ordering::Acquire) != logins {
            return Ok(());
        }
        self.idle.lock().clear();
        *login = None;
        let session = self.context.open_ro_session(self.slot()?).map_err(call_error)?;
        match session.login(UserType::User, Some(&self.config.pin)) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
            Err(
                error @ Error::Pkcs11(RvError::PinIncorrect | RvError::PinLocked | RvError::PinExpired, _),
            ) => {
                return Err(TokenError::Pin { label: self.config.label.clone(), reason: error_text(&error) });
            }
            Err(error) => return Err(call_error(error)),
        }
        *login = Some(session);
        self.logins.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// Returns whether a new session may solve the error.
fn is_lost(error: &Error) -> bool {
    use RvError as E;
    matches!(
        error,
        Error::Pkcs11(
            E::SessionHandleInvalid
                | E::SessionClosed
                | E::UserNotLoggedIn
                | E::DeviceRemoved
                | E::DeviceError
                | E::TokenNotPresent
                | E::ObjectHandleInvalid
                | E::KeyHandleInvalid,
            _
        )
    )
}

fn call_error(error: Error) -> TokenError {
    match error {
        Error::Pkcs11(_, function) => {
            TokenError::Call { what: name_of(function), reason: error_text(&error) }
        }
        _ => TokenError::Call { what: "a call", reason: error.to_string() },
    }
}

fn name_of(function: cryptoki::context::Function) -> &'static str {
    use cryptoki::context::Function as F;
    match function {
        F::Sign => "signing",
        F::Login => "logging in",
        F::OpenSession => "opening a session",
        F::FindObjects | F::FindObjectsInit => "searching for a key",
        F::GenerateKey | F::GenerateKeyPair => "making a key",
        F::Encrypt | F::Decrypt => "encrypting or decrypting",
        F::GetAttributeValue => "reading a key's attributes",
        _ => "a call",
    }
}

/// Returns the error code only: the crate's texts are paragraphs of the standard.
fn error_text(error: &Error) -> String {
    match error {
        Error::Pkcs11(code, function) => format!("{function}: {code:?}"),
        other => other.to_string(),
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.inner.config;
        f.debug_struct("Token")
            .field("label", &config.label)
            .field("module", &config.module)
            .finish_non_exhaustive()
    }
}
