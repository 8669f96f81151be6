//! `bulla proxy --mirror`, with curl as the client and OpenSSL as the upstream.

use std::process::Command;

use crate::proxy::{Proxy, World};
use crate::world::{describe, stdout};

/// Returns the subject of the leaf that curl receives.
fn subject(world: &World, proxy: &Proxy) -> String {
    let output = world.curl(proxy, &["-v"]);
    assert!(output.status.success() && stdout(&output).contains("s_server"), "{}", describe(&output));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let subject = printed.lines().find_map(|line| line.split_once("subject: ")).map(|(_, subject)| subject);
    subject.unwrap_or_else(|| panic!("{printed}")).trim().to_owned()
}

#[test]
fn mirrored_leaf_has_the_subject_of_the_server_certificate() {
    let world = World::new();
    let proxy = world.proxy(&["--mirror", "localhost"]);
    assert_eq!(subject(&world, &proxy), "CN=up");
    assert_eq!(subject(&world, &proxy), "CN=up");
    let output = Command::new("curl").args(["-sS", &proxy.figures]).output().unwrap();
    let figures = stdout(&output);
    for wanted in
        ["proxy_mirror_looks_total{outcome=\"mirrored\"} 1\n", "bulla_intercept_leaves_minted_total 1\n"]
    {
        assert!(figures.contains(wanted), "{wanted}: {figures}");
    }
    drop(proxy);
    let proxy = world.proxy(&["--mirror", "*.localhost"]);
    assert_eq!(subject(&world, &proxy), "CN=localhost");
    drop(proxy);
    // The configuration file enables mirroring for all names that are in no list.
    std::fs::write(world.fixture.path("bulla.toml"), "[proxy]\nothers = \"mirror\"\n").unwrap();
    let config = world.fixture.path("bulla.toml");
    let proxy = World::start(world.command(&[]).arg("--config").arg(config));
    assert_eq!(subject(&world, &proxy), "CN=up");
}
