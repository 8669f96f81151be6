//! How an authority changes: what is next, by what its versions show. A function of values.
//!
//! What is stored of a change is only what comes next and when. What has been done is read from the versions, so that a step
//! that was begun and not noted is not done twice.

use crate::tables::ChangeStep as Step;

/// Where the flag of transition is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flag {
    /// Nowhere.
    Absent,
    /// At the newest version.
    Newest,
    /// At an older one.
    Older,
}

/// The next action.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Act {
    /// Note that it is to be changed.
    Begin,
    /// Make a new version that is trusted, and does not sign.
    Make,
    /// The new version exists: notify all dependents, and wait until it has spread.
    Spread,
    /// Move the flag to the old version: the new one signs.
    Move,
    /// Make what the old one signed again.
    Follow,
    /// Take the flag away: the old one is trusted no more.
    Clear,
    /// Nothing is in transition: somebody ended it, or a step that was not noted did.
    End,
}

/// The action that follows a step, given the state of the flag.
pub(super) fn next(step: Step, flag: Flag) -> Act {
    match (step, flag) {
        (Step::None, _) => Act::Begin,
        (Step::Begun, Flag::Absent) => Act::Make,
        (Step::Begun, Flag::Newest) => Act::Spread,
        (Step::Trusted | Step::Signs | Step::Followed, Flag::Absent) => Act::End,
        (Step::Trusted | Step::Signs | Step::Followed, Flag::Newest) => Act::Move,
        (Step::Followed, Flag::Older) => Act::Clear,
        (Step::Begun | Step::Trusted | Step::Signs, Flag::Older) => Act::Follow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_was_done_and_not_noted_is_not_done_twice() {
        let cases = [
            (Step::None, Flag::Absent, Act::Begin),
            (Step::None, Flag::Older, Act::Begin),
            (Step::Begun, Flag::Absent, Act::Make),
            (Step::Begun, Flag::Newest, Act::Spread),
            (Step::Begun, Flag::Older, Act::Follow),
            (Step::Trusted, Flag::Newest, Act::Move),
            (Step::Trusted, Flag::Older, Act::Follow),
            (Step::Trusted, Flag::Absent, Act::End),
            (Step::Signs, Flag::Older, Act::Follow),
            (Step::Signs, Flag::Newest, Act::Move),
            (Step::Signs, Flag::Absent, Act::End),
            (Step::Followed, Flag::Older, Act::Clear),
            (Step::Followed, Flag::Newest, Act::Move),
            (Step::Followed, Flag::Absent, Act::End),
        ];
        for (step, flag, act) in cases {
            assert_eq!(next(step, flag), act, "{step} {flag:?}");
        }
    }
}
