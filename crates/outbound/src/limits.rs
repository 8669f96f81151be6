//! How many sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept back from the budget: database, name server sockets, output, logs, libraries.
pub const DESCRIPTORS_RESERVED: usize = 128;
/// The budget where the system sets no limit at all.
pub const DESCRIPTORS_UNLIMITED: usize = 65_536;

/// Raises the soft limit of open files to the hard one (`RLIMIT_NOFILE`) and says how many sockets
/// may be in flight under it, at least 1.
///
/// Many systems start programs at 1,024 for the sake of `select(2)`, which nothing here uses.
#[must_use]
pub fn descriptor_budget() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let allowed = current.map_or(DESCRIPTORS_UNLIMITED, |files| {
        usize::try_from(files).unwrap_or(DESCRIPTORS_UNLIMITED)
    });
    allowed.saturating_sub(DESCRIPTORS_RESERVED).max(1)
}
