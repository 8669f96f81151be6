//! What a process may do.

use std::path::PathBuf;

use crate::capabilities::Capabilities;

coded::named! {
    /// Behaviour if the kernel lacks a restriction.
    #[derive(Default)]
    pub enum Mode: "sandbox mode" {
        /// The process does not start.
        Enforce => "enforce",
        /// The process starts, and its log and status say what is missing.
        #[default]
        BestEffort => "best-effort",
        /// Nothing is restricted.
        Off => "off",
    }
}

/// Whether the role starts programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Programs {
    /// It starts none: `execve` fails.
    None,
    /// It starts the programs that the host's configuration names. They inherit every restriction.
    Started,
}

/// Which files the process may open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Files {
    /// Those that its user may open, for the reason given.
    Any(&'static str),
    /// Those in these folders, and these files. The files of the system that every program reads are added.
    Only {
        /// Read. A path that does not exist is left out.
        readable: Vec<PathBuf>,
        /// Read, written, created and removed.
        writable: Vec<PathBuf>,
    },
    /// All are read and executed. Only these files and folders are written, and the devices that every program writes to.
    ReadOnly {
        /// Read, written, created and removed. A path that does not exist is left out.
        writable: Vec<PathBuf>,
    },
}

/// Which Unix sockets a confined program may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnixSockets {
    /// Pairs (`socketpair`) of its own: no server of the host can be reached.
    Pairs,
    /// All. A server of the host may do for the program what the program may not do itself.
    Any,
}

/// The restrictions of a process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What happens where the kernel lacks one of them.
    pub mode: Mode,
    /// Whether the process starts programs.
    pub programs: Programs,
    /// The capabilities that stay, if the process has them.
    pub capabilities: Capabilities,
    /// Which files it may open.
    pub files: Files,
}
