//! Restrictions that a process puts on itself before it starts threads: capabilities, no new privileges, system calls (seccomp) and
//! files (Landlock).
//!
//! System calls are a deny list that answers `EPERM`. An allow list would have to follow every release of the C library, of tokio,
//! aws-lc and SQLite, and a call that it forgets fails in production, at a customer, on another kernel. The deny list names what no role
//! ever does: it attacks other processes, the kernel, mounts, keys of the kernel and clocks. Files are an allow list, as a role's files are known.
//!
//! A program of somebody else is confined further: [`separate`] and its companions give it namespaces, and [`confine_thread`] closes what
//! leads out of them.

mod calls;
mod capabilities;
mod files;
mod groups;
mod mounts;
mod namespaces;
mod obstacle;
mod plan;
mod report;

use std::io;

pub use capabilities::{Capabilities, UnknownCapability};
pub use groups::{groups_of, spawn_in_groups};
pub use mounts::{hide, mount_processes, mount_read_only};
pub use namespaces::{NamespaceError, loopback_up, separate};
pub use obstacle::{Obstacle, obstacle};
pub use plan::{Files, Mode, Plan, Programs, UnixSockets};
pub use report::{Report, State, report};

/// Why a process could not be restricted.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A thread that exists already would escape the restrictions.
    #[error("the process has {0} threads already, and restrictions hold for new threads only")]
    Threads(usize),
    /// Capabilities.
    #[error("capabilities cannot be dropped")]
    Capabilities(#[source] io::Error),
    /// `PR_SET_NO_NEW_PRIVS`.
    #[error("no_new_privs cannot be set")]
    NoNewPrivileges(#[source] io::Error),
    /// The filter of system calls.
    #[error("the filter of system calls (seccomp) cannot be installed")]
    Calls(#[source] seccompiler::Error),
    /// The rules about files.
    #[error("the rules about files (Landlock) cannot be installed")]
    Files(#[source] landlock::RulesetError),
    /// [`Mode::Enforce`], and this kernel has no Landlock or an old one.
    #[error("this kernel does not restrict files (Landlock): {0}")]
    NoLandlock(&'static str),
}

/// Restricts this process for good. It must have one thread. [`report()`] returns what holds from then on.
///
/// # Errors
/// [`SandboxError`]: with [`Mode::BestEffort`] only for threads; what the kernel lacks is in the [`Report`] then.
pub fn enter(plan: &Plan) -> Result<&'static Report, SandboxError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 && plan.mode != Mode::Off {
        return Err(SandboxError::Threads(threads));
    }
    Ok(report::keep(restrict_thread(plan)?))
}

/// Restricts the calling thread, the threads that it starts from now on, and their programs.
///
/// # Errors
/// As [`enter`].
pub fn restrict_thread(plan: &Plan) -> Result<Report, SandboxError> {
    if plan.mode == Mode::Off {
        return Ok(Report::off());
    }
    let strict = plan.mode == Mode::Enforce;
    let capabilities = match capabilities::keep_only(plan.capabilities) {
        Err(error) if strict => return Err(SandboxError::Capabilities(error)),
        Err(error) => State::Missing(error.to_string()),
        Ok(()) => State::Enforced,
    };
    let no_new_privileges = match rustix::thread::set_no_new_privs(true) {
        Err(error) if strict => return Err(SandboxError::NoNewPrivileges(error.into())),
        Err(error) => State::Missing(error.to_string()),
        Ok(()) => State::Enforced,
    };
    let files = match files::restrict(&plan.files, plan.programs) {
        Ok(State::Missing(_)) if strict => return Err(SandboxError::NoLandlock("no rule of it is enforced")),
        Ok(State::Partial) if strict => {
            return Err(SandboxError::NoLandlock("it is older than Linux 6.12"));
        }
        Ok(state) => state,
        Err(error) if strict => return Err(SandboxError::Files(error)),
        Err(error) => State::Missing(error.to_string()),
    };
    // Last: the filter refuses nothing that came before, but need not know it.
    let system_calls = match calls::filter(plan.programs) {
        Ok(()) => State::Enforced,
        Err(error) if strict => return Err(SandboxError::Calls(error)),
        Err(error) => State::Missing(error.to_string()),
    };
    Ok(Report { held: capabilities::held(), capabilities, no_new_privileges, system_calls, files })
}

/// Restricts the calling thread, which is in namespaces of its own ([`separate`]), and the programs that it starts: no capabilities, no new
/// privileges, no dangerous system calls, no Unix sockets but those that `unix` allows, no input for the terminal of others, and no files but
/// `files`.
///
/// # Errors
/// As [`enter`] with [`Mode::Enforce`].
pub fn confine_thread(unix: UnixSockets, files: Files) -> Result<(), SandboxError> {
    restrict_thread(&Plan {
        mode: Mode::Enforce,
        programs: Programs::Started,
        capabilities: Capabilities::NONE,
        files,
    })?;
    calls::confine(unix).map_err(SandboxError::Calls)
}
