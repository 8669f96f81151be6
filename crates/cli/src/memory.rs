//! Protects the memory of the process: no core dumps, no attached debuggers.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::exit::{Exit, Outcome, Problem};

/// From here on no crash leaves an image of this process's memory, and nobody but root may read it through /proc or attach
/// to it (PR_SET_DUMPABLE, prctl(2)). The limit holds for programs that it starts, too.
pub fn keep(core_dumps: bool) -> Outcome<()> {
    if core_dumps {
        return Ok(());
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(not_off).and_then(|()| hide(core_dumps))
}

/// [`keep`] for this process alone: programs that it starts are as they would be without it.
pub fn hide(core_dumps: bool) -> Outcome<()> {
    if core_dumps {
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(not_off)
}

fn not_off(error: rustix::io::Errno) -> Problem {
    Problem::new(Exit::Machine, format_args!("core dumps cannot be switched off: {error}"))
        .hint("allow prctl and setrlimit, or set server.core_dumps")
}
