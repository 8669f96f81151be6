//! Restrictions of the processes that serve: what the kernel says of every thread of theirs.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::House;
use crate::proxy::World;
use crate::world::{bulla, describe, run, stderr};

/// The values of a field of `status` in all threads of a process.
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

/// Every thread has only these capabilities, and the filter of system calls; none gains a privilege.
fn assert_restricted(process: u32, capabilities: u64) {
    let only = |value: String| BTreeSet::from([value]);
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        // Who is not root had none, and cannot change what programs could have.
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
    let asked = house.program("curl", "apt-get install -y curl", &["-sS", "--cacert", &root, &url]);
    assert!(asked.status.success(), "{}", describe(&asked));
    serde_json::from_slice(&asked.stdout).unwrap()
}

#[test]
fn every_thread_of_the_server_is_restricted_and_readyz_says_so() {
    let mut house = House::up();
    assert_restricted(house.process_id(), 0);
    let said = readyz(&house);
    let sandbox = &said["sandbox"];
    for kind in ["capabilities", "no_new_privileges", "seccomp"] {
        assert_eq!(sandbox[kind], "enforced", "{said}");
    }
    let landlock = sandbox["landlock"].as_str().unwrap();
    assert!(["enforced", "partial", "missing: this kernel has no Landlock"].contains(&landlock), "{said}");
    assert_eq!(house.stop(), Some(0));

    house.configure("[sandbox]\nmode = \"off\"\n");
    house.start();
    assert_eq!(readyz(&house)["sandbox"]["seccomp"], "off: sandbox.mode is off");
    assert_eq!(of_threads(house.process_id(), "Seccomp"), BTreeSet::from(["0".to_owned()]));
}

#[test]
fn programs_keep_what_changing_the_user_takes_and_files_are_theirs() {
    let programs = "[programs.sign]\nargv = [\"/bin/true\"]\nuser = \"nobody\"\n";
    if !is_root() {
        // Only root may name another user: the start is refused.
        return assert!(House::prepared(programs, None).try_start().is_err());
    }
    let house = House::up_with(programs, None);
    // CAP_KILL, CAP_SETGID and CAP_SETUID.
    assert_restricted(house.process_id(), 0xe0);
    let landlock = readyz(&house)["sandbox"]["landlock"].as_str().unwrap().to_owned();
    assert!(landlock.starts_with("off: the process starts programs"), "{landlock}");
}

#[test]
fn the_proxy_listens_at_a_privileged_port_without_the_capability() {
    let world = World::new();
    // Of loopback, but of no other test; who is not root takes any port.
    let listen = if is_root() { "127.86.85.84:443" } else { "127.86.85.84:0" };
    let mut command = bulla();
    let folder = world.place.folder.path();
    command.current_dir(folder).env("HOME", folder).env("BULLA_DATA", world.place.path("data"));
    command.args(["proxy", "--listen", listen, "--metrics-listen", "127.0.0.1:0", "--upstream-ca", "ca.pem"]);
    let proxy = World::start(&mut command);
    assert_restricted(proxy.process_id(), 0);
    assert!(!is_root() || proxy.address.ends_with(":443"), "{}", proxy.address);
    let asked = world.curl(&proxy, &[]);
    assert!(asked.status.success(), "{}", describe(&asked));
}

#[test]
fn a_capability_that_there_is_not_is_refused() {
    let house = House::prepared("[sandbox]\nkeep_capabilities = [\"CAP_ALL\"]\n", None);
    let refused = run(&mut house.bulla(&["up"]));
    assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));
    assert!(stderr(&refused).contains("CAP_ALL"), "{}", stderr(&refused));
}
