//! The plan of a process's restrictions: capabilities, files, programs and Unix sockets.

use std::path::PathBuf;

use crate::capabilities::Capabilities;

coded::named! {
    /// Behaviour if the kernel lacks a restriction.
    #[derive(Default)]
    pub enum Mode: "sandbox mode" {
        /// The process does not start.
        Enforce => "enforce",
        /// The process starts. Its log and status report what is missing.
        #[default]
        BestEffort => "best-effort",
        /// Nothing is restricted.
        Off => "off",
    }
}

/// Whether a process may start programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Programs {
    /// The role starts no programs: `execve` fails.
    None,
    /// The role starts the programs that the host's configuration names. They inherit every restriction.
    Started,
}

/// Files that the process may open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Files {
    /// File access is not restricted beyond the permissions of the process's user. The text is the reason.
    Any(&'static str),
    /// Only these files and folders, and the system files that every program reads.
    Only {
        /// Paths that may be read. A path that does not exist is ignored.
        readable: Vec<PathBuf>,
        /// Paths in which files may be read, written, created and removed.
        writable: Vec<PathBuf>,
    },
    /// All files may be read and executed. Only these files and folders may be written, and the devices that every program writes.
    ReadOnly {
        /// Paths in which files may be read, written, created and removed. A path that does not exist is ignored.
        writable: Vec<PathBuf>,
    },
}

/// Unix sockets that a confined program may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnixSockets {
    /// Only its own socket pairs (`socketpair`): no server of the host is reachable.
    Pairs,
    /// All Unix sockets. A server of the host may then perform actions for the program that the restrictions deny to the program.
    Any,
}

/// The restrictions that [`crate::enter`] applies to a process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The behaviour if the kernel lacks a restriction.
    pub mode: Mode,
    /// Whether the process may start programs.
    pub programs: Programs,
    /// The capabilities to keep, if the process has them.
    pub capabilities: Capabilities,
    /// Files that the process may open.
    pub files: Files,
}
