//! Files that a process may open (landlock(7)).

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::plan::{Files, Programs};
use crate::report::State;

/// Files that every program reads: libraries, trust stores, names of users and hosts, time zones, processes and processors.
/// `/run/systemd` has the resolver's configuration, `/run/credentials` the credentials that systemd passes to services.
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
/// Files that every program writes.
const WRITABLE: &[&str] = &["/dev/null", "/dev/tty"];
/// The Landlock version of Linux 6.12. Older kernels enforce the rights that they support.
const LANDLOCK_ABI: ABI = ABI::V6;

/// The Landlock version of Linux 6.2. On older kernels files can be truncated without the right to write them.
const READ_ONLY_MIN: ABI = ABI::V3;
/// Devices that programs write, and the folders of terminals and of shared memory.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"];
/// Standard input, output and error: a program may open them again by these names.
const STANDARD: &[&str] = &["/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"];

/// Returns the existing paths. Pipes such as /dev/stdin have no path that a rule could name, and Landlock does not restrict them.
fn paths(fixed: &[&str], more: &[PathBuf]) -> Vec<PathBuf> {
    let all = fixed.iter().map(PathBuf::from).chain(more.iter().cloned());
    all.filter_map(|path| path.canonicalize().ok()).collect()
}

/// Restricts the files of this thread and of threads that it starts.
pub(crate) fn restrict(files: &Files, programs: Programs) -> Result<State, RulesetError> {
    match files {
        Files::Any(why) => Ok(State::NotRequested(why)),
        Files::Only { readable, writable } => restrict_to(readable, writable, programs),
        Files::ReadOnly { writable } => read_only(writable),
    }
}

fn read_only(writable: &[PathBuf]) -> Result<State, RulesetError> {
    let standard = STANDARD.iter().map(PathBuf::from).filter(|path| path.is_file());
    let writable: Vec<PathBuf> = writable.iter().cloned().chain(standard).collect();
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(READ_ONLY_MIN))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(paths(DEVICES, &writable), AccessFs::from_all(LANDLOCK_ABI)))?
        .restrict_self()?;
    Ok(match status.ruleset {
        // Rights that only newer kernels support are not required.
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => State::Enforced,
        RulesetStatus::NotEnforced => State::Missing("this kernel has no Landlock".to_owned()),
    })
}

fn restrict_to(
    readable: &[PathBuf],
    writable: &[PathBuf],
    programs: Programs,
) -> Result<State, RulesetError> {
    let read = match programs {
        Programs::None => AccessFs::ReadFile | AccessFs::ReadDir,
        Programs::Started => AccessFs::from_read(LANDLOCK_ABI),
    };
    let write: BitFlags<AccessFs> = read | AccessFs::from_write(LANDLOCK_ABI);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
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
