//! Runs commands in the root of the repository, with their output passed through.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The reason why a command of `xtask` failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong. Exit status 2.
    Usage(String),
    /// A program is missing, could not be started, or failed. Exit status 1.
    Program(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) => 2,
            Failure::Program(_) => 1,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Program(text) => f.write_str(text),
        }
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap_or_else(|| Path::new(".")).to_owned()
}

/// Creates a command that starts in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Creates a command of the `cargo` that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = command(program);
    command.args(arguments);
    command
}

/// Runs a command until it exits.
///
/// # Errors
/// The command could not be started, or its exit status is not 0.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status =
        command.status().map_err(|error| Failure::Program(format!("cannot start {name}: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::Program(format!("{name} failed: {status}"))) }
}

/// Returns the standard output of a command; `None` if it cannot be started or fails.
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Returns whether a program is installed, in `PATH` or in the `sbin` folders, which Debian does not include in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(administrators).any(|folder| folder.join(program).is_file())
}
