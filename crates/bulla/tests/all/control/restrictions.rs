//! Sandbox of the serving processes, as the kernel reports it for each thread.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::House;
use crate::proxy::World;
use crate::world::{bulla, describe, run, stderr};

/// Returns the values of a field of `status` over all threads of a process.
fn of_threads(process: u32, field: &str) -> BTreeSet<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread may end meanwhile.
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    let value = |text: String| {
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
    };
    texts.map(value).collect()
}

fn is_root() -> bool {
    Path::new("/proc/self").metadata().unwrap().uid() == 0
}

/// Checks that every thread has only these capabilities and a seccomp filter, and that no thread can gain privileges.
fn assert_restricted(process: u32, capabilities: u64) {
    let only = |value: String| BTreeSet::from([value]);
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        // Without root the process had no capabilities, and cannot change the bounding set.
        if is_root() {
            assert_eq!(of_threads(process, set), only(format!("{capabilities:016x}")), "{set}");
        }
    }
    assert_eq!(of_threads(process, "CapAmb"), only(format!("{:016x}", 0)));
    assert_eq!(of_threads(process, "NoNewPrivs"), only("1".to_owned()));
    assert_eq!(of_threads(process, "Seccomp"), only("2".to_owned()));
}

fn readyz(house: &House) -> serde_json::Value {
    let root = house.root().display().to_string();
    let url = format!("{}/readyz", house.url());
    let output = house.program("curl", "apt-get install -y curl", &["-sS", "--cacert", &root, &url]);
    assert!(output.status.success(), "{}", describe(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_server_thread_is_sandboxed_and_readyz_reports_it() {
    let mut house = House::up();
    assert_restricted(house.process_id(), 0);
    let readiness = readyz(&house);
    let sandbox = &readiness["sandbox"];
    for kind in ["capabilities", "no_new_privileges", "seccomp"] {
        assert_eq!(sandbox[kind], "enforced", "{readiness}");
    }
    let landlock = sandbox["landlock"].as_str().unwrap();
    assert!(
        ["enforced", "partial", "missing: this kernel has no Landlock"].contains(&landlock),
        "{readiness}"
    );
    assert_eq!(house.stop(), Some(0));

    house.configure("[sandbox]\nmode = \"off\"\n");
    house.start();
    assert_eq!(readyz(&house)["sandbox"]["seccomp"], "off: sandbox.mode is off");
    assert_eq!(of_threads(house.process_id(), "Seccomp"), BTreeSet::from(["0".to_owned()]));
}

#[test]
fn server_with_programs_keeps_only_user_switch_capabilities() {
    let programs = "[programs.sign]\nargv = [\"/bin/true\"]\nuser = \"nobody\"\n";
    if !is_root() {
        // Only root may name another user: the server does not start.
        return assert!(House::prepared(programs, None).try_start().is_err());
    }
    let house = House::up_with(programs, None);
    // CAP_KILL, CAP_SETGID and CAP_SETUID.
    assert_restricted(house.process_id(), 0xe0);
    let landlock = readyz(&house)["sandbox"]["landlock"].as_str().unwrap().to_owned();
    assert!(landlock.starts_with("off: the process starts programs"), "{landlock}");
}

#[test]
fn proxy_listens_on_a_privileged_port_and_drops_the_capability() {
    let world = World::new();
    // A loopback address that no other test uses. Without root the test uses any port.
    let listen = if is_root() { "127.86.85.84:443" } else { "127.86.85.84:0" };
    let mut command = bulla();
    let folder = world.fixture.folder.path();
    command.current_dir(folder).env("HOME", folder).env("BULLA_DATA", world.fixture.path("data"));
    command.args(["proxy", "--listen", listen, "--metrics-listen", "127.0.0.1:0", "--upstream-ca", "ca.pem"]);
    let proxy = World::start(&mut command);
    assert_restricted(proxy.process_id(), 0);
    assert!(!is_root() || proxy.address.ends_with(":443"), "{}", proxy.address);
    let output = world.curl(&proxy, &[]);
    assert!(output.status.success(), "{}", describe(&output));
}

#[test]
fn unknown_capability_is_rejected() {
    let house = House::prepared("[sandbox]\nkeep_capabilities = [\"CAP_ALL\"]\n", None);
    let refused = run(&mut house.bulla(&["up"]));
    assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));
    assert!(stderr(&refused).contains("CAP_ALL"), "{}", stderr(&refused));
}
