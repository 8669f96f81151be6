//! The module of this process. Threads, connections and locks do not survive a fork. So a forked process must call C_Initialize
//! itself (PKCS#11 2.40 base, section 5.4); until then, the module is not initialized in this process. The state of the parent is
//! leaked, because dropping it would wait for threads that do not exist.

use std::path::PathBuf;
use std::process;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cryptoki_sys::*;

use crate::Outcome;
use crate::config::{FILE, FILE_VARIABLE};
use crate::module::Module;
use crate::setup::Setup;

/// State of one process. States form a list that grows with each fork. So a process never waits for a lock that a thread of its
/// parent held. Other locks of the program, such as the lock of standard error, keep their state from the time of the fork.
struct Process {
    id: u32,
    /// Start time of the process: process ids are reused.
    began: u64,
    module: RwLock<Option<Arc<Module>>>,
    /// Setup of the last C_Initialize, inherited by forked processes.
    setup: RwLock<Option<Arc<Setup>>>,
    next: OnceLock<Box<Self>>,
}

static FIRST: OnceLock<Process> = OnceLock::new();

/// Start time when it cannot be determined.
const UNKNOWN: u64 = 0;

impl Process {
    fn this() -> Self {
        Self {
            id: process::id(),
            began: began(),
            module: RwLock::default(),
            setup: RwLock::default(),
            next: OnceLock::new(),
        }
    }

    /// Returns the state of this process, identified only by its process id, and the state of its parent.
    fn current() -> (&'static Self, Option<&'static Self>) {
        Self::found(|last| last.id == process::id())
    }

    /// Returns the same as `current`, for functions with which a process starts to use the module. Also compares the start time of
    /// the process, which requires reading a file.
    fn verified() -> (&'static Self, Option<&'static Self>) {
        Self::found(|last| {
            let began = began();
            let is_other = began != last.began && began != UNKNOWN && last.began != UNKNOWN;
            last.id == process::id() && !is_other
        })
    }

    fn found(is_this: impl FnOnce(&Self) -> bool) -> (&'static Self, Option<&'static Self>) {
        let (mut last, mut before) = (FIRST.get_or_init(Self::this), None);
        while let Some(next) = last.next.get() {
            before = Some(last);
            last = next;
        }
        if is_this(last) {
            return (last, before);
        }
        (last.next.get_or_init(|| Box::new(Self::this())), Some(last))
    }

    /// Returns the setup for a forked process.
    fn setup_for_fork(&self) -> Option<Arc<Setup>> {
        self.setup.try_read().ok().and_then(|setup| setup.as_ref().map(|setup| Arc::new(setup.inherited())))
    }
}

/// Returns the module if this process called C_Initialize and not C_Finalize.
///
/// # Errors
/// `CKR_CRYPTOKI_NOT_INITIALIZED`
pub(crate) fn module() -> Outcome<Arc<Module>> {
    let module = Process::current().0.module.read().unwrap_or_else(PoisonError::into_inner).clone();
    module.ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)
}

/// Returns the same as `module`, after a check whether the process was forked. For the functions that programs call first.
///
/// # Errors
/// `CKR_CRYPTOKI_NOT_INITIALIZED`
pub(crate) fn module_after_fork_check() -> Outcome<Arc<Module>> {
    Process::verified();
    module()
}

/// Initializes the module of this process.
///
/// # Errors
/// `CKR_CRYPTOKI_ALREADY_INITIALIZED`, or `CKR_GENERAL_ERROR` when the settings cannot be used.
pub(crate) fn initialize() -> Outcome {
    let (process, before) = Process::verified();
    let mut module = process.module.write().unwrap_or_else(PoisonError::into_inner);
    if module.is_some() {
        return Err(CKR_CRYPTOKI_ALREADY_INITIALIZED);
    }
    // Worker processes of TLS terminators run without the parent's environment. Their user may lack access to files that the parent
    // could read.
    let setup = match before.and_then(Process::setup_for_fork) {
        Some(setup) => setup,
        None => Arc::new(Setup::read(&file())?),
    };
    *process.setup.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&setup));
    *module = Some(Arc::new(Module::new(setup)?));
    Ok(())
}

/// Finalizes the module of this process.
///
/// # Errors
/// `CKR_CRYPTOKI_NOT_INITIALIZED`
pub(crate) fn finalize() -> Outcome {
    let module = Process::current().0.module.write().unwrap_or_else(PoisonError::into_inner).take();
    // Stops the module's threads. If a signature is in progress, they stop after it.
    module.map(drop).ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)
}

/// Returns the start time of this process in clock ticks since boot: field 22 of its stat file (proc(5)).
fn began() -> u64 {
    let state = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&state).unwrap_or(UNKNOWN)
}

/// Parses the start time. The second field, the name, is in parentheses and may contain any character.
fn ticks(state: &str) -> Option<u64> {
    state.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn file() -> PathBuf {
    std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map_or_else(|| FILE.into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_start_time_is_parsed_after_the_process_name() {
        let state = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 1 0 8612 9000 10\n";
        assert_eq!(ticks(state), Some(8_612));
        assert_eq!(ticks(""), None);
        assert_eq!(ticks("7 (a) S 1"), None);
        assert_ne!(began(), UNKNOWN);
        assert_eq!(began(), began());
    }
}
