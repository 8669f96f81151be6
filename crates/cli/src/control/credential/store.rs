//! Helpers for commands of the credential store: its routes, the API's names of option values, retries at startup, and errors.

use std::time::Duration;

use clap::ValueEnum;
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Outcome, Problem};

pub(super) const DATA: &str = "/api/v1/data";
pub(super) const LOOKUP: &str = "/api/v1/lookup";
pub(super) const CERTIFICATES: &str = "/api/v1/certificates";
pub(super) const PERMISSIONS: &str = "/api/v2/permissions";

/// Returns the name that the API uses for the value of an option.
pub(super) fn name_of<T: ValueEnum>(choice: T) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// First delay between two attempts to reach an unavailable store at startup. Each further delay doubles, up to a maximum.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Maximum delay between two attempts.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// Repeats a request until the store is reachable. Returns `None` if this process should stop. Other errors are returned.
pub(super) async fn wait_for_store<T>(
    stop: &CancellationToken,
    read: impl AsyncFn() -> Outcome<T>,
) -> Outcome<Option<T>> {
    let mut wait = RETRY_DELAY;
    loop {
        match read().await {
            Err(problem) if problem.exit == Exit::Server => {
                tracing::warn!(error = problem.message, again_within = ?wait, "the credential store is unreachable");
            }
            other => return other.map(Some),
        }
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return Ok(None);
        }
        wait = (wait * 2).min(RETRY_DELAY_MAX);
    }
}

/// Converts an error of the store's client to a problem of this program.
pub(super) fn problem(error: &client::Error) -> Problem {
    use client::Error;
    let (exit, hint) = match error {
        Error::NotFound(_) => {
            (Exit::Refused, "`bulla credential find` lists the credentials that you may read")
        }
        Error::Denied(_) => (Exit::Refused, "give --token-file, or BULLA_CLIENT_TOKEN"),
        Error::Refused { .. } => (Exit::Refused, "see docs/credentials.md"),
        Error::Invalid(_) => (Exit::Usage, "see docs/credentials.md"),
        Error::Unavailable(_) => {
            (Exit::Server, "check that the server runs (`bulla up`), --credential-server, and --server-ca")
        }
    };
    Problem::new(exit, error).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Calls a reader that fails `failures` times with this exit code, then returns 7.
    async fn waited(exit: Exit, failures: u32, stop: &CancellationToken) -> (Outcome<Option<u32>>, u32) {
        let tries = Cell::new(0);
        let read = async || {
            tries.set(tries.get() + 1);
            if tries.get() <= failures { Err(Problem::new(exit, "it fails")) } else { Ok(7) }
        };
        (wait_for_store(stop, read).await, tries.get())
    }

    #[tokio::test]
    async fn unavailable_store_is_retried_and_a_rejection_is_not() {
        let stop = CancellationToken::new();
        let (read, tries) = waited(Exit::Server, 2, &stop).await;
        assert_eq!((read.ok(), tries), (Some(Some(7)), 3));
        let (refused, tries) = waited(Exit::Refused, 2, &stop).await;
        assert_eq!((refused.is_err(), tries), (true, 1));
        stop.cancel();
        let (stopped, tries) = waited(Exit::Server, 2, &stop).await;
        assert_eq!((stopped.ok(), tries), (Some(None), 1));
    }
}
