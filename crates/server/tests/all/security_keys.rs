//! Security keys: registered, used as a second factor and alone, and refused where they must be.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};
use server::limit::{LimitOptions, SignInRates, SlowRate};
use store::{AccessChange, Clock, SecurityKey};
use uuid::Uuid;

use crate::signing_in::Tab;
use crate::world::{Plan, TestResponse, World, now, send};

const HOST: &str = "bulla.example:9443";
const ORIGIN: &str = "https://bulla.example:9443";
const PASSWORD: &str = "correct horse battery staple";
const SESSIONS: &str = "/api/v1/auth/sessions";

/// An authenticator.
pub(crate) struct SoftKey {
    pair: Ed25519KeyPair,
    id: [u8; 16],
    count: u32,
}

impl SoftKey {
    pub(crate) fn new(number: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap();
        Self { pair, id: [number; 16], count: 1 }
    }

    /// Returns the public key as `COSE_Key`.
    fn cose(&self) -> Vec<u8> {
        [&[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32], self.pair.public_key().as_ref()].concat()
    }

    /// Returns the key as stored for a user.
    pub(crate) fn stored(&self, identity: Uuid) -> SecurityKey {
        SecurityKey {
            id: Uuid::now_v7(),
            identity,
            name: "blue".to_owned(),
            credential_id: self.id.to_vec(),
            public_key: self.cose(),
            rp_id: "bulla.example".to_owned(),
            sign_count: 0,
            user_verified: true,
            backup_eligible: false,
            backed_up: false,
            aaguid: Uuid::nil(),
            transports: "[]".to_owned(),
            created_at_us: 1,
            last_used_at_us: None,
        }
    }

    fn data(&self, flags: u8) -> Vec<u8> {
        let mut data = digest(&SHA256, b"bulla.example").as_ref().to_vec();
        data.push(flags);
        data.extend(self.count.to_be_bytes());
        data
    }

    /// Returns the response to `navigator.credentials.create`.
    fn create(&self, ceremony: &Value) -> Value {
        let mut data = self.data(0x45);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.id);
        data.extend(self.cose());
        let mut object = b"\xa3cfmtdnonegattStmt\xa0hauthData\x58".to_vec();
        object.push(u8::try_from(data.len()).unwrap());
        object.extend(data);
        json!({
            "ceremony": ceremony["ceremony"],
            "client_data_json": B64.encode(client_data("webauthn.create", ceremony, ORIGIN)),
            "attestation_object": B64.encode(object),
            "transports": ["usb", "telepathy"],
        })
    }

    /// Returns the response to `navigator.credentials.get`.
    pub(crate) fn get(&mut self, ceremony: &Value, flags: u8, user: Option<&str>) -> Value {
        self.get_at(ceremony, flags, user, ORIGIN)
    }

    fn get_at(&mut self, ceremony: &Value, flags: u8, user: Option<&str>, origin: &str) -> Value {
        self.count += 1;
        let (data, client_data) = (self.data(flags), client_data("webauthn.get", ceremony, origin));
        let message = [data.as_slice(), digest(&SHA256, client_data.as_bytes()).as_ref()].concat();
        let handle = user.map(|user| B64.encode(Uuid::parse_str(user).unwrap().as_bytes()));
        json!({ "security_key": {
            "ceremony": ceremony["ceremony"],
            "credential_id": B64.encode(self.id),
            "client_data_json": B64.encode(client_data),
            "authenticator_data": B64.encode(data),
            "signature": B64.encode(self.pair.sign(&message)),
            "user_handle": handle,
        }})
    }
}

/// User presence alone, and with verification.
pub(crate) const PRESENT: u8 = 0x01;
pub(crate) const VERIFIED: u8 = 0x05;

fn client_data(kind: &str, ceremony: &Value, origin: &str) -> String {
    let challenge = &ceremony["options"]["challenge"];
    json!({ "type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false }).to_string()
}

/// Returns a request of a page at [`HOST`].
fn page(world: &World, method: Method, path: &str) -> reqwest::RequestBuilder {
    world
        .bare(method, path)
        .header("host", HOST)
        .header("origin", ORIGIN)
        .header("sec-fetch-site", "same-origin")
}

async fn post(world: &World, path: &str, body: Value) -> TestResponse {
    send(page(world, Method::POST, path).json(&body)).await
}

pub(crate) async fn send_request(
    world: &World,
    tab: &Tab,
    method: Method,
    path: &str,
    body: Value,
) -> TestResponse {
    let request = page(world, method, path).header("cookie", &tab.cookie);
    send(request.header("x-csrf-token", &tab.csrf).json(&body)).await
}

/// Starts a server whose time the test moves, and that does not limit attempts.
async fn world() -> (World, Clock) {
    let clock = Clock::manual(now() * 1_000_000);
    (limited(clock.clone(), PLENTY).await, clock)
}

const PLENTY: SlowRate = SlowRate { every: Duration::from_secs(1), burst: 1_000 };

/// Starts a server that limits the passwords for a name from unknown addresses.
async fn limited(clock: Clock, name: SlowRate) -> World {
    let limits = LimitOptions {
        sign_in: SignInRates { pair: PLENTY, address: PLENTY, name },
        ..LimitOptions::unlimited()
    };
    let state = Box::new(move |state: server::StateBuilder| state.limits(limits));
    World::start_with(Plan { clock, state, ..Plan::default() }).await
}

/// Stores a key without its registration.
pub(crate) async fn insert(world: &World, key: SecurityKey) {
    let insert = world
        .store
        .write("test", move |tx| async move { store::insert_security_key(tx, &key).await }.boxed());
    assert_eq!(insert.await.unwrap(), AccessChange::Done);
}

/// Creates a user with a password. Returns the id.
pub(crate) async fn user(world: &World, name: &str, role: &str) -> String {
    let body = json!({ "name": name, "grants": [{ "role": role, "scope": "any" }] });
    let made = world.post("/api/v1/users", body).await.expect(201).json();
    let id = made["id"].as_str().unwrap().to_owned();
    let put = world.with(&world.admin, Method::PUT, &format!("/api/v1/users/{id}/password"));
    send(put.json(&json!({ "password": PASSWORD }))).await.expect(204);
    id
}

pub(crate) async fn password(world: &World, name: &str) -> TestResponse {
    post(world, SESSIONS, json!({ "name": name, "password": PASSWORD })).await
}

fn keys_of(id: &str) -> String {
    format!("/api/v1/users/{id}/security-keys")
}

pub(crate) async fn register(world: &World, tab: &Tab, id: &str, key: &SoftKey) -> TestResponse {
    let path = format!("{}/challenge", keys_of(id));
    let ceremony =
        send_request(world, tab, Method::POST, &path, json!({ "name": "blue" })).await.expect(201).json();
    send_request(world, tab, Method::POST, &keys_of(id), key.create(&ceremony)).await
}

async fn actions(world: &World, resource: &str) -> Vec<String> {
    let audit = world.get(&format!("/api/v1/audit?resource={resource}")).await.json();
    let events = audit["items"].as_array().unwrap().iter();
    events.map(|event| event["action"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_password_does_not_suffice_once_a_user_has_a_security_key() {
    let (world, _) = world().await;
    let ann = user(&world, "ann", "viewer").await;
    let tab = Tab::of(&password(&world, "ann").await.expect(201));
    let mut key = SoftKey::new(7);
    let made = register(&world, &tab, &ann, &key).await.expect(201).json();
    assert_eq!(
        (made["name"].as_str(), made["host"].as_str(), made["algorithm"].as_str()),
        (Some("blue"), Some("bulla.example"), Some("EdDSA"))
    );

    let second_factor = password(&world, "ann").await.expect(202);
    assert!(!second_factor.headers.contains_key("set-cookie"), "{second_factor:?}");
    let ceremony = second_factor.json();
    assert_eq!(ceremony["options"]["allowCredentials"][0]["id"], B64.encode(key.id));
    assert_eq!(ceremony["options"]["allowCredentials"][0]["transports"], json!(["usb"]));
    let response = key.get(&ceremony, PRESENT, Some(&ann));
    let signed_in = post(&world, SESSIONS, response.clone()).await.expect(201);
    assert_eq!(signed_in.json()["session"]["method"], "password+security-key");
    // The response is good once.
    post(&world, SESSIONS, response).await.expect(401);

    let listed = send_request(&world, &tab, Method::GET, &keys_of(&ann), json!({})).await.expect(200).json();
    assert!(listed["items"][0]["last_used_at"].is_string(), "{listed}");
    assert_eq!(
        actions(&world, &format!("user/{ann}")).await[..4],
        ["session.begin", "session.challenge", "user.security-key-add", "session.begin"]
    );
}

#[tokio::test]
async fn the_first_key_ends_the_other_sessions_and_links() {
    let (world, _) = world().await;
    let ann = user(&world, "ann", "viewer").await;
    let [tab, other] =
        [password(&world, "ann").await, password(&world, "ann").await].map(|one| Tab::of(&one.expect(201)));
    let bob = user(&world, "bob", "viewer").await;
    let bobs = Tab::of(&password(&world, "bob").await.expect(201));
    let link =
        send_request(&world, &other, Method::POST, "/api/v1/auth/links", json!({})).await.expect(201).json();
    let mut key = SoftKey::new(7);
    register(&world, &tab, &ann, &key).await.expect(201);
    send_request(&world, &other, Method::GET, &keys_of(&ann), json!({})).await.expect(401);
    post(&world, SESSIONS, json!({ "code": link["code"] })).await.expect(401);
    send_request(&world, &tab, Method::GET, &keys_of(&ann), json!({})).await.expect(200);
    send_request(&world, &bobs, Method::GET, &keys_of(&bob), json!({})).await.expect(200);
    // A further key ends no session: they began with a key.
    let second_factor = password(&world, "ann").await.expect(202).json();
    let signed_in = post(&world, SESSIONS, key.get(&second_factor, PRESENT, Some(&ann))).await.expect(201);
    register(&world, &tab, &ann, &SoftKey::new(8)).await.expect(201);
    send_request(&world, &Tab::of(&signed_in), Method::GET, &keys_of(&ann), json!({})).await.expect(200);
}

#[tokio::test]
async fn a_right_password_that_the_second_factor_stops_is_in_the_audit_log() {
    let (world, _) = world().await;
    let (ann, bob) = (user(&world, "ann", "viewer").await, user(&world, "bob", "viewer").await);
    let mut bobs = SoftKey::new(8);
    for (id, key) in [(&ann, &SoftKey::new(7)), (&bob, &bobs)] {
        insert(&world, key.stored(id.parse().unwrap())).await;
    }
    // A key of another user, and a key that is not registered.
    for key in [&mut bobs, &mut SoftKey::new(9)] {
        let second_factor = password(&world, "ann").await.expect(202).json();
        post(&world, SESSIONS, key.get(&second_factor, VERIFIED, None)).await.expect(401);
    }
    // Security keys cannot be used if the server's address is an IP address.
    let by_address =
        world.bare(Method::POST, SESSIONS).header("origin", format!("https://{}", world.address));
    let body = json!({ "name": "ann", "password": PASSWORD });
    send(by_address.header("sec-fetch-site", "same-origin").json(&body)).await.expect(409);
    let audit = world.get(&format!("/api/v1/audit?resource=user/{ann}")).await.json();
    let events: Vec<(&str, &Value)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["action"].as_str().unwrap(), &event["details"]))
        .take(5)
        .collect();
    let found: Vec<&str> = events.iter().map(|(action, _)| *action).collect();
    let (second_factor, refused) = ("session.challenge", "session.refuse");
    assert_eq!(found, [second_factor, refused, second_factor, refused, second_factor]);
    for (at, begun) in [(0, false), (2, true)] {
        let details = events[at].1;
        assert_eq!((&details["purpose"], &details["begun"]), (&json!("sign-in"), &json!(begun)));
        assert_eq!(details["address"], "127.0.0.1");
    }
    assert_eq!(events[1].1["reason"], "the security key is not registered");
    assert!(events[3].1["security_key"].is_string(), "{audit}");
    assert!(!actions(&world, &format!("user/{bob}")).await.contains(&refused.to_owned()));
}

#[tokio::test]
async fn an_address_is_known_only_after_the_second_factor() {
    let hourly = SlowRate { every: Duration::from_secs(3_600), burst: 2 };
    let world = limited(Clock::manual(now() * 1_000_000), hourly).await;
    let (ann, bob) = (user(&world, "ann", "viewer").await, user(&world, "bob", "viewer").await);
    let mut key = SoftKey::new(7);
    insert(&world, key.stored(ann.parse().unwrap())).await;
    insert(&world, SoftKey::new(8).stored(bob.parse().unwrap())).await;
    password(&world, "ann").await.expect(202);
    let second_factor = password(&world, "ann").await.expect(202).json();
    post(&world, SESSIONS, key.get(&second_factor, PRESENT, Some(&ann))).await.expect(201);
    password(&world, "ann").await.expect(202);
    // The right password alone, as of somebody who stole it.
    for status in [202, 202, 429] {
        password(&world, "bob").await.expect(status);
    }
}

#[tokio::test]
async fn a_passkey_signs_in_alone_only_if_it_verified_its_user() {
    let (world, _) = world().await;
    let ann = user(&world, "ann", "viewer").await;
    let tab = Tab::of(&password(&world, "ann").await.expect(201));
    let mut key = SoftKey::new(7);
    register(&world, &tab, &ann, &key).await.expect(201);
    let challenge =
        async || post(&world, "/api/v1/auth/sessions/challenge", json!({})).await.expect(201).json();

    let bob = user(&world, "bob", "admin").await;
    for (flags, handle) in
        [(PRESENT, Some(&ann)), (VERIFIED, None), (VERIFIED, Some(&bob)), (0x04, Some(&ann))]
    {
        let ceremony = challenge().await;
        let response = key.get(&ceremony, flags, handle.map(String::as_str));
        let refused = post(&world, SESSIONS, response).await.expect(401);
        assert!(!refused.headers.contains_key("set-cookie"));
    }
    let ceremony = challenge().await;
    let response = key.get(&ceremony, VERIFIED, Some(&ann));
    let signed_in = post(&world, SESSIONS, response).await.expect(201).json();
    assert_eq!(
        (&signed_in["actor"], &signed_in["session"]["method"]),
        (&json!("user:ann"), &json!("passkey"))
    );
}

#[tokio::test]
async fn a_passkey_alone_does_not_replace_an_issuer() {
    let (world, _) = world().await;
    // The subject by which users without an issuer are known.
    let body = json!({ "name": "eve", "subject": "local", "issuer": "https://idp.example", "grants": [] });
    assert!(world.post("/api/v1/users", body).await.expect(422).text.contains("reserved"));
    let body = json!({ "name": "ann", "subject": "s-1", "issuer": "https://idp.example", "grants": [] });
    let made = world.post("/api/v1/users", body).await.expect(201).json();
    let ann = made["id"].as_str().unwrap();
    let mut key = SoftKey::new(7);
    insert(&world, key.stored(ann.parse().unwrap())).await;
    let mut sign_in = async || {
        let ceremony = post(&world, "/api/v1/auth/sessions/challenge", json!({})).await.expect(201).json();
        post(&world, SESSIONS, key.get(&ceremony, VERIFIED, Some(ann))).await
    };
    sign_in().await.expect(401);
    let reasons = world.get("/api/v1/audit?action=session.refuse").await.text;
    assert!(reasons.contains("OpenID Connect issuer"), "{reasons}");
    // A password permits signing in without the issuer.
    let path = format!("/api/v1/users/{ann}/password");
    send(world.with(&world.admin, Method::PUT, &path).json(&json!({ "password": PASSWORD })))
        .await
        .expect(204);
    sign_in().await.expect(201);
}

#[tokio::test]
async fn a_response_is_for_one_challenge_of_one_page_and_one_user() {
    let (world, clock) = world().await;
    let ann = user(&world, "ann", "viewer").await;
    let bob = user(&world, "bob", "admin").await;
    let tab = Tab::of(&password(&world, "ann").await.expect(201));
    let other = Tab::of(&password(&world, "bob").await.expect(201));
    let (mut key, mut bobs) = (SoftKey::new(7), SoftKey::new(8));
    register(&world, &tab, &ann, &key).await.expect(201);
    register(&world, &other, &bob, &bobs).await.expect(201);
    // A credential can be registered only once, by any user.
    register(&world, &other, &bob, &key).await.expect(409);

    let second_factor = async |name| password(&world, name).await.expect(202).json();
    let mut refused = Vec::new();
    // Another user's key, another site, another challenge, an old counter, a changed signature.
    refused.push(bobs.get(&second_factor("ann").await, VERIFIED, Some(&bob)));
    refused.push(key.get_at(&second_factor("ann").await, VERIFIED, Some(&ann), "https://evil.example"));
    let (first, second) = (second_factor("ann").await, second_factor("ann").await);
    let mut mixed = key.get(&first, VERIFIED, Some(&ann));
    mixed["security_key"]["ceremony"] = second["ceremony"].clone();
    refused.push(mixed);
    let ceremony = second_factor("ann").await;
    key.count = 0;
    refused.push(key.get(&ceremony, VERIFIED, Some(&ann)));
    key.count = 50;
    let mut changed = key.get(&second_factor("ann").await, VERIFIED, Some(&ann));
    changed["security_key"]["signature"] = B64.encode([0; 64]).into();
    refused.push(changed);
    let mut late = key.get(&second_factor("ann").await, VERIFIED, Some(&ann));
    let mut answers = Vec::new();
    for body in refused {
        answers.push(post(&world, SESSIONS, body).await.expect(401).json());
    }
    clock.advance(Duration::from_secs(300));
    answers.push(post(&world, SESSIONS, late.take()).await.expect(401).json());
    for answer in &mut answers {
        answer["instance"] = Value::Null;
    }
    assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
    let reasons = world.get("/api/v1/audit?action=session.refuse").await.text;
    assert!(reasons.contains("the signature counter did not increase"), "{reasons}");
    // A challenge for one purpose is not valid for another.
    let mut confirming =
        send_request(&world, &tab, Method::POST, "/api/v1/auth/sessions/confirm/challenge", json!({})).await;
    let ceremony = confirming.expect(201).json();
    confirming = post(&world, SESSIONS, key.get(&ceremony, VERIFIED, Some(&ann))).await;
    confirming.expect(401);
}

#[tokio::test]
async fn a_session_is_confirmed_by_its_own_users_key() {
    let (world, clock) = world().await;
    let ann = user(&world, "ann", "admin").await;
    let tab = Tab::of(&password(&world, "ann").await.expect(201));
    let mut key = SoftKey::new(7);
    register(&world, &tab, &ann, &key).await.expect(201);
    clock.advance(Duration::from_secs(901));
    // Keys are neither added nor removed without a recent proof.
    let path = format!("{}/challenge", keys_of(&ann));
    let refused = send_request(&world, &tab, Method::POST, &path, json!({ "name": "x" })).await.expect(403);
    assert_eq!(refused.problem(), "reauthentication-required");
    let confirm = "/api/v1/auth/sessions/confirm";
    // The password alone does not confirm either.
    let second_factor = send_request(&world, &tab, Method::POST, confirm, json!({ "password": PASSWORD }))
        .await
        .expect(202)
        .json();
    send_request(&world, &tab, Method::POST, &path, json!({ "name": "x" })).await.expect(403);
    let another = Tab::of(
        &post(&world, SESSIONS, {
            let second_factor = password(&world, "ann").await.expect(202).json();
            key.get(&second_factor, PRESENT, Some(&ann))
        })
        .await
        .expect(201),
    );
    let response = key.get(&second_factor, PRESENT, Some(&ann));
    send_request(&world, &another, Method::POST, confirm, response).await.expect(401);
    let second_factor = send_request(&world, &tab, Method::POST, confirm, json!({ "password": PASSWORD }))
        .await
        .expect(202)
        .json();
    let response = key.get(&second_factor, PRESENT, Some(&ann));
    send_request(&world, &tab, Method::POST, confirm, response).await.expect(200);
    send_request(&world, &tab, Method::POST, &path, json!({ "name": "x" })).await.expect(201);
}

#[tokio::test]
async fn users_register_their_own_keys_and_managers_remove_those_of_lesser_users() {
    let (world, _) = world().await;
    let (ann, root) = (user(&world, "ann", "viewer").await, user(&world, "root", "admin").await);
    let tab = Tab::of(&password(&world, "ann").await.expect(201));
    let key = register(&world, &tab, &ann, &SoftKey::new(7)).await.expect(201).json();
    let one = format!("{}/{}", keys_of(&ann), key["id"].as_str().unwrap());
    // Users register keys only for themselves, and tokens register no keys.
    let path = format!("{}/challenge", keys_of(&root));
    send_request(&world, &tab, Method::POST, &path, json!({ "name": "x" })).await.expect(403);
    send(world.with(&world.admin, Method::POST, &path).json(&json!({ "name": "x" }))).await.expect(403);
    send_request(&world, &tab, Method::GET, &keys_of(&root), json!({})).await.expect(403);
    // Browsers have keys for host names only.
    let own = format!("{}/challenge", keys_of(&ann));
    let by_address =
        world.bare(Method::POST, &own).header("cookie", &tab.cookie).header("x-csrf-token", &tab.csrf);
    let refused = send(by_address.json(&json!({ "name": "x" }))).await.expect(409);
    assert!(refused.text.contains("host name"), "{refused:?}");

    let bob = user(&world, "bob", "viewer").await;
    let bobs = Tab::of(&password(&world, "bob").await.expect(201));
    send_request(&world, &bobs, Method::DELETE, &one, json!({})).await.expect(403);
    assert_ne!(bob, ann);
    let wrong = format!("{}/{}", keys_of(&bob), key["id"].as_str().unwrap());
    send(world.with(&world.admin, Method::DELETE, &wrong)).await.expect(404);
    send(world.with(&world.admin, Method::DELETE, &one)).await.expect(204);
    password(&world, "ann").await.expect(201);
    assert_eq!(actions(&world, &format!("user/{ann}")).await[1], "user.security-key-remove");
}
