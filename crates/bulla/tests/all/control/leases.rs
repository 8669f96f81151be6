//! Dynamic credentials of `bulla up` at a real PostgreSQL server: commands, Vault's API, and the end of a token.

use std::process::Output;

use serde_json::{Value, json};
use store::testing::Cluster;

use super::House;

/// A server with the role `keeper`, which may create roles but is no superuser, and its database `shop`.
pub(super) struct Target {
    cluster: Cluster,
    port: u16,
}

impl Target {
    pub(super) fn start() -> Self {
        let cluster = Cluster::start();
        assert!(cluster.psql("postgres", "CREATE ROLE keeper LOGIN CREATEROLE PASSWORD 'keeper-secret'"));
        assert!(cluster.psql("postgres", "CREATE DATABASE shop OWNER keeper"));
        let port = cluster.require_passwords();
        cluster.stop();
        cluster.resume();
        Self { cluster, port }
    }

    /// Creates the connection and the role `/team/db/read-only`.
    pub(super) fn configure(&self, house: &House) {
        std::fs::write(house.path("password"), "keeper-secret\n").unwrap();
        let url = format!("postgres://keeper@127.0.0.1:{}/shop", self.port);
        house.does(&[
            "credential",
            "database",
            "set",
            "shop",
            "--url",
            &url,
            "--tls",
            "disable",
            "--password-file",
            "password",
        ]);
        let grant = "GRANT CONNECT ON DATABASE shop TO \"{{name}}\"";
        house.does(&[
            "credential",
            "role",
            "set",
            "/team/db/read-only",
            "--database",
            "shop",
            "--grant",
            grant,
        ]);
    }

    pub(super) fn has_role(&self, role: &str) -> bool {
        let probe = format!("SELECT 1 / (SELECT count(*) FROM pg_roles WHERE rolname = '{role}')");
        self.cluster.psql("shop", &probe)
    }

    /// Returns whether this many users of leases exist.
    pub(super) fn has_leased_roles(&self, count: usize) -> bool {
        let found = r"SELECT count(*) FROM pg_roles WHERE rolname LIKE 'bulla\_%'";
        self.cluster.psql("shop", &format!("SELECT 1 / (CASE ({found}) WHEN {count} THEN 1 ELSE 0 END)"))
    }

    /// Returns whether a user has a session that executes a statement.
    pub(super) fn has_session(&self, user: &str) -> bool {
        let found =
            format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}' AND state = 'active'");
        self.cluster.psql("shop", &format!("SELECT 1 / ({found})"))
    }

    /// Returns the address of the database for a user.
    pub(super) fn url(&self, user: &str, password: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/shop", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn log_in(&self, house: &House, user: &str, password: &str) -> bool {
        let url = self.url(user, password);
        let arguments = ["-X", "-q", "-c", "SELECT 1", &url];
        house.program("psql", "apt-get install -y postgresql-client", &arguments).status.success()
    }
}

fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap_or_else(|| panic!("no {field} in {document}"))
}

/// Sends a request to Vault's API with a token. Returns status and body.
fn vault(house: &House, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let server = std::fs::read_to_string(house.path("data/credentials.url")).unwrap();
    let (url, root) = (format!("{}{path}", server.trim()), house.root().display().to_string());
    let (header, body) = (format!("X-Vault-Token: {token}"), body.to_string());
    let mut arguments =
        vec!["-s", "--cacert", &root, "-X", method, "-w", "\n%{http_code}", "-H", &header, &url];
    if body != "null" {
        arguments.extend(["--data", &body]);
    }
    let output = house.program("curl", "apt-get install -y curl", &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

fn refused(output: &Output) -> bool {
    output.status.code() == Some(6)
}

#[test]
fn dynamic_credential_lives_as_long_as_its_lease_and_its_token() {
    let (house, target) = (House::up(), Target::start());
    target.configure(&house);
    let made = house.json(&["credential", "lease", "create", "/team/db/read-only", "--ttl", "30m"]);
    let (user, password, id) = (text(&made, "username"), text(&made, "password"), text(&made, "id"));
    assert!(target.log_in(&house, user, password), "{user}");
    let listed = house.json(&["credential", "lease", "list"]);
    assert_eq!((&listed["rows"][0]["id"], &listed["rows"][0]["state"]), (&json!(id), &json!("active")));
    assert!(!listed.to_string().contains(password));
    let renewed = house.json(&["credential", "lease", "renew", id, "--ttl", "2h"]);
    assert!(text(&renewed, "expires_at") > text(&made, "expires_at"), "{renewed}");
    house.does(&["credential", "lease", "revoke", id]);
    // A periodic round may drop the user at the same time; then the command succeeds before that round has ended.
    house.until("the user to be dropped", || !target.has_role(user));
    assert!(!target.log_in(&house, user, password));
    let show = || house.bulla(&["credential", "lease", "show", id]).output().unwrap();
    house.until("the lease to be gone", || refused(&show()));

    // An application with its own token, over Vault's API.
    let token = house.json(&["token", "create", "app", "--role", "viewer"]);
    let (token, token_id) = (text(&token, "token").to_owned(), text(&token, "id").to_owned());
    let path = "/v1/database/creds/team/db/read-only";
    assert_eq!(vault(&house, &token, "GET", path, &Value::Null).0, 403);
    house.does(&["credential", "permission", "grant", "uaa-client:app", "/team/db/*", "read"]);
    let (status, read) = vault(&house, &token, "GET", path, &Value::Null);
    assert_eq!(
        (status, &read["renewable"], &read["lease_duration"]),
        (200, &json!(true), &json!(3_600)),
        "{read}"
    );
    let user = text(&read["data"], "username").to_owned();
    assert!(target.log_in(&house, &user, text(&read["data"], "password")));
    let lease = json!({ "lease_id": read["lease_id"], "increment": 60 });
    let (status, renewed) = vault(&house, &token, "PUT", "/v1/sys/leases/renew", &lease);
    let left = renewed["lease_duration"].as_i64();
    assert!(status == 200 && left.is_some_and(|left| (1..=60).contains(&left)), "{renewed}");
    // Its permissions do not include the leases of others.
    assert_eq!(
        vault(&house, &token, "PUT", "/v1/sys/leases/revoke-prefix/database/creds/team", &json!({})).0,
        403
    );
    house.does(&["token", "delete", &token_id]);
    house.until("the user to be dropped with its token", || !target.has_role(&user));
    // The end is recorded after the user is dropped, in a transaction of its own.
    let audit = || house.json(&["audit", "list", "--limit", "100"]).to_string();
    house.until("the end of the lease in the audit log", || audit().contains("\"credential.lease_end\""));
    let audit = audit();
    for action in ["credential.lease", "credential.lease_renew", "credential.lease_revoke"] {
        assert!(audit.contains(&format!("\"{action}\"")), "{action}: {audit}");
    }
    assert!(!audit.contains(password) && !audit.contains("keeper-secret"));
}
