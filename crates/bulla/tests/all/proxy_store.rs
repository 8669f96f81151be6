//! `[proxy.store]`: proxies that share leaves, and a proxy that reuses its own after a restart.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use testbed::until_blocking as until;

use crate::proxy::{Proxy, World};
use crate::world::{describe, run, stdout};

/// Returns the current value of a metric.
fn figure(proxy: &Proxy, name: &str) -> u64 {
    let output = Command::new("curl").args(["-sS", &proxy.figures]).output().unwrap();
    let all = stdout(&output);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {all}")).parse().unwrap()
}

/// Returns the serial number of the leaf that a client gets for `name`.
fn serial(world: &World, proxy: &Proxy, name: &str) -> String {
    let mut shown = Command::new("openssl")
        .args(["s_client", "-proxy", proxy.address.trim_start_matches("http://"), "-servername", name])
        .args(["-connect", &format!("localhost:{}", world.port)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
    let printed = Command::new("openssl")
        .args(["x509", "-noout", "-serial"])
        .stdin(shown.stdout.take().unwrap())
        .output()
        .unwrap();
    shown.wait().unwrap();
    assert!(printed.status.success(), "{}", describe(&printed));
    stdout(&printed)
}

fn shared(world: &World, url: &str) -> Command {
    let mut command = world.command(&[]);
    command.env("BULLA_PROXY_STORE_BACKEND", "database").env("BULLA_PROXY_STORE_URL", url);
    // Long enough for a loaded machine: a proxy whose query takes longer mints for itself.
    command.env("BULLA_PROXY_STORE_TIMEOUT_MS", "5000").env("BULLA_PROXY_HANDSHAKE_TIMEOUT_MS", "60000");
    command
}

/// Each leaf is minted once for both proxies while the database is up. While it is down, each proxy works alone.
#[test]
fn two_proxies_on_postgresql_present_the_same_leaf() {
    let world = World::new();
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let first = World::start(&mut shared(&world, &url));
    let second = World::start(&mut shared(&world, &url));
    for proxy in [&first, &second] {
        let output = world.curl(proxy, &[]);
        assert!(output.status.success() && stdout(&output).contains("s_server"), "{}", describe(&output));
    }
    let shown = serial(&world, &first, "localhost");
    assert_eq!(serial(&world, &second, "localhost"), shown);
    let minted = |proxy| figure(proxy, "bulla_intercept_leaves_minted_total");
    assert_eq!((minted(&first), minted(&second)), (1, 0));
    assert_eq!(figure(&second, "bulla_intercept_store_found_total"), 1);
    assert_eq!(figure(&second, "bulla_intercept_store_away"), 0);

    cluster.stop();
    assert_eq!(serial(&world, &second, "localhost"), shown, "from memory");
    assert!(serial(&world, &second, "new.example").contains("serial="), "minted here");
    assert_eq!(figure(&second, "bulla_intercept_store_away"), 1);
    assert!(figure(&second, "bulla_intercept_store_without_total") >= 1);
    cluster.resume();
    until("it is back", || figure(&second, "bulla_intercept_store_away") == 0);
    // The other proxy may not have noticed the outage. Its next query detects it.
    until("they share again", || {
        let name = format!("n{}.example", minted(&first) + minted(&second));
        serial(&world, &first, &name) == serial(&world, &second, &name)
    });
}

/// The CA's key service does not answer, so the proxy holds the lease without a leaf when it is killed.
#[test]
fn second_proxy_mints_when_the_first_is_killed_while_minting() {
    let mut world = World::new();
    let cluster = store::testing::Cluster::start();
    let url = cluster.database();
    std::fs::copy(world.fixture.path("ca.key"), world.fixture.path("keys/ca.key")).unwrap();
    world.fixture.serve(&["--dir", "keys"]);
    let socket = format!("unix:{}", world.fixture.path("data/keys.sock").display());
    let with = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("BULLA_PROXY_STORE_BACKEND", "database").env("BULLA_PROXY_STORE_URL", url.to_string());
        // The timeout is long enough for a loaded machine.
        command.env("BULLA_PROXY_STORE_TIMEOUT_MS", "5000").env("BULLA_PROXY_HANDSHAKE_TIMEOUT_MS", "60000");
        command
    };
    let first = World::start(with(&["--ca-certificate", "ca.pem"]).env("BULLA_PROXY_AUTHORITY_KEYS", socket));
    let second = World::start(&mut with(&["--ca-certificate", "ca.pem", "--ca-key", "ca.key"]));
    let service = world.fixture.service.as_ref().unwrap().id().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &service]).status().unwrap().success());
    signal("-STOP");
    let ca = world.fixture.path("ca.pem");
    // Opened first, because the lease does not wait for it.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(store::Store::open(&url)).unwrap();
    std::thread::scope(|scope| {
        let request = scope.spawn(|| world.curl(&first, &["--cacert", ca.to_str().unwrap()]));
        until("it has the lease", || {
            runtime.block_on(proxy::tables::ProxyLeaves::of(&store).counts()).unwrap() == 1
        });
        let killed = Command::new("kill").args(["-KILL", &first.process_id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert!(!request.join().unwrap().status.success());
    });
    // The second proxy waits until the lease expires, and then mints the leaf.
    assert!(serial(&world, &second, "localhost").contains("serial="));
    let figure = |name: &str| figure(&second, name);
    assert_eq!(figure("bulla_intercept_leaves_minted_total"), 1);
    assert_eq!(figure("bulla_intercept_store_awaited_total"), 1, "it found the lease of the other");
    assert_eq!(figure("bulla_intercept_store_without_total"), 0, "and took it over");
    signal("-CONT");
}

/// Until the database is up, the proxy mints or rejects each name. Then the empty database gets its schema, and is shared.
#[test]
fn proxy_started_before_its_database_joins_it_later() {
    let world = World::new();
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    cluster.stop();
    let minting = World::start(&mut shared(&world, &url));
    let refusing = World::start(shared(&world, &url).env("BULLA_PROXY_STORE_WHEN_AWAY", "refuse"));
    for proxy in [&minting, &refusing] {
        assert_eq!(figure(proxy, "bulla_intercept_store_away"), 1);
    }
    assert!(world.curl(&minting, &[]).status.success(), "minted here");
    assert!(!world.curl(&refusing, &[]).status.success(), "not without it");
    assert_eq!(figure(&refusing, "bulla_intercept_leaves_minted_total"), 0);
    cluster.resume();
    for proxy in [&minting, &refusing] {
        until("it joins", || figure(proxy, "bulla_intercept_store_away") == 0);
    }
    let shown = serial(&world, &minting, "joined.example");
    assert_eq!(serial(&world, &refusing, "joined.example"), shown);
    assert_eq!(figure(&refusing, "bulla_intercept_store_found_total"), 1);
    // A wrong database that is reachable ends the start.
    let mut other = shared(&world, &url);
    other.env("BULLA_DATA", world.fixture.path("other"));
    let printed = describe(&run(&mut other));
    assert!(printed.contains("copy master.key"), "{printed}");
}

#[test]
fn leaves_on_disk_are_reused_after_a_restart() {
    let world = World::new();
    let store_on_disk = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command
            .env("BULLA_PROXY_STORE_BACKEND", "disk")
            .env("BULLA_PROXY_STORE_FOLDER", world.fixture.path("kept"));
        World::start(&mut command)
    };
    let proxy = store_on_disk(&[]);
    assert!(world.curl(&proxy, &[]).status.success());
    let shown = serial(&world, &proxy, "localhost");
    drop(proxy);
    let proxy = store_on_disk(&[]);
    assert_eq!(serial(&world, &proxy, "localhost"), shown);
    assert!(world.curl(&proxy, &[]).status.success(), "its key was found with it");
    assert_eq!(figure(&proxy, "bulla_intercept_leaves_minted_total"), 0);
    let file = std::fs::metadata(world.fixture.path("kept/proxy-leaves.db")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

#[test]
fn invalid_leaf_store_settings_are_rejected_with_a_hint() {
    let world = World::new();
    let refused = |command: &mut Command, code: i32, wanted: &[&str]| {
        let output = run(command);
        let printed = describe(&output);
        assert!(output.status.code() == Some(code) && printed.contains("hint:"), "{printed}");
        assert!(wanted.iter().all(|part| printed.contains(part)), "{wanted:?}: {printed}");
    };
    let mut none = world.command(&[]);
    none.env("BULLA_PROXY_STORE_BACKEND", "database");
    refused(&mut none, 2, &["needs a database", "proxy.store.url"]);
    let mut misplaced = world.command(&[]);
    misplaced.env("BULLA_PROXY_STORE_URL", "postgres://bulla@localhost/bulla");
    refused(&mut misplaced, 2, &["proxy.store.url needs", "database"]);
    // The master key of another installation.
    let store_on_disk = world.fixture.path("kept");
    let on_disk = |data: &str| {
        let mut command = world.command(&[]);
        command.env("BULLA_PROXY_STORE_BACKEND", "disk").env("BULLA_PROXY_STORE_FOLDER", &store_on_disk);
        command.env("BULLA_DATA", world.fixture.path(data));
        command
    };
    drop(World::start(&mut on_disk("data")));
    refused(&mut on_disk("other"), 5, &["master.key", "does not exist", "copy master.key"]);
    std::fs::write(world.fixture.path("other/master.key"), [7; 32]).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(world.fixture.path("other/master.key"), mode).unwrap();
    refused(&mut on_disk("other"), 5, &["nothing was written", "copy master.key"]);
}
