//! Constants and exit statuses that the processes of a run share.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use cli::exit::{Exit, Problem};

/// The proxy's address in the namespace. No other program listens in the namespace, so the address is the same in each run.
pub(super) const INSIDE: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 3128);
/// Offset of the exit status of a process that a signal ended. As in shells, the status is 128 plus the number of the signal.
pub(super) const BY_SIGNAL: i32 = 128;
/// Path of this program. It stays valid after an upgrade has replaced the file.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// Returns the exit status that a shell would show.
pub(super) fn status_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| BY_SIGNAL + status.signal().unwrap_or_default())
}

/// Returns the problem for a process whose exit status is unavailable.
pub(super) fn wait_error(error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot wait for the command: {error}"))
}
