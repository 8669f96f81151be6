//! `bulla proxy` as a minting service for others, and with its CA key in a key service.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::proxy::{Proxy, World};
use crate::world::{describe, run, stdout};

/// Another server, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a proxy that mints leaves for others.
fn with_names(world: &World) -> Command {
    let mut command = world.command(&[]);
    command
        .env("BULLA_PROXY_MINTING_LISTEN", "127.0.0.1:0")
        .env("BULLA_PROXY_MINTING_NAMES", "*.sandbox.example");
    command
}

fn figures(proxy: &Proxy) -> String {
    let output = Command::new("curl").args(["-sS", "--noproxy", "*", &proxy.figures]).output();
    stdout(&output.unwrap_or_else(|error| panic!("apt-get install -y curl ({error})")))
}

/// Waits until the socket accepts connections.
fn wait_for(path: &std::path::Path) {
    let limit = Instant::now() + Duration::from_secs(60);
    while UnixStream::connect(path).is_err() {
        assert!(Instant::now() < limit, "nobody answers at {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn caddy_serves_leaves_signed_by_the_proxy_ca() {
    let world = World::new();
    let proxy = World::start(&mut with_names(&world));
    let (minting, socket) = (proxy.minting.clone().unwrap(), world.fixture.path("caddy.sock"));
    let settings = format!(
        "{{\n admin off\n storage file_system {}\n}}\nhttps:// {{\n bind unix/{}\n tls {{\n \
         get_certificate http http://{minting}/certificate\n }}\n respond \"hello {{host}}\"\n}}\n",
        world.fixture.path("caddy").display(),
        socket.display()
    );
    std::fs::write(world.fixture.path("Caddyfile"), settings).unwrap();
    let mut caddy = Command::new("caddy");
    caddy
        .current_dir(world.fixture.folder.path())
        .env("HOME", world.fixture.folder.path())
        .args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let caddy = caddy.spawn().unwrap_or_else(|error| panic!("apt-get install -y caddy ({error})"));
    let _caddy = Running(caddy);
    wait_for(&socket);
    let request_leaf = |name: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--noproxy", "*", "--unix-socket"]).arg(&socket);
        curl.arg("--cacert").arg(world.authority()).arg(format!("https://{name}/"));
        curl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<Child> = (0..32).map(|_| request_leaf("a.sandbox.example")).collect();
    for curl in all {
        let output = curl.wait_with_output().unwrap();
        assert_eq!(stdout(&output), "hello a.sandbox.example", "{}", describe(&output));
    }
    assert!(figures(&proxy).contains("bulla_intercept_leaves_minted_total 1\n"), "{}", figures(&proxy));
    // A name that is not allowed.
    assert!(!request_leaf("a.other.example").wait().unwrap().success());
}

#[test]
fn minting_without_tls_or_names_is_rejected() {
    let world = World::new();
    for (variables, wanted) in [
        (&[("LISTEN", "0.0.0.0:0"), ("NAMES", "*.example")][..], "is reachable from other machines"),
        (&[("LISTEN", "127.0.0.1:0")], "proxy.minting.names is empty"),
        (&[("LISTEN", "127.0.0.1:0"), ("NAMES", "*.a"), ("KEY_FILE", "up.key")], "must be set together"),
    ] {
        let mut command = world.command(&[]);
        for (name, value) in variables {
            command.env(format!("BULLA_PROXY_MINTING_{name}"), value);
        }
        let printed = describe(&run(&mut command));
        assert!(printed.contains(wanted) && printed.contains("hint:"), "{printed}");
    }
}

#[test]
fn ca_key_in_a_key_service_signs_an_intermediate() {
    let mut world = World::new();
    std::fs::copy(world.fixture.path("ca.key"), world.fixture.path("keys/ca.key")).unwrap();
    world.fixture.serve(&["--dir", "keys"]);
    let mut command = world.command(&["--ca-certificate", "ca.pem"]);
    command
        .env("BULLA_PROXY_AUTHORITY_KEYS", format!("unix:{}", world.fixture.path("data/keys.sock").display()))
        .env("BULLA_PROXY_AUTHORITY_INTERMEDIATE", "true");
    let proxy = World::start(&mut command);
    let ca = world.fixture.path("ca.pem");
    let output = world.curl(&proxy, &["-v", "--cacert", ca.to_str().unwrap()]);
    let printed = describe(&output);
    assert!(output.status.success() && printed.contains("Bulla proxy intermediate"), "{printed}");
    // Without the key service the intermediate cannot be created, and the proxy does not start.
    drop(proxy);
    world.fixture.stop();
    let printed = describe(&run(&mut command));
    assert!(printed.contains("cannot create the intermediate CA:") && printed.contains("hint:"), "{printed}");
}

/// See `.ci/interop leaves`.
#[test]
#[ignore = "Envoy is not in Debian"]
fn envoy_gets_leaves_on_demand_and_each_is_minted_once() {
    let world = World::new();
    let proxy = World::start(&mut with_names(&world));
    let (minting, socket) = (proxy.minting.clone().unwrap(), world.fixture.path("envoy.sock"));
    let settings = include_str!("envoy_on_demand.yaml")
        .replace("SOCKET", &socket.display().to_string())
        .replace("MINTING", minting.rsplit(':').next().unwrap());
    std::fs::write(world.fixture.path("envoy.yaml"), settings).unwrap();
    let mut envoy = Command::new("envoy");
    envoy.current_dir(world.fixture.folder.path()).args(["-c", "envoy.yaml", "--concurrency", "1"]);
    envoy.arg("--use-dynamic-base-id").stdout(Stdio::null()).stderr(Stdio::null());
    let _envoy = Running(envoy.spawn().unwrap_or_else(|error| panic!("see .ci/interop leaves ({error})")));
    wait_for(&socket);
    let request_leaf = |name: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--noproxy", "*", "--unix-socket"]).arg(&socket);
        curl.arg("--cacert").arg(world.authority()).arg(format!("https://{name}/"));
        curl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let hosts: Vec<String> = (0..5).map(|host| format!("h{host}.sandbox.example")).collect();
    let all: Vec<Child> = hosts.iter().flat_map(|host| (0..6).map(|_| request_leaf(host))).collect();
    for curl in all {
        let output = curl.wait_with_output().unwrap();
        assert_eq!(stdout(&output), "hello by envoy", "{}", describe(&output));
    }
    assert!(figures(&proxy).contains("bulla_intercept_leaves_minted_total 5\n"), "{}", figures(&proxy));
    assert!(!request_leaf("a.other.example").wait().unwrap().success(), "a name that is not allowed");
}

/// See `.ci/interop leaves`.
#[test]
#[ignore = "goproxy is built by .ci/interop"]
fn goproxy_gets_each_leaf_minted_once() {
    let world = World::new();
    let proxy = World::start(&mut with_names(&world));
    let mut goproxy = Command::new("goproxy-leaves");
    goproxy.arg(format!("http://{}/certificate", proxy.minting.clone().unwrap())).stdout(Stdio::piped());
    let goproxy = goproxy.spawn().unwrap_or_else(|error| panic!("see .ci/interop leaves ({error})"));
    let mut goproxy = Running(goproxy);
    let mut address = String::new();
    BufReader::new(goproxy.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let hosts: Vec<String> = (0..5).map(|host| format!("h{host}.sandbox.example")).collect();
    let request_leaf = |host: &String| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--noproxy", "", "--proxy"]).arg(address.trim());
        curl.arg("--cacert").arg(world.authority()).arg(format!("https://{host}/"));
        (host.clone(), curl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let all: Vec<(String, Child)> =
        hosts.iter().flat_map(|host| (0..32).map(move |_| host)).map(request_leaf).collect();
    for (host, curl) in all {
        let output = curl.wait_with_output().unwrap();
        assert_eq!(stdout(&output), format!("hello {host}"), "{}", describe(&output));
    }
    assert!(figures(&proxy).contains("bulla_intercept_leaves_minted_total 5\n"), "{}", figures(&proxy));
}
