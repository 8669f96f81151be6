//! An API whose responses contain markup in every field that a page reads.
//!
//! The fields are found in the source code, so that new ones are included.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tower::ServiceExt;

/// Closes an attribute and a tag, and starts a script.
pub(crate) const MARKUP: &str = "'\"><script>x</script>";

/// The CSRF token of the session.
pub(crate) const CSRF: &str = "the-right-token";

/// A request to the API: its method and path, and its CSRF token.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) csrf: Option<String>,
}

/// The console over the hostile API.
pub(crate) struct Console {
    router: Router,
    api: Arc<HostileApi>,
}

/// The recorded requests, and the first and last page of every listing.
struct HostileApi {
    seen: Mutex<Vec<Seen>>,
    first_page: Vec<u8>,
    last_page: Vec<u8>,
}

/// A response of the console.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn is_html(&self) -> bool {
        self.header("content-type").starts_with("text/html")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Console {
    pub(crate) fn new() -> Self {
        Self::over(LISTING.clone())
    }

    /// Returns the console over an API whose lists have this number of short items.
    pub(crate) fn with_short_items(count: usize) -> Self {
        let mut page = LISTING.clone();
        shorten(&mut page, count);
        Self::over(page)
    }

    fn over(mut page: Value) -> Self {
        let first_page = serde_json::to_vec(&page).unwrap();
        page["next"] = Value::Null;
        let last_page = serde_json::to_vec(&page).unwrap();
        let api = Arc::new(HostileApi { seen: Mutex::default(), first_page, last_page });
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&api));
        Self { router: web_console::pages(routes.clone(), Some(routes)), api }
    }

    /// Returns the route paths of the pages, such as `/console/jobs/{id}`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let shown = format!("{:?}", self.router);
        let mut paths: Vec<String> = shown
            .split('"')
            .filter(|text| text.starts_with("/console") && !text.contains("/assets/") && !text.contains("{*"))
            .map(str::to_owned)
            .collect();
        paths.sort();
        paths.dedup();
        assert!(paths.len() > 150, "the paths are read from the router: {paths:?}");
        paths
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Submits a form as a page of this site does.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(form(path, fields)).await
    }

    pub(crate) async fn send(&self, request: Request) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Returns the requests to the API since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.api.seen.lock().unwrap())
    }
}

pub(crate) fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let body = serde_urlencoded::to_string(fields).unwrap();
    let request = Request::post(path).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    request.body(Body::from(body)).unwrap()
}

/// Returns the fields of every form, each with the same value.
pub(crate) fn all_fields(value: &'static str) -> Vec<(&'static str, &'static str)> {
    let names = ["field(\"", "text(\"", "exact(\"", "all(\"", "ticked(\"", "words(\""];
    let names = names.iter().flat_map(|call| literals(call));
    names.filter(|name| name != "csrf").map(|name| (&*name.leak(), value)).collect()
}

/// Returns the parameters of every query, each with the same value.
pub(crate) fn all_parameters(value: &str) -> String {
    let value = api::path::segment(value);
    let names = ["parameter(query, \"", "parameter::<String>(query, \"", "of(\"", "query.as_deref(), \""];
    let names = names.iter().flat_map(|call| literals(call));
    names.filter(|name| name != "cursor").map(|name| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

static SOURCE: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
    text
});

fn collect(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => collect(&entry.path(), text),
            false => *text += &std::fs::read_to_string(entry.path()).unwrap(),
        }
    }
}

/// Returns the string literals after each occurrence of `call`, which ends with an opening quote.
fn literals(call: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for rest in SOURCE.split(call).skip(1) {
        let name = rest.split('"').next().unwrap_or_default().to_owned();
        let is_name = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        if is_name && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Returns the JSON pointers that pages read, each with the function that reads it: `/leaf/subject` by `text`.
fn pointers() -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut before = "";
    for rest in SOURCE.split("\"/") {
        let pointer = format!("/{}", rest.split('"').next().unwrap_or_default());
        let is_pointer = pointer.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'/'))
            || pointer.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'/');
        let other = ["/console", "/api", "/acme", "/metrics"];
        if is_pointer && pointer.len() > 1 && !other.iter().any(|begin| pointer.starts_with(begin)) {
            let tail = before.rsplit(['\n', ';']).next().unwrap_or_default();
            let near: String = tail.chars().rev().take(60).collect::<String>().chars().rev().collect();
            let kinds = ["joined(", "list(", "number(", "flag(", "as_i64"];
            let kind = kinds.into_iter().filter_map(|kind| Some((near.rfind(kind)?, kind))).max();
            found.push((pointer, kind.map_or("text", |(_, kind)| kind)));
        }
        before = rest;
    }
    // Lists last, so that a field that a page reads as a list is a list: of texts, or of texts and objects.
    found.sort_by_key(|(_, kind)| match *kind {
        "list(" => 2,
        "joined(" => 1,
        _ => 0,
    });
    found
}

fn put(object: &mut Map<String, Value>, pointer: &str, value: Value) {
    let (name, rest) = pointer[1..].split_once('/').map_or((&pointer[1..], ""), |(name, rest)| (name, rest));
    if rest.is_empty() {
        if !object.get(name).is_some_and(Value::is_object) {
            object.insert(name.to_owned(), value);
        }
        return;
    }
    let inner = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    put(inner.as_object_mut().unwrap(), &format!("/{rest}"), value);
}

fn object(element: &dyn Fn() -> Value) -> Value {
    let mut all = Map::new();
    for (pointer, kind) in pointers() {
        let value = match kind {
            "number(" | "as_i64" => json!(7),
            "flag(" => json!(true),
            "joined(" => json!([MARKUP]),
            "list(" => json!([MARKUP, element()]),
            _ => json!(MARKUP),
        };
        put(&mut all, &pointer, value);
    }
    for name in ["endpoint", "error", "reason", "details", "target", "value", "tags", "labels", "attributes"]
    {
        all.insert(name.to_owned(), json!({ MARKUP: MARKUP, "host": MARKUP, "protocol": MARKUP }));
    }
    Value::Object(all)
}

static LISTING: LazyLock<Value> = LazyLock::new(|| {
    let mut flat = object(&|| json!(MARKUP));
    flat.as_object_mut().unwrap().retain(|_, value| !value.is_object() && !value.is_array());
    let mut item = object(&|| flat.clone());
    let mut top = item.clone();
    item["endpoint"] = endpoint();
    // A root CA, which has no parent in the tree.
    item["parent"] = "".into();
    top["items"] = json!([item]);
    top["granted"] = json!([{ "scope": MARKUP, "permissions": permissions() }]);
    top["csrf_token"] = CSRF.into();
    top["newNonce"] = format!("https://{MARKUP}/acme/new-nonce").into();
    top
});

/// Returns an endpoint that has a page.
pub(crate) fn endpoint() -> Value {
    json!({ "host": MARKUP, "port": 443, "protocol": MARKUP, "server_name": MARKUP, "address": MARKUP })
}

fn permissions() -> Vec<String> {
    let named = SOURCE.split('"').filter(|text| {
        let (noun, verb) = text.split_once('.').unwrap_or_default();
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        word(noun) && word(verb)
    });
    named.map(str::to_owned).collect()
}

/// Repeats the items of a response. Only the first element of each other list stays, which keeps the response short.
fn shorten(page: &mut Value, count: usize) {
    keep_first(page);
    let items = page["items"].as_array_mut().unwrap();
    items.iter_mut().for_each(keep_first);
    *items = std::iter::repeat_n(items.clone(), count).flatten().collect();
}

/// Keeps the first element of each list in an object.
fn keep_first(value: &mut Value) {
    for member in value.as_object_mut().into_iter().flat_map(|members| members.values_mut()) {
        if let Value::Array(values) = member {
            values.truncate(1);
        }
    }
}

static ME: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // Every page shows the actor, so markup there would prove nothing about the page.
    let mut me = json!({ "actor": "user:ada" });
    for name in ["kind", "id", "granted", "csrf_token"] {
        me[name] = LISTING[name].clone();
    }
    serde_json::to_vec(&me).unwrap()
});

async fn answer(State(api): State<Arc<HostileApi>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().as_str().to_owned();
    let csrf = request.headers().get("x-csrf-token").map(|value| value.to_str().unwrap().to_owned());
    let body = match path.as_str() {
        "/api/v1/auth/me" => ME.clone(),
        "/metrics" => format!("bulla_intercept_proxy_connections{{a=\"{MARKUP}\"}} 2\n").into_bytes(),
        other if other.contains("cursor=") => api.last_page.clone(),
        _ => api.first_page.clone(),
    };
    if path != "/api/v1/auth/me" {
        api.seen.lock().unwrap().push(Seen { method: request.method().clone(), path, csrf });
    }
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
