//! Sessions with Redis through `bulla proxy`: redis-cli as the agent, and a real server with TLS.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;
use testbed::Redis;

use crate::key_service::Fixture;
use crate::proxy::{Proxy, World as ProxyWorld, proxy_command};
use crate::world::{bulla, describe, run, stderr, stdout};

const PASSWORD: &str = "canary-of-the-cache-5c1e";

/// A server with the user `app`. The identity `ci` has its credential.
struct World {
    place: Fixture,
    server: Redis,
}

impl World {
    fn new() -> Self {
        let place = Fixture::new();
        place.certified("DNS:localhost,IP:127.0.0.1");
        let server = Redis::start_tls(PASSWORD, &place.path("up.pem"), &place.path("up.key"));
        let file = place.path("password");
        std::fs::write(&file, PASSWORD).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self { place, server }
    }

    /// Returns a configuration, with more settings of `[proxy]` and `[proxy.access]`.
    fn configuration(&self, [proxy, access]: [&str; 2]) -> String {
        let (port, password) = (self.server.port(), self.place.path("password").display().to_string());
        let digest = x509::Fingerprint::of(b"token-of-ci");
        format!(
            "[proxy]\n{proxy}\n[proxy.access]\n{access}\ntokens = [{{ name = \"ci\", sha256 = \"{digest}\" }}]\n\
             [proxy.policy]\nallow_networks = [\"127.0.0.0/8\", \"::1/128\"]\n\
             [[proxy.policy.identities]]\nname = \"ci\"\nusers = [\"ci\"]\n\
             [[proxy.policy.rules]]\nname = \"cache\"\nidentities = [\"ci\"]\nhost = [\"localhost\"]\nport = [{port}]\ndatabase = [\"0\"]\n\
             [[proxy.redis]]\nlisten = \"127.0.0.1:0\"\nhost = \"localhost\"\nport = {port}\n\
             [[proxy.rules]]\nname = \"app\"\nhost = [\"localhost\"]\n\
             inject = {{ file = \"{password}\", as = \"redis\", user = \"app\", identities = [\"ci\"], port = [{port}] }}\n"
        )
    }

    fn start(&self, configuration: &str) -> Proxy {
        std::fs::write(self.place.path("bulla.toml"), configuration).unwrap();
        ProxyWorld::start(proxy_command(&self.place).args(["--config", "bulla.toml"]))
    }

    /// Runs redis-cli as the identity `ci`.
    fn cli(&self, proxy: &Proxy, options: &[&str], command: &[&str]) -> Output {
        let mut cli = Command::new("redis-cli");
        cli.current_dir(self.place.folder.path())
            .args(["-h", "127.0.0.1", "-p", &proxy.redis.unwrap().to_string()])
            .args(["--user", "ci", "--pass", "token-of-ci", "--no-auth-warning"])
            .args(options)
            .args(command);
        cli.output().unwrap_or_else(|error| panic!("apt-get install -y redis-tools ({error})"))
    }
}

#[test]
fn agent_uses_a_cache_with_its_token_and_never_gets_the_password() {
    let world = World::new();
    let proxy = world.start(&world.configuration(["upstream_ca_files = [\"ca.pem\"]", ""]));
    let said = |options: &[&str], command: &[&str]| {
        let output = world.cli(&proxy, options, command);
        let said = stdout(&output);
        assert!(!said.contains(PASSWORD) && output.status.success(), "{}", describe(&output));
        said.trim().to_owned()
    };
    assert_eq!(said(&[], &["ACL", "WHOAMI"]), "app");
    assert_eq!(said(&["-3"], &["SET", "a", "1"]), "OK");
    assert_eq!(said(&[], &["INCR", "a"]), "2");
    assert!(said(&[], &["CONFIG", "GET", "requirepass"]).contains("CONFIG refused by the proxy"));
    assert!(said(&[], &["SELECT", "1"]).contains("the default of the policy denies identity ci"));
    assert!(!world.server.has_got("config"));
    drop(proxy);
    // The server's certificate is not trusted.
    let proxy = world.start(&world.configuration(["", ""]));
    let output = world.cli(&proxy, &[], &["GET", "a"]);
    assert!(
        stderr(&output).contains("does not trust the TLS certificate of the database server"),
        "{}",
        describe(&output)
    );
}

#[test]
fn token_for_a_cache_is_accepted_over_tls_or_from_this_machine_only() {
    let world = World::new();
    let access = "certificate_file = \"up.pem\"\nkey_file = \"up.key\"";
    let proxy = world.start(&world.configuration(["upstream_ca_files = [\"ca.pem\"]", access]));
    let output =
        world.cli(&proxy, &["--tls", "--cacert", "ca.pem", "--sni", "localhost"], &["ACL", "WHOAMI"]);
    assert_eq!(stdout(&output).trim(), "app", "{}", describe(&output));
    let output = world.cli(&proxy, &[], &["ACL", "WHOAMI"]);
    assert_eq!(stdout(&output).trim(), "app", "{}", describe(&output));
    drop(proxy);
    // A load balancer says that the client is elsewhere.
    let proxy = world.start(&world.configuration(["trusted_proxies = [\"127.0.0.1/32\"]", ""]));
    let answer = from_elsewhere(proxy.redis.unwrap());
    assert!(answer.starts_with("-NOPERM") && answer.contains("over TLS only"), "{answer:?}");
}

/// Authenticates as a client that is not on this machine, and returns the answer.
fn from_elsewhere(port: u16) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x10\0\x20\0";
    stream.write_all(header).unwrap();
    stream.write_all(b"*3\r\n$4\r\nAUTH\r\n$2\r\nci\r\n$11\r\ntoken-of-ci\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn decision_about_a_redis_session_is_explained_and_needs_a_policy() {
    let place = Fixture::new();
    let text = "[proxy.access]\ntokens = [{ name = \"ci\", sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\" }]\n\
                [[proxy.policy.identities]]\nname = \"ci\"\nusers = [\"ci\"]\n\
                [[proxy.policy.rules]]\nname = \"cache\"\nidentities = [\"ci\"]\nhost = [\"cache.example.com\"]\ndatabase = [\"0\"]\n\
                [[proxy.rules]]\nname = \"app\"\nhost = [\"cache.example.com\"]\n\
                inject = { file = \"/etc/bulla/cache\", as = \"redis\", user = \"app\", identities = [\"ci\"] }\n";
    std::fs::write(place.path("bulla.toml"), text).unwrap();
    let explained = |url: &str| {
        let mut command = bulla();
        command.current_dir(place.folder.path()).env("BULLA_DATA", place.path("data"));
        let options = ["--config", "bulla.toml", "proxy", "explain", "--as", "ci", "--output", "json"];
        let output = run(command.args(options).arg(url));
        serde_json::from_str::<Value>(&stdout(&output)).unwrap_or_else(|_| panic!("{}", describe(&output)))
    };
    let allowed = explained("redis://cache.example.com/0");
    assert_eq!((&allowed["decision"], &allowed["rule"]), (&"allow".into(), &"cache".into()), "{allowed}");
    assert_eq!((&allowed["method"], &allowed["port"]), (&"REDIS".into(), &6379.into()), "{allowed}");
    assert_eq!(allowed["credentials"][0]["name"], "/etc/bulla/cache", "{allowed}");
    for url in ["rediss://cache.example.com/1", "postgresql://cache.example.com:6379/0"] {
        assert_eq!(explained(url)["decision"], "deny", "{url}");
    }
    std::fs::write(
        place.path("bulla.toml"),
        "[[proxy.redis]]\nlisten = \"127.0.0.1:0\"\nhost = \"cache.example.com\"\n",
    )
    .unwrap();
    let output = run(proxy_command(&place).args(["--config", "bulla.toml"]));
    assert!(stderr(&output).contains("proxy.redis needs a policy"), "{}", describe(&output));
}
