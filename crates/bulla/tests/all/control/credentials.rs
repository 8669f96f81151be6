//! The credential store as its users see it: the command, CredHub responses, the built-in CA, and secrets that must not be shown.

use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use keys::{KeyType, PrivateKey, Signer};
use serde_json::{Value, json};

use super::House;
use super::certbot::crl_check;
use crate::world::{describe, run};

fn write(house: &House, name: &str, text: &str) -> String {
    let path = house.path(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn text(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn credential_command_sets_generates_finds_and_injects_values() {
    let house = House::up();
    let secret = write(&house, "secret", "hunter2\n");
    let set = house.json(&["credential", "set", "/team/db", "--type", "password", "--file", &secret]);
    assert!(set.get("value").is_none(), "what was written is not shown: {set}");
    assert_eq!(text(&house.does(&["credential", "get", "/Team/DB", "--value"])), "hunter2\n");
    let user = [
        "credential",
        "set",
        "/team/user",
        "--type",
        "user",
        "--field",
        "username=u",
        "--field",
        "password=p",
    ];
    house.does(&user);
    assert_eq!(text(&house.does(&["credential", "get", "/team/user", "--key", "password"])), "p\n");
    let made = house.json(&["credential", "generate", "/team/made", "--with", "length=50"]);
    assert_eq!(house.json(&["credential", "get", "/team/made"])["value"].as_str().unwrap().len(), 50);
    let repeated = house.json(&["credential", "generate", "/team/made", "--with", "length=50"]);
    assert_eq!(repeated["id"], made["id"], "the same parameters, the same value");
    assert_ne!(house.json(&["credential", "regenerate", "/team/made"])["id"], made["id"]);
    let authority = ["credential", "generate", "/ca", "--type", "certificate", "--with", "is_ca=true"];
    house.does(&[&authority[..], &["--with", "common_name=my-ca", "--with", "key_type=p256"]].concat());
    let leaf = ["credential", "generate", "/web", "--type", "certificate", "--with", "ca=/ca"];
    let names = ["--with", "common_name=web", "--with", "alternative_names=a.example,b.example"];
    house.does(&[&leaf[..], &names].concat());
    write(&house, "ca.pem", &text(&house.does(&["credential", "get", "/web", "--key", "ca"])));
    write(&house, "web.pem", &text(&house.does(&["credential", "get", "/web", "--key", "certificate"])));
    house.openssl(&["verify", "-CAfile", "ca.pem", "-verify_hostname", "b.example", "web.pem"]);
    let found = house.json(&["credential", "find", "--path", "/team"]);
    let names: Vec<&str> =
        found["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["/team/made", "/team/user", "/team/db"], "newest first");
    let ends = house.json(&["credential", "find", "--like", "we", "--expires-within", "400"]);
    assert_eq!(ends["rows"].as_array().unwrap().len(), 1);
    // Generated certificates are in the inventory like all others.
    let shown = text(&house.does(&["inventory", "issuers", "--output", "json"]));
    assert!(shown.contains("my-ca"), "{shown}");
    let exec =
        ["credential", "exec", "--env", "A=/team/db", "--env", "B=/team/user#password", "--", "sh", "-c"];
    assert_eq!(text(&house.does(&[&exec[..], &["echo $A $B"]].concat())), "hunter2 p\n");
    let none = run(&mut house.bulla(&["credential", "exec", "--env", "A=/none", "--", "true"]));
    assert_eq!(none.status.code(), Some(6), "{}", describe(&none));
    house.does(&["credential", "delete", "/team/db"]);
    let deleted = run(&mut house.bulla(&["credential", "get", "/team/db"]));
    assert_eq!(deleted.status.code(), Some(6), "{}", describe(&deleted));
    assert!(
        String::from_utf8_lossy(&deleted.stderr).contains("does not exist or you do not have"),
        "{}",
        describe(&deleted)
    );
}

/// A parsed and reprinted value would have another order, fewer digits and other white space.
#[test]
fn json_values_keep_their_text_in_commands_exports_and_the_agent() {
    const EXACT: &str = r#"{"z":12345678901234567890123,  "a":{"d":1.10},"u":"\u00e9","b":1e2}"#;
    let house = House::up();
    let file = write(&house, "value.json", &format!("{EXACT}\n"));
    house.does(&["credential", "set", "/exact", "--type", "json", "--file", &file]);
    let get = |more: &[&str]| text(&house.does(&[&["credential", "get", "/exact"], more].concat()));
    assert_eq!(get(&["--value"]), format!("{EXACT}\n"));
    assert_eq!(get(&["--key", "z"]), "12345678901234567890123\n");
    assert_eq!(get(&["--key", "a"]), "{\"d\":1.10}\n");
    for format in ["json", "jsonl"] {
        let shown = get(&["--output", format]);
        assert!(shown.contains(EXACT), "{shown}");
    }
    write(&house, "template", "exact: ((/exact)), b: ((/exact.b))");
    let rendered = text(&house.does(&["credential", "template", "template", "--to", "-"]));
    assert_eq!(rendered, format!("exact: {EXACT}, b: 1e2"));

    let mut agent = house.bulla(&["credential", "agent", "--socket", "agent.sock"]);
    let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    house.until("the agent", || house.path("agent.sock").exists());
    assert_eq!(get(&["--credential-server", "unix:agent.sock", "--value"]), format!("{EXACT}\n"));
    agent.kill().unwrap();
    agent.wait().unwrap();

    let (passphrase, export) = (write(&house, "passphrase", "correct horse battery\n"), "exact.age");
    house.does(&["credential", "export", "--to", export, "--passphrase-file", &passphrase]);
    let import = ["credential", "import", export, "--passphrase-file", &passphrase];
    assert_eq!(house.json(&import)["unchanged"], 1);
    house.does(&["credential", "delete", "/exact"]);
    assert_eq!(house.json(&import)["created"], 1);
    assert_eq!(get(&["--value"]), format!("{EXACT}\n"));
    let other = write(&house, "value.json", &EXACT.replace("1.10", "1.1"));
    house.does(&["credential", "set", "/exact", "--type", "json", "--file", &other]);
    assert_eq!(house.json(&import)["updated"], 1, "another text is another value");
    assert_eq!(get(&["--value"]), format!("{EXACT}\n"));
}

#[test]
fn credential_command_deletes_undeletes_and_destroys_versions() {
    let house = House::up();
    for value in ["one", "two", "three"] {
        let file = write(&house, "value", value);
        house.does(&["credential", "set", "/team/db", "--file", &file]);
    }
    let value = || text(&house.does(&["credential", "get", "/team/db", "--value"]));
    let numbers = || {
        let listed = house.json(&["credential", "versions", "/team/db"]);
        let rows = listed["rows"].as_array().unwrap().clone();
        rows.into_iter()
            .map(|row| (row["number"].as_u64().unwrap(), row.get("deleted_at").is_some()))
            .collect::<Vec<_>>()
    };
    house.does(&["credential", "versions", "/team/db", "--delete", "1,3"]);
    assert_eq!(numbers(), [(3, true), (2, false), (1, true)]);
    house.does(&["credential", "versions", "/team/db", "--undelete", "3"]);
    house.does(&["credential", "versions", "/team/db", "--destroy", "1"]);
    assert_eq!((numbers(), value()), (vec![(3, false), (2, false)], "three\n".to_owned()));
    house.does(&["credential", "delete", "/team/db"]);
    let deleted = house.json(&["credential", "deleted"]);
    assert_eq!(
        (&deleted["rows"][0]["name"], &deleted["rows"][0]["type"]),
        (&json!("/team/db"), &json!("value"))
    );
    house.does(&["credential", "undelete", "/team/db"]);
    assert_eq!(value(), "three\n");
    let repeated = run(&mut house.bulla(&["credential", "undelete", "/team/db"]));
    assert_eq!(repeated.status.code(), Some(6), "{}", describe(&repeated));
    // A credential with an expiry.
    let made = house.json(&["credential", "generate", "/team/short", "--ttl", "1h"]);
    assert!(made["expires_at"].is_string(), "{made}");
    let file = write(&house, "value", "x");
    let none = run(&mut house.bulla(&["credential", "set", "/team/x", "--file", &file, "--ttl", "0s"]));
    assert_eq!(none.status.code(), Some(6), "{}", describe(&none));
}

/// A client of the credential store: a token and its permissions.
struct Client<'a> {
    house: &'a House,
    token: String,
}

impl<'a> Client<'a> {
    fn admin(house: &'a House) -> Self {
        let token = std::fs::read_to_string(house.path("data/admin.token")).unwrap();
        Self { house, token: token.trim().to_owned() }
    }

    /// Sends a request with curl. Returns status and body.
    fn send_request(&self, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        let header = format!("authorization: Bearer {}", self.token);
        send_request(self.house, method, path, &["-H", &header], body)
    }
}

/// Sends a request with curl. Returns status and body, `null` for no body.
fn send_request(house: &House, method: &str, path: &str, more: &[&str], body: Option<&str>) -> (u16, Value) {
    let url = std::fs::read_to_string(house.path("data/credentials.url")).unwrap();
    let (url, root) = (format!("{}{path}", url.trim()), house.root().display().to_string());
    let mut arguments = vec!["-sS", "--cacert", &root, "-X", method, "-w", "\n%{http_code}", "-g", &url];
    arguments.extend(more);
    if let Some(body) = body {
        arguments.extend(["--data-binary", body]);
        if !more.iter().any(|one| one.starts_with("content-type")) {
            arguments.extend(["-H", "content-type: application/json"]);
        }
    }
    let output = house.program("curl", "apt-get install -y curl", &arguments);
    assert!(output.status.success(), "curl {arguments:?}: {}", describe(&output));
    let all = text(&output);
    let (body, status) = all.rsplit_once('\n').unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
    (status.parse().unwrap(), body)
}

#[test]
fn credhub_clients_get_credhub_compatible_responses() {
    const ABSENT: &str = "The request could not be completed because the credential does not exist or you do not have \
                          sufficient authorization.";
    const BAD_NAME: &str = "Credential names may only include alpha, numeric, hyphen, underscore, and forward-slash \
                            characters. Please update and retry your request.";
    const BAD_SLASH: &str = "A credential name cannot end with a '/' character or contain '//'. Credential names should \
                             be in the form of /[path]/[name] or [path]/[name]. Please update and retry your request.";
    let house = House::up();
    let admin = Client::admin(&house);
    let put = |name: &str| format!(r#"{{"name":"{name}","type":"value","value":"v"}}"#);
    let long = put(&"x".repeat(1_025));
    let cases: [(&str, &str, Option<&str>, u16, &str); 21] = [
        ("GET", "/api/v1/data?name=/none&current=true", None, 404, ABSENT),
        ("GET", "/api/v1/data/nonsense", None, 404, ABSENT),
        ("GET", "/api/v1/data", None, 400, "The query parameter name is required for this request."),
        (
            "GET",
            "/api/v1/data?name=/none&current=true&versions=1",
            None,
            400,
            "The query parameters current and versions cannot be provided in the same request.",
        ),
        ("DELETE", "/api/v1/data?name=/none", None, 404, ABSENT),
        ("PUT", "/api/v1/data", Some(&put("/a/../b")), 400, BAD_NAME),
        ("PUT", "/api/v1/data", Some(&put("/a//b")), 400, BAD_SLASH),
        ("PUT", "/api/v1/data", Some(&put("/ä")), 400, BAD_NAME),
        ("PUT", "/api/v1/data", Some(&put("/a/%00")), 400, BAD_NAME),
        (
            "PUT",
            "/api/v1/data",
            Some(&long),
            400,
            "The request could not be completed. The credential name cannot exceed 1024 characters",
        ),
        (
            "PUT",
            "/api/v1/data",
            Some(r#"{"name":"/a","value":"v"}"#),
            422,
            "The request does not include a valid type. Valid values include 'value', 'json', 'password', 'user', \
             'certificate', 'ssh' and 'rsa'.",
        ),
        (
            "PUT",
            "/api/v1/data",
            Some(r#"{"name":"/a","type":"value","value":"v","more":1}"#),
            422,
            "The request includes an unrecognized parameter 'more'. Please update or remove this parameter and retry \
             your request.",
        ),
        (
            "POST",
            "/api/v1/data",
            Some(r#"{"name":"/a","type":"password","more":1}"#),
            400,
            "The request includes an unrecognized parameter 'more'. Please update or remove this parameter and retry \
             your request.",
        ),
        (
            "POST",
            "/api/v1/data",
            Some(r#"{"name":"/a","type":"value"}"#),
            400,
            "Credentials of this type cannot be generated. Please adjust the credential type and retry your request.",
        ),
        (
            "POST",
            "/api/v1/data",
            Some(r#"{"name":"/a","type":"password","mode":"overwrite","overwrite":true}"#),
            400,
            "The parameters overwrite and mode cannot be combined. Please update and retry your request.",
        ),
        (
            "POST",
            "/api/v1/bulk-regenerate",
            Some("{}"),
            400,
            "You must specify a signing CA. Please update and retry your request.",
        ),
        (
            "POST",
            "/api/v2/permissions",
            Some(r#"{"path":"/a","actor":"b","operations":["fly"]}"#),
            422,
            "The provided operation is not supported. Valid values include read, write, delete, read_acl, and write_acl.",
        ),
        (
            "GET",
            "/api/v2/permissions?path=/a&actor=b",
            None,
            404,
            "The request could not be completed because the permission does not exist or you do not have sufficient \
             authorization.",
        ),
        (
            "PUT",
            "/api/v1/data",
            Some("{"),
            400,
            "The request could not be fulfilled because the request path or body did not meet expectation. Please check \
             the documentation for required formatting and retry your request.",
        ),
        ("PATCH", "/api/v1/data", None, 404, ""),
        ("GET", "/api/v1/nothing", None, 404, ""),
    ];
    for (method, path, body, status, error) in cases {
        let (got, answer) = admin.send_request(method, path, body);
        let expected = if error.is_empty() { Value::Null } else { json!({ "error": error }) };
        assert_eq!((got, &answer), (status, &expected), "{method} {path} {body:?}");
    }
    // Every value of an error is a string, because clients parse errors into a map of strings.
    let (status, answer) = send_request(&house, "GET", "/api/v1/data?name=/a", &[], None);
    let denied = json!({
        "error": "access_denied",
        "error_description": "Full authentication is required to access this resource",
    });
    assert_eq!((status, answer), (401, denied));
    let (status, answer) = send_request(&house, "GET", "/info", &[], None);
    assert_eq!((status, &answer["app"]["name"]), (200, &json!("CredHub")));
    assert_eq!(send_request(&house, "GET", "/health/", &[], None), (200, json!({ "status": "UP" })));
    // Management mode read-only, set from this machine with a token: writes are rejected, reads work.
    let none: &[&str] = &[];
    assert_eq!(send_request(&house, "POST", "/management", none, Some(r#"{"read_only_mode":true}"#)).0, 401);
    assert_eq!(admin.send_request("POST", "/management", Some(r#"{"read_only_mode":true}"#)).0, 200);
    assert_eq!(admin.send_request("PUT", "/api/v1/data", Some(&put("/a"))).0, 503);
    assert_eq!(admin.send_request("GET", "/api/v1/key-usage", None).0, 200);
    assert_eq!(send_request(&house, "POST", "/management", none, Some(r#"{"read_only_mode":false}"#)).0, 401);
    assert_eq!(admin.send_request("POST", "/management", Some(r#"{"read_only_mode":false}"#)).0, 200);
    assert_eq!(admin.send_request("PUT", "/api/v1/data", Some(&put("/a"))).0, 200);
    // Check-and-set.
    let known =
        admin.send_request("GET", "/api/v1/data?name=/a&current=true", None).1["data"][0]["id"].clone();
    let header = format!("authorization: Bearer {}", admin.token);
    let matched = format!("if-match: \"{}\"", known.as_str().unwrap());
    let only_if = |condition: &str| {
        send_request(&house, "PUT", "/api/v1/data", &["-H", &header, "-H", condition], Some(&put("/a"))).0
    };
    assert_eq!((only_if(&matched), only_if(&matched), only_if("if-none-match: *")), (200, 409, 409));
    // The first match of each list, in one request.
    let lookup = r#"{"lookups":[["/none","/A"],"/none"]}"#;
    let (status, found) = admin.send_request("POST", "/api/v1/lookup", Some(lookup));
    assert_eq!(
        (status, &found["results"][0]["value"], &found["results"][1]),
        (200, &json!("v"), &Value::Null)
    );
}

#[test]
fn oauth_tokens_are_issued_refreshed_and_revoked_and_forgeries_rejected() {
    let house = House::up();
    let made = house.json(&["token", "create", "ci", "--role", "viewer"]);
    let secret = made["token"].as_str().unwrap();
    let form = |fields: &str| {
        let kind = ["-H", "content-type: application/x-www-form-urlencoded"];
        send_request(&house, "POST", "/oauth/token", &kind, Some(fields))
    };
    let login = |name: &str, secret: &str| {
        form(&format!(
            "grant_type=client_credentials&client_id={name}&client_secret={secret}&response_type=token"
        ))
    };
    for (name, secret) in [("ci", "wrong"), ("other", secret), ("ci", "bulla_x"), ("", "")] {
        let (status, answer) = login(name, secret);
        assert_eq!((status, &answer["error"]), (401, &json!("unauthorized")), "{name}");
    }
    assert_eq!(form("grant_type=implicit").1["error"], "unsupported_grant_type");
    let (status, answer) = login("ci", secret);
    assert_eq!(status, 200, "{answer}");
    let access = answer["access_token"].as_str().unwrap().to_owned();
    let id = answer["jti"].as_str().unwrap().to_owned();
    let client = Client { house: &house, token: access.clone() };
    assert_eq!(client.send_request("GET", "/version", None).0, 200);
    // The client has no permission at first, then the permission on a path, whatever its case.
    let admin = Client::admin(&house);
    admin.send_request("PUT", "/api/v1/data", Some(r#"{"name":"/Team/x","type":"value","value":"v"}"#));
    let read = || client.send_request("GET", "/api/v1/data?name=/team/x&current=true", None).0;
    assert_eq!(read(), 404);
    house.does(&["credential", "permission", "grant", "uaa-client:ci", "/team/*", "read"]);
    assert_eq!(read(), 200);
    assert_eq!(
        client
            .send_request("PUT", "/api/v1/data", Some(r#"{"name":"/team/x","type":"value","value":"w"}"#))
            .0,
        403
    );
    house.does(&["credential", "permission", "revoke", "uaa-client:ci", "/Team/*"]);
    assert_eq!(read(), 404, "taken away at once");
    // Password grant of a user, with a refresh token.
    let fields =
        format!("grant_type=password&client_id=credhub_cli&client_secret=&username=ci&password={secret}");
    let (status, answer) = form(&fields);
    assert_eq!(status, 200, "{answer}");
    let refresh = answer["refresh_token"].as_str().unwrap();
    assert_eq!(form(&format!("grant_type=refresh_token&refresh_token={refresh}")).0, 200);
    assert_eq!(
        form(&format!("grant_type=refresh_token&refresh_token={access}")).0,
        401,
        "an access token is not a refresh token"
    );
    // Forged tokens are rejected.
    let parts: Vec<&str> = access.split('.').collect();
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    for bad in [
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], "A".repeat(parts[2].len())),
        format!("{}.{}", parts[0], parts[1]),
        refresh.to_owned(),
        "x".to_owned(),
    ] {
        let (status, answer) = Client { house: &house, token: bad }.send_request("GET", "/version", None);
        assert_eq!((status, &answer["error"]), (401, &json!("invalid_token")));
    }
    // A token is revoked by its owner, and with the API token that it was issued for.
    assert_eq!(
        client.send_request("DELETE", &format!("/oauth/token/revoke/{}", uuid::Uuid::nil()), None).0,
        403
    );
    assert_eq!(client.send_request("DELETE", &format!("/oauth/token/revoke/{id}"), None).0, 200);
    let (status, answer) = client.send_request("GET", "/version", None);
    assert_eq!(
        (status, &answer["error"]),
        (401, &json!("access_token_expired")),
        "clients log in anew at that"
    );
    let second = login("ci", secret).1["access_token"].as_str().unwrap().to_owned();
    let second = Client { house: &house, token: second };
    assert_eq!(second.send_request("GET", "/version", None).0, 200);
    house.does(&["token", "delete", made["id"].as_str().unwrap()]);
    assert_eq!(second.send_request("GET", "/version", None).0, 401);
}

/// Checks that a planted secret is in no trace log, in no clear-text database column, and in no response to another request.
#[test]
fn secrets_do_not_appear_in_logs_database_or_error_responses() {
    const CANARY: &str = "canary-9d41f2";
    let mut house = House::up();
    let admin_token = Client::admin(&house).token;
    house.stop();
    let log = std::fs::File::create(house.path("log")).unwrap();
    let mut server: Command = house.bulla(&["up", "--log", "trace", "--log-json"]);
    let mut server = server.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    house.until("the server", || {
        let output =
            house.program("curl", "apt-get install -y curl", &["-sk", &format!("{}/readyz", house.url())]);
        output.status.success()
    });
    let secret = write(&house, "secret", CANARY);
    house.does(&["credential", "set", "/c/one", "--type", "password", "--file", &secret]);
    assert_eq!(text(&house.does(&["credential", "get", "/c/one", "--value"])), format!("{CANARY}\n"));
    let admin = Client { house: &house, token: admin_token.clone() };
    let (status, answer) = admin.send_request(
        "PUT",
        "/api/v1/data",
        Some(&format!(r#"{{"name":"/c/bad","type":"user","value":{{"password":"{CANARY}","more":1}}}}"#)),
    );
    assert_eq!(status, 400);
    assert!(!answer.to_string().contains(CANARY), "{answer}");
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    server.wait().unwrap();
    let mut bytes_checked = 0;
    for entry in [house.path("log")].into_iter().chain(files(&house.path("data"))) {
        let bytes = std::fs::read(&entry).unwrap();
        let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert!(!found, "{} holds it", entry.display());
        let token = bytes.windows(admin_token.len()).any(|window| window == admin_token.as_bytes());
        assert!(!token || entry.ends_with("admin.token"), "{} holds the token", entry.display());
        bytes_checked += bytes.len();
    }
    assert!(bytes_checked > 100_000, "the log and the database were looked at: {bytes_checked} octets");
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).collect()
}

/// A UAA issuer that signs tokens and publishes its keys, in a thread. It can be unavailable, and change its key.
struct Uaa {
    port: u16,
    published: std::sync::Arc<std::sync::Mutex<Option<Value>>>,
}

impl Uaa {
    const ISSUER: &'static str = "https://uaa.example/oauth/token";

    /// Starts an issuer that is unavailable at first.
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let published = std::sync::Arc::new(std::sync::Mutex::new(None::<Value>));
        let keys = std::sync::Arc::clone(&published);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                // A client that disconnects is no error of the issuer.
                let _ = answer_as_uaa(stream, port, keys.lock().unwrap().clone());
            }
        });
        Self { port, published }
    }

    fn publish(&self, kid: &str, key: &PrivateKey) {
        let public = x509::PublicKey::parse(key.spki()).unwrap();
        let mut parts = x509::der::Reader::new(public.key_bytes()).sequence().unwrap();
        let mut number = || {
            let bytes = parts.expect(x509::der::tag::INTEGER).unwrap().content;
            BASE64.encode(bytes.strip_prefix(&[0]).unwrap_or(bytes))
        };
        let (n, e) = (number(), number());
        *self.published.lock().unwrap() = Some(
            json!({ "keys": [{ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid, "n": n, "e": e }] }),
        );
    }

    fn token(kid: &str, key: &PrivateKey, change: Value) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": Self::ISSUER, "exp": now + 300, "aud": ["credhub"], "grant_type": "client_credentials",
            "client_id": "concourse", "scope": ["credhub.read", "credhub.write"],
        });
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": kid });
        let text = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = key.sign_now(text.as_bytes()).unwrap();
        format!("{text}.{}", BASE64.encode(signature))
    }
}

fn answer_as_uaa(mut stream: std::net::TcpStream, port: u16, keys: Option<Value>) -> std::io::Result<()> {
    use std::io::{Read, Write};
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let Some(keys) = keys else {
        return stream.write_all(b"HTTP/1.1 503 Away\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let body = if request.starts_with(b"GET /token_keys") {
        keys
    } else {
        json!({ "issuer": Uaa::ISSUER, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "jwks_uri": at("/token_keys") })
    };
    let body = body.to_string();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

#[test]
fn uaa_tokens_are_verified_with_published_keys_after_key_changes() {
    let uaa = Uaa::start();
    let mut house = House::prepared("", None);
    let url = format!("http://127.0.0.1:{}", uaa.port);
    house.environment("BULLA_CREDENTIALS_UAA_URL", &url);
    house.environment("BULLA_CREDENTIALS_UAA_AUDIENCE", "credhub");
    house.start();
    let admin = Client::admin(&house);
    assert_eq!(admin.send_request("GET", "/info", None).1["auth-server"]["url"], url, "clients log in there");
    admin.send_request("PUT", "/api/v1/data", Some(r#"{"name":"/c/x","type":"value","value":"v"}"#));
    house.does(&["credential", "permission", "grant", "uaa-client:concourse", "/c/*", "read"]);
    let key = PrivateKey::generate(KeyType::Rsa2048).unwrap();
    let read = |token: String| {
        Client { house: &house, token }.send_request("GET", "/api/v1/data?name=/c/x&current=true", None)
    };
    // The store starts while its issuer is unavailable, and recovers without a restart.
    assert_eq!(read(Uaa::token("one", &key, json!({}))).0, 503);
    uaa.publish("one", &key);
    house.until("the issuer", || read(Uaa::token("one", &key, json!({}))).0 == 200);
    let expired = read(Uaa::token("one", &key, json!({ "exp": 1 })));
    assert_eq!((expired.0, &expired.1["error"]), (401, &json!("access_token_expired")));
    for bad in [
        json!({ "iss": "https://other.example" }),
        json!({ "aud": ["other"] }),
        json!({ "grant_type": "implicit" }),
    ] {
        let (status, answer) = read(Uaa::token("one", &key, bad.clone()));
        assert_eq!((status, &answer["error"]), (401, &json!("invalid_token")), "{bad}");
    }
    assert_eq!(read(Uaa::token("one", &key, json!({ "scope": ["credhub.read"] }))).0, 403);
    assert_eq!(read(Uaa::token("one", &key, json!({ "client_id": "other" }))).0, 404, "no permission");
    let stranger = PrivateKey::generate(KeyType::Rsa2048).unwrap();
    assert_eq!(read(Uaa::token("one", &stranger, json!({}))).0, 401, "another key by the same name");
    // A new key is fetched when a token names it.
    assert_eq!(read(Uaa::token("two", &stranger, json!({}))).0, 401, "not published");
    uaa.publish("two", &stranger);
    house.until("the new key", || read(Uaa::token("two", &stranger, json!({}))).0 == 200);
    // The store's own tokens stay valid.
    assert_eq!(admin.send_request("GET", "/api/v1/data?name=/c/x&current=true", None).0, 200);
}

/// Writes the certificate and the key of a credential to files.
fn write_files(house: &House, name: &str, file: &str) {
    for (field, ending) in [("certificate", "pem"), ("private_key", "key")] {
        let got = house.does(&["credential", "get", name, "--key", field, "--value"]);
        std::fs::write(house.path(&format!("{file}.{ending}")), got.stdout).unwrap();
    }
}

#[test]
fn credential_store_ca_is_listed_but_grants_no_server_access() {
    let house = House::up();
    let make = |name: &str, how: &[&str]| {
        let with: Vec<&str> = how.iter().flat_map(|one| ["--with", *one]).collect();
        house.does(&[&["credential", "generate", name, "--type", "certificate"][..], &with].concat());
    };
    make("/deploy/ca", &["common_name=deploy", "is_ca=true"]);
    make("/deploy/web", &["common_name=web", "ca=/deploy/ca", "extended_key_usage=client_auth"]);
    write_files(&house, "/deploy/ca", "deploy");
    write_files(&house, "/deploy/web", "web");
    let listed = house.json(&["ca", "list"]);
    let all = listed["rows"].as_array().unwrap();
    let known: Vec<&Value> = all.iter().map(|ca| &ca["credential"]).filter(|path| !path.is_null()).collect();
    assert_eq!(known, [&json!("/deploy/ca")], "{listed}");
    // Anyone who may write a credential can generate such a CA. Clients with certificates from it get no access.
    let files = ["data/root.pem", "web.pem", "web.key", "deploy.pem"];
    let [root, leaf, key, ca] = files.map(|file| house.path(file).display().to_string());
    let url = format!("{}/api/v1/auth/me", house.url());
    let who = ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &root, &url];
    let nobody = house.program("curl", "apt-get install -y curl", &who);
    assert_eq!(text(&nobody), "401");
    let as_leaf = [&who[..], &["--cert", &leaf, "--key", &key]].concat();
    let refused = house.program("curl", "apt-get install -y curl", &as_leaf);
    assert!(!refused.status.success(), "the handshake came to its end: {}", describe(&refused));
    let own = std::fs::read_to_string(&ca).unwrap();
    assert!(!std::fs::read_to_string(&root).unwrap().contains(own.trim()), "nobody is told to trust it");
    // Revoked like all others, on a CRL that openssl accepts.
    assert!(!crl_check(&house, &ca, &ca, &leaf));
    let revoked = house.json(&["ca", "revoke", &leaf, "--reason", "superseded"]);
    assert_eq!(revoked["count"], 1, "{revoked}");
    house.until("the CRL has it", || crl_check(&house, &ca, &ca, &leaf));
}
