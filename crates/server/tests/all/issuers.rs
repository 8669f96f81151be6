//! Issuers over the API, and responses to http-01 validations.

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request};
use issuers::{HostPolicy, IssuerContext, Issuers, Responders};
use keys::Keyring;
use outbound::resolve::Resolver;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::{Components, State, access, public_router, router};
use store::{Clock, Store};
use tower::ServiceExt;

use crate::world::store;

const ISSUERS: &str = "/api/v1/issuers";
const SECRET: &str = "nobody may ever see this";

struct Api {
    router: Router,
    public: Router,
    store: Store,
    admin: String,
    folder: tempfile::TempDir,
}

impl Api {
    async fn new() -> Self {
        let (folder, store) = store().await;
        let clock = Clock::system();
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let options = AuthorityOptions::default();
        let authority = Authority::open(store.clone(), keystore.clone(), clock.clone(), options).unwrap();
        let issuers = Issuers::new(IssuerContext {
            store: store.clone(),
            clock: clock.clone(),
            authority,
            keystore,
            resolver: Resolver::with_upstreams(Vec::new()),
            host: HostPolicy::default(),
            responders: Responders::new(store.clone(), clock.clone()),
        });
        let components = Components { issuers: Some(issuers), ..Components::default() };
        let state = State::builder(store.clone(), clock).components(components).build();
        Self { router: router(&state).0, public: public_router(&state), store, admin, folder }
    }

    async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Value,
        if_match: Option<&str>,
    ) -> (u16, Value, HeaderMap) {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.admin))
            .header("content-type", "application/json");
        if let Some(tag) = if_match {
            request = request.header("if-match", tag);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null), headers)
    }
}

fn webhook(name: &str) -> Value {
    json!({"name": name, "config": {"type": "webhook", "url": "http://127.0.0.1:1/", "secret": SECRET}})
}

#[tokio::test]
async fn issuer_is_created_updated_tested_and_deleted_over_the_api() {
    let api = Api::new().await;
    let (status, made, headers) = api.send_request(Method::POST, ISSUERS, webhook("hook"), None).await;
    assert_eq!((status, &made["type"], &made["enabled"]), (201, &json!("webhook"), &json!(true)), "{made}");
    assert_eq!((&made["secrets_set"], &made["health"]["breaker"]), (&json!(["/secret"]), &json!("closed")));
    assert!(!made.to_string().contains(SECRET));
    let location = headers["location"].to_str().unwrap().to_owned();
    let first_tag = headers["etag"].to_str().unwrap().to_owned();
    let (status, problem, _) = api.send_request(Method::POST, ISSUERS, webhook("hook"), None).await;
    assert_eq!(status, 409, "{problem}");
    let (status, shown, _) = api.send_request(Method::GET, &location, Value::Null, None).await;
    assert_eq!((status, &shown), (200, &made));
    // The issuer is disabled and keeps its settings and secret. The revision is in the document: the ETag of a read differs,
    // because it includes the health.
    assert_eq!(first_tag, format!("\"{}\"", shown["revision"]));
    let off = json!({"enabled": false});
    let (status, changed, _) =
        api.send_request(Method::PATCH, &location, off.clone(), Some(&first_tag)).await;
    assert_eq!((status, &changed["enabled"], &changed["config"]), (200, &json!(false), &made["config"]));
    assert_eq!(changed["secrets_set"], json!(["/secret"]));
    let (status, _, _) = api.send_request(Method::PATCH, &location, off, Some(&first_tag)).await;
    assert_eq!(status, 412);
    let (_, listed, _) = api.send_request(Method::GET, ISSUERS, Value::Null, None).await;
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["name"]), (1, &json!("hook")));
    // No server listens at that URL: the test succeeds and reports the failure.
    let (status, tested, _) =
        api.send_request(Method::POST, &format!("{location}/test"), Value::Null, None).await;
    assert_eq!(
        (status, &tested["ok"], &tested["code"]),
        (200, &json!(false), &json!("unavailable")),
        "{tested}"
    );
    let (status, _, _) = api.send_request(Method::DELETE, &location, Value::Null, None).await;
    assert_eq!(status, 204);
    for (method, path) in [(Method::GET, location.clone()), (Method::POST, format!("{location}/test"))] {
        assert_eq!(api.send_request(method, &path, Value::Null, None).await.0, 404);
    }
}

#[tokio::test]
async fn invalid_issuer_settings_are_rejected_with_a_reason() {
    let api = Api::new().await;
    let bad = [
        ("name", json!({"name": "A b", "config": {"type": "exec", "issue": "sign"}})),
        ("[programs.NAME]", json!({"name": "a", "config": {"type": "exec", "issue": ["/bin/true"]}})),
        ("[programs.sign]", json!({"name": "a", "config": {"type": "exec", "issue": "sign"}})),
        ("unknown variant", json!({"name": "a", "config": {"type": "none"}})),
        (
            "link-local",
            json!({"name": "a", "config": {"type": "webhook", "url": "http://169.254.169.254/", "secret": SECRET}}),
        ),
        (
            "dns01 is not set",
            json!({"name": "a", "config": {"type": "acme", "directory": "https://ca/", "challenges": ["dns-01"]}}),
        ),
    ];
    for (words, body) in bad {
        let (status, problem, _) = api.send_request(Method::POST, ISSUERS, body, None).await;
        assert_eq!(status, 422, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{words}: {problem}");
        assert!(!problem.to_string().contains(SECRET));
    }
}

#[tokio::test]
async fn operator_cannot_configure_commands_on_the_server() {
    let mut api = Api::new().await;
    let body = json!({ "name": "operator", "grants": [{ "role": "operator", "scope": "any" }] });
    let (status, made, _) = api.send_request(Method::POST, "/api/v1/tokens", body, None).await;
    assert_eq!(status, 201, "{made}");
    api.admin = made["token"].as_str().unwrap().to_owned();
    let mark = api.folder.path().join("mark");
    let shell = json!(["/bin/sh", "-c", format!("touch {}", mark.display())]);
    let config = json!({"type": "exec", "issue": ["/bin/true"], "test": shell});
    let (status, problem, _) =
        api.send_request(Method::POST, ISSUERS, json!({"name": "own", "config": config}), None).await;
    assert_eq!(status, 422, "{problem}");
    let (_, listed, _) = api.send_request(Method::GET, ISSUERS, Value::Null, None).await;
    assert_eq!(listed["items"], json!([]));
    assert!(!mark.exists());
}

#[tokio::test]
async fn http_01_challenges_are_answered_without_tls_and_authentication() {
    let api = Api::new().await;
    let until = Clock::system().now_us() + 60_000_000;
    let answers = vec![("tok_en-1".to_owned(), "tok_en-1.thumb".to_owned())];
    issuers::tables::ExternalIssuers::of(&api.store).put_challenges(answers, until).await.unwrap();
    let get = |token: &str| {
        let request =
            Request::get(format!("/.well-known/acme-challenge/{token}")).body(Body::empty()).unwrap();
        let public = api.public.clone();
        async move {
            let response = public.oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }
    };
    assert_eq!(get("tok_en-1").await, (200, "tok_en-1.thumb".to_owned()));
    for other in ["tok_en-2", "a%20b", "..%2f..", &"a".repeat(200)] {
        assert_eq!(get(other).await.0, 404, "{other}");
    }
}
