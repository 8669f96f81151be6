//! Management of ACME accounts, orders and keys over the API.

use authority::acme::{Acme, AcmeOptions};
use authority::keystore::KeyStore;
use authority::tables::acme::{
    AcmeOrder, AcmeOrderStatus, NewAcmeAccount, insert_acme_account, insert_acme_orders,
};
use authority::{Authority, AuthorityOptions};
use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use http::{Method, Request};
use keys::Keyring;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::{Components, Issuance, State, access, router};
use store::{Clock, Store};
use tower::ServiceExt;
use uuid::Uuid;

use crate::world::{issuance, store};

struct Api {
    router: Router,
    admin: String,
    store: Store,
    _folder: tempfile::TempDir,
}

impl Api {
    async fn new() -> Self {
        let (folder, store) = store().await;
        let clock = Clock::system();
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let options = AuthorityOptions::default();
        let authority = Authority::open(store.clone(), keystore, clock.clone(), options).unwrap();
        let acme =
            Acme::new(authority.clone(), store.clone(), clock.clone(), AcmeOptions::default()).unwrap();
        let issuance = Issuance { acme, ..issuance(&authority, &store, &clock) };
        let components = Components { issuance: Some(issuance), ..Components::default() };
        let state = State::builder(store.clone(), clock).components(components).build();
        Self { router: router(&state).0, admin, store, _folder: folder }
    }

    async fn send_request(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.admin))
            .header("content-type", "application/json");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Creates an account with one pending order, written directly to the store.
    async fn account(&self) -> (Uuid, Uuid) {
        let (account, order) = (Uuid::now_v7(), Uuid::now_v7());
        let new = NewAcmeAccount {
            id: account,
            thumbprint: [7; 32],
            jwk: "{}".to_owned(),
            contacts: vec!["mailto:a@a.example".to_owned()],
            terms_agreed: false,
            external_key: None,
            profile: "default".to_owned(),
            address: "192.0.2.1".to_owned(),
            created_at_us: 1,
        };
        let ordered = AcmeOrder {
            id: order,
            account,
            profile: "default".to_owned(),
            status: AcmeOrderStatus::Pending,
            names: vec!["dns:a.example".to_owned()],
            authorizations: vec![Uuid::now_v7()],
            not_before_us: None,
            not_after_us: None,
            created_at_us: 1,
            expires_at_us: 2,
            replaces: None,
            csr: None,
            certificate: None,
            error: None,
            claimed_until_us: None,
        };
        let store = self.store.clone();
        store
            .write("test", move |tx| {
                async move {
                    insert_acme_account(tx, &new).await?;
                    insert_acme_orders(tx, &[ordered]).await
                }
                .boxed()
            })
            .await
            .unwrap();
        (account, order)
    }
}

const KEYS: &str = "/api/v1/acme/external-keys";

#[tokio::test]
async fn acme_external_account_keys_are_created_disabled_and_deleted() {
    let api = Api::new().await;
    let new = json!({ "kid": "web", "label": "web team", "names": ["a.example"], "profiles": ["default"] });
    let (status, made) = api.send_request(Method::POST, KEYS, new.clone()).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["hmac_key"].as_str().unwrap().len(), 43);
    let path = format!("{KEYS}/{}", made["id"].as_str().unwrap());
    let (_, shown) = api.send_request(Method::GET, &path, Value::Null).await;
    assert_eq!(
        (&shown["kid"], &shown["uses"], &shown["disabled_at"]),
        (&json!("web"), &json!(0), &Value::Null)
    );
    assert!(shown.get("hmac_key").is_none() && shown.get("secret").is_none());
    assert_eq!(api.send_request(Method::POST, KEYS, new).await.0, 409);
    for bad in [json!({ "names": ["A.example"] }), json!({ "kid": "" })] {
        assert_eq!(api.send_request(Method::POST, KEYS, bad.clone()).await.0, 422, "{bad}");
    }
    assert_eq!(api.send_request(Method::POST, KEYS, json!({ "secret": "mine" })).await.0 / 100, 4);
    let (_, listed) = api.send_request(Method::GET, KEYS, Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.send_request(Method::POST, &format!("{path}/disable"), json!({})).await.0, 204);
    assert!(api.send_request(Method::GET, &path, Value::Null).await.1["disabled_at"].is_string());
    assert_eq!(api.send_request(Method::DELETE, &path, Value::Null).await.0, 204);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(api.send_request(method, &path, Value::Null).await.0, 404);
    }
}

#[tokio::test]
async fn acme_accounts_and_orders_are_listed_and_accounts_revoked() {
    let api = Api::new().await;
    let (account, order) = api.account().await;
    let path = format!("/api/v1/acme/accounts/{account}");
    let (_, listed) = api.send_request(Method::GET, "/api/v1/acme/accounts", Value::Null).await;
    assert_eq!(listed["items"][0]["id"], json!(account));
    let (_, shown) = api.send_request(Method::GET, &path, Value::Null).await;
    assert_eq!((&shown["status"], &shown["contacts"]), (&json!("valid"), &json!(["mailto:a@a.example"])));
    for query in [String::new(), format!("?account={account}")] {
        let (_, listed) =
            api.send_request(Method::GET, &format!("/api/v1/acme/orders{query}"), Value::Null).await;
        assert_eq!(listed["items"][0]["id"], json!(order), "{query}");
        // The order has expired, so its status is `invalid`, as ACME clients see it.
        assert_eq!(listed["items"][0]["status"], "invalid", "{query}");
        let detail = listed["items"][0]["error"]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("create a new order"), "{listed}");
    }
    let other = format!("/api/v1/acme/orders?account={}", Uuid::nil());
    assert_eq!(api.send_request(Method::GET, &other, Value::Null).await.1["items"], json!([]));
    let (_, shown) =
        api.send_request(Method::GET, &format!("/api/v1/acme/orders/{order}"), Value::Null).await;
    assert_eq!((&shown["status"], &shown["names"]), (&json!("invalid"), &json!(["dns:a.example"])));
    let (status, ended) = api.send_request(Method::POST, &format!("{path}/revoke"), json!({})).await;
    assert_eq!((status, &ended["status"]), (200, &json!("revoked")));
    for path in ["accounts", "orders"] {
        let nothing = format!("/api/v1/acme/{path}/{}", Uuid::nil());
        assert_eq!(api.send_request(Method::GET, &nothing, Value::Null).await.0, 404);
    }
}

#[tokio::test]
async fn acme_limit_overrides_are_set_replaced_and_deleted() {
    let api = Api::new().await;
    let path = "/api/v1/acme/limit-overrides";
    let lift = json!({ "kind": "new_accounts", "subject": "10.0.0.0/8", "seconds": 60, "note": "a lab" });
    let (status, made) = api.send_request(Method::POST, path, lift.clone()).await;
    assert_eq!((status, &made["allowed"]), (200, &Value::Null), "{made}");
    // An override for the same subject replaces the existing one.
    let mut fewer = lift;
    fewer["allowed"] = json!(5);
    let (_, second) = api.send_request(Method::POST, path, fewer).await;
    assert_eq!((&second["id"], &second["allowed"]), (&made["id"], &json!(5)));
    for bad in [
        json!({ "kind": "orders", "subject": "a", "seconds": 0 }),
        json!({ "kind": "other", "subject": "a", "seconds": 1 }),
        json!({ "kind": "new_accounts", "subject": "a", "seconds": 1 }),
    ] {
        assert_eq!(api.send_request(Method::POST, path, bad.clone()).await.0, 422, "{bad}");
    }
    let (_, listed) = api.send_request(Method::GET, path, Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let one = format!("{path}/{}", made["id"].as_str().unwrap());
    assert_eq!(api.send_request(Method::DELETE, &one, Value::Null).await.0, 204);
    assert_eq!(api.send_request(Method::DELETE, &one, Value::Null).await.0, 404);
}
