//! The credential store over both of its APIs: anonymous, a caller without permissions, a caller with permissions on a path, an
//! administrator.

use http::{HeaderValue, Method};
use serde_json::{Value, json};
use server::limit::LimitOptions;
use server::routing::{NonApiAccess, NonApiOperation};

use super::Verdict;
use crate::world::{Plan, TestResponse, World, send};

/// The path on which the caller of the column "own" has permissions. Other callers own `/other`.
pub(super) const FOLDERS: [&str; 2] = ["own", "other"];

pub(super) struct Server {
    pub(super) world: World,
    /// The version IDs, in the order of [`FOLDERS`].
    versions: Vec<String>,
}

/// A request for one of the paths. `shows` is text that the response contains if the value was accessed.
struct Sample {
    path: String,
    body: Value,
    shows: Option<String>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let world = World::start_with(Plan {
            options: Box::new(|options| options.console = Some(web_console::pages)),
            state: Box::new(|state| state.limits(LimitOptions::unlimited())),
            credentials: true,
            ..Plan::default()
        })
        .await;
        let mut server = Self { world, versions: Vec::new() };
        for folder in FOLDERS {
            let made = server.put(folder).await;
            server.versions.push(made.json()["id"].as_str().unwrap().to_owned());
        }
        server
    }

    pub(super) async fn send_request(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> TestResponse {
        let address = self.world.running.as_ref().unwrap().credential_address.unwrap();
        let client = self.world.builder().build().unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let kind = if method == Method::PATCH && path.starts_with("/v1/") {
            HeaderValue::from_static("application/merge-patch+json")
        } else {
            HeaderValue::from_static("application/json")
        };
        let mut request = client.request(method, format!("https://{address}{path}"));
        if let Some(token) = token {
            let vault = path.starts_with("/v1/");
            request = if vault { request.header("x-vault-token", token) } else { request.bearer_auth(token) };
        }
        if !body.is_null() {
            request = request.header("content-type", kind).body(body.to_string());
        }
        send(request).await
    }

    async fn put(&self, folder: &str) -> TestResponse {
        let body =
            json!({ "name": format!("/{folder}/x"), "type": "value", "value": format!("secret-{folder}") });
        self.send_request(Some(&self.world.admin), "PUT", "/api/v1/data", &body).await.expect(200)
    }

    /// Creates a token with these operations on paths below `/own`.
    pub(super) async fn permitted(&self, name: &str, operations: &[&str]) -> String {
        let token = self.world.token(name, "viewer", "any").await;
        let body =
            json!({ "path": "/own/*", "actor": format!("uaa-client:{name}"), "operations": operations });
        self.send_request(Some(&self.world.admin), "POST", "/api/v2/permissions", &body).await.expect(201);
        token
    }

    /// Returns the request of an operation for one path. `None` if only the status without authentication is tested.
    fn sample(&self, operation: &NonApiOperation, folder: usize) -> Option<Sample> {
        let name = format!("/{}/x", FOLDERS[folder]);
        let secret = format!("secret-{}", FOLDERS[folder]);
        let all = json!({ "name": name, "type": "value", "value": secret });
        let (path, body, shows) = match (operation.method.as_str(), operation.path.as_str()) {
            ("GET", "/api/v1/data") => (format!("/api/v1/data?name={name}"), Value::Null, Some(secret)),
            ("GET", "/api/v1/data/{id}") => {
                (format!("/api/v1/data/{}", self.versions[folder]), Value::Null, Some(secret))
            }
            ("PUT", "/api/v1/data") => ("/api/v1/data".to_owned(), all, None),
            ("POST", "/api/v1/data") => {
                let body = json!({ "name": format!("{name}-made"), "type": "password" });
                ("/api/v1/data".to_owned(), body, None)
            }
            ("POST", "/api/v1/regenerate") => {
                ("/api/v1/regenerate".to_owned(), json!({ "name": format!("{name}-made") }), None)
            }
            ("POST", "/api/v1/lookup") => {
                ("/api/v1/lookup".to_owned(), json!({ "lookups": [[name]] }), Some(secret))
            }
            ("POST", "/api/v1/wrap") => ("/api/v1/wrap".to_owned(), json!({ "name": name }), None),
            ("GET", "/api/v1/versions") => (format!("/api/v1/versions?name={name}"), Value::Null, None),
            ("GET", "/api/v1/access") => (format!("/api/v1/access?name={name}"), Value::Null, None),
            ("GET", "/v1/secret/data/{*path}") => {
                (format!("/v1/secret/data{name}"), Value::Null, Some(secret))
            }
            ("POST" | "PUT", "/v1/secret/data/{*path}") => {
                (format!("/v1/secret/data{name}"), json!({ "data": { "value": secret } }), None)
            }
            ("GET", "/v1/secret/metadata/{*path}" | "/v1/secret/subkeys/{*path}") => {
                (operation.path.replace("/{*path}", &name), Value::Null, None)
            }
            ("LIST", "/v1/secret/metadata/{*path}") => {
                (format!("/v1/secret/metadata/{}", FOLDERS[folder]), Value::Null, Some("x".to_owned()))
            }
            ("GET", "/api/v1/leases") => {
                (format!("/api/v1/leases?path=/{}/*", FOLDERS[folder]), Value::Null, None)
            }
            ("PUT", "/api/v1/database-connections") => {
                let body = json!({ "name": "shop", "url": "postgres://keeper@127.0.0.1/shop", "password": "secret" });
                ("/api/v1/database-connections".to_owned(), body, None)
            }
            ("PUT", "/api/v1/database-roles") => {
                let creation = ["CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password_scram}}'"];
                let body = json!({ "name": name, "connection": "shop", "creation": creation });
                ("/api/v1/database-roles".to_owned(), body, None)
            }
            ("GET", "/api/v1/permissions") => {
                (format!("/api/v1/permissions?credential_name={name}"), Value::Null, None)
            }
            ("POST" | "PUT", "/v1/secret/metadata/{*path}") => {
                (format!("/v1/secret/metadata{name}"), json!({ "custom_metadata": { "a": "1" } }), None)
            }
            // These operations have no path.
            ("GET", path)
                if operation.need != NonApiAccess::AtPath && !path.contains('{') && !streams(operation) =>
            {
                (path.to_owned(), Value::Null, None)
            }
            _ => return None,
        };
        Some(Sample { path, body, shows })
    }

    async fn verdict(&self, token: &str, operation: &NonApiOperation, sample: &Sample) -> Verdict {
        let answer =
            self.send_request(Some(token), operation.method.as_str(), &sample.path, &sample.body).await;
        let understood = !matches!(answer.status.as_u16(), 400 | 405 | 415 | 422);
        assert!(
            understood,
            "{} {}: ask it so that it is understood: {answer:?}",
            operation.method, sample.path
        );
        match (&sample.shows, answer.status.is_success()) {
            (Some(shown), true) if !answer.text.contains(shown.as_str()) => Verdict::Hidden,
            _ => Verdict::of(answer.status.as_u16()),
        }
    }
}

fn needs(need: NonApiAccess) -> &'static str {
    match need {
        NonApiAccess::Nothing => "anybody",
        NonApiAccess::OwnCredential => "the credential in the request",
        NonApiAccess::Caller => "a known caller",
        NonApiAccess::AtPath => "permission at the path",
        NonApiAccess::Loopback => "anybody on this machine",
        NonApiAccess::LoopbackManager => "`credential.manage`, on this machine",
        NonApiAccess::Manager => "`credential.manage`",
        NonApiAccess::DatabaseManager => "`database.manage`",
    }
}

/// Operations with endless responses.
fn streams(operation: &NonApiOperation) -> bool {
    operation.path == "/api/v1/events"
}

/// The callers, in the order of the table's columns: the tokens of an administrator, of an operator, and of callers with one
/// permission at `/own`.
pub(super) async fn callers(server: &Server) -> [String; 4] {
    [
        server.world.admin.clone(),
        server.world.token("operator", "operator", "any").await,
        server.permitted("reader", &["read"]).await,
        server.permitted("writer", &["write"]).await,
    ]
}

/// The columns of the callers, each for the path `/own` and another one.
pub(super) const COLUMNS: [&str; 8] = [
    "admin, own",
    "admin, other",
    "operator, own",
    "operator, other",
    "read at own, own",
    "read at own, other",
    "write at own, own",
    "write at own, other",
];

pub(super) async fn table() -> String {
    let server = Server::start().await;
    let tokens = callers(&server).await;
    let mut faults = Vec::new();
    let mut rows = Vec::new();
    for operation in server::credential_operations() {
        let what = format!("{} {}", operation.method, operation.path);
        let path = operation.path.replace("{*path}", "none");
        let path = path.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        if !streams(&operation) {
            let answer = server.send_request(None, operation.method.as_str(), &path, &Value::Null).await;
            let open = matches!(
                operation.need,
                NonApiAccess::Nothing | NonApiAccess::Loopback | NonApiAccess::OwnCredential
            );
            let refused = matches!(answer.status.as_u16(), 401 | 403);
            // A failed login has the same status as an unauthenticated request.
            if refused == open && operation.need != NonApiAccess::OwnCredential {
                faults.push(format!("{what} by nobody: {answer:?}"));
            }
        }
        let mut cells = vec![format!("`{what}`"), needs(operation.need).to_owned()];
        for token in &tokens {
            for folder in 0..FOLDERS.len() {
                cells.push(match server.sample(&operation, folder) {
                    None => String::new(),
                    Some(sample) => match server.verdict(token, &operation, &sample).await {
                        Verdict::In => "yes".to_owned(),
                        Verdict::Refused | Verdict::Hidden => "–".to_owned(),
                    },
                });
            }
        }
        rows.push(cells);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let columns = [&["operation", "needs"], &COLUMNS[..]].concat();
    let text = super::table("The credential store: CredHub's API, and Vault's below /v1", &columns, &rows);
    format!("{text}An empty cell: the test asks this operation without a caller only.\n\n")
}
