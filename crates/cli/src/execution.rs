//! Runs a command: logging, the runtime, and the end of threads.

use std::pin::Pin;
use std::time::Duration;

use telemetry::LogFormat;

use crate::exit::{Exit, Outcome, Problem};
use crate::global::GlobalArgs;

/// A running command. It is boxed once, where the command is chosen, so that its state machine is not part of each caller's.
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
    // the exit a security module's library is unloaded, and it crashes if a thread is still in it or is just leaving it (OpenSSL's
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
