//! Protects the memory of the process: no core dumps, no attached debuggers.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::exit::{Exit, Outcome, Problem};

/// Disables core dumps of this process and of the programs that it starts. Afterwards only root can read its memory through /proc
/// or attach a debugger (PR_SET_DUMPABLE, prctl(2)). Callers skip this function if `server.core_dumps` is set.
pub fn protect() -> Outcome<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(core_dump_error).and_then(|()| protect_self())
}

/// Like [`protect`], only for this process. Programs that it starts keep the original limits.
pub fn protect_self() -> Outcome<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(core_dump_error)
}

fn core_dump_error(error: rustix::io::Errno) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot disable core dumps: {error}"))
        .hint("allow prctl and setrlimit, or set server.core_dumps")
}
