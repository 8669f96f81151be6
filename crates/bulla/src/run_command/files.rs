//! The files that the command can read, and the files that it can write.

use std::path::{Path, PathBuf};

use cli::exit::{Exit, Outcome, Problem};
use tokio::process::Command;

use super::arguments::RunArgs;

/// The files of one run, as absolute paths without symbolic links.
pub(super) struct CommandFiles {
    /// Files and folders that are hidden from the command.
    hidden: Vec<PathBuf>,
    /// With `--read-only`: the only files and folders that the command may write.
    writable: Option<Vec<PathBuf>>,
}

impl CommandFiles {
    pub(super) fn new(args: &RunArgs, hidden: Vec<PathBuf>) -> Outcome<Self> {
        let working_directory = std::env::current_dir()
            .and_then(|working_directory| working_directory.canonicalize())
            .map_err(|error| {
                Problem::new(Exit::Machine, format_args!("cannot read the working directory: {error}"))
                    .hint("change to a directory that exists")
            })?;
        // A mount over the path of the working directory does not hide the directory from a process that is already in it.
        check_visible("the working directory", &working_directory, &hidden, "change to another folder")?;
        let temporary = std::env::temp_dir();
        let temporary = temporary.canonicalize().unwrap_or(temporary);
        check_visible("the temporary folder", &temporary, &hidden, "set TMPDIR to another folder")?;
        let writable =
            args.read_only.then(|| writable(args, &working_directory, temporary, &hidden)).transpose()?;
        Ok(Self { hidden, writable })
    }

    /// Passes the paths to the next process of the run, as arguments.
    pub(super) fn pass(&self, command: &mut Command) {
        for path in &self.hidden {
            command.arg("--hide").arg(path);
        }
        command.args(self.writable.is_some().then_some("--read-only"));
        for path in self.writable.iter().flatten() {
            command.arg("--write").arg(path);
        }
    }
}

fn writable(
    args: &RunArgs,
    working_directory: &Path,
    temporary: PathBuf,
    hidden: &[PathBuf],
) -> Outcome<Vec<PathBuf>> {
    if working_directory.parent().is_none() {
        return Err(Problem::usage("--read-only in / leaves every file writable")
            .hint("change to the directory that the command works in"));
    }
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    if let Some(home) = home.filter(|home| home.starts_with(working_directory)) {
        eprintln!(
            "warning: the command can write to {}, the working directory, which contains .bashrc and other files that \
             programs outside the sandbox run or read",
            home.display()
        );
        eprintln!("hint: change to the directory that the command works in");
    }
    let mut writable = vec![working_directory.to_owned(), temporary];
    for given in &args.write {
        let path = given.canonicalize().map_err(|error| {
            Problem::usage(format_args!("--write {}: {error}", given.display()))
                .hint("name a file or folder that exists: create the folder first")
        })?;
        check_visible(&format!("--write {}", given.display()), &path, hidden, "name another file or folder")?;
        writable.push(path);
    }
    // A mount on a folder hides earlier mounts below it.
    writable.sort();
    writable.dedup();
    Ok(writable)
}

/// Returns an error if a path is hidden from the command.
fn check_visible(what: &str, path: &Path, hidden: &[PathBuf], hint: &str) -> Outcome<()> {
    match hidden.iter().find(|hidden| path.starts_with(hidden)) {
        None => Ok(()),
        Some(hidden) => Err(Problem::usage(format_args!(
            "{what} is in {}, which must be hidden from the command",
            hidden.display()
        ))
        .hint(hint)),
    }
}
