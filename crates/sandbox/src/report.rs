//! The restrictions that apply to this process.

use std::fmt;
use std::sync::OnceLock;

use crate::capabilities::Capabilities;

/// The state of one kind of restriction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// The restriction is in force.
    Enforced,
    /// Only the part that this kernel supports is in force.
    Partial,
    /// The restriction was not requested, for this reason.
    NotRequested(&'static str),
    /// The restriction was requested, but this kernel or host does not support it, for this reason.
    Missing(String),
}

/// Formats as `enforced`, `partial`, `off: REASON` or `missing: REASON`.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforced => f.write_str("enforced"),
            Self::Partial => f.write_str("partial"),
            Self::NotRequested(why) => write!(f, "off: {why}"),
            Self::Missing(why) => write!(f, "missing: {why}"),
        }
    }
}

/// The restrictions that apply to a process, with the state of each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The capabilities that the process still has.
    pub held: Capabilities,
    /// Whether all capabilities that the process does not keep were dropped.
    pub capabilities: State,
    /// Whether programs are prevented from gaining privileges.
    pub no_new_privileges: State,
    /// Whether dangerous system calls fail (seccomp).
    pub system_calls: State,
    /// Whether access to files outside the plan is denied (Landlock).
    pub files: State,
}

const SWITCHED_OFF: &str = "sandbox.mode is off";

impl Report {
    pub(crate) fn off() -> Self {
        let off = || State::NotRequested(SWITCHED_OFF);
        Self {
            held: crate::capabilities::held(),
            capabilities: off(),
            no_new_privileges: off(),
            system_calls: off(),
            files: off(),
        }
    }

    /// Returns the restrictions with their names.
    #[must_use]
    pub fn states(&self) -> [(&'static str, &State); 4] {
        [
            ("capabilities", &self.capabilities),
            ("no_new_privileges", &self.no_new_privileges),
            ("seccomp", &self.system_calls),
            ("landlock", &self.files),
        ]
    }

    /// Returns whether a requested restriction is not in force.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.states().iter().any(|(_, state)| matches!(state, State::Partial | State::Missing(_)))
    }
}

static REPORT: OnceLock<Report> = OnceLock::new();

/// Returns the restrictions that [`crate::enter`] applied to this process; `None` before that call, and in programs that never call
/// it.
#[must_use]
pub fn report() -> Option<&'static Report> {
    REPORT.get()
}

pub(crate) fn store_report(report: Report) -> &'static Report {
    REPORT.get_or_init(|| report)
}
