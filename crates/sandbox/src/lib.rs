//! Restrictions that a process applies to itself before it starts threads: capabilities, no new privileges, system calls (seccomp)
//! and files (Landlock).
//!
//! System calls have a deny list, whose calls fail with `EPERM`. An allow list would have to follow every release of the C library,
//! tokio, aws-lc and SQLite, and a missing call would fail in production on another kernel. The deny list has calls that no role
//! needs: calls against other processes and the kernel, for mounts, kernel keys and clocks. Files have an allow list, because a
//! role's files are known.
//!
//! Third-party programs are confined further: [`separate`] and related functions give them namespaces, and [`confine_thread`]
//! blocks ways out of the namespaces.

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

/// The reason why a process could not be restricted.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The process already has this number of threads, which would escape the restrictions.
    #[error("the process already has {0} threads, but restrictions apply to new threads only")]
    Threads(usize),
    /// The capabilities could not be changed.
    #[error("cannot drop capabilities")]
    Capabilities(#[source] io::Error),
    /// `PR_SET_NO_NEW_PRIVS` failed.
    #[error("cannot set no_new_privs")]
    NoNewPrivileges(#[source] io::Error),
    /// The filter of system calls could not be installed.
    #[error("cannot install the system call filter (seccomp)")]
    Calls(#[source] seccompiler::Error),
    /// The file rules could not be installed.
    #[error("cannot install the file access rules (Landlock)")]
    Files(#[source] landlock::RulesetError),
    /// The mode is [`Mode::Enforce`], and this kernel has no Landlock or an old version.
    #[error("this kernel cannot restrict file access (Landlock): {0}")]
    NoLandlock(&'static str),
}

/// Restricts this process permanently. It must have only one thread. Afterwards [`report()`] returns the active restrictions.
///
/// # Errors
/// [`SandboxError`]. With [`Mode::BestEffort`] only [`SandboxError::Threads`]; the [`Report`] then lists what the kernel lacks.
pub fn enter(plan: &Plan) -> Result<&'static Report, SandboxError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 && plan.mode != Mode::Off {
        return Err(SandboxError::Threads(threads));
    }
    Ok(report::store_report(restrict_thread(plan)?))
}

/// Restricts the calling thread, the threads that it starts from now on, and their programs.
///
/// # Errors
/// As for [`enter`].
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
        Ok(State::Missing(_)) if strict => {
            return Err(SandboxError::NoLandlock("the kernel enforces none of the rules"));
        }
        Ok(State::Partial) if strict => {
            return Err(SandboxError::NoLandlock("it is older than Linux 6.12"));
        }
        Ok(state) => state,
        Err(error) if strict => return Err(SandboxError::Files(error)),
        Err(error) => State::Missing(error.to_string()),
    };
    // Last, so that the filter does not have to allow the calls of the other steps.
    let system_calls = match calls::filter(plan.programs) {
        Ok(()) => State::Enforced,
        Err(error) if strict => return Err(SandboxError::Calls(error)),
        Err(error) => State::Missing(error.to_string()),
    };
    Ok(Report { held: capabilities::held(), capabilities, no_new_privileges, system_calls, files })
}

/// Restricts the calling thread, which must be in its own namespaces ([`separate`]), and the programs that it starts. They get no
/// capabilities, no new privileges, no dangerous system calls and no input to other terminals. Only Unix sockets that `unix`
/// allows, and only `files`, are accessible.
///
/// # Errors
/// As for [`enter`] with [`Mode::Enforce`].
pub fn confine_thread(unix: UnixSockets, files: Files) -> Result<(), SandboxError> {
    restrict_thread(&Plan {
        mode: Mode::Enforce,
        programs: Programs::Started,
        capabilities: Capabilities::NONE,
        files,
    })?;
    calls::confine(unix).map_err(SandboxError::Calls)
}
