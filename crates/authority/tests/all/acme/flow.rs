//! Tests of complete orders and of the resources around them.

use authority::acme::{DirectoryOptions, Method};
use http::StatusCode;
use serde_json::{Value, json};
use x509::Certificate;

use super::client::{AccountKey, Answer, BASE, Client, b64, csr};
use super::world::AcmeFixture;
use crate::fixture::Fixture;

/// Proves control of every name of an order by http-01.
pub(crate) async fn prove(fixture: &AcmeFixture, client: &Client, order: &Value) {
    let count = order["authorizations"].as_array().unwrap().len();
    for index in 0..count {
        let challenge = client.challenge(order, index, "http-01").await;
        fixture.net.challenge(challenge["token"].as_str().unwrap(), &client.key_authorization(&challenge));
        client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok();
    }
    for url in order["authorizations"].as_array().unwrap() {
        let found = client.until_not(url.as_str().unwrap(), &["pending"]).await;
        assert_eq!(found["status"], "valid", "{found}");
    }
}

/// Finalizes a ready order; returns the response and the key of the CSR.
pub(crate) async fn finalize(client: &Client, order: &Value, names: &[&str]) -> (Answer, keys::PrivateKey) {
    let (key, csr) = csr(names);
    let answer = client.post(order["finalize"].as_str().unwrap(), json!({"csr": b64(csr)})).await;
    (answer, key)
}

/// Runs a complete order; returns its URL and the certificate chain.
pub(crate) async fn issue(
    fixture: &AcmeFixture,
    client: &Client,
    names: &[&str],
) -> (String, Vec<Certificate>) {
    let answer = client.order(names).await.ok();
    let (url, order) = (answer.header("location"), answer.json());
    prove(fixture, client, &order).await;
    assert_eq!(client.fetch(&url).await.ok().json()["status"], "ready");
    let (answer, _) = finalize(client, &order, names).await;
    let order = answer.ok().json();
    assert_eq!(order["status"], "valid", "{order}");
    (url, download(client, &order).await)
}

pub(crate) async fn download(client: &Client, order: &Value) -> Vec<Certificate> {
    let answer = client.fetch(order["certificate"].as_str().unwrap()).await.ok();
    assert_eq!(answer.header("content-type"), "application/pem-certificate-chain");
    let blocks = x509::pem::certificates(&answer.body);
    blocks.map(|(_, der)| Certificate::parse(&der).unwrap()).collect()
}

pub(crate) async fn order_is_validated_finalized_and_issued(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let directory = Client::new(&fixture.acme).get(&format!("{BASE}/acme/directory")).await.ok().json();
    for resource in
        ["newNonce", "newAccount", "newOrder", "newAuthz", "revokeCert", "keyChange", "renewalInfo"]
    {
        assert!(directory[resource].as_str().unwrap().starts_with(BASE), "{resource}");
    }
    let client = Client::registered(&fixture.acme).await;
    let names = ["a.test", "b.test", "127.0.0.1"];
    let (url, chain) = issue(&fixture, &client, &names).await;
    assert_eq!(chain.len(), 2);
    chain[0].signed_by(&chain[1].public_key).unwrap();
    let mut found = chain[0].names();
    found.sort();
    assert_eq!(found, ["127.0.0.1", "a.test", "b.test"]);
    // The CA has recorded the certificate under the account.
    let which = authority::issue::IssuedRef::Fingerprint(chain[0].fingerprint);
    let record = fixture.fixture.authority.issued(&which).await.unwrap().unwrap();
    let account = client.kid.as_deref().unwrap().rsplit('/').next().unwrap();
    assert_eq!(
        (record.requester, record.source),
        (format!("acme:{account}"), authority::issue::Source::Acme)
    );
    let orders = client.fetch(&format!("{}/orders", client.kid.as_deref().unwrap())).await.ok().json();
    assert_eq!(orders["orders"], json!([url]));
    let actions = fixture.fixture.actions().await;
    for action in ["acme_account.create", "acme_authorization.prove", "certificate.issue"] {
        assert!(actions.iter().any(|found| found == action), "{action}: {actions:?}");
    }
}

pub(crate) async fn responses_contain_nonce_and_index_and_up_links(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let nonce = format!("{BASE}/acme/new-nonce");
    for (method, status) in [("HEAD", 200), ("GET", 204), ("POST", 405)] {
        let answer = client.raw(method, &nonce, None, Vec::new()).await;
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.links("index"), [format!("{BASE}/acme/directory")]);
    }
    assert!(client.get(&format!("{BASE}/acme/directory")).await.ok().links("index").is_empty());
    let order = client.order(&["a.test"]).await.ok();
    assert_eq!(order.status, StatusCode::CREATED);
    assert_eq!(order.links("index"), [format!("{BASE}/acme/directory")]);
    let challenge = client.challenge(&order.json(), 0, "http-01").await;
    let answer = client.fetch(challenge["url"].as_str().unwrap()).await.ok();
    assert_eq!(answer.links("up"), [order.json()["authorizations"][0].as_str().unwrap()]);
    // Resources are read only by POST-as-GET. A GET response says so.
    let get = client.get(&order.header("location")).await;
    assert_eq!((get.status.as_u16(), get.header("allow").as_str()), (405, "POST"));
    assert_eq!(client.get(&format!("{BASE}/acme/nothing")).await.status, StatusCode::NOT_FOUND);
    let read = client.post(&order.header("location"), json!({})).await;
    assert_eq!(read.problem(), "malformed");
}

pub(crate) async fn all_account_key_types_are_accepted(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    for key in AccountKey::all() {
        let alg = key.alg();
        let mut client = Client::with_key(&fixture.acme, key);
        let made = client.register(&format!("{BASE}/acme/new-account"), json!({})).await;
        assert_eq!(made.status, StatusCode::CREATED, "{alg}: {made:?}");
        let order = client.order(&["a.test"]).await;
        assert_eq!(order.status, StatusCode::CREATED, "{alg}: {order:?}");
    }
}

pub(crate) async fn accounts_are_found_updated_and_deactivated(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let url = format!("{BASE}/acme/new-account");
    let mut client = Client::new(&fixture.acme);
    let none = client.register(&url, json!({"onlyReturnExisting": true})).await;
    assert_eq!(none.problem(), "accountDoesNotExist");
    let made = client.register(&url, json!({"contact": ["mailto:a@a.test"]})).await;
    assert_eq!((made.status, &made.json()["status"]), (StatusCode::CREATED, &json!("valid")));
    let repeated = client.register(&url, json!({"onlyReturnExisting": true})).await;
    assert_eq!((repeated.status, repeated.header("location")), (StatusCode::OK, made.header("location")));
    let kid = client.kid.clone().unwrap();
    let changed =
        client.post(&kid, json!({"contact": ["mailto:b@a.test", "mailto:c@a.test"]})).await.ok().json();
    assert_eq!(changed["contact"], json!(["mailto:b@a.test", "mailto:c@a.test"]));
    assert_eq!(client.fetch(&kid).await.ok().json(), changed);
    for (contact, problem) in
        [("tel:+1", "unsupportedContact"), ("mailto:a@a.test?x=y", "invalidContact"), ("x", "invalidContact")]
    {
        assert_eq!(client.post(&kid, json!({"contact": [contact]})).await.problem(), problem);
    }
    assert_eq!(client.post(&kid, json!({"status": "revoked"})).await.problem(), "malformed");
    let ended = client.post(&kid, json!({"status": "deactivated"})).await.ok().json();
    assert_eq!(ended["status"], "deactivated");
    for refused in [client.order(&["a.test"]).await, client.fetch(&kid).await] {
        assert_eq!((refused.status, refused.problem().as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"));
    }
    let back = client.register(&url, json!({})).await;
    assert_eq!((back.status, back.problem().as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"));
}

pub(crate) async fn new_account_must_agree_to_terms_of_service(fixture: Fixture) {
    let terms = "https://a.test/terms";
    let fixture =
        AcmeFixture::with(fixture, |options| options.terms_of_service = Some(terms.to_owned())).await;
    let mut client = Client::new(&fixture.acme);
    let directory = client.get(&format!("{BASE}/acme/directory")).await.ok().json();
    assert_eq!(directory["meta"]["termsOfService"], terms);
    let url = format!("{BASE}/acme/new-account");
    let refused = client.register(&url, json!({})).await;
    assert_eq!(refused.problem(), "userActionRequired");
    assert_eq!(refused.links("terms-of-service"), [terms]);
    let made = client.register(&url, json!({"termsOfServiceAgreed": true})).await.ok().json();
    assert_eq!(made["termsOfServiceAgreed"], true);
}

pub(crate) async fn account_key_rollover_replaces_the_key_and_rejects_invalid_requests(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let mut client = Client::registered(&fixture.acme).await;
    let other = Client::registered(&fixture.acme).await;
    let url = format!("{BASE}/acme/key-change");
    let inner = |client: &Client, new: &AccountKey, change: &dyn Fn(&mut Value, &mut Value)| {
        let mut header = json!({"alg": new.alg(), "jwk": new.jwk(), "url": url});
        let mut payload = json!({"account": client.kid, "oldKey": client.key.jwk()});
        change(&mut header, &mut payload);
        new.jws(&header, &payload.to_string())
    };
    // For a key that is in use, the error names its account.
    let taken = client.post(&url, inner(&client, &other.key, &|_, _| ())).await;
    assert_eq!((taken.status, Some(taken.header("location"))), (StatusCode::CONFLICT, other.kid.clone()));
    let new = AccountKey::p256();
    let cases: [(&str, &dyn Fn(&mut Value, &mut Value)); 5] = [
        ("another account", &|_, payload| payload["account"] = json!(other.kid)),
        ("another old key", &|_, payload| payload["oldKey"] = other.key.jwk()),
        ("another URL", &|header, _| header["url"] = json!(format!("{BASE}/acme/new-order"))),
        ("a nonce", &|header, _| header["nonce"] = json!("x")),
        ("a kid", &|header, _| {
            header.as_object_mut().unwrap().remove("jwk");
            header["kid"] = json!(other.kid);
        }),
    ];
    for (what, change) in cases {
        assert_eq!(client.post(&url, inner(&client, &new, change)).await.problem(), "malformed", "{what}");
    }
    let mut forged = inner(&client, &new, &|_, _| ());
    forged["signature"] = json!(b64([0; 64]));
    assert_eq!(client.post(&url, forged).await.problem(), "malformed");
    client.post(&url, inner(&client, &new, &|_, _| ())).await.ok();
    let old = std::mem::replace(&mut client.key, new.into());
    client.order(&["a.test"]).await.ok();
    client.key = old;
    let refused = client.order(&["a.test"]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    // The old key is free for another account.
    client.kid = None;
    assert_eq!(
        client.register(&format!("{BASE}/acme/new-account"), json!({})).await.status,
        StatusCode::CREATED
    );
}

pub(crate) async fn rolled_over_account_key_is_used_by_another_node(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let mut client = Client::registered(&fixture.acme).await;
    let (node, other_node) = (fixture.acme.clone(), fixture.another());
    client.acme = other_node.clone();
    let url = format!("{BASE}/acme/new-order");
    let order = json!({"identifiers": [{"type": "dns", "value": "a.test"}]});
    // The other server has its own nonces: the first response only brings a valid one.
    assert_eq!(client.post(&url, order.clone()).await.problem(), "badNonce");
    client.post(&url, order.clone()).await.ok();
    client.acme = node;
    let change = format!("{BASE}/acme/key-change");
    let new = AccountKey::p256();
    let header = json!({"alg": new.alg(), "jwk": new.jwk(), "url": change});
    let inner = new.jws(&header, &json!({"account": client.kid, "oldKey": client.key.jwk()}).to_string());
    assert_eq!(client.post(&change, inner.clone()).await.problem(), "badNonce");
    client.post(&change, inner).await.ok();
    (client.key, client.acme) = (new.into(), other_node);
    assert_eq!(client.post(&url, order.clone()).await.problem(), "badNonce");
    client.post(&url, order).await.ok();
}

pub(crate) async fn profiles_are_listed_in_the_directory_and_selected_by_orders(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let offered = DirectoryOptions { profiles: vec!["web".to_owned()], ..DirectoryOptions::default() };
        options.directories.insert("default".to_owned(), offered);
        let web = DirectoryOptions { description: "for the web".to_owned(), ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), web);
        options.other_profiles = None;
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    let meta = client.get(&format!("{BASE}/acme/directory")).await.ok().json()["meta"].clone();
    assert_eq!(meta["profiles"], json!({"default": "default", "web": "for the web"}));
    let web = client.get(&format!("{BASE}/acme/web/directory")).await.ok().json();
    assert_eq!(web["newOrder"], format!("{BASE}/acme/web/new-order"));
    assert_eq!(client.get(&format!("{BASE}/acme/other/directory")).await.status, StatusCode::NOT_FOUND);
    let order = client.order_with(&["a.test"], json!({"profile": "web"})).await.ok().json();
    assert_eq!(order["profile"], "web");
    assert_eq!(client.order_with(&["a.test"], json!({"profile": "other"})).await.problem(), "invalidProfile");
    assert_eq!(client.order(&["a.test"]).await.ok().json()["profile"], "default");
    prove(&fixture, &client, &order).await;
    let (answer, _) = finalize(&client, &order, &["a.test"]).await;
    let chain = download(&client, &answer.ok().json()).await;
    let which = authority::issue::IssuedRef::Fingerprint(chain[0].fingerprint);
    assert_eq!(fixture.fixture.authority.issued(&which).await.unwrap().unwrap().profile, "web");
}

pub(crate) async fn trusting_directory_issues_without_challenges(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let trusting = DirectoryOptions { trust_authenticated: true, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), trusting);
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    let url = format!("{BASE}/acme/web/new-order");
    let names = ["*.a.test", "a.test"];
    let identifiers: Vec<Value> = names.iter().map(|name| json!({"type": "dns", "value": name})).collect();
    let order = client.post(&url, json!({"identifiers": identifiers})).await.ok().json();
    assert_eq!(order["status"], "ready");
    let authorization = client.fetch(order["authorizations"][0].as_str().unwrap()).await.ok().json();
    assert_eq!((&authorization["status"], &authorization["wildcard"]), (&json!("valid"), &json!(true)));
    let (answer, _) = finalize(&client, &order, &names).await;
    assert_eq!(answer.ok().json()["status"], "valid");
    // Authorizations of one server are not valid on another.
    assert_eq!(client.order(&["a.test"]).await.ok().json()["status"], "pending");
}

pub(crate) async fn valid_authorizations_are_reused_until_they_expire(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let reusing = DirectoryOptions { reuse_seconds: 3_600, ..DirectoryOptions::default() };
        options.directories.insert("default".to_owned(), reusing);
        let strict = DirectoryOptions {
            reuse_seconds: 3_600,
            methods: vec![Method::Dns01],
            ..DirectoryOptions::default()
        };
        options.directories.insert("web".to_owned(), strict);
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    issue(&fixture, &client, &["a.test"]).await;
    let repeated = client.order(&["a.test"]).await.ok().json();
    assert_eq!(repeated["status"], "ready");
    let more = client.order(&["a.test", "b.test"]).await.ok().json();
    assert_eq!(
        (&more["status"], &more["authorizations"][0]),
        (&json!("pending"), &repeated["authorizations"][0])
    );
    // An authorization is not reused for a wildcard, at a directory without its method, by another account, or after it expires.
    assert_eq!(client.order(&["*.a.test"]).await.ok().json()["status"], "pending");
    let web = json!({"identifiers": [{"type": "dns", "value": "a.test"}]});
    let web = client.post(&format!("{BASE}/acme/web/new-order"), web).await.ok().json();
    assert_eq!(web["status"], "pending");
    let other = Client::registered(&fixture.acme).await;
    assert_eq!(other.order(&["a.test"]).await.ok().json()["status"], "pending");
    fixture.fixture.advance(3_601);
    assert_eq!(client.order(&["a.test"]).await.ok().json()["status"], "pending");
    // A deactivated authorization is not reused.
    issue(&fixture, &client, &["c.test"]).await;
    let order = client.order(&["c.test"]).await.ok().json();
    let authorization = order["authorizations"][0].as_str().unwrap();
    client.post(authorization, json!({"status": "deactivated"})).await.ok();
    assert_eq!(client.order(&["c.test"]).await.ok().json()["status"], "pending");
}

pub(crate) async fn preauthorized_name_is_used_by_a_later_order(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let url = format!("{BASE}/acme/new-authz");
    let wanted = |name: &str| json!({"identifier": {"type": "dns", "value": name}});
    assert_eq!(client.post(&url, wanted("*.a.test")).await.problem(), "malformed");
    assert_eq!(client.post(&url, wanted("secret.test")).await.problem(), "rejectedIdentifier");
    let answer = client.post(&url, wanted("a.test")).await.ok();
    assert_eq!((answer.status, &answer.json()["status"]), (StatusCode::CREATED, &json!("pending")));
    let order = json!({"authorizations": [answer.header("location")]});
    prove(&fixture, &client, &order).await;
    let order = client.order(&["a.test"]).await.ok().json();
    assert_eq!(
        (&order["status"], &order["authorizations"][0]),
        (&json!("ready"), &json!(answer.header("location")))
    );
}

pub(crate) async fn order_dates_are_limited_by_profile_and_directory(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let fixed = DirectoryOptions { choose_dates: false, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), fixed);
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    // The clock of the test is at 2026-11-21.
    let dates = json!({"notBefore": "2026-11-21T12:00:00Z", "notAfter": "2026-11-25T12:00:00Z"});
    let order = client.order_with(&["a.test"], dates.clone()).await.ok().json();
    assert_eq!((&order["notBefore"], &order["notAfter"]), (&dates["notBefore"], &dates["notAfter"]));
    prove(&fixture, &client, &order).await;
    let (answer, _) = finalize(&client, &order, &["a.test"]).await;
    let chain = download(&client, &answer.ok().json()).await;
    let life = chain[0].not_after.since(chain[0].not_before);
    assert!((4 * 86_400 - 2..=4 * 86_400).contains(&life), "{life}");
    for bad in [
        json!({"notAfter": "2026-11-20T00:00:00Z"}),
        json!({"notBefore": "2026-11-22T00:00:00Z", "notAfter": "2026-11-22T00:00:00Z"}),
        json!({"notAfter": "2046-11-20T00:00:00Z"}),
        json!({"notBefore": "soon"}),
    ] {
        assert_eq!(client.order_with(&["a.test"], bad.clone()).await.problem(), "malformed", "{bad}");
    }
    let mut web = json!({"identifiers": [{"type": "dns", "value": "a.test"}]});
    web["notAfter"] = dates["notAfter"].clone();
    assert_eq!(client.post(&format!("{BASE}/acme/web/new-order"), web).await.problem(), "malformed");
}
