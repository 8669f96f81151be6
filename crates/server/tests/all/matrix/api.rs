//! The API: every route by role, scope, and own or other objects.

use std::collections::BTreeMap;
use std::time::Duration;

use authority::profile::Profile;
use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::access::{self, BUILT_IN_ROLES, Permission};
use server::limit::LimitOptions;
use server::routing::{Need, RouteInfo};
use server::{Components, State, router};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::Verdict;
use crate::parts::{Parts, names_under};
use crate::world;

/// The grant scopes that have columns in the matrix.
pub(super) const SCOPES: [&str; 3] = ["any", "team:a", "profile:pa"];

/// The objects of one team and one profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) team: &'static str,
    pub(super) profile: &'static str,
    pub(super) certificate: String,
    pub(super) approval: String,
    /// A pending change to the profile that requires approval.
    pub(super) change: String,
    pub(super) issued: String,
    pub(super) document: Value,
}

/// The status and body of a response.
type Response = (u16, String);

pub(super) struct Server {
    pub(super) state: State,
    pub(super) router: Router,
    pub(super) routes: Vec<RouteInfo>,
    admin: String,
    /// The token of the second administrator, who approves changes of the first one.
    second: String,
    /// The objects of team `a` with profile `pa`, and of team `b` with profile `pb`.
    pub(super) objects: [Objects; 2],
    pub(super) numbers: std::cell::Cell<u32>,
    pub(super) stop: CancellationToken,
    _folder: tempfile::TempDir,
}

async fn send_request(
    router: &Router,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Response {
    // As a page of the server itself: sign-in accepts no other.
    let mut request = Request::builder().method(method).uri(path).header("sec-fetch-site", "same-origin");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = match body {
        Some(body) => {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    let response = router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    // Event streams have no end, and are cut off.
    let content_type = response.headers().get("content-type").map(|value| value.as_bytes().to_vec());
    let is_stream = content_type.is_some_and(|value| value.starts_with(b"text/event-stream"));
    let limit = Duration::from_secs(if is_stream { 1 } else { 60 });
    let read = axum::body::to_bytes(response.into_body(), 16 << 20);
    let body = tokio::time::timeout(limit, read).await;
    let text = body.ok().and_then(Result::ok).map(|body| String::from_utf8_lossy(&body).into_owned());
    (status, text.unwrap_or_default())
}

impl Server {
    pub(super) async fn start() -> Self {
        let (folder, store) = world::store().await;
        let Parts { clock, authority, issuers, lifecycle, .. } = Parts::with_issuing(&store).await;
        for (name, requires_approval) in [("pa", false), ("pb", false), ("ga", true), ("gb", true)] {
            let profile = Profile { requires_approval, ..Profile::for_servers(name, names_under("example")) };
            authority.put_profile(profile, None, "test").await.unwrap();
        }
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let second = access::break_glass(&store, &clock, "the matrix").await.unwrap();
        let components = Components {
            issuance: Some(world::issuance(&authority, &store, &clock)),
            certificates: Some(lifecycle.clone()),
            issuers: Some(issuers),
            ..Components::default()
        };
        let state = State::builder(store, clock).limits(LimitOptions::unlimited()).components(components);
        let state = state.build();
        let (router, routes) = router(&state);
        let stop = CancellationToken::new();
        let until = stop.clone();
        tokio::spawn(async move { lifecycle.run(until).await });
        let mut server = Self {
            state,
            router,
            routes,
            admin,
            second: second.expose_secret().to_owned(),
            objects: Default::default(),
            numbers: std::cell::Cell::new(0),
            stop,
            _folder: folder,
        };
        server.objects = [server.made("a", "pa", "ga").await, server.made("b", "pb", "gb").await];
        server
    }

    pub(super) async fn by_admin(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, text) = send_request(&self.router, Some(&self.admin), method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn made(&self, team: &'static str, profile: &'static str, gated: &str) -> Objects {
        let path = "/api/v1/certificates";
        let new = |name: String, profile: &str| json!({ "names": [name], "profile": profile, "team": team });
        let made = self.by_admin("POST", path, Some(&new(format!("{team}.example"), profile))).await;
        let id = made["id"].as_str().unwrap().to_owned();
        self.by_admin("POST", path, Some(&new(format!("gated-{team}.example"), gated))).await;
        let find = async |path: &str, found: &dyn Fn(&Value) -> bool| {
            testbed::until_some(path, async || {
                let listed = self.by_admin("GET", path, None).await;
                let items = listed["items"].as_array().cloned().unwrap_or_else(|| vec![listed.clone()]);
                items.into_iter().find(|item| found(item))
            })
            .await
        };
        find(&format!("{path}/{id}"), &|item| item["status"] == "active").await;
        let issued = find("/api/v1/issued?limit=500", &|item| item["profile"] == profile).await;
        let name = format!("gated-{team}.example");
        let approval = find("/api/v1/approvals?state=open", &|item| item.to_string().contains(&name)).await;
        let document = self.by_admin("GET", &format!("/api/v1/profiles/{profile}"), None).await;
        let gate = format!("/api/v1/profiles/{gated}");
        let mut changed = self.by_admin("GET", &gate, None).await;
        changed["names"]["max"] = json!(7);
        let change = self.by_admin("PUT", &gate, Some(&changed)).await;
        let text = |value: &Value| value["id"].as_str().unwrap().to_owned();
        let (approval, change, issued) = (text(&approval), text(&change), text(&issued));
        Objects { team, profile, certificate: id, approval, change, issued, document }
    }

    pub(super) async fn token(&self, role: &str, scope: &str) -> String {
        let body = json!({ "name": format!("{role}-{scope}"), "grants": [{ "role": role, "scope": scope }] });
        let made = self.by_admin("POST", "/api/v1/tokens", Some(&body)).await;
        // A grant for a profile that requires approval needs approval by another person.
        if let Some(change) = made["id"].as_str().filter(|_| made["state"] == "open") {
            let path = format!("/api/v1/changes/{change}/approve");
            let (status, text) =
                send_request(&self.router, Some(&self.second), "POST", &path, Some(&json!({}))).await;
            assert_eq!(status, 200, "{text}");
        }
        made["token"].as_str().unwrap().to_owned()
    }

    /// Returns the outcome of a request to a route. Only scoped routes are tested with objects: the other routes ignore them.
    async fn verdict(&self, route: &RouteInfo, token: Option<&str>, objects: Option<&Objects>) -> Verdict {
        let Some(objects) = objects.filter(|_| route.scoped) else {
            let (status, _) =
                send_request(&self.router, token, route.method.as_str(), &nowhere(&route.path), None).await;
            // The object does not exist, so 404 means that the caller was authorized.
            return if matches!(status, 401 | 403) { Verdict::Refused } else { Verdict::In };
        };
        self.numbers.set(self.numbers.get() + 1);
        let request = ApiRequest::of(route, objects, self.numbers.get());
        let (status, text) =
            send_request(&self.router, token, route.method.as_str(), &request.path, request.body.as_ref())
                .await;
        request.judge(status, &text)
    }
}

/// Returns the path with parameters that name no object.
pub(super) fn nowhere(path: &str) -> String {
    let path = path.replace("{id}", "00000000-0000-7000-8000-000000000000");
    let parts = path.split('/').map(|part| if part.starts_with('{') { "-none-" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// A request to a scoped route that names the objects of one team.
struct ApiRequest {
    path: String,
    body: Option<Value>,
    /// The part of the response, other than its status, that shows that the objects were accessed.
    shows: Shows,
}

enum Shows {
    Status,
    /// A listing contains this text.
    Text(String),
    /// A bulk action matched at least one object.
    Matched,
    /// The first item of a batch was not rejected.
    Item,
}

impl ApiRequest {
    /// Panics for an unknown scoped route: add how to request an object of a team.
    fn of(route: &RouteInfo, own: &Objects, number: u32) -> Self {
        let new =
            json!({ "names": [format!("n{number}.example")], "profile": own.profile, "team": own.team });
        let select = json!({ "ids": [own.certificate] });
        let path = route.path.as_str();
        let known = match (route.method.as_str(), path) {
            ("GET", "/api/v1/certificates") => (None, Shows::Text(own.certificate.clone())),
            ("GET", "/api/v1/certificates/groups" | "/api/v1/certificates/facets") => {
                (None, Shows::Text(format!("\"value\":\"{}\"", own.profile)))
            }
            ("GET", "/api/v1/series") => (None, Shows::Status),
            ("GET", "/api/v1/issued") => (None, Shows::Text(own.issued.clone())),
            ("GET", "/api/v1/profiles") => (None, Shows::Text(format!("\"name\":\"{}\"", own.profile))),
            ("GET", "/api/v1/changes") => (None, Shows::Text(own.change.clone())),
            ("GET", "/api/v1/approvals") => (None, Shows::Text(own.approval.clone())),
            ("GET" | "DELETE", _) => (None, Shows::Status),
            ("POST", "/api/v1/certificates") => (Some(new), Shows::Status),
            ("POST", "/api/v1/certificates/batch") => (Some(json!({ "certificates": [new] })), Shows::Item),
            ("POST", "/api/v1/certificates/renew" | "/api/v1/certificates/revoke") => {
                (Some(json!({ "select": select })), Shows::Matched)
            }
            ("POST", "/api/v1/certificates/reassign") => {
                (Some(json!({ "select": select, "tags_set": { "n": "1" } })), Shows::Matched)
            }
            ("PATCH", "/api/v1/certificates/{id}") => (Some(json!({ "tags": { "n": "1" } })), Shows::Status),
            ("POST", "/api/v1/certificates/{id}/export") => (Some(json!({ "format": "pem" })), Shows::Status),
            ("POST", "/api/v1/certificates/{id}/revoke") => {
                (Some(json!({ "reason": "superseded" })), Shows::Status)
            }
            ("POST", "/api/v1/revocations") => {
                (Some(json!({ "certificate": own.issued, "reason": "superseded" })), Shows::Status)
            }
            ("POST", "/api/v1/profiles/{name}/certificates") => {
                (Some(json!({ "csr": world::request_for(&format!("n{number}.example")) })), Shows::Status)
            }
            ("PUT", "/api/v1/profiles/{name}") => (Some(own.document.clone()), Shows::Status),
            ("POST", path) if path.contains("/{id}/") => (Some(json!({})), Shows::Status),
            (method, path) => panic!("the matrix has no row for {method} {path}: add how it is asked"),
        };
        let (body, shows) = known;
        let mut path = own.placed(path);
        if matches!(shows, Shows::Text(_)) {
            let counts = path.ends_with("/groups") || path.ends_with("/facets");
            path.push_str(if counts { "?by=profile" } else { "?limit=500" });
        }
        // The query names the team whose series are returned.
        if path == "/api/v1/series" {
            path.push_str(&format!("?team={}", own.team));
        }
        // Callers with access to some profiles only must name one of them.
        if path.starts_with("/api/v1/issued?") {
            path.push_str(&format!("&profile={}", own.profile));
        }
        Self { path, body, shows }
    }

    fn judge(&self, status: u16, text: &str) -> Verdict {
        let answer = || serde_json::from_str::<Value>(text).unwrap_or_default();
        let reached = match (&self.shows, status) {
            (Shows::Text(wanted), 200) => text.contains(wanted),
            (Shows::Matched, 200) => answer()["matched"].as_u64() > Some(0),
            (Shows::Item, 200) => answer()["items"][0]["problem"]["status"] != 403,
            _ => return Verdict::of(status),
        };
        if reached { Verdict::In } else { Verdict::Hidden }
    }
}

impl Objects {
    /// Fills the path parameters with objects of this team.
    fn placed(&self, path: &str) -> String {
        let objects = [
            ("/api/v1/certificates/{id}", &self.certificate),
            ("/api/v1/approvals/{id}", &self.approval),
            ("/api/v1/changes/{id}", &self.change),
            ("/api/v1/issued/{id}", &self.issued),
        ];
        for (prefix, id) in objects {
            if let Some(rest) = path.strip_prefix(prefix) {
                return format!("{}{rest}", prefix.replace("{id}", id));
            }
        }
        let path = path.replace("/api/v1/profiles/{name}", &format!("/api/v1/profiles/{}", self.profile));
        // Enrolments can be created only by a device's request.
        let known = !path.contains('{') || path.starts_with("/api/v1/enrolments/{id}");
        assert!(known, "the matrix has no object for {path}: make one for each team");
        nowhere(&path)
    }
}

fn needs(route: &RouteInfo) -> String {
    let recent = if route.recent_proof { "; recent sign-in" } else { "" };
    let need = match route.need {
        Need::Nothing => "anybody".to_owned(),
        Need::Caller => "a known caller".to_owned(),
        Need::Permission(permission) => format!("`{permission}`"),
    };
    format!("{need}{recent}")
}

/// Returns a short description of the roles that are authorized.
fn cell(route: &RouteInfo, by_role: &BTreeMap<&str, Verdict>) -> String {
    let holds = |role: &str| match route.need {
        Need::Nothing | Need::Caller => true,
        Need::Permission(permission) => role_holds(role, permission),
    };
    let inside: Vec<&str> =
        by_role.iter().filter(|(_, verdict)| verdict.is_in()).map(|(role, _)| *role).collect();
    let holders: Vec<&str> = by_role.keys().copied().filter(|role| holds(role)).collect();
    match (inside.is_empty(), inside == holders) {
        (true, _) => "–".to_owned(),
        (false, true) => "holders".to_owned(),
        (false, false) => inside.join(", "),
    }
}

pub(super) fn role_holds(role: &str, permission: Permission) -> bool {
    BUILT_IN_ROLES.iter().any(|known| known.name == role && known.permissions.has(permission))
}

/// The outcomes of every role with a grant in one scope, for one route and the objects of one team.
async fn row(
    server: &Server,
    tokens: &BTreeMap<(&str, &str), String>,
    route: &RouteInfo,
    scope: &str,
    objects: &Objects,
) -> String {
    let mut by_role = BTreeMap::new();
    for role in BUILT_IN_ROLES {
        let token = tokens[&(role.name, scope)].as_str();
        by_role.insert(role.name, server.verdict(route, Some(token), Some(objects)).await);
    }
    cell(route, &by_role)
}

/// Asserts the rules for all routes, and returns the table.
pub(super) async fn table() -> String {
    let server = Server::start().await;
    let mut tokens = BTreeMap::new();
    for role in BUILT_IN_ROLES {
        for scope in SCOPES {
            tokens.insert((role.name, scope), server.token(role.name, scope).await);
        }
    }
    let mut routes = server.routes.clone();
    routes.sort_by(|one, other| (&one.path, one.method.as_str()).cmp(&(&other.path, other.method.as_str())));
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for route in &routes {
        let what = format!("{} {}", route.method, route.path);
        for token in [None, Some("bulla_nobody"), Some("nonsense")] {
            let verdict = server.verdict(route, token, None).await;
            if verdict.is_in() != (route.need == Need::Nothing) {
                faults.push(format!("{what} by nobody: {verdict:?}"));
            }
        }
        let [own, other] = &server.objects;
        let mut cells = vec![format!("`{what}`"), needs(route)];
        for scope in SCOPES {
            cells.push(row(&server, &tokens, route, scope, own).await);
            if scope != "any" {
                cells.push(row(&server, &tokens, route, scope, other).await);
            }
        }
        if cells[2] != "holders" && !has_no_object(route) && !is_of_own_user(route) {
            faults.push(format!("{what} in scope any: {}, not all who hold the permission", cells[2]));
        }
        let narrow = matches!(route.need, Need::Permission(_)) && !route.scoped;
        if narrow && cells[3..].iter().any(|cell| cell != "–") {
            faults.push(format!("{what} lets in a narrower scope: {cells:?}"));
        }
        rows.push(cells);
    }
    server.stop.cancel();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let columns = ["operation", "needs", "any", "team, own", "team, other", "profile, own", "profile, other"];
    super::table("The API", &columns, &rows)
}

/// Routes for the caller's own user, which for another user need `access.read`. The test's callers are tokens.
fn is_of_own_user(route: &RouteInfo) -> bool {
    (&route.method, route.path.as_str()) == (&Method::GET, "/api/v1/users/{id}/security-keys")
}

/// Routes whose objects only a device can create: every caller gets "not found".
fn has_no_object(route: &RouteInfo) -> bool {
    route.path.starts_with("/api/v1/enrolments/") || route.method == Method::HEAD
}
