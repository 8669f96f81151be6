//! Running a command: logging, the runtime, the end of threads.

use std::pin::Pin;
use std::time::Duration;

use telemetry::LogFormat;

use crate::exit::{Exit, Outcome, Problem};
use crate::global::Global;

/// A command at work. Boxed once, where the command is chosen, so that its state machine is not laid out again in each
/// caller's.
pub type CommandFuture<'a> = Pin<Box<dyn Future<Output = Outcome<Exit>> + 'a>>;

/// The timeout for threads when the process exits.
const THREADS_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts logging as the options of every command say.
pub fn start_logging(global: &Global) -> Outcome<()> {
    let format = if global.log_json { LogFormat::Json } else { LogFormat::Text };
    telemetry::init(&global.log, format).map_err(|error| {
        Problem::usage(format_args!("--log {:?}: {error}", global.log))
            .hint("use error, warn, info, debug or trace, or a filter like scan=debug")
    })
}

/// Runs a command on a runtime of its own, and shuts that down.
pub fn block_on(command: CommandFuture<'_>) -> Outcome<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("no threads can be started: {error}"))
            .hint("check the limits on processes and open files (ulimit -u, ulimit -n)")
    })?;
    let outcome = runtime.block_on(command);
    // No work is left, and a read of standard input that never returns must not hold the process. But threads that end do
    // so before the process does: a security module's library is unloaded at the exit, and crashes when a thread is still
    // in it, or is just leaving it (OpenSSL's state of each thread).
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    outcome
}

/// Ends the process as the outcome says, and prints why where it failed.
pub fn conclude(outcome: Outcome<Exit>) -> std::process::ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(problem) => {
            problem.report();
            problem.exit.into()
        }
    }
}
