//! The exit codes of the process, and the errors that it reports.

use std::fmt;
use std::io::Write as _;

pub use telemetry::chain;

/// The exit codes, documented in `--help`. They never change once released.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// Success, without a finding at or above `--fail-on`.
    Ok = 0,
    /// Success, with a finding at or above `--fail-on`.
    Findings = 1,
    /// The command line or the configuration is wrong; nothing was done.
    Usage = 2,
    /// Some targets could not be read, or no endpoint responded.
    Incomplete = 3,
    /// The inventory database failed. The output is correct, but not all of it is stored.
    Inventory = 4,
    /// A failure of this machine: a file, a socket, or an output that cannot be written.
    Machine = 5,
    /// The server rejected the request: not permitted, not found, or not valid.
    Refused = 6,
    /// The server does not respond, or failed.
    Server = 7,
    /// Stopped by Ctrl-C or SIGTERM. Output and stored results are partial.
    Interrupted = 130,
    /// The reader of the output has closed the pipe (for example `| head`), and the scan was stopped.
    OutputClosed = 141,
}

/// The list of exit codes in the help of every command that scans.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success, without a finding at or above --fail-on
  1    success, with a finding at or above --fail-on
  2    the command line or the configuration is wrong; nothing was done
  3    some targets could not be read, or no endpoint answered
  4    the inventory database failed; the output is complete, but not all of it is stored
  5    this machine failed: a file, a socket or an output could not be used
  6    the server rejected the request: not permitted, not found, or not valid
  7    the server does not answer, or failed
  130  stopped by Ctrl-C or SIGTERM; the output is partial
  141  the reader of the output closed it, for example `| head`";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The reason why a command failed, and advice.
#[derive(Debug)]
pub struct Problem {
    /// The exit code of the process.
    pub exit: Exit,
    /// Message that says what happened, and to which object.
    pub message: String,
    /// Advice for the user: how to correct the problem.
    pub hint: Option<String>,
}

/// The result of a command, or of a part of one.
pub type Outcome<T> = Result<T, Problem>;

impl Problem {
    /// Creates a problem without a hint.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// Creates a problem of the command line or the configuration.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates a problem of an output that cannot be written. Distinguishes a closed pipe from a full disk.
    pub fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::OutputClosed, message: String::new(), hint: None };
        }
        Self::new(Exit::Machine, format_args!("cannot write the output: {error}"))
            .hint("check the disk and the folder's permissions, or choose another --output-file")
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the problem on standard error. Prints nothing if the reader of the output has closed the pipe.
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

/// Prints a line to standard output. Returns an error of [`Exit::OutputClosed`] if the reader has closed the pipe.
pub fn print(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Problem::output(&error))
}
