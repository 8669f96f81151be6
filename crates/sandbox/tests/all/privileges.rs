//! Capabilities and privileges.

use sandbox::{Capabilities, Plan, Programs, SandboxError};

use crate::{plan, restricted, run};

/// Returns a field of /proc/self/status of a program that this thread starts.
fn status(field: &str) -> String {
    let ran = run("cat", &["/proc/self/status"]);
    let text = String::from_utf8(ran.stdout).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

const NONE: &str = "0000000000000000";

#[test]
fn no_capability_remains_and_no_program_gains_one() {
    let root = rustix::process::geteuid().is_root();
    restricted(plan(Programs::Started), move |report| {
        assert_eq!(report.held, Capabilities::NONE);
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status(set), NONE, "{set}");
        }
        // Only root can reduce the bounding set.
        if root {
            assert_eq!(status("CapBnd"), NONE);
        }
        assert_eq!(status("NoNewPrivs"), "1");
        assert_eq!(status("Seccomp"), "2");
    });
}

#[test]
fn required_capabilities_are_kept_if_held_before() {
    let plan = Plan { capabilities: Capabilities::OTHER_USERS, ..plan(Programs::Started) };
    if rustix::process::geteuid().is_root() {
        restricted(plan, |report| {
            assert_eq!(report.held.to_string(), "CAP_KILL CAP_SETGID CAP_SETUID");
            // Capabilities 5, 6 and 7.
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                assert_eq!(status(set), "00000000000000e0", "{set}");
            }
        });
    } else {
        restricted(plan, |report| assert_eq!(report.held, Capabilities::NONE));
    }
}

#[test]
fn process_with_threads_is_rejected_without_partial_restriction() {
    // Tests run in threads, so this process has several.
    let error = sandbox::enter(&plan(Programs::None)).unwrap_err();
    assert!(matches!(error, SandboxError::Threads(2..)), "{error}");
    assert_eq!(sandbox::report(), None);
}
