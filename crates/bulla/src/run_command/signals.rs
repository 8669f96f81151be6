//! Signals to the first process that are meant for the command.

use std::io;

use cli::exit::{Exit, Outcome, Problem};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal as Incoming, SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that people and service managers send.
const FORWARDED: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Receiver of the signals to this process. While it listens, these signals do not terminate the process.
pub(super) struct Signals(mpsc::Receiver<i32>);

impl Signals {
    pub(super) fn listen() -> Outcome<Self> {
        let (send, receive) = mpsc::channel(FORWARDED.len());
        for kind in FORWARDED {
            let incoming = signal(SignalKind::from_raw(kind.as_raw())).map_err(|error: io::Error| {
                Problem::new(Exit::Machine, format_args!("cannot handle signals: {error}"))
            })?;
            tokio::spawn(pass_on(incoming, kind, send.clone()));
        }
        Ok(Self(receive))
    }

    /// Returns the next signal that the command has not received directly.
    pub(super) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

async fn pass_on(mut incoming: Incoming, kind: Signal, to: mpsc::Sender<i32>) {
    let _live = telemetry::tasks::guard("run-signals");
    while incoming.recv().await.is_some() {
        if is_terminal_signal(kind) && is_foreground_group() {
            continue;
        }
        if to.send(kind.as_raw()).await.is_err() {
            return;
        }
    }
}

/// Returns whether a terminal sends this signal to its whole foreground group, the command included: Ctrl+C and Ctrl+\.
fn is_terminal_signal(kind: Signal) -> bool {
    matches!(kind, Signal::INT | Signal::QUIT)
}

fn is_foreground_group() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Sends a signal to a child that has not been reaped.
pub(super) fn send(process: Option<u32>, signal: i32) {
    let process = process.and_then(|id| Pid::from_raw(id.cast_signed()));
    if let (Some(process), Some(signal)) = (process, Signal::from_named_raw(signal)) {
        let _ = kill_process(process, signal);
    }
}
