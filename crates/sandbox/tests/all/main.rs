//! Tests of the abilities of a restricted thread and its programs. Restrictions are permanent, so each test uses a new thread.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod calls;
mod files;
mod privileges;

use std::process::{Command, Output};
use std::thread;

use sandbox::{Capabilities, Files, Mode, Plan, Programs, Report};

/// Returns a plan without rules for files.
pub(crate) fn plan(programs: Programs) -> Plan {
    Plan { mode: Mode::BestEffort, programs, capabilities: Capabilities::NONE, files: Files::Any("a test") }
}

/// Runs `work` in a new thread under the plan.
pub(crate) fn restricted<T: Send + 'static>(
    plan: Plan,
    work: impl FnOnce(&Report) -> T + Send + 'static,
) -> T {
    let thread = thread::spawn(move || {
        let report = sandbox::restrict_thread(&plan).unwrap();
        work(&report)
    });
    thread.join().unwrap()
}

/// Runs a program, which inherits the restrictions of this thread.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let ran = Command::new(program).args(arguments).output();
    ran.unwrap_or_else(|error| panic!("{program}: {error}; apt-get install -y perl-base coreutils"))
}
