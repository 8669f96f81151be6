//! Runs a command: starts logging and the runtime, and waits for threads at the end.

use std::pin::Pin;
use std::time::Duration;

use telemetry::LogFormat;

use crate::exit::{Exit, Outcome, Problem};
use crate::global::GlobalArgs;

/// The boxed future of a running command. Boxing keeps its state machine out of the state machine of each caller.
pub type CommandFuture<'a> = Pin<Box<dyn Future<Output = Outcome<Exit>> + 'a>>;

/// Timeout for running threads when the process exits.
const THREADS_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts logging as set by the global options.
pub fn start_logging(global: &GlobalArgs) -> Outcome<()> {
    let format = if global.log_json { LogFormat::Json } else { LogFormat::Text };
    telemetry::init(&global.log, format).map_err(|error| {
        Problem::usage(format_args!("--log {:?}: {error}", global.log))
            .hint("use error, warn, info, debug or trace, or a filter such as scan=debug")
    })
}

/// Runs a command on its own runtime, and shuts the runtime down.
pub fn block_on(command: CommandFuture<'_>) -> Outcome<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot start threads: {error}"))
            .hint("check the limits on processes and open files (ulimit -u, ulimit -n)")
    })?;
    let outcome = runtime.block_on(command);
    // No work is left, and a blocked read of standard input must not delay the exit. Other threads must end before the process. At
    // exit the library of a security module is unloaded. It crashes if a thread still runs in it or is just leaving it (OpenSSL's
    // per-thread state).
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    outcome
}

/// Returns the exit status of the outcome. Prints the error of a failure.
pub fn conclude(outcome: Outcome<Exit>) -> std::process::ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(problem) => {
            problem.report();
            problem.exit.into()
        }
    }
}

/// Like [`conclude`], for a program that has only some of the commands: hints use the program's own command names, or say that the
/// program lacks the command.
pub fn conclude_in(program: &clap::Command, outcome: Outcome<Exit>) -> std::process::ExitCode {
    conclude(outcome.map_err(|mut problem| {
        problem.hint = problem.hint.map(|hint| hint_in(program, &hint));
        problem
    }))
}

/// Returns a hint with the program's name before its commands. Commands are in backticks, and begin with `bulla`.
fn hint_in(program: &clap::Command, hint: &str) -> String {
    const FULL: &str = "`bulla ";
    let mut parts = hint.split(FULL);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    let mut is_lacking = false;
    for part in parts {
        match has(program, part.split('`').next().unwrap_or_default()) {
            true => shown += &format!("`{} {part}", program.get_name()),
            false => {
                is_lacking = true;
                shown += &format!("{FULL}{part}");
            }
        }
    }
    if is_lacking {
        shown += &format!(" ({} has a part of the commands; bulla has all)", program.get_name());
    }
    shown
}

/// Returns whether a program has a command, such as `key serve --inventory`.
fn has(program: &clap::Command, words: &str) -> bool {
    let mut command = program;
    for word in words.split_whitespace() {
        match command.find_subcommand(word) {
            Some(found) => command = found,
            // The word is an argument, or a subcommand that this program lacks.
            None => return !command.has_subcommands(),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn hints_name_the_commands_of_the_program() {
        let key = Command::new("key").subcommand(Command::new("list"));
        let program = Command::new("bulla-scan").subcommand(Command::new("scan")).subcommand(key);
        for (hint, expected) in [
            ("`bulla scan TARGET` stores results", "`bulla-scan scan TARGET` stores results"),
            ("try `bulla key list`, or `bulla scan`", "try `bulla-scan key list`, or `bulla-scan scan`"),
            ("give a file", "give a file"),
            (
                "see `bulla config show`",
                "see `bulla config show` (bulla-scan has a part of the commands; bulla has all)",
            ),
            ("`bulla key serve`", "`bulla key serve` (bulla-scan has a part of the commands; bulla has all)"),
        ] {
            assert_eq!(hint_in(&program, hint), expected);
        }
    }
}
