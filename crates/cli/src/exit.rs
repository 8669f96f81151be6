//! How the process ends, and what it says when it ends badly.

use std::fmt;
use std::io::Write as _;

pub use telemetry::chain;

/// The exit codes, documented in `--help`; they never change once released.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
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
    /// Anyone who read the output went away (as after `| head`); the scan was stopped there.
    OutputClosed = 141,
}

/// The text shown under every command that scans.
pub const EXIT_CODES: &str = "\
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

/// Why a command failed, and what to do about it.
#[derive(Debug)]
pub struct Problem {
    /// The exit code.
    pub exit: Exit,
    /// What happened, to which object.
    pub message: String,
    /// A hint: what to do.
    pub hint: Option<String>,
}

/// The result of a command, or of a part of one.
pub type Outcome<T> = Result<T, Problem>;

impl Problem {
    /// A problem without a hint.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// The command line or the configuration is wrong.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Output that cannot be written: a closed pipe is told apart from a full disk.
    pub fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::OutputClosed, message: String::new(), hint: None };
        }
        Self::new(Exit::Machine, format_args!("the output cannot be written: {error}"))
            .hint("check the disk and the folder's permissions, or choose another --output-file")
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints it on standard error; a reader that went away needs no telling.
    pub fn report(&self) {
        if self.exit == Exit::OutputClosed {
            return;
        }
        eprintln!("error: {}", self.message);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
    }
}

/// Prints a line to standard output. Returns an error of [`Exit::OutputClosed`] where the reader has closed it.
pub fn print(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Problem::output(&error))
}
