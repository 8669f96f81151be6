//! How the process ends, and what it says when it ends badly.

use std::fmt;

pub(crate) use telemetry::chain;

/// The exit codes, documented in `--help`; they never change once released.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; nothing at or above `--fail-on`.
    Ok = 0,
    /// Done; a finding at or above `--fail-on`.
    Findings = 1,
    /// The command line or the configuration is wrong; nothing was done.
    Usage = 2,
    /// Some targets could not be read, or no endpoint answered.
    Incomplete = 3,
    /// The inventory database failed; what was printed is right but not all of it is stored.
    Inventory = 4,
    /// This machine did not let us: a file, a socket, an output that cannot be written.
    Machine = 5,
    /// The server understood and refused: not permitted, not found, not acceptable.
    Refused = 6,
    /// The server does not answer, or failed.
    Server = 7,
    /// Stopped by Ctrl-C or SIGTERM; what was printed and stored is the part seen until then.
    Interrupted = 130,
    /// Whoever read the output went away (as after `| head`); the scan was stopped there.
    OutputClosed = 141,
}

/// The text shown under every command that scans.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done, and nothing at or above --fail-on
  1    done, with a finding at or above --fail-on
  2    the command line or the configuration is wrong; nothing was done
  3    some targets could not be read, or no endpoint answered
  4    the inventory database failed; what is printed is right but not all stored
  5    this machine did not let us: a file, a socket, an output
  6    the server refused: not permitted, not found, not acceptable
  7    the server does not answer, or failed
  130  stopped by Ctrl-C or SIGTERM: the output is the part seen until then
  141  whoever read the output went away";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command ended, whose turn it is, and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

pub(crate) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn inventory(error: &store::StoreError) -> Self {
        Self::new(Exit::Inventory, chain(error)).hint(
            "check --db, BULLA_STORE_URL and the folder's permissions, or scan without it by --no-store",
        )
    }

    /// Output that cannot be written: a closed pipe is told apart from a full disk.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::OutputClosed, message: String::new(), hint: None };
        }
        Self::new(Exit::Machine, format_args!("the output cannot be written: {error}"))
            .hint("check the disk and the folder's permissions, or choose another --output-file")
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints it on standard error; a reader that went away needs no telling.
    pub(crate) fn report(&self) {
        if self.exit == Exit::OutputClosed {
            return;
        }
        eprintln!("error: {}", self.message);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
    }
}
