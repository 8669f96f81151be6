//! What a program has under way: sessions, each with a search and a signature at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cryptoki_sys::*;

use crate::Outcome;
use crate::certificates::CertificateKey;
use crate::mechanism::{Intake, Mechanism};

/// Some hundred bytes each. A terminator has one for each of its threads; anyone who has more has lost some.
pub(crate) const SESSIONS_MAX: usize = 4_096;

/// A signature that was begun.
pub(crate) struct Signing {
    pub(crate) key: Arc<CertificateKey>,
    pub(crate) mechanism: Mechanism,
    /// The destination of input.
    pub(crate) intake: Intake,
    /// Whether parts of a message have come.
    pub(crate) is_in_parts: bool,
}

/// One of them.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) may_write: bool,
    /// What was found and not been given yet, last first.
    pub(crate) found: Option<Vec<CK_OBJECT_HANDLE>>,
    pub(crate) signing: Option<Signing>,
}

/// All of a process.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: CK_SESSION_HANDLE,
    open: HashMap<CK_SESSION_HANDLE, Arc<Mutex<Session>>>,
}

/// Of threads that panicked no value is left half changed: see the callers.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// # Errors
    /// `CKR_SESSION_COUNT` beyond [`SESSIONS_MAX`].
    pub(crate) fn open(&self, may_write: bool) -> Outcome<CK_SESSION_HANDLE> {
        let mut table = locked(&self.0);
        if table.open.len() >= SESSIONS_MAX {
            return Err(CKR_SESSION_COUNT);
        }
        // Never one that was given before, so that a handle kept too long is nobody else's.
        table.last += 1;
        let handle = table.last;
        let session = Session { may_write, ..Session::default() };
        table.open.insert(handle, Arc::new(Mutex::new(session)));
        Ok(handle)
    }

    /// # Errors
    /// `CKR_SESSION_HANDLE_INVALID`
    pub(crate) fn get(&self, handle: CK_SESSION_HANDLE) -> Outcome<Arc<Mutex<Session>>> {
        locked(&self.0).open.get(&handle).cloned().ok_or(CKR_SESSION_HANDLE_INVALID)
    }

    /// Closes one; whether it was the last.
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

    /// Number of sessions, and of those that may write.
    pub(crate) fn count(&self) -> (usize, usize) {
        let open: Vec<Arc<Mutex<Session>>> = locked(&self.0).open.values().cloned().collect();
        (open.len(), open.iter().filter(|session| locked(session).may_write).count())
    }
}
