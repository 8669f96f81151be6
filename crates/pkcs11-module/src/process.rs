//! The module of this process. Threads, connections and locks do not survive a fork, so a process that was forked off
//! begins anew with its own C_Initialize (PKCS#11 2.40 base, section 5.4), and until then nothing is initialised. What the
//! process before had is left where it is: to drop it would be to wait for threads that are not there.

use std::path::PathBuf;
use std::process;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cryptoki_sys::*;

use crate::Outcome;
use crate::config::{FILE, FILE_VARIABLE};
use crate::module::{Module, Setup};

/// What one process has. Processes stand in a list that grows at each fork, so that no lock of an older one, which may have
/// been held by a thread of it, is ever waited for.
struct Process {
    id: u32,
    module: RwLock<Option<Arc<Module>>>,
    /// What it had read at its last C_Initialize, for those that are forked off.
    setup: RwLock<Option<Arc<Setup>>>,
    next: OnceLock<Box<Self>>,
}

static FIRST: OnceLock<Process> = OnceLock::new();

impl Process {
    fn this() -> Self {
        Self { id: process::id(), module: RwLock::default(), setup: RwLock::default(), next: OnceLock::new() }
    }

    /// That of this process, and the one before it.
    fn current() -> (&'static Self, Option<&'static Self>) {
        let (mut last, mut before) = (FIRST.get_or_init(Self::this), None);
        while let Some(next) = last.next.get() {
            before = Some(last);
            last = next;
        }
        if last.id == process::id() {
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

/// # Errors
/// `CKR_CRYPTOKI_ALREADY_INITIALIZED`, or `CKR_GENERAL_ERROR` when the settings cannot be used.
pub(crate) fn initialize() -> Outcome {
    let (process, before) = Process::current();
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
    // Ends its threads, unless a signature is under way: then whoever waits for that ends them.
    module.map(drop).ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)
}

fn file() -> PathBuf {
    std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map_or_else(|| FILE.into(), PathBuf::from)
}
