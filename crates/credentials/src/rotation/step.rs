//! The steps of a CA replacement. The next action is a pure function of the CA's versions.
//!
//! The database stores only the next step and its time. Completed steps are derived from the versions, so that an unrecorded step
//! is not repeated.

use crate::tables::ChangeStep as Step;

/// The version that has the transitional flag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TransitionalFlag {
    /// No version has the flag.
    Absent,
    /// The newest version has the flag.
    Newest,
    /// An older version has the flag.
    Older,
}

/// Action that continues a CA replacement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RotationAction {
    /// Record that the CA is to be replaced.
    Begin,
    /// Generate a new version that is trusted, but does not sign.
    Make,
    /// The new version exists. Add it to all certificates of the CA, and wait until clients have loaded it.
    Spread,
    /// Move the flag to the old version, so that the new one signs.
    Move,
    /// Regenerate the certificates that the old version signed.
    Follow,
    /// Clear the flag: the old version is no longer trusted.
    Clear,
    /// No version is transitional: somebody ended the replacement, or the last step was not recorded.
    End,
}

/// Returns the action that follows `step`. `flag` is the current state of the transitional flag.
pub(super) fn next(step: Step, flag: TransitionalFlag) -> RotationAction {
    match (step, flag) {
        (Step::None, _) => RotationAction::Begin,
        (Step::Begun, TransitionalFlag::Absent) => RotationAction::Make,
        (Step::Begun, TransitionalFlag::Newest) => RotationAction::Spread,
        (Step::Trusted | Step::Signs | Step::Followed, TransitionalFlag::Absent) => RotationAction::End,
        (Step::Trusted | Step::Signs | Step::Followed, TransitionalFlag::Newest) => RotationAction::Move,
        (Step::Followed, TransitionalFlag::Older) => RotationAction::Clear,
        (Step::Begun | Step::Trusted | Step::Signs, TransitionalFlag::Older) => RotationAction::Follow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_step_follows_from_recorded_step_and_transitional_flag() {
        let cases = [
            (Step::None, TransitionalFlag::Absent, RotationAction::Begin),
            (Step::None, TransitionalFlag::Older, RotationAction::Begin),
            (Step::Begun, TransitionalFlag::Absent, RotationAction::Make),
            (Step::Begun, TransitionalFlag::Newest, RotationAction::Spread),
            (Step::Begun, TransitionalFlag::Older, RotationAction::Follow),
            (Step::Trusted, TransitionalFlag::Newest, RotationAction::Move),
            (Step::Trusted, TransitionalFlag::Older, RotationAction::Follow),
            (Step::Trusted, TransitionalFlag::Absent, RotationAction::End),
            (Step::Signs, TransitionalFlag::Older, RotationAction::Follow),
            (Step::Signs, TransitionalFlag::Newest, RotationAction::Move),
            (Step::Signs, TransitionalFlag::Absent, RotationAction::End),
            (Step::Followed, TransitionalFlag::Older, RotationAction::Clear),
            (Step::Followed, TransitionalFlag::Newest, RotationAction::Move),
            (Step::Followed, TransitionalFlag::Absent, RotationAction::End),
        ];
        for (step, flag, act) in cases {
            assert_eq!(next(step, flag), act, "{step} {flag:?}");
        }
    }
}
