//! The credential store's Vault API, used by OpenBao's own command, which equals Vault's, and by curl as the External Secrets
//! Operator.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::House;
use crate::world::describe;

const INSTALL: &str = "run .ci/interop kv, which installs it";

struct Bao {
    house: House,
    token: String,
}

impl Bao {
    fn new() -> Self {
        let house = House::up();
        let made = house.json(&["token", "create", "kv", "--role", "admin"]);
        Self { token: made["token"].as_str().unwrap().to_owned(), house }
    }

    fn server(&self) -> String {
        std::fs::read_to_string(self.house.path("data/credentials.url")).unwrap().trim().to_owned()
    }

    fn tries_as(&self, token: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("bao");
        command.current_dir(self.house.path("")).env("HOME", self.house.path("")).args(arguments);
        command.env("BAO_ADDR", self.server()).env("BAO_CACERT", self.house.root()).env("BAO_TOKEN", token);
        let output = command.output();
        output.unwrap_or_else(|error| panic!("this test needs bao: {INSTALL} ({error})"))
    }

    fn tries(&self, arguments: &[&str]) -> Output {
        self.tries_as(&self.token, arguments)
    }

    fn does(&self, arguments: &[&str]) -> String {
        let output = self.tries(arguments);
        assert!(output.status.success(), "bao {}: {}", arguments.join(" "), describe(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (command, rest) = arguments.split_at(2);
        serde_json::from_str(&self.does(&[command, &["-format=json"], rest].concat())).unwrap()
    }

    fn field(&self, field: &str, more: &[&str]) -> String {
        let field = format!("-field={field}");
        self.does(&[&["kv", "get", &field], more].concat()).trim().to_owned()
    }

    #[track_caller]
    fn refuses(&self, arguments: &[&str], why: &str) {
        let output = self.tries(arguments);
        let message = describe(&output);
        assert!(!output.status.success() && message.contains(why), "bao {}: {message}", arguments.join(" "));
    }

    /// Sends a request with curl. Returns status and body.
    fn curl(&self, method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> (u16, Value) {
        let (url, root) = (format!("{}{path}", self.server()), self.house.root().display().to_string());
        let header = format!("X-Vault-Token: {}", token.unwrap_or_default());
        let mut arguments = vec!["-s", "--cacert", &root, "-X", method, "-w", "\n%{http_code}", &url];
        if token.is_some() {
            arguments.extend(["-H", header.as_str()]);
        }
        arguments.extend(body.iter().flat_map(|body| ["--data", body]));
        let output = self.house.program("curl", "apt-get install -y curl", &arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn openbao_command_runs_every_kv_command() {
    let bao = Bao::new();
    assert!(bao.does(&["status"]).contains("Sealed"));
    let mounts = bao.json(&["secrets", "list"]);
    assert_eq!(mounts["secret/"]["options"]["version"], "2");
    let put = bao.json(&["kv", "put", "-cas=0", "secret/team/db", "user=u", "password=one"]);
    assert_eq!(put["data"]["version"], 1);
    bao.refuses(&["kv", "put", "-cas=0", "secret/team/db", "user=u"], "check-and-set");
    bao.does(&["kv", "put", "-cas=1", "-mount=secret", "team/db", "user=u", "password=two"]);
    assert_eq!(bao.field("password", &["secret/team/db"]), "two");
    assert_eq!(bao.field("password", &["-version=1", "-mount=secret", "team/db"]), "one");
    // A secret written over the Vault API is an ordinary credential.
    let shown = bao.house.json(&["credential", "get", "/team/db"]);
    assert_eq!((&shown["type"], &shown["value"]["password"]), (&json!("json"), &json!("two")));
    bao.does(&["kv", "patch", "secret/team/db", "host=h"]);
    bao.does(&["kv", "patch", "-method=rw", "secret/team/db", "port=1"]);
    bao.refuses(&["kv", "patch", "-cas=1", "secret/team/db", "host=i"], "check-and-set");
    let read = bao.json(&["kv", "get", "secret/team/db"]);
    assert_eq!(read["data"]["data"], json!({ "user": "u", "password": "two", "host": "h", "port": "1" }));
    bao.does(&["kv", "put", "secret/team/web/key", "k=v"]);
    assert_eq!(bao.json(&["kv", "list", "secret/team"]), json!(["db", "web/"]));
    assert_eq!(bao.json(&["kv", "list", "secret/"]), json!(["team/"]));
    bao.refuses(&["kv", "list", "secret/none"], "No value found");
    bao.refuses(&["kv", "get", "secret/none"], "No value found");
    bao.refuses(&["kv", "get", "other/team/db"], "permission denied");
    // Delete, undelete, destroy, and roll back to an old version.
    bao.does(&["kv", "delete", "secret/team/db"]);
    bao.refuses(&["kv", "get", "-field=user", "secret/team/db"], "");
    bao.does(&["kv", "undelete", "-versions=4", "secret/team/db"]);
    assert_eq!(bao.field("port", &["secret/team/db"]), "1");
    bao.does(&["kv", "delete", "-versions=2,3", "secret/team/db"]);
    bao.does(&["kv", "destroy", "-versions=3", "secret/team/db"]);
    bao.does(&["kv", "metadata", "put", "-custom-metadata=owner=a", "secret/team/db"]);
    bao.does(&["kv", "rollback", "-version=1", "secret/team/db"]);
    assert_eq!(bao.field("password", &["secret/team/db"]), "one");
    bao.does(&["kv", "metadata", "patch", "-custom-metadata=tier=1", "secret/team/db"]);
    let metadata: Value =
        serde_json::from_str(&bao.does(&["kv", "metadata", "get", "-format=json", "secret/team/db"]))
            .unwrap();
    let metadata = &metadata["data"];
    assert_eq!(
        (&metadata["current_version"], &metadata["custom_metadata"]),
        (&json!(5), &json!({ "owner": "a", "tier": "1" }))
    );
    let versions = &metadata["versions"];
    assert_eq!((&versions["3"]["destroyed"], &versions["2"]["destroyed"]), (&json!(true), &json!(false)));
    assert_ne!(versions["2"]["deletion_time"], "");
    // A rollback keeps the type of a credential.
    for password in ["password=one", "password=two"] {
        let set = ["credential", "set", "/team/user", "--type", "user", "--field", "username=u", "--field"];
        bao.house.does(&[&set[..], &[password]].concat());
    }
    bao.does(&["kv", "rollback", "-version=1", "secret/team/user"]);
    let user = bao.house.json(&["credential", "get", "/team/user"]);
    assert_eq!((&user["type"], &user["value"]["password"]), (&json!("user"), &json!("one")));
    bao.refuses(&["kv", "put", "secret/team/user", "k=v"], "its fields are username, password");
    bao.does(&["kv", "metadata", "delete", "secret/team/db"]);
    bao.refuses(&["kv", "get", "secret/team/db"], "No value found");
    bao.house.does(&["credential", "undelete", "/team/db"]);
    assert_eq!(bao.field("password", &["secret/team/db"]), "one");
    // A token without permission, and no token.
    let reader = bao.house.json(&["token", "create", "reader", "--role", "viewer"]);
    let refused = bao.tries_as(reader["token"].as_str().unwrap(), &["kv", "get", "secret/team/db"]);
    assert!(!refused.status.success() && describe(&refused).contains("permission denied"));
    assert!(!bao.tries_as("nonsense", &["kv", "get", "secret/team/db"]).status.success());
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn external_secrets_operator_logs_in_reads_and_lists() {
    let bao = Bao::new();
    bao.does(&["kv", "put", "secret/eso/db", "password=p"]);
    let made = bao.house.json(&["token", "create", "eso", "--role", "viewer"]);
    bao.house.does(&["credential", "permission", "grant", "uaa-client:eso", "/eso/*", "read"]);
    let login = json!({ "role_id": "eso", "secret_id": made["token"] }).to_string();
    let (status, answer) = bao.curl("POST", "/v1/auth/approle/login", None, Some(&login));
    assert_eq!(status, 200, "{answer}");
    let token = answer["auth"]["client_token"].as_str().unwrap();
    let (status, own) = bao.curl("GET", "/v1/auth/token/lookup-self", Some(token), None);
    assert_eq!((status, &own["data"]["type"]), (200, &json!("service")));
    assert!(own["data"]["ttl"].as_u64().unwrap() > 60, "it is taken for good: {own}");
    let (status, secret) = bao.curl("GET", "/v1/secret/data/eso/db", Some(token), None);
    assert_eq!((status, &secret["data"]["data"]["password"]), (200, &json!("p")));
    let (status, list) = bao.curl("LIST", "/v1/secret/metadata/eso", Some(token), None);
    assert_eq!((status, &list["data"]["keys"]), (200, &json!(["db"])));
    let (status, none) = bao.curl("GET", "/v1/secret/data/eso/none", Some(token), None);
    assert_eq!((status, none), (404, json!({ "errors": [] })));
    assert_eq!(bao.curl("GET", "/v1/secret/data/other", Some(token), None).0, 403);
    assert_eq!(bao.curl("POST", "/v1/auth/token/revoke-self", Some(token), None).0, 204);
    assert_eq!(bao.curl("GET", "/v1/secret/data/eso/db", Some(token), None).0, 403);
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn openbao_command_reads_renews_and_revokes_dynamic_credentials() {
    let (bao, target) = (Bao::new(), super::leases::Target::start());
    target.configure(&bao.house);
    let read = || -> Value {
        serde_json::from_str(&bao.does(&["read", "-format=json", "database/creds/team/db/read-only"]))
            .unwrap()
    };
    let (first, second) = (read(), read());
    let user = |read: &Value| read["data"]["username"].as_str().unwrap().to_owned();
    assert!(target.has_role(&user(&first)) && target.has_role(&user(&second)));
    let id = first["lease_id"].as_str().unwrap();
    let renewed = bao.json(&["lease", "renew", "-increment=600", id]);
    assert!(renewed["lease_duration"].as_i64().is_some_and(|left| (500..=600).contains(&left)), "{renewed}");
    assert!(bao.does(&["lease", "lookup", id]).contains(id));
    bao.does(&["lease", "revoke", id]);
    assert!(!target.has_role(&user(&first)) && target.has_role(&user(&second)));
    bao.does(&["lease", "revoke", "-prefix", "database/creds/team/db"]);
    bao.house.until("the other user to be dropped", || !target.has_role(&user(&second)));
}
