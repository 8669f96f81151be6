//! Threads for work that is too long for those on which others wait.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

/// Signatures under way on threads of their own: RSA takes 0.5 to 5 ms of a processor, too long
/// for a thread on which others wait, and more at once than processors gains nothing.
pub(super) static STAGE: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(2, usize::from)));
