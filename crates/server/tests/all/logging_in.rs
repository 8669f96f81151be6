//! OIDC login with a test issuer that has real keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use axum::extract::{Form, State as With};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as B64};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use reqwest::Url;
use secrecy::SecretString;
use serde_json::{Value, json};
use server::Components;
use server::access::oidc::{GroupGrant, Oidc, OidcOptions};
use server::access::{Scope, SessionOptions};
use store::Clock;

use crate::world::{Plan, TestResponse, World, now, send};

const SECRET: &str = "s3cret with spaces & more";

enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl Key {
    fn rsa() -> Self {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(der.as_ref()).unwrap())
    }

    fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(_) => "ES256",
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(pair) => {
                let public = pair.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
                    "n": B64.encode(n.big_endian_without_leading_zero()),
                    "e": B64.encode(e.big_endian_without_leading_zero()) })
            }
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": kid,
                    "x": B64.encode(&point[1..33]), "y": B64.encode(&point[33..]) })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
        }
    }
}

/// Settings and state of the test issuer.
struct Behaviour {
    keys: BTreeMap<String, Key>,
    /// The ID of the signing key.
    kid: String,
    /// Claims that replace the default ones. Null removes a claim.
    claims: Value,
    /// A JWT header that replaces the default one.
    header: Option<Value>,
    /// The parameters of each authorization request, by code.
    authorization_request: BTreeMap<String, BTreeMap<String, String>>,
    key_sets_given: u32,
}

struct Issuer {
    address: SocketAddr,
    behaviour: Mutex<Behaviour>,
}

impl Issuer {
    fn url(&self) -> String {
        format!("http://{}/realm", self.address)
    }

    async fn start() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            behaviour: Mutex::new(Behaviour {
                keys: BTreeMap::from([("one".to_owned(), Key::rsa())]),
                kid: "one".to_owned(),
                claims: json!({}),
                header: None,
                authorization_request: BTreeMap::new(),
                key_sets_given: 0,
            }),
        });
        let router = Router::new()
            .route("/realm/.well-known/openid-configuration", get(describe))
            .route("/realm/keys", get(keys))
            .route("/realm/token", post(token))
            .with_state(Arc::clone(&issuer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    /// Simulates the consent of the user. Returns the URL that the browser is redirected to.
    fn consent(&self, redirect: &Url) -> Url {
        let authorization_request: BTreeMap<String, String> =
            redirect.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        let code = uuid::Uuid::new_v4().to_string();
        let state = authorization_request["state"].clone();
        let mut back = Url::parse(&authorization_request["redirect_uri"]).unwrap();
        back.query_pairs_mut().append_pair("code", &code).append_pair("state", &state);
        back.query_pairs_mut().append_pair("iss", &self.url());
        self.behaviour.lock().authorization_request.insert(code, authorization_request);
        back
    }

    fn id_token(&self, nonce: &str) -> String {
        let behaviour = self.behaviour.lock();
        let key = &behaviour.keys[&behaviour.kid];
        let mut claims = json!({
            "iss": self.url(), "sub": "subject-1", "aud": "bulla", "exp": now() + 300, "iat": now(), "nonce": nonce, "auth_time": now(),
            "preferred_username": "alice", "email": "alice@example.org", "groups": ["staff", "unmapped"],
        });
        for (name, value) in behaviour.claims.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let honest = json!({ "alg": key.algorithm(), "kid": behaviour.kid, "typ": "JWT" });
        let header = behaviour.header.clone().unwrap_or(honest);
        let signed = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        let signature = B64.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

async fn describe(With(issuer): With<Arc<Issuer>>) -> Json<Value> {
    let url = issuer.url();
    Json(json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/keys"),
        "end_session_endpoint": format!("{url}/logout"),
        "authorization_response_iss_parameter_supported": true,
    }))
}

async fn keys(With(issuer): With<Arc<Issuer>>) -> Json<Value> {
    let mut behaviour = issuer.behaviour.lock();
    behaviour.key_sets_given += 1;
    let mut keys: Vec<Value> = behaviour.keys.iter().map(|(kid, key)| key.jwk(kid)).collect();
    keys.push(json!({ "kty": "something new", "kid": "future" }));
    Json(json!({ "keys": keys }))
}

async fn token(
    With(issuer): With<Arc<Issuer>>,
    headers: HeaderMap,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    // A code can be used once, by the same client, with the matching PKCE verifier.
    let Some(authorization_request) = issuer.behaviour.lock().authorization_request.remove(&form["code"])
    else {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" }))).into_response();
    };
    let basic = headers["authorization"].to_str().unwrap().strip_prefix("Basic ").unwrap();
    let basic = String::from_utf8(STANDARD.decode(basic).unwrap()).unwrap();
    assert_eq!(basic, "bulla:s3cret+with+spaces+%26+more");
    assert_eq!(authorization_request["code_challenge_method"], "S256");
    assert_eq!(
        authorization_request["code_challenge"],
        B64.encode(digest(&SHA256, form["code_verifier"].as_bytes()))
    );
    assert_eq!(
        (&form["redirect_uri"], form["grant_type"].as_str()),
        (&authorization_request["redirect_uri"], "authorization_code")
    );
    let id_token = issuer.id_token(&authorization_request["nonce"]);
    Json(json!({ "access_token": "x", "token_type": "Bearer", "id_token": id_token })).into_response()
}

pub(crate) struct Scene {
    pub(crate) world: World,
    issuer: Arc<Issuer>,
    pub(crate) clock: Clock,
}

/// The cookies of a browser.
#[derive(Clone, Default)]
pub(crate) struct Browser {
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn take(&mut self, answer: &TestResponse) {
        for line in answer.headers.get_all("set-cookie") {
            let line = line.to_str().unwrap();
            for part in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
                assert!(line.contains(part), "{line}");
            }
            assert!(!line.contains("Domain"), "{line}");
            let (name, rest) = line.split_once('=').unwrap();
            assert!(name.starts_with("__Host-"), "{line}");
            let value = rest.split(';').next().unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    pub(crate) fn line(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }
}

impl Scene {
    async fn start() -> Self {
        Self::start_with(SessionOptions::default()).await
    }

    async fn start_with(sessions: SessionOptions) -> Self {
        Self::start_plan(sessions, Plan::default()).await
    }

    /// Starts with the server that this plan describes.
    pub(crate) async fn start_plan(sessions: SessionOptions, plan: Plan) -> Self {
        let issuer = Issuer::start().await;
        let mut options = OidcOptions::new(issuer.url(), "bulla", "https://bulla.test/api/v1/auth/callback");
        options.client_secret = Some(SecretString::from(SECRET));
        let group = |group: &str, role: &str, scope| GroupGrant {
            group: group.to_owned(),
            role: role.to_owned(),
            scope,
        };
        options.groups = vec![group("staff", "viewer", Scope::Any), group("owners", "admin", Scope::Any)];
        let oidc = Oidc::new(options).unwrap();
        let clock = Clock::manual(now() * 1_000_000);
        let plan = Plan {
            clock: clock.clone(),
            state: Box::new(move |state| state.sessions(sessions)),
            components: Components { oidc: Some(oidc), ..plan.components },
            ..plan
        };
        Self { world: World::start_with(plan).await, issuer, clock }
    }

    pub(crate) async fn send_request(
        &self,
        browser: &mut Browser,
        method: Method,
        path: &str,
        csrf: Option<&str>,
    ) -> TestResponse {
        let mut request = self.world.bare(method, path).header("cookie", browser.line());
        if let Some(csrf) = csrf {
            request = request.header("x-csrf-token", csrf);
        }
        let answer = send(request).await;
        browser.take(&answer);
        answer
    }

    /// Follows the login redirect and returns the issuer's redirect back to the server.
    async fn begin(&self, browser: &mut Browser, path: &str) -> Url {
        let answer = self.send_request(browser, Method::GET, path, None).await.expect(303);
        let redirect = Url::parse(answer.header("location")).unwrap();
        assert!(redirect.as_str().starts_with(&format!("{}/authorize?", self.issuer.url())), "{redirect}");
        self.issuer.consent(&redirect)
    }

    async fn finish(&self, browser: &mut Browser, back: &Url) -> TestResponse {
        let path = format!("{}?{}", back.path(), back.query().unwrap());
        self.send_request(browser, Method::GET, &path, None).await
    }

    pub(crate) async fn log_in(&self) -> (Browser, TestResponse) {
        let mut browser = Browser::default();
        let back = self.begin(&mut browser, "/api/v1/auth/login?return_to=/certificates").await;
        let answer = self.finish(&mut browser, &back).await;
        assert!(!browser.cookies.contains_key("__Host-bulla-login"), "over, however it ended");
        (browser, answer)
    }

    /// Asserts that a login is rejected, and returns the reason.
    async fn refused(&self) -> String {
        let (browser, answer) = self.log_in().await;
        assert!(browser.cookies.is_empty(), "{answer:?}");
        assert!(matches!(answer.status.as_u16(), 401 | 403), "{answer:?}");
        format!("{}: {}", answer.problem(), answer.json()["detail"].as_str().unwrap())
    }

    fn claims(&self, claims: Value) {
        self.issuer.behaviour.lock().claims = claims;
    }
}

#[tokio::test]
async fn oidc_user_logs_in_with_mapped_role_and_logs_out() {
    let scene = Scene::start().await;
    let (mut browser, answer) = scene.log_in().await;
    assert_eq!(answer.expect(303).header("location"), "/certificates");
    let me = scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.expect(200).json();
    assert_eq!((me["actor"].as_str(), me["kind"].as_str()), (Some("user:alice"), Some("user")));
    let csrf = me["csrf_token"].as_str().unwrap().to_owned();
    // A viewer can read but not change.
    scene.send_request(&mut browser, Method::GET, "/openapi.json", None).await.expect(200);
    scene.send_request(&mut browser, Method::GET, "/metrics", None).await.expect(200);
    scene.send_request(&mut browser, Method::GET, "/api/v1/tokens", None).await.expect(403);

    let users = scene.world.get("/api/v1/users").await.json();
    assert_eq!(
        (users["items"][0]["name"].as_str(), users["items"][0]["label"].as_str()),
        (Some("alice"), Some("subject-1"))
    );
    let sessions = format!("/api/v1/users/{}/sessions", users["items"][0]["id"].as_str().unwrap());
    assert_eq!(scene.world.get(&sessions).await.json()["items"].as_array().unwrap().len(), 1);

    // Without the session's CSRF token every unsafe request is rejected, even logout.
    let logout = "/api/v1/auth/logout";
    for csrf in [None, Some("wrong")] {
        assert_eq!(
            scene.send_request(&mut browser, Method::POST, logout, csrf).await.expect(403).problem(),
            "forbidden"
        );
    }
    let mut stolen = browser.clone();
    let done = scene.send_request(&mut browser, Method::POST, logout, Some(&csrf)).await.expect(200).json();
    assert_eq!(done["end_session_url"], format!("{}/logout?client_id=bulla", scene.issuer.url()));
    assert!(browser.cookies.is_empty());
    // The session is deleted on the server immediately.
    scene.send_request(&mut stolen, Method::GET, "/api/v1/auth/me", None).await.expect(401);

    let audit = scene.world.get("/api/v1/audit?actor=user:alice").await.json();
    let actions: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|event| event["action"].clone()).collect();
    assert_eq!(actions, ["session.end", "session.begin"]);
}

#[tokio::test]
async fn session_post_requires_its_own_csrf_token() {
    let scene = Scene::start().await;
    scene.claims(json!({ "groups": ["owners"] }));
    let (mut browser, _) = scene.log_in().await;
    let me = scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.json();
    let csrf = me["csrf_token"].as_str().unwrap();
    let body = json!({ "name": "x", "grants": [] });
    let post = |csrf: Option<&str>| {
        let request = scene.world.bare(Method::POST, "/api/v1/tokens").header("cookie", browser.line());
        let request = match csrf {
            Some(csrf) => request.header("x-csrf-token", csrf),
            None => request,
        };
        send(request.json(&body))
    };
    post(None).await.expect(403);
    // The token of another session.
    let (mut other, _) = scene.log_in().await;
    let theirs = scene.send_request(&mut other, Method::GET, "/api/v1/auth/me", None).await.json();
    post(theirs["csrf_token"].as_str()).await.expect(403);
    post(Some(csrf)).await.expect(201);
}

#[tokio::test]
async fn invalid_id_tokens_are_rejected() {
    let scene = Scene::start().await;
    for (claims, why) in [
        (json!({ "nonce": "another" }), "another login"),
        (json!({ "nonce": null }), "another login"),
        (json!({ "aud": "somebody" }), "another client"),
        (json!({ "aud": ["bulla", "somebody"] }), "another client"),
        (json!({ "iss": "https://elsewhere.example" }), "another issuer"),
        (json!({ "exp": now() - 3_600 }), "expired"),
        (json!({ "iat": now() + 3_600 }), "not valid yet"),
        (json!({ "sub": null }), "not valid"),
    ] {
        scene.claims(claims.clone());
        let refused = scene.refused().await;
        assert!(refused.starts_with("login-refused") && refused.contains(why), "{claims}: {refused}");
    }
    scene.claims(json!({}));
    for header in [
        json!({ "alg": "none" }),
        json!({ "alg": "HS256", "kid": "one" }),
        json!({ "alg": "RS512", "kid": "one" }),
        json!({ "alg": "ES256", "kid": "one" }),
        json!({ "alg": "RS256", "kid": "nobody's" }),
        json!({ "alg": "RS256", "kid": "future" }),
    ] {
        scene.issuer.behaviour.lock().header = Some(header.clone());
        let refused = scene.refused().await;
        assert!(refused.starts_with("login-refused"), "{header}: {refused}");
    }
    // Signed by another key with the same key ID.
    scene.issuer.behaviour.lock().header = None;
    scene.log_in().await.1.expect(303);
    scene.issuer.behaviour.lock().keys.insert("one".to_owned(), Key::rsa());
    assert!(scene.refused().await.contains("not valid"));
    assert!(scene.world.get("/metrics").await.text.contains("refusals_total{kind=\"login\"}"));
}

#[tokio::test]
async fn rotated_signing_keys_are_fetched_once_and_unknown_ones_rarely() {
    let scene = Scene::start().await;
    for _ in 0..3 {
        scene.log_in().await.1.expect(303);
    }
    assert_eq!(scene.issuer.behaviour.lock().key_sets_given, 1);
    let began = Instant::now();
    {
        let mut behaviour = scene.issuer.behaviour.lock();
        behaviour.keys.insert("two".to_owned(), Key::ec());
        behaviour.kid = "two".to_owned();
    }
    for _ in 0..3 {
        scene.log_in().await.1.expect(303);
    }
    assert_eq!(scene.issuer.behaviour.lock().key_sets_given, 2, "again for the new key, once");
    // Unknown key IDs do not cause a fetch each time.
    scene.issuer.behaviour.lock().header = Some(json!({ "alg": "ES256", "kid": "three" }));
    for _ in 0..3 {
        scene.refused().await;
    }
    // At most one fetch in ten seconds, which may pass on a slow machine.
    let given = u64::from(scene.issuer.behaviour.lock().key_sets_given);
    assert!((2..=2 + began.elapsed().as_secs() / 10).contains(&given), "{given}");
}

#[tokio::test]
async fn login_requires_a_mapped_group_or_an_enabled_user_with_grants() {
    let scene = Scene::start().await;
    for groups in [json!(["unmapped"]), json!([]), json!({ "staff": true }), Value::Null] {
        scene.claims(json!({ "groups": groups }));
        assert!(scene.refused().await.starts_with("forbidden"), "{groups}");
    }
    assert!(scene.world.get("/api/v1/users").await.json()["items"].as_array().unwrap().is_empty());
    // An administrator creates the user by name.
    let body = json!({ "name": "a", "subject": "subject-1", "grants": [{ "role": "approver" }] });
    let made = scene.world.post("/api/v1/users", body).await.expect(201);
    scene.claims(json!({ "groups": [] }));
    let (mut browser, answer) = scene.log_in().await;
    answer.expect(303);
    let me = scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.json();
    assert_eq!(me["actor"], "user:a");
    // Disabling the user ends the session immediately and rejects new logins.
    let path = made.header("location").to_owned();
    let off = scene.world.with(&scene.world.admin, Method::PATCH, &path).json(&json!({ "enabled": false }));
    send(off).await.expect(200);
    scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.expect(401);
    scene.claims(json!({}));
    assert!(scene.refused().await.contains("disabled"));
}

#[tokio::test]
async fn users_with_equal_names_and_different_subjects_are_separate() {
    let scene = Scene::start().await;
    scene.log_in().await.1.expect(303);
    scene.claims(json!({ "sub": "subject-2" }));
    scene.log_in().await.1.expect(303);
    let users = scene.world.get("/api/v1/users?fields=name").await.json();
    let names: Vec<_> =
        users["items"].as_array().unwrap().iter().map(|user| user["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert!(names[0] == "alice" && names[1].starts_with("alice ("), "{names:?}");
}

#[tokio::test]
async fn first_sign_in_takes_no_name_with_permissions() {
    let plan = Plan { credentials: true, ..Plan::default() };
    let scene = Scene::start_plan(SessionOptions::default(), plan).await;
    let address = scene.world.running.as_ref().unwrap().credential_address.unwrap();
    let client = scene.world.builder().build().unwrap();
    let request =
        client.post(format!("https://{address}/api/v2/permissions")).bearer_auth(&scene.world.admin);
    // As of a user who was deleted.
    let grant = json!({ "actor": "user:alice", "path": "/*", "operations": ["read"] });
    send(request.json(&grant)).await.expect(201);
    scene.log_in().await.1.expect(303);
    let users = scene.world.get("/api/v1/users?fields=name").await.json();
    assert!(users["items"][0]["name"].as_str().unwrap().starts_with("alice ("), "{users}");
}

#[tokio::test]
async fn login_callback_is_accepted_once_and_only_in_the_same_browser() {
    let scene = Scene::start().await;
    let login = "/api/v1/auth/login";
    let mut browser = Browser::default();
    let back = scene.begin(&mut browser, login).await;
    // Another browser, without a login or with its own login.
    scene.finish(&mut Browser::default(), &back).await.expect(400);
    let mut other = Browser::default();
    scene.begin(&mut other, login).await;
    assert!(
        scene.finish(&mut other, &back).await.expect(401).json()["detail"]
            .as_str()
            .unwrap()
            .contains("another login")
    );
    // The response of another issuer (RFC 9207), or without an issuer.
    for iss in ["&iss=https%3A%2F%2Felsewhere.example", ""] {
        let mut copy = browser.clone();
        let query = back.query().unwrap().split("&iss=").next().unwrap().to_owned();
        let path = format!("/api/v1/auth/callback?{query}{iss}");
        scene.send_request(&mut copy, Method::GET, &path, None).await.expect(401);
    }
    let earlier = browser.clone();
    assert_eq!(scene.finish(&mut browser, &back).await.expect(303).header("location"), "/");
    // The code has been used.
    scene.finish(&mut earlier.clone(), &back).await.expect(401);
    // The user denied access.
    let mut browser = Browser::default();
    let back = scene.begin(&mut browser, login).await;
    let state = back.query_pairs().find(|(key, _)| key == "state").unwrap().1.into_owned();
    let iss = scene.issuer.url();
    let path = format!("/api/v1/auth/callback?error=access_denied&state={state}&iss={iss}");
    let answer = scene.send_request(&mut browser, Method::GET, &path, None).await.expect(401);
    assert!(answer.json()["detail"].as_str().unwrap().contains("access_denied"));
    // The login has expired.
    let mut browser = Browser::default();
    let back = scene.begin(&mut browser, login).await;
    scene.clock.advance(Duration::from_secs(601));
    scene.finish(&mut browser, &back).await.expect(401);
}

#[tokio::test]
async fn return_to_another_site_is_replaced_by_the_start_page() {
    let scene = Scene::start().await;
    for evil in ["https://evil.example/", "//evil.example", "/%5Cevil.example"] {
        let mut browser = Browser::default();
        let back = scene.begin(&mut browser, &format!("/api/v1/auth/login?return_to={evil}")).await;
        assert_eq!(scene.finish(&mut browser, &back).await.expect(303).header("location"), "/");
    }
}

#[tokio::test]
async fn sessions_expire_after_idle_and_absolute_timeouts() {
    let minute = Duration::from_secs(60);
    let scene = Scene::start_with(SessionOptions { idle: minute * 10, absolute: minute * 60 }).await;
    let (mut browser, _) = scene.log_in().await;
    let mut me = async |forget: bool| {
        if forget {
            // As on another server, or on this one after the cache has expired.
            scene.world.state.access().upkeep().await.unwrap();
            scene.world.state.access().forget();
        }
        scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.status.as_u16()
    };
    // A session in use outlives the idle timeout, but not the absolute timeout.
    for _ in 0..6 {
        assert_eq!(me(true).await, 200);
        scene.clock.advance(minute * 9);
    }
    assert_eq!(me(true).await, 200);
    scene.clock.advance(minute * 6);
    assert_eq!(me(false).await, 401, "at its end, although remembered");

    scene.claims(json!({ "exp": now() + 86_400 }));
    let (mut browser, answer) = scene.log_in().await;
    answer.expect(303);
    scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.expect(200);
    scene.clock.advance(minute * 11);
    scene.world.state.access().forget();
    scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.expect(401);
    scene.world.state.access().upkeep().await.unwrap();
}

#[tokio::test]
async fn oidc_issuer_without_tls_unreachable_or_mismatched_is_rejected() {
    let issuer = Issuer::start().await;
    // The discovery document names another issuer.
    let claimed = format!("http://localhost.invalid:{}", issuer.address.port());
    assert!(Oidc::new(OidcOptions::new(claimed, "bulla", "https://b/cb")).is_err(), "no TLS");
    let other = format!("http://{}/realm/", issuer.address);
    let free = format!("127.0.0.1:{}", fleet::free_port());
    for url in [other, format!("http://{free}")] {
        let oidc = Oidc::new(OidcOptions::new(url, "bulla", "https://b/cb")).unwrap();
        let plan =
            Plan { components: Components { oidc: Some(oidc), ..Components::default() }, ..Plan::default() };
        let world = World::start_with(plan).await;
        let answer = send(world.bare(Method::GET, "/api/v1/auth/login")).await.expect(503);
        assert_eq!(answer.problem(), "unavailable");
        assert!(answer.headers.contains_key("retry-after"));
    }
    let world = World::start().await;
    send(world.bare(Method::GET, "/api/v1/auth/login")).await.expect(404);
}

#[tokio::test]
async fn oidc_login_confirms_the_session_only_after_reauthentication() {
    let scene = Scene::start().await;
    scene.claims(json!({ "groups": ["owners"], "auth_time": now() - 3_600 }));
    // The issuer authenticated the user an hour ago.
    let (mut browser, answer) = scene.log_in().await;
    answer.expect(303);
    let make = async |browser: &mut Browser| {
        let me = scene.send_request(browser, Method::GET, "/api/v1/auth/me", None).await.expect(200).json();
        let request = scene.world.bare(Method::PUT, "/api/v1/roles/looker").header("cookie", browser.line());
        let request = request.header("x-csrf-token", me["csrf_token"].as_str().unwrap());
        send(request.json(&json!({ "permissions": ["job.read"] }))).await
    };
    assert_eq!(make(&mut browser).await.expect(403).problem(), "reauthentication-required");

    let confirm = "/api/v1/auth/login?confirm=true";
    for (auth_time, why) in
        [(json!(now() - 3_600), "the issuer did not authenticate you again"), (Value::Null, "auth_time")]
    {
        scene.claims(json!({ "groups": ["owners"], "auth_time": auth_time }));
        let back = scene.begin(&mut browser, confirm).await;
        let refused = scene.finish(&mut browser, &back).await;
        assert!(refused.text.contains(why), "{refused:?}");
    }
    assert_eq!(make(&mut browser).await.expect(403).problem(), "reauthentication-required");
    scene.claims(json!({ "groups": ["owners"] }));
    let before = browser.line();
    let redirect = scene.send_request(&mut browser, Method::GET, confirm, None).await.expect(303);
    let redirect = Url::parse(redirect.header("location")).unwrap();
    let authorization_request: BTreeMap<_, _> = redirect.query_pairs().into_owned().collect();
    assert_eq!(
        (authorization_request["prompt"].as_str(), authorization_request["max_age"].as_str()),
        ("login", "0")
    );
    scene.finish(&mut browser, &scene.issuer.consent(&redirect)).await.expect(303);
    assert_ne!(browser.line(), before);
    make(&mut browser).await.expect(201);
    let mut old = Browser {
        cookies: BTreeMap::from([before.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap()]),
    };
    scene.send_request(&mut old, Method::GET, "/api/v1/auth/me", None).await.expect(401);
}
