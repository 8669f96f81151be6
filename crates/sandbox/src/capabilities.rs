//! Capabilities (capabilities(7)) of the calling thread.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities(CapabilitySet);

/// No capability has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no capability {0:?}; see capabilities(7)")]
pub struct UnknownCapability(String);

impl Capabilities {
    /// None.
    pub const NONE: Self = Self(CapabilitySet::empty());
    /// What starting programs as another user takes, and ending them.
    pub const OTHER_USERS: Self =
        Self(CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL));
    /// What writing files of other users takes, and giving files to them.
    pub const OTHERS_FILES: Self = Self(
        CapabilitySet::CHOWN
            .union(CapabilitySet::DAC_OVERRIDE)
            .union(CapabilitySet::FOWNER)
            .union(CapabilitySet::FSETID),
    );
    /// What listening on ports below 1024 takes.
    pub const LOW_PORTS: Self = Self(CapabilitySet::NET_BIND_SERVICE);

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0.union(others.0))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0.is_empty()
    }
}

/// The effective capabilities of this thread.
pub(crate) fn held() -> Capabilities {
    Capabilities(capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective))
}

/// `CAP_CHOWN CAP_KILL`; `none`.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        for (place, (name, _)) in self.0.iter_names().enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}CAP_{name}")?;
        }
        Ok(())
    }
}

/// One capability by its name, with or without `CAP_`, in any case.
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

/// Drops all but these from every set. Nothing brings one back: not a set-user-ID program, not a new file capability.
pub(crate) fn keep_only(kept: Capabilities) -> io::Result<()> {
    let sets = capabilities(None)?;
    let kept = sets.permitted & kept.0;
    clear_ambient_capability_set()?;
    // Without CAP_SETPCAP the bounding set stays; no_new_privs then keeps programs from gaining what is in it.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..=NUMBER_MAX {
            let one = CapabilitySet::from_bits_retain(1 << number);
            // The kernel answers EINVAL beyond its last one.
            if !kept.contains(one) && capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one)?;
            }
        }
    }
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_manual() {
        let both: Capabilities =
            "CAP_KILL".parse::<Capabilities>().unwrap().and("net_bind_service".parse().unwrap());
        assert_eq!(both.to_string(), "CAP_KILL CAP_NET_BIND_SERVICE");
        assert_eq!(Capabilities::NONE.to_string(), "none");
        for wrong in ["", "CAP_", "root", "KILL SETUID"] {
            assert!(wrong.parse::<Capabilities>().is_err(), "{wrong:?}");
        }
    }
}
