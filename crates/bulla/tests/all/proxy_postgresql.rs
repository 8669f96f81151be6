//! Sessions with PostgreSQL through `bulla proxy`: psql as the agent, and a real server with TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use store::testing::Cluster;
use testbed::until_blocking;

use crate::key_service::Fixture;
use crate::proxy::{Proxy, World as ProxyWorld, proxy_command};
use crate::world::{bulla, describe, run, stderr, stdout};

const PASSWORD: &str = "canary-of-the-database-5c1e";

/// A server with the user `app`, and the databases `shop` and `secret`. The identity `ci` has the credential of `app`.
struct World {
    fixture: Fixture,
    cluster: Cluster,
    port: u16,
}

impl World {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.certified("DNS:localhost,IP:127.0.0.1");
        let cluster = Cluster::start();
        for statement in ["CREATE DATABASE shop", "CREATE DATABASE secret"] {
            assert!(cluster.psql("postgres", statement));
        }
        let file = |name: &str| std::fs::read_to_string(fixture.path(name)).unwrap();
        let _ = cluster.enable_tls(&file("up.pem"), &file("up.key"));
        let port = cluster.require_passwords();
        cluster.stop();
        cluster.resume();
        let world = Self { fixture, cluster, port };
        assert!(world.cluster.psql("postgres", "CREATE ROLE app LOGIN"));
        world.set_password(PASSWORD);
        world
    }

    /// Sets the password of `app`, at the server and in the file of the proxy.
    fn set_password(&self, password: &str) {
        assert!(self.cluster.psql("postgres", &format!("ALTER ROLE app PASSWORD '{password}'")));
        let file = self.fixture.path("password");
        std::fs::write(&file, password).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns a configuration, with more settings of `[proxy]`, `[proxy.access]` and the listener.
    fn configuration(&self, [proxy, access, listener]: [&str; 3]) -> String {
        let (port, password) = (self.port, self.fixture.path("password").display().to_string());
        let digest = |name: &str| x509::Fingerprint::of(format!("token-of-{name}").as_bytes());
        format!(
            "[proxy]\n{proxy}\n[proxy.requests]\naudit_file = \"audit.jsonl\"\naccess_log_file = \"access.log\"\n\
             [proxy.access]\n{access}\ntokens = [{{ name = \"ci\", sha256 = \"{}\" }}, {{ name = \"other\", sha256 = \"{}\" }}]\n\
             [proxy.policy]\ndefault = \"deny\"\nallow_networks = [\"127.0.0.0/8\", \"::1/128\"]\n\
             [[proxy.policy.identities]]\nname = \"ci\"\nteams = [\"platform\"]\nusers = [\"ci\"]\n\
             [[proxy.policy.identities]]\nname = \"other\"\nusers = [\"other\"]\n\
             [[proxy.policy.rules]]\nname = \"no-secrets\"\nhost = [\"localhost\"]\ndatabase = [\"secret*\"]\naction = \"deny\"\n\
             [[proxy.policy.rules]]\nname = \"databases\"\nteams = [\"platform\"]\nhost = [\"localhost\"]\nport = [{port}]\ndatabase = [\"*\"]\n\
             [[proxy.postgresql]]\nlisten = \"127.0.0.1:0\"\nhost = \"localhost\"\nport = {port}\n{listener}\n\
             [[proxy.rules]]\nname = \"app\"\nhost = [\"localhost\"]\n\
             inject = {{ file = \"{password}\", as = \"postgresql\", user = \"app\", teams = [\"platform\"], port = [{port}] }}\n",
            digest("ci"),
            digest("other")
        )
    }

    fn usual(&self) -> String {
        self.configuration(["upstream_ca_files = [\"ca.pem\"]", "", ""])
    }

    fn start(&self, configuration: &str) -> Proxy {
        std::fs::write(self.fixture.path("bulla.toml"), configuration).unwrap();
        ProxyWorld::start(proxy_command(&self.fixture).args(["--config", "bulla.toml"]))
    }

    /// Returns psql as the identity `who`.
    fn psql(&self, port: u16, who: &str, more: &str) -> Command {
        let mut psql = Command::new("psql");
        psql.current_dir(self.fixture.folder.path())
            .env("HOME", self.fixture.folder.path())
            .env("PGPASSWORD", format!("token-of-{who}"))
            .args(["-X", "-q", "-A", "-t", "-w"])
            .arg(format!(
                "hostaddr=127.0.0.1 host=localhost port={port} user={who} connect_timeout=60 {more}"
            ));
        psql
    }

    fn run_query(&self, proxy: &Proxy, who: &str, more: &str, query: &str) -> Output {
        run(self.psql(proxy.postgresql.unwrap(), who, more).args(["-c", query]))
    }

    /// Starts a query that lasts until it is cancelled, and returns when it runs.
    fn sleep(&self, port: u16) -> Child {
        let mut psql = self.psql(port, "ci", "dbname=shop");
        let psql = psql.args(["-c", "SELECT pg_sleep(86400)"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let child =
            psql.spawn().unwrap_or_else(|error| panic!("apt-get install -y postgresql-client ({error})"));
        until_blocking("the query to run", || self.queries(1));
        child
    }

    /// Returns whether this many queries of `app` run.
    fn queries(&self, count: usize) -> bool {
        let found = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND state = 'active'";
        self.cluster.psql("postgres", &format!("SELECT 1 / (CASE ({found}) WHEN {count} THEN 1 ELSE 0 END)"))
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.fixture.path("audit.jsonl")).unwrap();
        assert!(!text.contains(PASSWORD), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn refused(output: &Output, words: &[&str]) {
    assert!(!output.status.success(), "{}", describe(output));
    for word in words {
        assert!(stderr(output).contains(word), "{word:?} is not in {}", describe(output));
    }
}

/// Relays a port, and records what the client receives.
fn recorded(port: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, record) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<u8>>>::default());
    let received = Arc::clone(&record);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let (received, mut from, mut to) = (Arc::clone(&received), server, client);
            std::thread::spawn(move || {
                let mut chunk = [0; 4_096];
                while let Ok(count @ 1..) = from.read(&mut chunk) {
                    received.lock().unwrap().extend_from_slice(&chunk[..count]);
                    if to.write_all(&chunk[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    (own, record)
}

#[test]
fn agent_queries_a_database_with_its_token_and_never_gets_the_password() {
    let world = World::new();
    let proxy = world.start(&world.usual());
    let (port, received) = recorded(proxy.postgresql.unwrap());
    let query =
        "SELECT current_user, current_database(), (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())";
    let output = run(world.psql(port, "ci", "dbname=shop").args(["-c", query]));
    assert_eq!(stdout(&output).trim(), "app|shop|t", "{}", describe(&output));
    let received = received.lock().unwrap().clone();
    assert!(received.windows(3).any(|some| some == b"app"), "the recorder has the session");
    assert!(!received.windows(PASSWORD.len()).any(|some| some == PASSWORD.as_bytes()));
    // Large results in both directions.
    let copy =
        "CREATE TEMP TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 20000); COPY t TO STDOUT";
    let output = world.run_query(&proxy, "ci", "dbname=shop", copy);
    assert_eq!(output.stdout.len(), 20_000 * 1_001, "{}", stderr(&output));

    refused(
        &world.run_query(&proxy, "ci-", "dbname=shop", "SELECT 1"),
        &["wrong user name, password or token"],
    );
    let denied = world.run_query(&proxy, "other", "dbname=shop", "SELECT 1");
    refused(
        &denied,
        &["the default of the policy denies identity other", "database shop on localhost", "HINT"],
    );
    let denied = world.run_query(&proxy, "ci", "dbname=secret", "SELECT 1");
    refused(
        &denied,
        &["rule no-secrets of the policy denies identity ci a session with the database secret"],
    );
    let copied = world.run_query(&proxy, "ci", "dbname=shop replication=database", "IDENTIFY_SYSTEM");
    refused(&copied, &["does not support replication connections"]);
    refused(
        &world.run_query(&proxy, "ci", "dbname=absent", "SELECT 1"),
        &["database \"absent\" does not exist"],
    );

    // An event for the decision, before the login, and one for the outcome.
    let events = world.audit();
    let allowed = events.iter().find(|event| event["action"] == "proxy.session.allow").unwrap();
    let details = &allowed["details"];
    assert_eq!((&allowed["actor"], &details["rule"]), (&"identity:ci".into(), &"databases".into()));
    assert_eq!((&details["path"], &details["sent"]), (&"/shop".into(), &true.into()));
    assert!(details["credentials"][0]["name"].as_str().unwrap().ends_with("/password"), "{details}");
    let is_outcome = |event: &Value| {
        event["action"] == "proxy.session.outcome" && event["details"]["request"] == details["request"]
    };
    let outcome = || world.audit().into_iter().find(is_outcome);
    until_blocking("the outcome to be written", || outcome().is_some());
    let ended = &outcome().unwrap()["details"];
    assert_eq!((&ended["status"], &ended["complete"]), (&200.into(), &true.into()), "{ended}");
    assert!(
        ended["bytes_to_client"].as_u64() > Some(50) && ended["server_key_sha256"].is_string(),
        "{ended}"
    );
    let denials: Vec<&Value> =
        events.iter().filter(|event| event["action"] == "proxy.session.deny").collect();
    assert_eq!(denials.len(), 2, "{events:?}");
    assert_eq!(denials[1]["details"]["rule"], "no-secrets");
}

#[test]
fn client_cancels_its_own_query_with_the_key_of_the_proxy() {
    let world = World::new();
    let proxy = world.start(&world.usual());
    let sleeping = world.sleep(proxy.postgresql.unwrap());
    // A key that the proxy did not issue changes nothing.
    let mut stranger = TcpStream::connect(("127.0.0.1", proxy.postgresql.unwrap())).unwrap();
    stranger.write_all(b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02").unwrap();
    assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0);
    assert!(world.queries(1));
    assert!(Command::new("kill").args(["-INT", &sleeping.id().to_string()]).status().unwrap().success());
    let output = sleeping.wait_with_output().unwrap();
    refused(&output, &["canceling statement due to user request"]);
}

#[test]
fn session_of_a_removed_token_ends_with_its_query() {
    let world = World::new();
    let proxy = world.start(&world.usual());
    let sleeping = world.sleep(proxy.postgresql.unwrap());
    let (before, rest) =
        world.usual().split_once("tokens = [").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (_, remaining) = rest.split_once("}, ").unwrap();
    let without =
        format!("{before}tokens = [{remaining}").replace("users = [\"ci\"]", "networks = [\"192.0.2.0/24\"]");
    std::fs::write(world.fixture.path("bulla.toml"), without).unwrap();
    let output = sleeping.wait_with_output().unwrap();
    refused(&output, &["server closed the connection"]);
    until_blocking("the query to be cancelled", || world.queries(0));
}

#[test]
fn changed_password_of_the_database_is_read_at_the_next_login() {
    let world = World::new();
    let proxy = world.start(&world.usual());
    let current_user =
        || stdout(&world.run_query(&proxy, "ci", "dbname=shop", "SELECT current_user")).trim().to_owned();
    assert_eq!(current_user(), "app");
    world.set_password("another-canary-77aa");
    assert_eq!(current_user(), "app");
    // The server has another password than the file.
    assert!(world.cluster.psql("postgres", "ALTER ROLE app PASSWORD 'unknown'"));
    let output = world.run_query(&proxy, "ci", "dbname=shop", "SELECT 1");
    refused(&output, &["rejected the login of the proxy: SQLSTATE 28P01"]);
}

#[test]
fn database_server_must_have_a_trusted_certificate_unless_tls_is_disabled() {
    let mut world = World::new();
    let proxy = world.start(&world.configuration([""; 3]));
    let untrusted = world.run_query(&proxy, "ci", "dbname=shop", "SELECT 1");
    refused(&untrusted, &["does not trust the TLS certificate of the database server", "ca_files"]);
    drop(proxy);
    // Its certificate is trusted, but for other names.
    let file = |fixture: &Fixture, name: &str| std::fs::read_to_string(fixture.path(name)).unwrap();
    world.fixture.openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout else.key -out else.pem -subj /CN=else -CA ca.pem \
         -CAkey ca.key -addext subjectAltName=DNS:else.example -addext basicConstraints=critical,CA:FALSE",
    );
    let (certificate, key) = (file(&world.fixture, "else.pem"), file(&world.fixture, "else.key"));
    world.port = world.cluster.enable_tls(&certificate, &key);
    world.cluster.stop();
    world.cluster.resume();
    let proxy = world.start(&world.usual());
    let impostor = world.run_query(&proxy, "ci", "dbname=shop", "SELECT 1");
    refused(&impostor, &["does not trust the TLS certificate of the database server"]);
    drop(proxy);
    let proxy = world.start(&world.configuration(["", "", "tls = \"disable\""]));
    let output = world.run_query(&proxy, "ci", "dbname=shop", "SELECT current_user");
    assert_eq!(stdout(&output).trim(), "app", "{}", describe(&output));
}

#[test]
fn token_is_accepted_over_tls_or_from_this_machine_only() {
    let world = World::new();
    let access = "certificate_file = \"up.pem\"\nkey_file = \"up.key\"";
    let proxy = world.start(&world.configuration(["upstream_ca_files = [\"ca.pem\"]", access, ""]));
    let (port, received) = recorded(proxy.postgresql.unwrap());
    let verified = run(world
        .psql(port, "ci", "dbname=shop sslmode=verify-full sslrootcert=ca.pem")
        .args(["-c", "SELECT 'visible'"]));
    assert_eq!(stdout(&verified).trim(), "visible", "{}", describe(&verified));
    let received = received.lock().unwrap().clone();
    assert!(!received.is_empty() && !received.windows(7).any(|some| some == b"visible"));
    drop(proxy);
    // A load balancer says that the client is elsewhere.
    let proxy = world.start(&world.configuration(["trusted_proxies = [\"127.0.0.1/32\"]", "", ""]));
    let mut far = TcpStream::connect(("127.0.0.1", proxy.postgresql.unwrap())).unwrap();
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x10\0\x20\0";
    far.write_all(&[&header[..], b"\0\0\0\x11\0\x03\0\0user\0ci\0\0"].concat()).unwrap();
    let mut answer = Vec::new();
    far.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with('E') && answer.contains("over TLS only"), "{answer:?}");
}

#[test]
fn decision_about_a_session_is_explained_and_needs_a_policy() {
    let fixture = Fixture::new();
    let text = "[proxy.access]\ntokens = [{ name = \"ci\", sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\" }]\n\
                [[proxy.policy.identities]]\nname = \"ci\"\nusers = [\"ci\"]\n\
                [[proxy.policy.rules]]\nname = \"shop\"\nidentities = [\"ci\"]\nhost = [\"db.example.com\"]\ndatabase = [\"shop\"]\n\
                [[proxy.rules]]\nname = \"app\"\nhost = [\"db.example.com\"]\n\
                inject = { file = \"/etc/bulla/db\", as = \"postgresql\", user = \"app\", identities = [\"ci\"] }\n";
    std::fs::write(fixture.path("bulla.toml"), text).unwrap();
    let explain = |url: &str| {
        let mut command = bulla();
        command.current_dir(fixture.folder.path()).env("BULLA_DATA", fixture.path("data"));
        let options = ["--config", "bulla.toml", "proxy", "explain", "--as", "ci", "--output", "json"];
        run(command.args(options).arg(url))
    };
    let explained = |url: &str| {
        let output = explain(url);
        serde_json::from_str::<Value>(&stdout(&output)).unwrap_or_else(|_| panic!("{}", describe(&output)))
    };
    let allowed = explained("postgresql://db.example.com/shop");
    assert_eq!((&allowed["decision"], &allowed["rule"]), (&"allow".into(), &"shop".into()), "{allowed}");
    assert_eq!((&allowed["connection"], &allowed["port"]), (&"session".into(), &5432.into()), "{allowed}");
    assert_eq!(allowed["credentials"][0]["name"], "/etc/bulla/db", "{allowed}");
    let unnamed = explain("postgresql://db.example.com/");
    refused(&unnamed, &["names no database", "postgresql://db.example.com/DATABASE"]);
    for url in [
        "postgresql://db.example.com/other",
        "postgresql://db.example.com:5433/shop",
        "https://db.example.com:5432/shop",
    ] {
        let denied = explained(url);
        assert_eq!(
            (&denied["decision"], &denied["credentials"]),
            (&"deny".into(), &Value::Array(Vec::new())),
            "{denied}"
        );
    }
    std::fs::write(
        fixture.path("bulla.toml"),
        "[[proxy.postgresql]]\nlisten = \"127.0.0.1:0\"\nhost = \"db.example.com\"\n",
    )
    .unwrap();
    let output = run(proxy_command(&fixture).args(["--config", "bulla.toml"]));
    refused(&output, &["proxy.postgresql needs a policy"]);
}
