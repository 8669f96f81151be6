//! Threads for CPU work that is too long for async threads.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

/// Permits for concurrent signatures on threads of their own. RSA takes 0.5 to 5 ms of CPU time, too long for an async thread.
/// More than one permit for each processor gains nothing.
pub(super) static STAGE: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(2, usize::from)));
