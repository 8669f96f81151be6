//! Capabilities (capabilities(7)) of the calling thread.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// A set of Linux capabilities (capabilities(7)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities(CapabilitySet);

/// Error of a text that is not the name of a Linux capability.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown capability {0:?}; see capabilities(7)")]
pub struct UnknownCapability(String);

impl Capabilities {
    /// The empty set of capabilities.
    pub const NONE: Self = Self(CapabilitySet::empty());
    /// Capabilities for starting and stopping programs of other users.
    pub const OTHER_USERS: Self =
        Self(CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL));
    /// Capabilities for writing files of other users, and for changing the owner of files.
    pub const OTHERS_FILES: Self = Self(
        CapabilitySet::CHOWN
            .union(CapabilitySet::DAC_OVERRIDE)
            .union(CapabilitySet::FOWNER)
            .union(CapabilitySet::FSETID),
    );
    /// The capability to listen on ports below 1024.
    pub const LOW_PORTS: Self = Self(CapabilitySet::NET_BIND_SERVICE);

    /// Returns the union of two sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0.union(others.0))
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the effective capabilities of this thread.
pub(crate) fn held() -> Capabilities {
    Capabilities(capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective))
}

/// Formats as `CAP_CHOWN CAP_KILL`, or `none`.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        for (index, (name, _)) in self.0.iter_names().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}CAP_{name}")?;
        }
        Ok(())
    }
}

/// Parses the name of one capability, with or without `CAP_`, in any case.
impl FromStr for Capabilities {
    type Err = UnknownCapability;

    fn from_str(text: &str) -> Result<Self, UnknownCapability> {
        let name = text.trim().to_ascii_uppercase();
        let found = CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap_or(&name));
        found.map(Self).ok_or_else(|| UnknownCapability(text.to_owned()))
    }
}

/// Highest number of a capability that a kernel may know.
const NUMBER_MAX: u32 = 63;

/// Drops all other capabilities from every set, permanently: neither a set-user-ID program nor a new file capability restores one.
pub(crate) fn keep_only(retained: Capabilities) -> io::Result<()> {
    let sets = capabilities(None)?;
    let retained = sets.permitted & retained.0;
    clear_ambient_capability_set()?;
    // Without CAP_SETPCAP the bounding set cannot change. Then no_new_privs prevents programs from gaining capabilities in it.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..=NUMBER_MAX {
            let one = CapabilitySet::from_bits_retain(1 << number);
            // The kernel returns EINVAL for numbers above its last capability.
            if !retained.contains(one) && capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one)?;
            }
        }
    }
    set_capabilities(
        None,
        CapabilitySets { effective: retained, permitted: retained, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_names_are_parsed_and_printed() {
        let both: Capabilities =
            "CAP_KILL".parse::<Capabilities>().unwrap().and("net_bind_service".parse().unwrap());
        assert_eq!(both.to_string(), "CAP_KILL CAP_NET_BIND_SERVICE");
        assert_eq!(Capabilities::NONE.to_string(), "none");
        for wrong in ["", "CAP_", "root", "KILL SETUID"] {
            assert!(wrong.parse::<Capabilities>().is_err(), "{wrong:?}");
        }
    }
}
