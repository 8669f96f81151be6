//! Tests of requests that must be refused, with the right problem type.

use authority::acme::{DirectoryOptions, Limit, LimitOptions, NewExternalKey, NewOverride};
use authority::tables::acme::AcmeLimit;
use http::StatusCode;
use keys::{KeyType, PrivateKey};
use serde_json::{Value, json};

use super::client::{AccountKey, BASE, Client, b64, csr, csr_of, identifier};
use super::flow::{finalize, issue, prove};
use super::world::{AcmeFixture, eventually};
use crate::fixture::Fixture;

fn url(path: &str) -> String {
    format!("{BASE}/acme/{path}")
}

fn wanted(names: &[&str]) -> String {
    json!({"identifiers": names.iter().map(|name| identifier(name)).collect::<Vec<_>>()}).to_string()
}

pub(crate) async fn requests_with_invalid_nonce_url_or_key_are_rejected(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let other = Client::registered(&fixture.acme).await;
    let new_order = url("new-order");
    let send = async |header: &Value, key: &AccountKey| {
        client.send(&new_order, &key.jws(header, &wanted(&["a.test"]))).await
    };

    // A nonce is valid once. The response brings another one.
    let header = client.header(&new_order).await;
    assert_eq!(send(&header, &client.key).await.status, StatusCode::CREATED);
    let replayed = send(&header, &client.key).await;
    assert_eq!(replayed.problem(), "badNonce");
    let mut retry = header.clone();
    retry["nonce"] = json!(replayed.header("replay-nonce"));
    assert_eq!(send(&retry, &client.key).await.status, StatusCode::CREATED);

    type Change = (&'static str, fn(&mut Value, &Client, &Client), StatusCode, &'static str);
    let table: [Change; 9] = [
        (
            "no nonce",
            |header, _, _| drop(header.as_object_mut().unwrap().remove("nonce")),
            StatusCode::BAD_REQUEST,
            "badNonce",
        ),
        (
            "an invented nonce",
            |header, _, _| header["nonce"] = json!("AAAA"),
            StatusCode::BAD_REQUEST,
            "badNonce",
        ),
        (
            "another URL",
            |header, _, _| header["url"] = json!(url("new-authz")),
            StatusCode::FORBIDDEN,
            "unauthorized",
        ),
        (
            "another host",
            |header, _, _| header["url"] = json!("https://evil.test/acme/new-order"),
            StatusCode::FORBIDDEN,
            "unauthorized",
        ),
        (
            "another account",
            |header, _, other| header["kid"] = json!(other.kid),
            StatusCode::UNAUTHORIZED,
            "malformed",
        ),
        (
            "no account",
            |header, _, _| header["kid"] = json!(url("acct/0190a5e8-0000-7000-8000-000000000000")),
            StatusCode::BAD_REQUEST,
            "accountDoesNotExist",
        ),
        (
            "another form of the account",
            |header, client, _| header["kid"] = json!(client.kid.as_deref().unwrap().to_uppercase()),
            StatusCode::BAD_REQUEST,
            "accountDoesNotExist",
        ),
        (
            "a key and an account",
            |header, client, _| header["jwk"] = client.key.jwk(),
            StatusCode::BAD_REQUEST,
            "malformed",
        ),
        (
            "an unknown algorithm",
            |header, _, _| header["alg"] = json!("ES1"),
            StatusCode::BAD_REQUEST,
            "badSignatureAlgorithm",
        ),
    ];
    for (what, change, status, problem) in table {
        let mut header = client.header(&new_order).await;
        change(&mut header, &client, &other);
        let answer = send(&header, &client.key).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{what}");
    }
    // The error lists the accepted algorithms.
    let mut header = client.header(&new_order).await;
    header["alg"] = json!("none");
    let answer = send(&header, &client.key).await.json();
    assert!(answer["algorithms"].as_array().unwrap().contains(&json!("ES256")));
    // Signed with a key that is not the account's key.
    let header = client.header(&new_order).await;
    assert_eq!(send(&header, &other.key).await.status, StatusCode::UNAUTHORIZED);
    // An embedded key where an account is required, and an account where an embedded key is required.
    assert_eq!(client.post_with_key(&new_order, &wanted(&["a.test"])).await.problem(), "malformed");
    assert_eq!(client.post(&url("new-account"), json!({})).await.problem(), "malformed");
    // The body is not a JWS.
    let plain = client.raw("POST", &new_order, Some("application/json"), b"{}".to_vec()).await;
    assert_eq!((plain.status, plain.problem().as_str()), (StatusCode::UNSUPPORTED_MEDIA_TYPE, "malformed"));
    let long = client.raw("POST", &new_order, Some("application/jose+json"), vec![b' '; 65_537]).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    for payload in [
        "",
        "[]",
        "{",
        r#"{"identifiers":[],"identifiers":[]}"#,
        r#"{"identifiers":[]}"#,
        r#"{"identifiers":[{}]}"#,
    ] {
        let header = client.header(&new_order).await;
        let answer = client.send(&new_order, &client.key.jws(&header, payload)).await;
        assert_eq!(answer.problem(), "malformed", "{payload}");
    }
}

pub(crate) async fn resources_of_another_account_are_reported_as_not_found(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let (owner, thief) = (Client::registered(&fixture.acme).await, Client::registered(&fixture.acme).await);
    let order = owner.order(&["a.test"]).await.ok();
    let (order_url, order) = (order.header("location"), order.json());
    let authorization = order["authorizations"][0].as_str().unwrap().to_owned();
    let challenge = owner.challenge(&order, 0, "http-01").await["url"].as_str().unwrap().to_owned();
    let (done_url, _) = issue(&fixture, &owner, &["b.test"]).await;
    let done = owner.fetch(&done_url).await.ok().json();
    let certificate = done["certificate"].as_str().unwrap().to_owned();
    // For another account the resources do not exist: the answer is the same as for an unknown ID.
    let nothing = url("order/0190a5e8-0000-7000-8000-000000000000");
    let expected = thief.fetch(&nothing).await;
    assert_eq!(expected.status, StatusCode::NOT_FOUND);
    for path in [&order_url, &authorization, &challenge, &certificate, &format!("{certificate}/1")] {
        let answer = thief.fetch(path).await;
        assert_eq!((answer.status, answer.body), (expected.status, expected.body.clone()), "{path}");
    }
    let (_, csr) = csr(&["a.test"]);
    for (path, payload) in [
        (&challenge, json!({})),
        (&authorization, json!({"status": "deactivated"})),
        (&format!("{order_url}/finalize"), json!({"csr": b64(csr)})),
    ] {
        let answer = thief.post(path, payload).await;
        assert_eq!((answer.status, answer.body), (expected.status, expected.body.clone()), "{path}");
    }
    assert_eq!(owner.fetch(&authorization).await.ok().json()["status"], "pending");
    let account = owner.kid.clone().unwrap();
    for path in [account.clone(), format!("{account}/orders")] {
        assert_eq!(thief.fetch(&path).await.problem(), "unauthorized");
    }
    assert_eq!(thief.post(&account, json!({"status": "deactivated"})).await.problem(), "unauthorized");
    // A method that is not offered has no resource either.
    let absent = challenge.replace("http-01", "dns-persist-01");
    assert_eq!(owner.fetch(&absent).await.status, StatusCode::NOT_FOUND);
}

pub(crate) async fn invalid_finalize_requests_are_rejected(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let answer = client.order(&["a.test", "b.test"]).await.ok();
    let (order_url, order) = (answer.header("location"), answer.json());
    let (early, _) = finalize(&client, &order, &["a.test", "b.test"]).await;
    assert_eq!((early.status, early.problem().as_str()), (StatusCode::FORBIDDEN, "orderNotReady"));
    prove(&fixture, &client, &order).await;
    let finalize_url = order["finalize"].as_str().unwrap();
    let other = PrivateKey::generate(KeyType::P521).unwrap();
    let mut unsigned = csr(&["a.test", "b.test"]).1;
    let last = unsigned.len() - 1;
    unsigned[last] ^= 1;
    let own = client.key.as_private_key();
    let names = ["a.test", "b.test"];
    for (what, der) in [
        ("fewer names", csr(&["a.test"]).1),
        ("more names", csr(&["a.test", "b.test", "c.test"]).1),
        ("other names", csr(&["a.test", "c.test"]).1),
        ("a name of another kind", csr(&["a.test", "b.test", "mailto:a@a.test"]).1),
        ("no proof of possession", unsigned),
        ("the account's own key", csr_of(&own, &names)),
        ("a key the profile does not take", csr_of(&other, &names)),
        ("no request", vec![0x30, 0]),
    ] {
        let answer = client.post(finalize_url, json!({"csr": b64(der)})).await;
        assert_eq!(answer.problem(), "badCSR", "{what}");
    }
    assert_eq!(client.post(finalize_url, json!({"csr": "a+b"})).await.problem(), "badCSR");
    assert_eq!(client.post(finalize_url, json!({})).await.problem(), "malformed");
    // The rejected requests did not change the order.
    assert_eq!(client.fetch(&order_url).await.ok().json()["status"], "ready");
    let (answer, _) = finalize(&client, &order, &names).await;
    assert_eq!(answer.ok().json()["status"], "valid");
    let (twice, _) = finalize(&client, &order, &names).await;
    assert_eq!(twice.problem(), "orderNotReady");

    // A deactivated authorization, then an expired order.
    let order = client.order(&["c.test"]).await.ok().json();
    prove(&fixture, &client, &order).await;
    client.post(order["authorizations"][0].as_str().unwrap(), json!({"status": "deactivated"})).await.ok();
    let (refused, _) = finalize(&client, &order, &["c.test"]).await;
    assert_eq!(refused.problem(), "orderNotReady");
    let answer = client.order(&["d.test"]).await.ok();
    prove(&fixture, &client, &answer.json()).await;
    fixture.fixture.advance(86_401);
    let (refused, _) = finalize(&client, &answer.json(), &["d.test"]).await;
    assert_eq!(refused.problem(), "orderNotReady");
    let late = client.fetch(&answer.header("location")).await.ok().json();
    assert_eq!(late["status"], "invalid");
}

pub(crate) async fn orders_for_disallowed_names_are_rejected(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        options.names_max = 3;
        let web = DirectoryOptions {
            methods: vec![authority::acme::Method::Http01],
            ..DirectoryOptions::default()
        };
        options.directories.insert("web".to_owned(), web);
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    let one = client.order(&["a.example"]).await;
    assert_eq!(
        (one.problem().as_str(), &one.json()["identifier"]),
        ("rejectedIdentifier", &identifier("a.example"))
    );
    let both = client.order(&["a.example", "a.test", "secret.test"]).await.json();
    assert_eq!(both["subproblems"].as_array().unwrap().len(), 2);
    assert_eq!(both["subproblems"][1]["identifier"], identifier("secret.test"));
    for (names, problem) in [
        (vec!["bücher.test"], "rejectedIdentifier"),
        (vec!["a.test."], "rejectedIdentifier"),
        (vec!["*.*.test"], "rejectedIdentifier"),
        (vec!["10.0.0.1"], "rejectedIdentifier"),
        (vec!["a.test", "b.test", "c.test", "d.test"], "malformed"),
    ] {
        assert_eq!(client.order(&names).await.problem(), problem, "{names:?}");
    }
    let email = json!({"identifiers": [{"type": "email", "value": "a@a.test"}]});
    assert_eq!(client.post(&url("new-order"), email).await.problem(), "unsupportedIdentifier");
    let wildcard = json!({"identifiers": [identifier("*.a.test")]});
    assert_eq!(client.post(&url("web/new-order"), wildcard).await.problem(), "rejectedIdentifier");
    // Duplicate names count once.
    let twice = client.order(&["a.test", "A.test"]).await.ok().json();
    assert_eq!(twice["identifiers"], json!([identifier("a.test")]));
}

pub(crate) async fn external_account_binding_is_required_and_limits_the_account(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let bound = DirectoryOptions { external_account_required: true, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), bound);
    })
    .await;
    // Set before the first request, because nodes cache ownership for a few seconds.
    for (team, name) in [("a", "a.test"), ("b", "b.test")] {
        let owns = authority::teams::Owns { names: vec![name.to_owned()], ..Default::default() };
        let put = fixture.fixture.store.write("test", move |tx| {
            let owns = owns.clone();
            Box::pin(async move {
                authority::tables::put_team(tx, team, &owns, authority::teams::Quota::default(), 1).await
            })
        });
        put.await.unwrap();
    }
    let acme = &fixture.acme;
    let (open, bound) = (url("new-account"), url("web/new-account"));
    let meta = Client::new(acme).get(&url("web/directory")).await.ok().json()["meta"].clone();
    assert_eq!(meta["externalAccountRequired"], true);
    let make = async |new: NewExternalKey| acme.create_external_key(new, "user:a").await.unwrap();
    let key = make(NewExternalKey {
        profiles: vec!["web".to_owned()],
        names: vec!["a.test".to_owned()],
        ..NewExternalKey::default()
    })
    .await;
    let stored = acme.external_key(key.id).await.unwrap().unwrap();
    assert!(
        !stored.secret.windows(8).any(|part| key.secret.as_bytes().windows(8).any(|secret| secret == part))
    );

    let mut client = Client::new(acme);
    assert_eq!(client.register(&bound, json!({})).await.problem(), "externalAccountRequired");
    let other_secret = b64([9; 32]);
    let good = |client: &Client| client.binding(&bound, &key.kid, &key.secret);
    let mut altered = good(&client);
    altered["payload"] = json!(b64(AccountKey::p256().jwk().to_string()));
    let mut extra = good(&client);
    extra["header"] = json!({});
    for (what, binding, problem) in [
        ("a wrong MAC", client.binding(&bound, &key.kid, &other_secret), "unauthorized"),
        ("an unknown key", client.binding(&bound, "unknown", &key.secret), "unauthorized"),
        ("another URL", client.binding(&open, &key.kid, &key.secret), "malformed"),
        ("another account key", altered, "malformed"),
        ("a member too many", extra, "malformed"),
        ("no JWS", json!("x"), "malformed"),
    ] {
        let answer = client.register(&bound, json!({"externalAccountBinding": binding})).await;
        assert_eq!(answer.problem(), problem, "{what}");
    }
    // Binding with the key at a directory that it is not for.
    let elsewhere = json!({"externalAccountBinding": client.binding(&open, &key.kid, &key.secret)});
    assert_eq!(client.register(&open, elsewhere).await.problem(), "unauthorized");
    client.register(&bound, json!({"externalAccountBinding": good(&client)})).await.ok();
    // The key is valid once.
    let mut second = Client::new(acme);
    let answer = second.register(&bound, json!({"externalAccountBinding": good(&second)})).await;
    assert_eq!(answer.problem(), "unauthorized");

    let order = |name: &str| json!({"identifiers": [identifier(name)]});
    client.post(&url("web/new-order"), order("x.a.test")).await.ok();
    let outside = client.post(&url("web/new-order"), order("b.test")).await;
    assert_eq!(outside.problem(), "rejectedIdentifier");
    assert_eq!(client.post(&url("new-order"), order("a.test")).await.problem(), "unauthorized");
    // An account from a directory without binding gets no access here.
    let stranger = Client::registered(acme).await;
    let answer = stranger.post(&url("web/new-order"), order("a.test")).await;
    assert_eq!(answer.problem(), "externalAccountRequired");

    // Any account that proves control can get a team's name. An account bound to a team by its key gets only names of that team.
    let of_team = make(NewExternalKey { team: Some("a".to_owned()), ..NewExternalKey::default() }).await;
    let mut member = Client::new(acme);
    let binding = member.binding(&bound, &of_team.kid, &of_team.secret);
    member.register(&bound, json!({"externalAccountBinding": binding})).await.ok();
    member.post(&url("web/new-order"), order("x.a.test")).await.ok();
    for outside in ["x.b.test", "x.c.test"] {
        let answer = member.post(&url("web/new-order"), order(outside)).await;
        assert_eq!(answer.problem(), "rejectedIdentifier", "{outside}");
    }
    let free = make(NewExternalKey::default()).await;
    let mut proves = Client::new(acme);
    let binding = proves.binding(&bound, &free.kid, &free.secret);
    proves.register(&bound, json!({"externalAccountBinding": binding})).await.ok();
    proves.post(&url("web/new-order"), order("x.b.test")).await.ok();

    // Keys that are reusable, expired and withdrawn.
    let shared = make(NewExternalKey { reusable: true, ..NewExternalKey::default() }).await;
    let soon = fixture.fixture.clock.now_us() + 1_000_000;
    let brief = make(NewExternalKey { expires_at_us: Some(soon), ..NewExternalKey::default() }).await;
    fixture.fixture.advance(2);
    let mut members = Vec::new();
    for _ in 0..2 {
        let mut member = Client::new(acme);
        let binding = member.binding(&bound, &shared.kid, &shared.secret);
        member.register(&bound, json!({"externalAccountBinding": binding})).await.ok();
        members.push(member);
    }
    let late = json!({"externalAccountBinding": second.binding(&bound, &brief.kid, &brief.secret)});
    assert_eq!(second.register(&bound, late).await.problem(), "unauthorized");
    assert!(acme.disable_external_key(shared.id, "user:a").await.unwrap());
    // A node caches an account for two seconds.
    let refused = eventually("the refusal", async || {
        let answer = members[0].post(&url("web/new-order"), order("a.test")).await;
        (!answer.status.is_success()).then_some(answer)
    });
    let answer = refused.await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"));
    let more = json!({"externalAccountBinding": second.binding(&bound, &shared.kid, &shared.secret)});
    assert_eq!(second.register(&bound, more).await.problem(), "unauthorized");
    // The master key may be replaced in between.
    let master = keys::MasterKeySource::File { path: fixture.fixture.path("newer"), create: true };
    fixture.fixture.keystore.register_sealed_column(&authority::tables::acme::SEALED_SECRETS);
    fixture.fixture.keystore.rotate_master(&master, "user:a", |_| ()).await.unwrap();
}

pub(crate) async fn rate_limits_are_enforced_and_overridable(fixture: Fixture) {
    let limit = |count| Some(Limit { count, seconds: 3_600 });
    let fixture = AcmeFixture::with(fixture, |options| {
        options.limits = LimitOptions {
            new_accounts: limit(2),
            orders: limit(4),
            failed_validations: limit(1),
            duplicate_certificates: limit(1),
        };
        options.validation.pause_milliseconds = 1;
    })
    .await;
    let acme = &fixture.acme;
    let mut client = Client::registered(acme).await;
    Client::registered(acme).await;
    let mut third = Client::new(acme);
    let refused = third.register(&url("new-account"), json!({})).await;
    assert_eq!((refused.status, refused.problem().as_str()), (StatusCode::TOO_MANY_REQUESTS, "rateLimited"));
    assert_eq!(refused.header("retry-after"), "1800");
    // Another address, then one with a higher limit.
    third.address = "192.0.2.2".parse().unwrap();
    third.register(&url("new-account"), json!({})).await.ok();
    let over = NewOverride {
        kind: AcmeLimit::NewAccounts,
        subject: "192.0.2.0/24".to_owned(),
        allowed: None,
        seconds: 1,
        note: "a lab".to_owned(),
    };
    let stored = acme.put_limit_override(over, "user:a").await.unwrap();
    for _ in 0..4 {
        Client::registered(acme).await;
    }
    assert!(acme.delete_limit_override(stored.id, "user:a").await.unwrap());
    assert_eq!(Client::new(acme).register(&url("new-account"), json!({})).await.problem(), "rateLimited");

    issue(&fixture, &client, &["a.test"]).await;
    assert_eq!(client.order(&["a.test"]).await.problem(), "rateLimited");
    let order = client.order(&["b.test"]).await.ok().json();
    let challenge = client.challenge(&order, 0, "http-01").await;
    client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok();
    client.until_not(order["authorizations"][0].as_str().unwrap(), &["pending"]).await;
    let failing = client.order(&["b.test"]).await;
    assert_eq!(
        (failing.problem().as_str(), &failing.json()["identifier"]),
        ("rateLimited", &identifier("b.test"))
    );
    client.order(&["c.test"]).await.ok();
    client.order(&["d.test"]).await.ok();
    let orders = client.order(&["e.test"]).await;
    assert_eq!(orders.problem(), "rateLimited");
    let account = client.kid.as_deref().unwrap().rsplit('/').next().unwrap().to_owned();
    let over = NewOverride {
        kind: AcmeLimit::Orders,
        subject: account,
        allowed: Some(100),
        seconds: 60,
        note: String::new(),
    };
    acme.put_limit_override(over, "user:a").await.unwrap();
    client.order(&["e.test"]).await.ok();
    fixture.fixture.advance(3_600);
    client.kid = client.kid.take();
    client.order(&["b.test"]).await.ok();
}

pub(crate) async fn order_for_a_profile_that_requires_approval_is_rejected(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let mut profile = super::world::profile("web");
    profile.requires_approval = true;
    fixture.fixture.authority.put_profile(profile, None, "user:a").await.unwrap();
    let client = Client::registered(&fixture.acme).await;
    let answer = client.post(&url("web/new-order"), json!({"identifiers": [identifier("a.test")]})).await;
    assert_eq!(answer.problem(), "unauthorized");
}
