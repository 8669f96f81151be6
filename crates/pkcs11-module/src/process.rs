//! The module of this process. Threads, connections and locks do not survive a fork, so a process that was forked off
//! begins again with its own C_Initialize (PKCS#11 2.40 base, section 5.4), and until then nothing is initialised. What the
//! process before had is left where it is: to drop it would be to wait for threads that are not there.

use std::path::PathBuf;
use std::process;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cryptoki_sys::*;

use crate::Outcome;
use crate::config::{FILE, FILE_VARIABLE};
use crate::module::Module;
use crate::setup::Setup;

/// What one process has. Processes stand in a list that grows at each fork, so that none of these locks is waited for that a
/// thread of an older one may have held. Locks of all of the program are as the fork left them: that of standard error, and
/// what libraries have.
struct Process {
    id: u32,
    /// Ids come again.
    began: u64,
    module: RwLock<Option<Arc<Module>>>,
    /// The setup read at the last C_Initialize, for forked processes.
    setup: RwLock<Option<Arc<Setup>>>,
    next: OnceLock<Box<Self>>,
}

static FIRST: OnceLock<Process> = OnceLock::new();

/// For when a process began, where nothing tells it.
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

    /// That of this process, known by its id alone, and the one before it.
    fn current() -> (&'static Self, Option<&'static Self>) {
        Self::found(|last| last.id == process::id())
    }

    /// The same where a process begins to use the module: it also has to be the one that began then, which takes reading a
    /// file.
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

    /// What it had read, for a process that was forked off it.
    fn inheritance(&self) -> Option<Arc<Setup>> {
        self.setup.try_read().ok().and_then(|setup| setup.as_ref().map(|setup| Arc::new(setup.inherited())))
    }
}

/// The module, where C_Initialize was called in this process and C_Finalize was not.
///
/// # Errors
/// `CKR_CRYPTOKI_NOT_INITIALIZED`
pub(crate) fn module() -> Outcome<Arc<Module>> {
    let module = Process::current().0.module.read().unwrap_or_else(PoisonError::into_inner).clone();
    module.ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)
}

/// The same for what programs begin with.
///
/// # Errors
/// `CKR_CRYPTOKI_NOT_INITIALIZED`
pub(crate) fn module_at_first() -> Outcome<Arc<Module>> {
    Process::verified();
    module()
}

/// # Errors
/// `CKR_CRYPTOKI_ALREADY_INITIALIZED`, or `CKR_GENERAL_ERROR` when the settings cannot be used.
pub(crate) fn initialize() -> Outcome {
    let (process, before) = Process::verified();
    let mut module = process.module.write().unwrap_or_else(PoisonError::into_inner);
    if module.is_some() {
        return Err(CKR_CRYPTOKI_ALREADY_INITIALIZED);
    }
    // Workers of terminators run as somebody who may not read what the process before them could, and without its
    // environment.
    let setup = match before.and_then(Process::inheritance) {
        Some(setup) => setup,
        None => Arc::new(Setup::read(&file())?),
    };
    *process.setup.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&setup));
    *module = Some(Arc::new(Module::new(setup)?));
    Ok(())
}

/// # Errors
/// `CKR_CRYPTOKI_NOT_INITIALIZED`
pub(crate) fn finalize() -> Outcome {
    let module = Process::current().0.module.write().unwrap_or_else(PoisonError::into_inner).take();
    // Ends its threads, unless a signature is under way: then anyone who waits for that ends them.
    module.map(drop).ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)
}

/// When this process began, in ticks since the system did: field 22 of its state (proc(5)).
fn began() -> u64 {
    let state = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&state).unwrap_or(UNKNOWN)
}

/// The second field, the name, is in parentheses and may have anything in it.
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
    fn when_a_process_began_is_found_behind_its_name() {
        let state = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 1 0 8612 9000 10\n";
        assert_eq!(ticks(state), Some(8_612));
        assert_eq!(ticks(""), None);
        assert_eq!(ticks("7 (a) S 1"), None);
        assert_ne!(began(), UNKNOWN);
        assert_eq!(began(), began());
    }
}
