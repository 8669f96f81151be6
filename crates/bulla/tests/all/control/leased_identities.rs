//! Leases of dynamic credentials for identities of the agent gateway: `bulla proxy` before a server, a `bulla up` with leases, and a real
//! PostgreSQL server.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::House;
use super::leases::Target;
use crate::proxy::Proxy;
use crate::proxy_gateway::World;

/// The proxy of two identities, `ci` and `other`, with leases of `/team/db/read-only`.
struct Gateway {
    world: World,
    house: House,
    target: Target,
}

impl Gateway {
    fn new() -> Self {
        let gateway = Self { world: World::new(), house: House::up(), target: Target::start() };
        let (house, fixture) = (&gateway.house, &gateway.world.fixture);
        gateway.target.configure(house);
        // The proxy has a token of its own, which may only read the role.
        let token = house.json(&["token", "create", "gateway", "--role", "viewer"]);
        let file = fixture.path("gateway.token");
        std::fs::write(&file, token["token"].as_str().unwrap()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        house.does(&["credential", "permission", "grant", "uaa-client:gateway", "/team/db/*", "read"]);
        gateway
    }

    /// Returns the configuration of the proxy.
    fn configuration(&self) -> String {
        let url = std::fs::read_to_string(self.house.path("data/credentials.url")).unwrap();
        let (port, root) = (self.world.port, self.house.root().display().to_string());
        let more = format!(
            "[[proxy.rules]]\nname = \"database\"\nhost = [\"localhost\"]\n\
             inject = {{ lease = \"/team/db/read-only\", as = \"basic\", teams = [\"platform\"], port = [{port}], allow_echo = true }}\n"
        );
        let client = format!(
            "[client]\ncredential_url = \"{}\"\ntoken_file = \"gateway.token\"\nca_file = \"{root}\"\n",
            url.trim()
        );
        let text = self.world.configuration("\"127.0.0.0/8\", \"::1/128\"", &more);
        let text = text.replacen("[proxy.requests]\n", "[proxy.requests]\naudit_file = \"audit.jsonl\"\n", 1);
        let text = text.replace("budget = { requests_per_minute = 3 }\n", "");
        format!("{client}{text}")
    }

    /// Sends a request as `who`, and returns user and password that the server received.
    fn lease(&self, proxy: &Proxy, who: &str) -> (String, String) {
        let response = self.world.curl(proxy, who, &[&self.world.url("/repos/o")]);
        assert_eq!(response.status, "200", "{}", response.body);
        let sent = response.body.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .starts_with("authorization: basic ")
                .then(|| line["authorization: basic ".len()..].trim())
        });
        let sent = sent.unwrap_or_else(|| panic!("{}", response.body));
        let pair = String::from_utf8(STANDARD.decode(sent).unwrap()).unwrap();
        let (user, password) = pair.split_once(':').unwrap();
        (user.to_owned(), password.to_owned())
    }

    /// Removes the identity `other` and its token from the configuration of the proxy.
    fn remove_other(&self, configuration: &str) {
        let is_token = |text: &str| text.contains("name = \"other\", sha256");
        let (before, rest) = configuration.split_once("tokens = [").unwrap();
        let (tokens, after) = rest.split_once(']').unwrap();
        let remaining: Vec<&str> = tokens.split_inclusive('}').filter(|token| !is_token(token)).collect();
        let without = format!("{before}tokens = [{}]{after}", remaining.concat().trim_end_matches(", "));
        let identity =
            "[[proxy.policy.identities]]\nname = \"other\"\nteams = [\"platform\"]\nusers = [\"other\"]\n";
        assert!(without.contains(identity), "{without}");
        std::fs::write(self.world.fixture.path("bulla.toml"), without.replace(identity, "")).unwrap();
    }

    /// Returns a listener for PostgreSQL clients, and its rules.
    fn sessions(&self) -> String {
        let port = self.target.port();
        format!(
            "[[proxy.postgresql]]\nlisten = \"127.0.0.1:0\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"disable\"\n\
             [[proxy.policy.rules]]\nname = \"shop\"\nteams = [\"platform\"]\nhost = [\"127.0.0.1\"]\nport = [{port}]\ndatabase = [\"shop\"]\n\
             [[proxy.rules]]\nname = \"shop\"\nhost = [\"127.0.0.1\"]\n\
             inject = {{ lease = \"/team/db/read-only\", as = \"postgresql\", teams = [\"platform\"], port = [{port}] }}\n"
        )
    }

    /// Returns psql through the proxy, as `who`.
    fn psql(&self, proxy: &Proxy, who: &str, query: &str) -> Command {
        let mut psql = Command::new("psql");
        let port = proxy.postgresql.unwrap();
        psql.env("PGPASSWORD", format!("token-of-{who}")).args(["-X", "-q", "-A", "-t", "-w", "-c", query]);
        psql.arg(format!("host=127.0.0.1 port={port} user={who} dbname=shop"));
        psql
    }

    /// Opens a session of a user that lasts until the server ends it.
    fn session(&self, (user, password): &(String, String)) -> Child {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-c", "SELECT pg_sleep(86400)", &self.target.url(user, password)]);
        let session = psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let session =
            session.unwrap_or_else(|error| panic!("apt-get install -y postgresql-client ({error})"));
        self.house.until("the session to begin", || self.target.has_session(user));
        session
    }
}

#[test]
fn each_identity_of_the_gateway_has_its_own_database_user_until_it_is_stopped() {
    let gateway = Gateway::new();
    let (house, target) = (&gateway.house, &gateway.target);
    let configuration = gateway.configuration();
    let proxy = gateway.world.start(&configuration);
    let (ci, other) = (gateway.lease(&proxy, "ci"), gateway.lease(&proxy, "other"));
    assert_ne!(ci.0, other.0);
    assert!(target.has_role(&ci.0) && target.has_role(&other.0) && target.has_leased_roles(2));
    let (mut of_ci, mut of_other) = (gateway.session(&ci), gateway.session(&other));
    for _ in 0..5 {
        assert_eq!(
            (gateway.lease(&proxy, "ci"), gateway.lease(&proxy, "other")),
            (ci.clone(), other.clone())
        );
    }
    assert!(target.has_leased_roles(2), "one for each identity, whatever the number of connections");
    // One of them is removed, with its token.
    gateway.remove_other(&configuration);
    house.until("the user of the stopped identity to be dropped", || !target.has_role(&other.0));
    assert!(!of_other.wait().unwrap().success(), "its session was ended");
    assert!(of_ci.try_wait().unwrap().is_none(), "the other one goes on");
    assert_eq!(gateway.lease(&proxy, "ci"), ci);
    assert_eq!(gateway.world.curl(&proxy, "other", &[&gateway.world.url("/repos/o")]).connect, "407");
    // The audit log names identity, role and lease.
    let audit = std::fs::read_to_string(gateway.world.fixture.path("audit.jsonl")).unwrap();
    let listed = house.json(&["credential", "lease", "list", "--path", "/team/db/*"]);
    let id = listed["rows"][0]["id"].as_str().unwrap_or_else(|| panic!("{listed}"));
    let line =
        audit.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} is not in {audit}"));
    assert!(line.contains("identity:ci") && line.contains("lease:/team/db/read-only"), "{line}");
    assert!(!audit.contains(&ci.1) && !audit.contains(&other.1));
    // When the proxy stops, its leases end.
    let pid = proxy.process_id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    house.until("all users to be dropped", || target.has_leased_roles(0));
    assert!(!of_ci.wait().unwrap().success());
}

#[test]
fn sessions_of_each_identity_have_its_own_database_user_and_end_with_the_identity() {
    let gateway = Gateway::new();
    let (house, target) = (&gateway.house, &gateway.target);
    let configuration = gateway.configuration() + &gateway.sessions();
    let proxy = gateway.world.start(&configuration);
    let user = |who: &str| {
        let output = gateway.psql(&proxy, who, "SELECT current_user").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (ci, other) = (user("ci"), user("other"));
    assert!(ci != other && target.has_role(&ci) && target.has_role(&other));
    assert_eq!((user("ci"), user("other")), (ci.clone(), other.clone()));
    let sleep = |who: &str| {
        let mut psql = gateway.psql(&proxy, who, "SELECT pg_sleep(86400)");
        psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let (mut of_ci, mut of_other) = (sleep("ci"), sleep("other"));
    house.until("the sessions to begin", || target.has_session(&ci) && target.has_session(&other));
    gateway.remove_other(&configuration);
    assert!(!of_other.wait().unwrap().success(), "its session was ended");
    house.until("the user of the stopped identity to be dropped", || !target.has_role(&other));
    assert!(of_ci.try_wait().unwrap().is_none() && target.has_session(&ci), "the other one goes on");
    assert!(!gateway.psql(&proxy, "other", "SELECT 1").output().unwrap().status.success());
    let audit = std::fs::read_to_string(gateway.world.fixture.path("audit.jsonl")).unwrap();
    let line = audit.lines().find(|line| line.contains("proxy.session.allow")).unwrap();
    assert!(line.contains("identity:ci") && line.contains("lease:/team/db/read-only"), "{line}");
    drop(proxy);
    assert!(!of_ci.wait().unwrap().success());
}
