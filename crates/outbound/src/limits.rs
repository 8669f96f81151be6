//! Limits of open sockets of this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for everything except scanned endpoints: standard streams, the runtime, the database and its journal, log
/// files, sockets of the resolver.
pub const DESCRIPTORS_RESERVED: usize = 128;

/// Upper limit of descriptors, used when the hard limit is unlimited. Higher than all defaults of Bulla.
const DESCRIPTORS_MAX: usize = 1_048_576;

/// Raises the soft limit of open files to the hard limit and returns the limit in force. Ubuntu starts processes with 1,024 of a
/// permitted 1,048,576, too few for a scan.
///
/// # Errors
/// When the system denies it; the limit is then unchanged.
pub fn raise_descriptor_limit() -> io::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(current_descriptor_limit())
}

/// Raises the limit of open files, and returns the maximum number of concurrent sockets: all descriptors except
/// [`DESCRIPTORS_RESERVED`], at least one. If the limit cannot be raised, the current one applies.
#[must_use]
pub fn descriptor_budget() -> usize {
    usable_descriptors(raise_descriptor_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "the limit of open files cannot be raised");
        current_descriptor_limit()
    }))
}

fn usable_descriptors(limit: usize) -> usize {
    // For a very small limit, the reserve is at most half of the limit.
    limit.saturating_sub(DESCRIPTORS_RESERVED).max(limit / 2).max(1)
}

fn current_descriptor_limit() -> usize {
    let soft = getrlimit(Resource::Nofile).current;
    soft.and_then(|soft| usize::try_from(soft).ok()).unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_budget_keeps_a_reserve() {
        for (limit, budget) in [(0, 1), (1, 1), (64, 32), (256, 128), (1_024, 896)] {
            assert_eq!(usable_descriptors(limit), budget, "of {limit}");
        }
    }

    #[test]
    fn soft_descriptor_limit_is_raised_to_the_hard_limit() {
        let raised = raise_descriptor_limit().expect("raising to the hard limit is always allowed");
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!(descriptor_budget() < raised);
    }
}
