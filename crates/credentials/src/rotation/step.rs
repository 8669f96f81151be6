//! How an authority changes: what is next, by what its versions show. A function of values.
//!
//! What is stored of a change is only what comes next and when. What has been done is read from the versions, so that a step
//! that was begun and not noted is not done twice.

/// Steps as they are stored.
pub(super) const NONE: i64 = 0;
/// It is to be changed. Noted before anything is made, so that the new version does not pass for somebody else's.
pub(super) const BEGUN: i64 = 1;
/// Both are trusted, the old one signs.
pub(super) const TRUSTED: i64 = 2;
/// The new one signs; what the old one signed is made anew.
pub(super) const SIGNS: i64 = 3;
/// All that it signed is signed by the new one.
pub(super) const FOLLOWED: i64 = 4;

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

/// What to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Act {
    /// Note that it is to be changed.
    Begin,
    /// Make a new version that is trusted, and does not sign.
    Make,
    /// There is one: all that hangs on it is told, and time to spread is given.
    Spread,
    /// Move the flag to the old version: the new one signs.
    Move,
    /// Make what the old one signed anew.
    Follow,
    /// Take the flag away: the old one is trusted no more.
    Clear,
    /// Nothing is in transition: somebody ended it, or a step that was not noted did.
    End,
}

/// What follows a step, given where the flag is.
pub(super) fn next(step: i64, flag: Flag) -> Act {
    match (step, flag) {
        (NONE, _) => Act::Begin,
        (BEGUN, Flag::Absent) => Act::Make,
        (BEGUN, Flag::Newest) => Act::Spread,
        (_, Flag::Absent) => Act::End,
        (_, Flag::Newest) => Act::Move,
        (FOLLOWED, Flag::Older) => Act::Clear,
        (_, Flag::Older) => Act::Follow,
    }
}

/// A step by name, as it is shown.
pub(super) fn name(step: i64) -> &'static str {
    match step {
        BEGUN => "begun",
        TRUSTED => "trusted",
        SIGNS => "signs",
        FOLLOWED => "followed",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_was_done_and_not_noted_is_not_done_twice() {
        let cases = [
            (NONE, Flag::Absent, Act::Begin),
            (NONE, Flag::Older, Act::Begin),
            (BEGUN, Flag::Absent, Act::Make),
            (BEGUN, Flag::Newest, Act::Spread),
            (BEGUN, Flag::Older, Act::Follow),
            (TRUSTED, Flag::Newest, Act::Move),
            (TRUSTED, Flag::Older, Act::Follow),
            (TRUSTED, Flag::Absent, Act::End),
            (SIGNS, Flag::Older, Act::Follow),
            (SIGNS, Flag::Newest, Act::Move),
            (SIGNS, Flag::Absent, Act::End),
            (FOLLOWED, Flag::Older, Act::Clear),
            (FOLLOWED, Flag::Newest, Act::Move),
            (FOLLOWED, Flag::Absent, Act::End),
        ];
        for (step, flag, act) in cases {
            assert_eq!(next(step, flag), act, "{} {flag:?}", name(step));
        }
    }
}
