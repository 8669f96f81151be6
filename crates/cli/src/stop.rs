//! Ctrl-C and SIGTERM: the first signal starts a graceful shutdown, the second ends the process.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Outcome, Problem};

/// The timeout of a graceful shutdown. Afterwards the process exits, even if something still blocks (a reader that does not read,
/// an unreachable database).
const GRACE: Duration = Duration::from_millis(1_900);

/// Returns a token that the first signal cancels. The second signal, or the end of the timeout, ends the process with
/// [`Exit::Interrupted`].
pub fn on_signal() -> Outcome<CancellationToken> {
    on_signal_within(GRACE)
}

/// Like [`on_signal`], with another timeout, for example for a server that finishes requests in progress.
pub fn on_signal_within(grace: Duration) -> Outcome<CancellationToken> {
    let failed =
        |error: std::io::Error| Problem::new(Exit::Machine, format_args!("cannot handle signals: {error}"));
    let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let token = CancellationToken::new();
    tokio::spawn(watch(interrupt, terminate, token.clone(), grace));
    Ok(token)
}

async fn watch(mut interrupt: Signal, mut terminate: Signal, token: CancellationToken, grace: Duration) {
    next(&mut interrupt, &mut terminate).await;
    token.cancel();
    // Use a thread, not a task: all workers of the runtime may be blocked in a write.
    std::thread::spawn(move || {
        std::thread::sleep(grace);
        std::process::exit(Exit::Interrupted as i32);
    });
    next(&mut interrupt, &mut terminate).await;
    std::process::exit(Exit::Interrupted as i32);
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
