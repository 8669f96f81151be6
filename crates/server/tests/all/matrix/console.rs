//! The web console: every page and every form action by role, scope, and own or other objects.
//!
//! The routes are read from the console's router. The test records the API requests that a page or an action sends within the
//! process. Each request that the API authorizes must be one that the caller's role may send itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::Method;
use http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use serde_json::{Value, json};
use server::access::BUILT_IN_ROLES;
use server::limit::LimitOptions;
use server::routing::Need;
use tower::ServiceExt;

use super::Verdict;
use super::api::{Objects, SCOPES, Server, nowhere, role_holds};
use crate::world::{Plan, World};

/// Pages and actions of the credential store. The table of `credential_pages` has their rows.
pub(super) const CREDENTIAL_PAGES: [&str; 2] = ["/console/credentials", "/console/data"];

/// An API request of a page: its method, the path of its route, its status, and the response to a change.
#[derive(Clone, Debug)]
struct Call {
    method: Method,
    route: String,
    status: u16,
    text: String,
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// A page or an action: its method and the path of its route.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Row {
    pub(super) path: String,
    pub(super) method: &'static str,
}

/// Actions that read an object of a component before they change it. The test server does not run this component.
const UNREACHED: [&str; 2] = ["/console/certificates/{id}/targets", "/console/watches/{id}/edit"];

/// Pages without data: everybody may open them.
const OPEN: [&str; 4] =
    ["/console/", "/console/sign-in", "/console/assets/{hash}/{name}", "/console/inventory"];

/// A response of the console, with the API requests that it sent.
struct Answer {
    status: u16,
    location: String,
    body: String,
    calls: Vec<Call>,
}

struct Console {
    server: Server,
    pages: Router,
    calls: Calls,
    tokens: BTreeMap<(&'static str, &'static str), String>,
}

async fn record(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| request.uri().path().to_owned());
    let (parts, mut body) = next.run(request).await.into_parts();
    let mut text = String::new();
    // A list can be an endless stream of events, so only the response to a change is read.
    if method != Method::GET {
        let bytes = axum::body::to_bytes(body, 16 << 20).await.unwrap();
        text = String::from_utf8_lossy(&bytes).into_owned();
        body = Body::from(bytes);
    }
    calls.lock().unwrap().push(Call { method, route, status: parts.status.as_u16(), text });
    Response::from_parts(parts, body)
}

impl Row {
    fn unreached(&self) -> Vec<String> {
        let cells =
            [format!("`{} {}`", self.method, self.path), "a component that the test does not run".to_owned()];
        cells.into_iter().chain(std::iter::repeat_n(String::new(), 5)).collect()
    }
}

impl Call {
    fn is_authorized(&self) -> bool {
        !matches!(self.status, 401 | 403)
    }

    /// Returns whether the request is a change. The check of a policy is a request with a body that changes nothing.
    fn is_change(&self) -> bool {
        self.method != Method::GET && self.route != "/api/v1/key-policies/check"
    }
}

impl Console {
    async fn start() -> Self {
        let server = Server::start().await;
        let calls = Calls::default();
        let api = server.router.clone().layer(from_fn_with_state(Arc::clone(&calls), record));
        let pages = server::with_web_console(&server.state, api, web_console::pages);
        let mut tokens = BTreeMap::new();
        for role in BUILT_IN_ROLES {
            for scope in SCOPES {
                tokens.insert((role.name, scope), server.token(role.name, scope).await);
            }
        }
        for noun in ["owners", "teams"] {
            server.by_admin("POST", &format!("/api/v1/{noun}"), Some(&json!({ "name": "known" }))).await;
        }
        Self { server, pages, calls, tokens }
    }

    async fn send(&self, token: Option<&str>, request: http::request::Builder, form: String) -> Answer {
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        let mut request = request
            .header("sec-fetch-site", "same-origin")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(form))
            .unwrap();
        request.extensions_mut().insert(server::Peer::local());
        self.calls.lock().unwrap().clear();
        let response = self.pages.clone().oneshot(request).await.unwrap();
        let text = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (location, kind) = (text(LOCATION).unwrap_or_default(), text(CONTENT_TYPE).unwrap_or_default());
        let status = response.status().as_u16();
        let mut body = String::new();
        if !kind.starts_with("text/event-stream") {
            let bytes = axum::body::to_bytes(response.into_body(), 16 << 20).await.unwrap();
            body = String::from_utf8_lossy(&bytes).into_owned();
        }
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        Answer { status, location, body, calls }
    }

    async fn send_request(&self, token: Option<&str>, row: &Row, objects: &Objects) -> Answer {
        self.server.numbers.set(self.server.numbers.get() + 1);
        let form =
            if row.method == "POST" { form(row, objects, self.server.numbers.get()) } else { String::new() };
        let request = Request::builder().method(row.method).uri(address(row, objects));
        self.send(token, request, form).await
    }

    fn admin(&self) -> &str {
        &self.tokens[&("admin", "any")]
    }

    /// Returns the pages and actions. A path with `{file}` or `{action}` has a row for each of its names.
    async fn rows(&self) -> BTreeSet<Row> {
        let mut rows = BTreeSet::new();
        for Row { path, method } in routes().await {
            if !CREDENTIAL_PAGES.iter().any(|begin| path.starts_with(begin)) {
                rows.extend(self.expanded(&path).await.into_iter().map(|path| Row { path, method }));
            }
        }
        assert!(rows.len() > 300, "{}", rows.len());
        rows
    }

    /// Returns the path with each name that its last parameter can have. The error page of an unknown name lists them.
    async fn expanded(&self, path: &str) -> Vec<String> {
        let (list, end) = match path.rsplit('/').next() {
            Some("{file}") => ("each as .csv or .json: ", ".csv"),
            Some("{action}") => ("the actions: ", ""),
            _ => return vec![path.to_owned()],
        };
        let row = Row { path: path.to_owned(), method: "GET" };
        let answer = self.send_request(Some(self.admin()), &row, &self.server.objects[0]).await;
        let (_, names) = answer.body.split_once(list).unwrap_or_else(|| panic!("{path}: {}", answer.body));
        let names = names.split('<').next().unwrap().trim().split(", ");
        let folder = path.rsplit_once('/').unwrap().0;
        // The list of names has no entry for recent requests of the proxy, which are not a list of the API.
        let requests = (!end.is_empty()).then_some("requests");
        names.chain(requests).map(|name| format!("{folder}/{name}{end}")).collect()
    }
}

/// Returns every page and action of the console's router.
pub(super) async fn routes() -> BTreeSet<Row> {
    let pages = web_console::pages(Router::new(), None);
    let shown = format!("{pages:?}");
    let paths = shown.split('"').filter(|text| text.starts_with("/console") && !text.contains("{*"));
    let paths: BTreeSet<&str> = paths.collect();
    let mut rows = BTreeSet::new();
    for path in paths {
        let request = Request::patch(nowhere(path)).body(Body::empty()).unwrap();
        let response = pages.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 405, "{path}");
        for method in response.headers()[ALLOW].to_str().unwrap().split(',') {
            let method = match method {
                "GET" => "GET",
                "POST" => "POST",
                "HEAD" => continue,
                other => panic!("{other} {path}: the matrix asks pages with GET and POST only"),
            };
            rows.insert(Row { path: path.to_owned(), method });
        }
    }
    rows
}

/// Returns the parts of the path of a team's object: its noun, its id, and the rest. `None` if the path names no such object.
fn placed<'a>(row: &'a Row, objects: &'a Objects) -> Option<(&'static str, &'a str, &'a str)> {
    // The API does not scope this action, so that it ignores the object's team.
    if (row.method, row.path.as_str()) == ("POST", "/console/profiles/{name}/delete") {
        return None;
    }
    let known = [
        ("certificates/{id}", &*objects.certificate),
        ("approvals/{id}", &objects.approval),
        ("changes/{id}", &objects.change),
        ("issued/{id}", &objects.issued),
        ("profiles/{name}", objects.profile),
    ];
    known.into_iter().find_map(|(of, id)| {
        let rest = row.path.strip_prefix("/console/")?.strip_prefix(of)?;
        Some((of.split_once('/')?.0, id, rest))
    })
}

/// Returns the URL of a page or an action, for the objects of one team.
fn address(row: &Row, objects: &Objects) -> String {
    let path = match placed(row, objects) {
        Some((noun, id, rest)) => format!("/console/{noun}/{id}{rest}"),
        None => nowhere(&row.path),
    };
    let path = path.replace("/owners/-none-", "/owners/known").replace("/teams/-none-", "/teams/known");
    let key = "ab".repeat(32);
    let path = path.replace("/blocked-keys/-none-", &format!("/blocked-keys/{key}"));
    let key = format!("?key={key}");
    let query = match row.path.as_str() {
        "/console/audit/event" => "?at=2026-11-29T01:00:00Z&shard=7&sequence=7",
        "/console/blocked-keys/new" => &key,
        "/console/endpoints/claim" => "?endpoint=host%3Dh%26port%3D443%26protocol%3Dtls%26server_name%3Dh",
        "/console/endpoints/one" => "?host=h&port=443&protocol=tls&server_name=h&address=192.0.2.1",
        "/console/key-policies/check" => "?formula=any",
        "/console/search" => "?q=example",
        _ => "",
    };
    format!("{path}{query}")
}

/// Returns a form with every field that an action may read.
fn form(row: &Row, objects: &Objects, number: u32) -> String {
    let name = format!("n{number}");
    let names = format!("n{number}.{}.example", objects.team);
    let document = objects.document.to_string();
    let mut fields = vec![
        ("name", &*name),
        ("names", &names),
        ("profile", objects.profile),
        ("team", objects.team),
        ("id", &objects.certificate),
        ("reason", "superseded"),
        ("document", &document),
        ("revision", "999"),
        ("sure", "yes"),
        ("endpoint", "host=h&port=443&protocol=tls&server_name=h"),
        ("hours", "1"),
        ("kind", "certificates"),
        ("seconds", "60"),
        ("subject", "example"),
        ("target", "{}"),
        ("which", "kind"),
    ];
    if row.path == "/console/confirm" {
        fields.push(("password", "not the password"));
    }
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", ::api::path::segment(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// Text that a page contains if it shows objects of a team.
fn markers(objects: &Objects) -> [&str; 4] {
    [&objects.certificate, &objects.approval, &objects.change, &objects.issued]
}

/// Returns whether a page shows an object of a team. An error page repeats the object's name in the URL.
fn shows(answer: &Answer, objects: &Objects) -> bool {
    answer.status == 200 && markers(objects).iter().any(|marker| answer.body.contains(marker))
}

fn verdict(row: &Row, answer: &Answer, has_object: bool) -> Verdict {
    let of = |status: u16| match Verdict::of(status) {
        Verdict::Hidden if !has_object => Verdict::In,
        other => other,
    };
    let changes: Vec<&Call> = answer.calls.iter().filter(|call| call.is_change()).collect();
    if let (Some(last), "POST") = (changes.last(), row.method) {
        let matched = serde_json::from_str::<Value>(&last.text).unwrap_or_default()["matched"].as_u64();
        return if matched == Some(0) { Verdict::Hidden } else { of(last.status) };
    }
    // The stream of events answers 204 to a caller without access, so that the browser does not connect again.
    let signs_in = answer.status == 303 && answer.location.starts_with("/console/sign-in");
    if signs_in || answer.status == 204 { Verdict::Refused } else { of(answer.status) }
}

impl Console {
    /// Returns why the API requests of a response are more than the role may send.
    fn excess(&self, role: &str, scope: &str, answer: &Answer) -> Vec<String> {
        let mut faults = Vec::new();
        for call in answer.calls.iter().filter(|call| call.is_authorized()) {
            let mut routes = self.server.routes.iter();
            let route = routes.find(|route| route.method == call.method && route.path == call.route);
            let allowed = match route.map(|route| (route.need, route.scoped)) {
                Some((Need::Nothing | Need::Caller, _)) => true,
                Some((Need::Permission(needed), scoped)) => {
                    role_holds(role, needed) && (scoped || scope == "any")
                }
                None => call.route.starts_with("/acme/"),
            };
            if !allowed {
                faults.push(format!("{role} in {scope}: {call:?}"));
            }
        }
        faults
    }

    /// Asserts that a caller without a credential gets only the pages of the sign-in.
    async fn check_strangers(&self, row: &Row, faults: &mut Vec<String>) {
        let open = OPEN.contains(&row.path.as_str());
        for token in [None, Some("bulla_nobody")] {
            let answer = self.send_request(token, row, &self.server.objects[0]).await;
            let refused = verdict(row, &answer, false) == Verdict::Refused;
            if refused == open {
                faults.push(format!(
                    "{} {} by nobody: {} {}",
                    row.method, row.path, answer.status, answer.location
                ));
            }
            for call in answer.calls {
                let is_open = call.route.starts_with("/api/v1/auth/") || !call.is_authorized();
                if !is_open {
                    faults.push(format!("{} {} by nobody: {call:?}", row.method, row.path));
                }
            }
        }
    }

    /// Asserts that the test's request is understood, and returns the API routes that the page or action uses.
    fn uses(&self, row: &Row, answer: &Answer, faults: &mut Vec<String>) -> String {
        let what = format!("{} {}", row.method, row.path);
        let changes = answer.calls.iter().filter(|call| call.is_change()).count();
        if row.method == "POST" && changes == 0 && row.path != "/console/sign-in" {
            faults.push(format!("{what} sends no change: {} {:?}", answer.status, answer.calls));
        }
        if row.method == "GET" && changes > 0 {
            faults.push(format!("{what} changes something: {:?}", answer.calls));
        }
        let last = answer.calls.iter().rfind(|call| call.is_change()).map(|call| call.status);
        let status = last.unwrap_or(answer.status);
        let is_judged = row.method == "GET" || placed(row, &self.server.objects[0]).is_some();
        if is_judged && matches!(status, 400 | 405 | 415 | 422) {
            faults
                .push(format!("{what}: ask it so that it is understood: {:?} {}", answer.calls, answer.body));
        }
        let calls = answer.calls.iter().filter(|call| row.method == "GET" || call.is_change());
        let mut names = Vec::new();
        for call in calls.filter(|call| call.route != "/api/v1/auth/me") {
            let name = format!("`{} {}`", call.method, call.route.trim_start_matches("/api/v1"));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}

fn cell(by_role: &BTreeMap<&str, Verdict>) -> String {
    let inside: Vec<&str> =
        by_role.iter().filter(|(_, verdict)| verdict.is_in()).map(|(role, _)| *role).collect();
    match inside.len() {
        0 => "–".to_owned(),
        all if all == by_role.len() => "all".to_owned(),
        _ => inside.join(", "),
    }
}

/// Asserts the rules for all pages and actions, and returns the table.
pub(super) async fn table() -> String {
    let console = Console::start().await;
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for row in console.rows().await {
        let unreached = row.method == "POST" && UNREACHED.contains(&row.path.as_str());
        rows.push(if unreached { row.unreached() } else { console.cells(&row, &mut faults).await });
    }
    console.server.stop.cancel();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let columns = [
        "page or action",
        "API requests",
        "any",
        "team, own",
        "team, other",
        "profile, own",
        "profile, other",
    ];
    super::table("The web console", &columns, &rows)
}

impl Console {
    async fn cells(&self, row: &Row, faults: &mut Vec<String>) -> Vec<String> {
        let what = format!("{} {}", row.method, row.path);
        let [own, other] = &self.server.objects;
        self.check_strangers(row, faults).await;
        let by_admin = self.send_request(Some(self.admin()), row, own).await;
        let mut cells = vec![format!("`{what}`"), self.uses(row, &by_admin, faults)];
        let has_object = placed(row, own).is_some();
        let lists = row.method == "GET" && !has_object && shows(&by_admin, own);
        for scope in SCOPES {
            let mut columns = [BTreeMap::new(), BTreeMap::new()];
            for role in BUILT_IN_ROLES {
                for (column, objects) in columns.iter_mut().zip([own, other]) {
                    let answer =
                        self.send_request(Some(&self.tokens[&(role.name, scope)]), row, objects).await;
                    faults.extend(
                        self.excess(role.name, scope, &answer)
                            .iter()
                            .map(|fault| format!("{what} by {fault}")),
                    );
                    if answer.status >= 500 && answer.status != 503 {
                        faults.push(format!(
                            "{what} by {} in {scope}: {} {}",
                            role.name, answer.status, answer.body
                        ));
                    }
                    if scope != "any" && shows(&answer, other) {
                        faults.push(format!(
                            "{what} shows objects of another team to {} in {scope}",
                            role.name
                        ));
                    }
                    let hidden = lists && answer.status == 200 && !shows(&answer, objects);
                    let verdict = verdict(row, &answer, has_object);
                    column.insert(role.name, if hidden { Verdict::Hidden } else { verdict });
                }
            }
            let columns = columns.iter().map(cell).take(if scope == "any" { 1 } else { 2 });
            cells.extend(columns);
        }
        cells
    }
}

/// A server without components, over a real connection: an unavailable component is no internal error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_unavailable_components_are_no_internal_errors() {
    let options = Box::new(|options: &mut server::ServerOptions| options.console = Some(web_console::pages));
    let state = Box::new(|state: server::StateBuilder| state.limits(LimitOptions::unlimited()));
    let world = World::start_with(Plan { options, state, ..Plan::default() }).await;
    let mut faults = Vec::new();
    for Row { path, method } in routes().await {
        if method == "GET" && path != "/console/events" {
            let answer = world.get(&nowhere(&path)).await;
            if answer.status.is_server_error() && answer.status != 503 {
                faults.push(format!("{path}: {answer:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let acme = world.get("/console/acme").await;
    assert!(acme.status == 404 && acme.text.contains("does not run ACME"), "{acme:?}");
}
