//! `--watch`: repeats the output of a command.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use crate::exit::{Exit, Outcome};
use crate::units;

/// Clears a terminal and moves the cursor to the first line (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The option `--watch`: whether, and how often, to repeat an output.
#[derive(Args, Clone, Debug)]
pub struct Repeat {
    /// Repeat the output every 2 s, or at the given interval, until Ctrl-C
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = units::duration, help_heading = "Output")]
    watch: Option<Duration>,
}

impl Repeat {
    /// Returns whether `--watch` was given.
    pub(crate) fn is_on(&self) -> bool {
        self.watch.is_some()
    }

    /// Calls `print_once` once, or with `--watch` repeatedly until a call fails. Failures of the server are exceptions: the
    /// repetition continues, because the server may restart.
    pub async fn run(&self, print_once: impl AsyncFn() -> Outcome<()>) -> Outcome<()> {
        let Some(every) = self.watch else { return print_once().await };
        loop {
            if std::io::stdout().is_terminal() {
                print!("{CLEAR}");
            }
            match print_once().await {
                Err(problem) if problem.exit == Exit::Server => {
                    problem.report();
                    eprintln!("retrying in {} s", every.as_secs());
                }
                printed => printed?,
            }
            tokio::time::sleep(every).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::exit::Problem;

    #[tokio::test(start_paused = true)]
    async fn output_is_repeated_across_failures_of_the_server_only() {
        let calls = Cell::new(0);
        let print = async || {
            calls.set(calls.get() + 1);
            match calls.get() {
                1 => Ok(()),
                2 => Err(Problem::new(Exit::Server, "restarting")),
                _ => Err(Problem::new(Exit::Refused, "not permitted")),
            }
        };
        let repeat = |watch| Repeat { watch };
        assert!(repeat(None).run(print).await.is_ok());
        assert_eq!(calls.replace(0), 1);
        let ended = repeat(Some(Duration::from_secs(2))).run(print).await.unwrap_err();
        assert_eq!((ended.exit, calls.get()), (Exit::Refused, 3));
    }
}
