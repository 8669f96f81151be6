//! Sessions of a program, each with at most one search and one signature.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cryptoki_sys::*;

use crate::Outcome;
use crate::certificates::CertificateKey;
use crate::mechanism::{InputMode, Mechanism};

/// Maximum number of sessions, a few hundred bytes each. A TLS terminator has one per thread. A program that exceeds the maximum
/// does not close its sessions.
pub(crate) const SESSIONS_MAX: usize = 4_096;

/// A signing operation in progress.
pub(crate) struct Signing {
    pub(crate) key: Arc<CertificateKey>,
    pub(crate) mechanism: Mechanism,
    /// How the program's input is processed.
    pub(crate) input_mode: InputMode,
    /// Whether parts of a message were received.
    pub(crate) is_in_parts: bool,
}

#[derive(Default)]
pub(crate) struct Session {
    pub(crate) may_write: bool,
    /// Handles found by a search and not yet returned, in reverse order.
    pub(crate) found: Option<Vec<CK_OBJECT_HANDLE>>,
    pub(crate) signing: Option<Signing>,
}

#[derive(Default)]
pub(crate) struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: CK_SESSION_HANDLE,
    open: HashMap<CK_SESSION_HANDLE, Arc<Mutex<Session>>>,
}

/// Locks a mutex, ignoring poisoning: the callers leave no value half changed when they panic.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// Opens a session and returns its handle.
    ///
    /// # Errors
    /// `CKR_SESSION_COUNT` beyond [`SESSIONS_MAX`].
    pub(crate) fn open(&self, may_write: bool) -> Outcome<CK_SESSION_HANDLE> {
        let mut table = locked(&self.0);
        if table.open.len() >= SESSIONS_MAX {
            return Err(CKR_SESSION_COUNT);
        }
        // Handles are never reused, so that a stale handle cannot name another session.
        table.last += 1;
        let handle = table.last;
        let session = Session { may_write, ..Session::default() };
        table.open.insert(handle, Arc::new(Mutex::new(session)));
        Ok(handle)
    }

    /// Returns the session with a handle.
    ///
    /// # Errors
    /// `CKR_SESSION_HANDLE_INVALID`
    pub(crate) fn get(&self, handle: CK_SESSION_HANDLE) -> Outcome<Arc<Mutex<Session>>> {
        locked(&self.0).open.get(&handle).cloned().ok_or(CKR_SESSION_HANDLE_INVALID)
    }

    /// Closes a session. Returns whether it was the last.
    ///
    /// # Errors
    /// `CKR_SESSION_HANDLE_INVALID`
    pub(crate) fn close(&self, handle: CK_SESSION_HANDLE) -> Outcome<bool> {
        let mut table = locked(&self.0);
        table.open.remove(&handle).ok_or(CKR_SESSION_HANDLE_INVALID)?;
        Ok(table.open.is_empty())
    }

    pub(crate) fn close_all(&self) {
        locked(&self.0).open.clear();
    }

    /// Returns the number of all sessions, and the number of read-write sessions.
    pub(crate) fn count(&self) -> (usize, usize) {
        let open: Vec<Arc<Mutex<Session>>> = locked(&self.0).open.values().cloned().collect();
        (open.len(), open.iter().filter(|session| locked(session).may_write).count())
    }
}
