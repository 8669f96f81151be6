//! Files that a process may open (landlock(7)).

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::plan::{Files, Programs};
use crate::report::State;

/// What every program reads: libraries, trust stores, names of users and hosts, time zones, processes and processors. `/run/systemd` has
/// the resolver's configuration, `/run/credentials` the credentials that systemd passes to services.
const READABLE: &[&str] = &[
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/proc",
    "/sys",
    "/dev",
    "/run/systemd",
    "/run/credentials",
    "/run/nscd",
];
/// What every program writes to.
const WRITABLE: &[&str] = &["/dev/null", "/dev/tty"];
/// Linux 6.12. Older kernels enforce what they know.
const KNOWN: ABI = ABI::V6;

/// Restricts the files of this thread and of those that it starts.
pub(crate) fn restrict(files: &Files, programs: Programs) -> Result<State, RulesetError> {
    let (readable, writable) = match files {
        Files::Any(why) => return Ok(State::NotAsked(why)),
        Files::Only { readable, writable } => (readable, writable),
    };
    let read = match programs {
        Programs::None => AccessFs::ReadFile | AccessFs::ReadDir,
        Programs::Started => AccessFs::from_read(KNOWN),
    };
    let write: BitFlags<AccessFs> = read | AccessFs::from_write(KNOWN);
    let paths = |fixed: &[&str], more: &[PathBuf]| -> Vec<PathBuf> {
        let all = fixed.iter().map(PathBuf::from).chain(more.iter().cloned());
        // Pipes, such as /dev/stdin, have no place that a rule could name; Landlock leaves them open.
        all.filter_map(|path| path.canonicalize().ok()).collect()
    };
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(paths(READABLE, readable), read))?
        .add_rules(path_beneath_rules(paths(WRITABLE, writable), write))?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => State::Enforced,
        RulesetStatus::PartiallyEnforced => State::Partial,
        RulesetStatus::NotEnforced => State::Missing("this kernel has no Landlock".to_owned()),
    })
}
