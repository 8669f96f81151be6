//! `bulla proxy` on a gateway whose firewall redirects connections to it. Clients, gateway and servers are network namespaces. The
//! ruleset is the one in docs/proxy.md.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::key_service::{Fixture, TIMEOUT};
use crate::proxy::{Proxy, World as Started};
use crate::world::{bulla, describe, run, stdout};

/// Packages and privileges that the test needs.
const NEEDED: &str = "apt-get install -y util-linux iproute2 nftables nginx-light curl openssl; namespaces have to be permitted: \
    kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, in a container --privileged";

/// One network for clients (`lan0`), one for servers (`wan0`), and the gateway between them. User names are not resolved.
const NETWORKS: &str = "
set -e
mount -t tmpfs none /run
ip netns add client
ip netns add server
ip link set lo up
ip link add lan0 type veth peer name eth0 netns client
ip link add wan0 type veth peer name eth0 netns server
ip address add 10.77.0.1/24 dev lan0
ip address add fd77::1/64 dev lan0 nodad
ip address add 10.88.0.1/24 dev wan0
ip address add fd88::1/64 dev wan0 nodad
ip link set lan0 up
ip link set wan0 up
nsenter --net=/run/netns/client sh -e -c '
    ip link set lo up
    ip address add 10.77.0.2/24 dev eth0
    ip address add fd77::2/64 dev eth0 nodad
    ip link set eth0 up
    ip route add default via 10.77.0.1
    ip -6 route add default via fd77::1'
nsenter --net=/run/netns/server sh -e -c '
    ip link set lo up
    ip address add 10.88.0.2/24 dev eth0
    ip address add 10.88.0.3/24 dev eth0
    ip address add fd88::2/64 dev eth0 nodad
    ip link set eth0 up'
echo ready
exec cat
";

/// Servers for `api.example` and other names at 10.88.0.2, and for `evil.example` only at 10.88.0.3.
const NGINX: &str = r#"
daemon off;
master_process off;
user root root;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
    server {
        listen 80; listen [::]:80;
        return 200 "plain $host at $server_addr key=$http_x_api_key\n";
    }
    server {
        listen 10.88.0.2:443 ssl; listen [fd88::2]:443 ssl;
        ssl_certificate good.pem; ssl_certificate_key good.key;
        return 200 "tls $host at $server_addr key=$http_x_api_key\n";
    }
    server {
        listen 10.88.0.3:443 ssl;
        ssl_certificate evil.pem; ssl_certificate_key evil.key;
        return 200 "evil $host at $server_addr key=$http_x_api_key\n";
    }
}
"#;

/// Network namespaces with servers, and a folder.
struct World {
    fixture: Fixture,
    namespaces: Child,
    nginx: Option<Child>,
}

impl Drop for World {
    fn drop(&mut self) {
        for process in self.nginx.iter_mut().chain([&mut self.namespaces]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl World {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=ca",
        );
        for (name, names) in
            [("good", "DNS:api.example,DNS:passed.example,DNS:refused.example"), ("evil", "DNS:evil.example")]
        {
            fixture.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.pem -subj /CN={name} \
                 -CA ca.pem -CAkey ca.key -addext subjectAltName={names} -addext basicConstraints=critical,CA:FALSE",
            ));
        }
        std::fs::write(fixture.path("nginx.conf"), NGINX).unwrap();
        let mut namespaces = Command::new("unshare")
            .args(["--map-root-user", "--net", "--mount", "--kill-child", "sh", "-c", NETWORKS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{NEEDED} ({error})"));
        let mut ready = String::new();
        BufReader::new(namespaces.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if ready.trim() != "ready" {
            let mut why = String::new();
            namespaces.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("no network namespaces: {why}\n{NEEDED}");
        }
        let mut world = Self { fixture, namespaces, nginx: None };
        world.serve();
        world
    }

    /// Starts the servers, and waits for them.
    fn serve(&mut self) {
        let folder = self.fixture.folder.path().to_str().unwrap().to_owned();
        let mut nginx = self.server("nginx");
        nginx.args(["-p", &folder, "-c", "nginx.conf"]).stderr(Stdio::null());
        self.nginx = Some(nginx.spawn().unwrap());
        let began = Instant::now();
        while !self.server("curl").args(["-s", "http://10.88.0.3/"]).output().unwrap().status.success() {
            assert!(began.elapsed() < TIMEOUT, "nginx does not serve: {NEEDED}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Runs a program on the gateway.
    fn gateway(&self, program: &str) -> Command {
        self.in_namespace(&[program])
    }

    fn server(&self, program: &str) -> Command {
        self.in_namespace(&["nsenter", "--net=/run/netns/server", "--", program])
    }

    fn client(&self, program: &str) -> Command {
        self.in_namespace(&["nsenter", "--net=/run/netns/client", "--", program])
    }

    fn in_namespace(&self, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--wd={}", self.fixture.folder.path().display()))
            .args(["--target", &self.namespaces.id().to_string()])
            .args(["--user", "--net", "--mount", "--preserve-credentials", "--"])
            .args(program);
        command
    }

    /// Adds `ruleset` to the firewall.
    fn nft(&self, ruleset: &str) {
        let mut nft = self.gateway("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(ruleset.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "{ruleset}\n{NEEDED}");
    }

    /// Starts the proxy on the gateway, whose firewall redirects connections from `lan0`.
    fn proxy(&self, more: &str) -> Proxy {
        let document = include_str!("../../../../docs/proxy.md");
        let listen = document.split("[proxy.transparent]\n").nth(1).unwrap().lines().next().unwrap();
        assert!(listen.starts_with("listen = "), "{listen}");
        let settings = format!(
            "[proxy]\nupstream_ca_files = [\"ca.pem\"]\nmetrics_listen = \"127.0.0.1:0\"\n{more}\n\
             [proxy.transparent]\n{listen}\nclients = [\"10.77.0.0/24\", \"fd77::/64\", \"10.88.0.1/32\"]\n\
             [proxy.requests]\naccess_log_file = \"access.log\"\n"
        );
        std::fs::write(self.fixture.path("bulla.toml"), settings).unwrap();
        self.nft(document.split("```nft\n").nth(1).unwrap().split("```").next().unwrap());
        let mut command = self.gateway(bulla().get_program().to_str().unwrap());
        command.env("HOME", self.fixture.folder.path()).env("BULLA_DATA", self.fixture.path("data")).args([
            "proxy",
            "--config",
            "bulla.toml",
        ]);
        Started::start(&mut command)
    }

    /// Requests `url` from the client, with its name resolved to `address`.
    fn get(&self, ca: &str, url: &str, address: &str) -> Output {
        let (scheme, name) = url.split_once("://").unwrap();
        let port = if scheme == "https" { 443 } else { 80 };
        let name = name.split('/').next().unwrap();
        let resolve = format!("{name}:{port}:{address}");
        run(self.client("curl").args(["-sS", "--max-time", "60", "--cacert", ca, "--resolve", &resolve, url]))
    }

    fn figures(&self, proxy: &Proxy) -> String {
        stdout(&run(self.gateway("curl").args(["-sS", &proxy.figures])))
    }

    /// Waits for a metric.
    fn until(&self, proxy: &Proxy, figure: &str) {
        let began = Instant::now();
        while !self.figures(proxy).contains(figure) {
            assert!(began.elapsed() < TIMEOUT, "{figure}: {}", self.figures(proxy));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// The CA files of the proxy and of the servers.
const PROXYS: &str = "data/proxy-ca.pem";
const SERVERS: &str = "ca.pem";

#[test]
fn redirected_tls_is_intercepted_by_sni_at_the_original_address() {
    let world = World::new();
    std::fs::write(world.fixture.path("key"), "hidden-key\n").unwrap();
    run(Command::new("chmod").arg("600").arg(world.fixture.path("key")));
    let proxy = world.proxy(&format!(
        "tunnel = [\"passed.example\"]\nreject = [\"refused.example\"]\n\
         [[proxy.rules]]\nname = \"key\"\nhost = [\"api.example\"]\n\
         inject = {{ file = \"{}\", as = \"header\", header = \"X-Api-Key\", allow_echo = true }}\n",
        world.fixture.path("key").display()
    ));
    for (ca, url, address, wanted) in [
        (PROXYS, "https://api.example/", "10.88.0.2", "tls api.example at 10.88.0.2 key=hidden-key"),
        (PROXYS, "https://api.example/", "[fd88::2]", "tls api.example at fd88::2 key=hidden-key"),
        // The client chose the address, so the server must prove the name before it gets the credential.
        (PROXYS, "https://api.example/", "10.88.0.3", "certificate not valid for name \"api.example\""),
        (PROXYS, "https://evil.example/", "10.88.0.3", "evil evil.example at 10.88.0.3 key=\n"),
        (PROXYS, "https://refused.example/", "10.88.0.2", "not allowed here"),
        (SERVERS, "https://passed.example/", "10.88.0.2", "tls passed.example at 10.88.0.2 key=\n"),
        (PROXYS, "http://plain.example/", "10.88.0.3", "plain plain.example at 10.88.0.3 key=\n"),
        (PROXYS, "http://plain.example/", "[fd88::2]", "plain plain.example at fd88::2 key=\n"),
        (PROXYS, "http://refused.example/", "10.88.0.2", "not allowed here"),
        // Plain HTTP cannot prove the server's identity.
        (PROXYS, "http://api.example/", "10.88.0.3", "on a redirected connection the credential is"),
    ] {
        let output = world.get(ca, url, address);
        assert!(stdout(&output).contains(wanted), "{url} at {address}: {}", describe(&output));
    }
    let figures = world.figures(&proxy);
    assert!(
        figures.contains("_redirected_total 10\n") && figures.contains("_tunnels_total 1\n"),
        "{figures}"
    );
    let tunnel = r#""host":"10.88.0.2:443","server_name":"passed.example""#;
    let began = Instant::now();
    let log = || std::fs::read_to_string(world.fixture.path("access.log")).unwrap_or_default();
    while !log().contains(tunnel) {
        assert!(began.elapsed() < TIMEOUT, "{}", log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn plain_http_host_name_does_not_open_a_blocked_address() {
    let world = World::new();
    let _proxy = world.proxy("others = \"reject\"\nintercept = [\"api.example\", \"10.88.0.2\"]");
    for (ca, url, address, wanted) in [
        (PROXYS, "https://api.example/", "10.88.0.2", "tls api.example at 10.88.0.2"),
        (PROXYS, "https://api.example/", "[fd88::2]", "tls api.example at fd88::2"),
        (PROXYS, "http://api.example/", "10.88.0.2", "plain api.example at 10.88.0.2"),
        (PROXYS, "http://api.example/", "10.88.0.3", "not allowed here"),
        (PROXYS, "http://api.example/", "[fd88::2]", "not allowed here"),
    ] {
        let output = world.get(ca, url, address);
        assert!(stdout(&output).contains(wanted), "{url} at {address}: {}", describe(&output));
    }
}

#[test]
fn proxy_loops_are_closed_and_counted() {
    let world = World::new();
    let proxy = world.proxy("");
    let output = run(world.client("curl").args(["-sS", "--max-time", "60", "http://10.77.0.1:3129/"]));
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", describe(&output));
    world.until(&proxy, "connection_ends_total{end=\"loop\"} 1\n");
    // A ruleset that also redirects the proxy's own connections.
    world.nft(
        "table ip own { chain output { type nat hook output priority -100; oifname \"wan0\" tcp dport { 80, 443 } redirect to :3129; }; }",
    );
    for url in ["https://api.example/", "http://api.example/"] {
        let output = world.get(PROXYS, url, "10.88.0.2");
        assert!(!stdout(&output).contains("10.88.0.2 key"), "{}", describe(&output));
    }
    let figures = world.figures(&proxy);
    let loops = figures.lines().find_map(|line| line.split("connection_ends_total{end=\"loop\"} ").nth(1));
    // Each of the two requests, and retries of connections that were closed immediately.
    assert!((3..20).contains(&loops.unwrap().parse::<u32>().unwrap()), "{figures}");
    world.gateway("nft").args(["delete", "table", "ip", "own"]).status().unwrap();
    let output = world.get(PROXYS, "https://api.example/", "10.88.0.2");
    assert!(stdout(&output).contains("tls api.example"), "it goes on: {}", describe(&output));
}

/// Sends `first`, then waits for a line of input, sends one more text, and prints the response.
const TALK: &str =
    "exec 3<>/dev/tcp/10.88.0.2/80; printf \"$0\" >&3; read -r; printf \"$1\" >&3; timeout 60 cat <&3";

#[test]
fn silent_or_unknown_protocol_follows_the_address_rules() {
    let world = World::new();
    let talk = |first: &str, then: &str| {
        let mut bash = world.client("bash");
        bash.args(["-c", TALK, first, then]).stdin(Stdio::piped()).stdout(Stdio::piped());
        bash.stderr(Stdio::piped()).spawn().unwrap()
    };
    let end = |mut talk: Child| {
        let _ = talk.stdin.take().unwrap().write_all(b"\n");
        stdout(&talk.wait_with_output().unwrap())
    };
    let restart = |proxy: Proxy, settings: &str| {
        drop(proxy);
        let _ = run(world.gateway("nft").args(["flush", "ruleset"]));
        world.proxy(settings)
    };
    // The default timeout applies, so the text arrives in time.
    let proxy = world.proxy("");
    let other = [talk("\\1\\2\\3", ""), talk("SSH-2.0-a b\\r\\n", "")];
    world.until(&proxy, "connection_ends_total{end=\"closed\"} 2\n");
    assert_eq!(other.map(end), [String::new(), String::new()]);
    let proxy = restart(proxy, "handshake_timeout_ms = 3000");
    let silent = talk("", "GET / HTTP/1.0\\r\\n\\r\\n");
    world.until(&proxy, "connection_ends_total{end=\"no-request\"} 1\n");
    assert_eq!(end(silent), String::new());
    let proxy =
        restart(proxy, "handshake_timeout_ms = 3000\nothers = \"tunnel\"\nintercept = [\"api.example\"]");
    let silent = talk("", "GET / HTTP/1.0\\r\\nHost: silent.example\\r\\n\\r\\n");
    world.until(&proxy, "_tunnels_total 1\n");
    let printed = end(silent);
    assert!(printed.contains("plain silent.example at 10.88.0.2"), "{printed}");
    for first in ["\\1\\2\\3\\r\\n\\r\\n", "SSH-2.0-a b\\r\\n"] {
        let printed = end(talk(first, ""));
        assert!(printed.contains("400 Bad Request") && printed.contains("nginx"), "{printed}");
    }
    // A connection that sends a name still follows the name rules.
    let output = world.get(PROXYS, "https://api.example/", "10.88.0.2");
    assert!(stdout(&output).contains("tls api.example"), "{}", describe(&output));
    let output = world.get(SERVERS, "https://passed.example/", "10.88.0.2");
    assert!(stdout(&output).contains("tls passed.example"), "{}", describe(&output));
}

#[test]
fn invalid_transparent_settings_are_rejected_with_a_hint() {
    let fixture = Fixture::new();
    let tokens = format!("tokens = [{{ name = \"ci\", sha256 = \"{}\" }}]", "0".repeat(64));
    for (text, wanted) in [
        ("[proxy.transparent]\nlisten = [\"3129\"]\n".to_owned(), "proxy.transparent.listen: \"3129\" is not an address"),
        (
            format!("[proxy.transparent]\nlisten = [\"127.0.0.1:0\"]\n[proxy.access]\n{tokens}\n"),
            "which clients of proxy.transparent cannot send",
        ),
        ("[proxy.transparent]\nclients = [\"10.0.0.0/8\"]\n".to_owned(), "proxy.transparent.listen is not set"),
        (
            "[proxy]\nclients = [\"10.1.0.0/16\"]\n[proxy.transparent]\nlisten = [\"[::]:0\"]\nclients = [\"10.2.0.0/16\"]\n".to_owned(),
            "10.2.0.0/16, which is not in proxy.clients",
        ),
    ] {
        std::fs::write(fixture.path("bulla.toml"), text).unwrap();
        let output =
            run(bulla().current_dir(fixture.folder.path()).args(["config", "check", "--config", "bulla.toml"]));
        let printed = describe(&output);
        assert!(output.status.code() == Some(2) && printed.contains(wanted) && printed.contains("hint:"), "{printed}");
    }
}
