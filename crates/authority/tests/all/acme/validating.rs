//! Tests of every validation method, and of invalid proofs.

use std::net::Ipv4Addr;

use authority::acme::{DirectoryOptions, Method};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use x509::GeneralName;

use super::client::{BASE, Client, b64};
use super::flow::{finalize, prove};
use super::net::{AlpnCertificate, Page, Reply};
use super::world::AcmeFixture;
use crate::fixture::Fixture;

/// Answers a challenge and waits until its authorization is no longer pending.
async fn answer(client: &Client, order: &Value, challenge: &Value) -> Value {
    client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok();
    client.until_not(order["authorizations"][0].as_str().unwrap(), &["pending"]).await
}

fn problem(authorization: &Value) -> (String, String) {
    assert_eq!(authorization["status"], "invalid", "{authorization}");
    let error = &authorization["challenges"][0]["error"];
    let kind = error["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    (kind, error["detail"].as_str().unwrap().to_owned())
}

fn digest(text: &str) -> String {
    b64(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()))
}

pub(crate) async fn http01_follows_only_permitted_redirects_and_checks_the_response(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let (http, tls) = (fixture.net.http.port(), fixture.net.tls.port());
    let redirect = |to: &str| {
        Page::Raw(format!(
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ))
    };
    let status = |status: &str, body: &str| {
        Page::Raw(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    };
    let long = "x".repeat(9_000);
    let table: Vec<(&str, Page, Option<(&str, &str)>)> = vec![
        ("as it should be", Page::Text("KEY".to_owned()), None),
        ("white space after it", Page::Text("KEY \r\n".to_owned()), None),
        ("a redirect", redirect(&format!("http://b.test:{http}/good")), None),
        ("a relative redirect", redirect("/good"), None),
        ("another text", Page::Text("no".to_owned()), Some(("incorrectResponse", "\"no\""))),
        ("a longer text", Page::Text("KEYx".to_owned()), Some(("incorrectResponse", "starts with"))),
        ("far too long", Page::Text(long), Some(("incorrectResponse", "8192"))),
        ("not found", status("404 Not Found", "KEY"), Some(("unauthorized", "404"))),
        ("another success", status("201 Created", "KEY"), Some(("unauthorized", "201"))),
        (
            "a redirect to itself",
            redirect(&format!("http://c.test:{http}/circle")),
            Some(("connection", "10 redirects")),
        ),
        ("a redirect to another port", redirect("http://b.test:9/"), Some(("connection", "standard ports"))),
        ("a redirect to another scheme", redirect("ftp://b.test/"), Some(("connection", "http and https"))),
        (
            "a redirect to metadata",
            redirect(&format!("http://169.254.169.254:{http}/")),
            Some(("connection", "link-local")),
        ),
        (
            "a redirect to a name of it",
            redirect(&format!("http://metadata.test:{http}/")),
            Some(("connection", "link-local")),
        ),
        (
            "a redirect with credentials",
            redirect(&format!("http://u:p@b.test:{http}/good")),
            Some(("connection", "credentials")),
        ),
        ("no answer", Page::Raw(String::new()), Some(("connection", "http://"))),
        (
            "a TLS port that is none",
            redirect(&format!("https://b.test:{tls}/")),
            Some(("connection", "https://")),
        ),
    ];
    fixture.net.page("/circle", redirect("/circle"));
    fixture.net.address("metadata.test", Ipv4Addr::new(169, 254, 169, 254));
    for (what, page, expected) in table {
        let order = client.order(&["a.test"]).await.ok().json();
        let challenge = client.challenge(&order, 0, "http-01").await;
        let key = client.key_authorization(&challenge);
        let filled = match page {
            Page::Text(text) => Page::Text(text.replace("KEY", &key)),
            other => other,
        };
        fixture.net.page("/good", Page::Text(key));
        fixture
            .net
            .page(&format!("/.well-known/acme-challenge/{}", challenge["token"].as_str().unwrap()), filled);
        let found = answer(&client, &order, &challenge).await;
        match expected {
            None => assert_eq!(found["status"], "valid", "{what}: {found}"),
            Some((kind, part)) => {
                let (found, detail) = problem(&found);
                assert!(found == kind && detail.contains(part), "{what}: {found}: {detail}");
            }
        }
    }
}

pub(crate) async fn validation_of_loopback_addresses_is_rejected(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| options.validation.allow_networks.clear()).await;
    let client = Client::registered(&fixture.acme).await;
    // The test's name server resolves every name to 127.0.0.1, where its web server answers.
    for (name, kind) in [("a.test", "http-01"), ("a.test", "tls-alpn-01"), ("127.0.0.1", "http-01")] {
        let order = client.order(&[name]).await.ok().json();
        let challenge = client.challenge(&order, 0, kind).await;
        fixture.net.challenge(challenge["token"].as_str().unwrap(), &client.key_authorization(&challenge));
        let (problem, detail) = problem(&answer(&client, &order, &challenge).await);
        assert!(problem == "connection" && detail.contains("loopback"), "{name} {kind}: {problem}: {detail}");
    }
    assert_eq!(fixture.net.requests(), Vec::<String>::new());
}

pub(crate) async fn dns01_follows_cname_and_tcp_and_reports_missing_records(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let begin = async |name: &str, kind: &str| {
        let order = client.order(&[name]).await.ok().json();
        let challenge = client.challenge(&order, 0, kind).await;
        let text = digest(&client.key_authorization(&challenge));
        (order, challenge, text)
    };
    let (order, challenge, text) = begin("a.test", "dns-01").await;
    fixture.net.txt("_acme-challenge.a.test", &["other", &text]);
    assert_eq!(answer(&client, &order, &challenge).await["status"], "valid");
    // The wildcard uses the same record name.
    let (order, challenge, text) = begin("*.a.test", "dns-01").await;
    fixture.net.txt("_acme-challenge.a.test", &[&text]);
    let found = answer(&client, &order, &challenge).await;
    assert_eq!((&found["status"], &found["wildcard"]), (&json!("valid"), &json!(true)));
    // Behind an alias that the name server does not follow itself.
    let (order, challenge, text) = begin("b.test", "dns-01").await;
    fixture.net.alias("_acme-challenge.b.test", "elsewhere.example");
    fixture.net.txt("elsewhere.example", &[&text]);
    assert_eq!(answer(&client, &order, &challenge).await["status"], "valid");
    // With enough other records that the DNS response needs TCP.
    let (order, challenge, text) = begin("c.test", "dns-01").await;
    let many: Vec<String> = (0..40).map(|number| format!("{number}{}", "x".repeat(60))).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.push(&text);
    fixture.net.txt("_acme-challenge.c.test", &many);
    assert_eq!(answer(&client, &order, &challenge).await["status"], "valid");

    for (what, reply, kind, part) in [
        ("no record", None, "dns", "no TXT record"),
        ("no name", Some(Reply::Code(ResponseCode::NXDomain)), "dns", "no TXT record"),
        ("a broken zone", Some(Reply::Code(ResponseCode::ServFail)), "dns", "_acme-challenge.d.test"),
    ] {
        let (order, challenge, _) = begin("d.test", "dns-01").await;
        if let Some(reply) = reply {
            fixture.net.reply("_acme-challenge.d.test", RecordType::TXT, reply);
        }
        let (problem, detail) = problem(&answer(&client, &order, &challenge).await);
        assert!(problem == kind && detail.contains(part), "{what}: {problem}: {detail}");
    }
    let (order, challenge, _) = begin("e.test", "dns-01").await;
    fixture.net.txt("_acme-challenge.e.test", &["wrong"]);
    let (kind, detail) = problem(&answer(&client, &order, &challenge).await);
    assert!(kind == "incorrectResponse" && detail.contains("wrong"), "{kind}: {detail}");
    fixture.net.alias("_acme-challenge.f.test", "_acme-challenge.f.test");
    let (order, challenge, _) = begin("f.test", "dns-01").await;
    let (kind, detail) = problem(&answer(&client, &order, &challenge).await);
    assert!(kind == "dns" && detail.contains("loop"), "{kind}: {detail}");

    // Each account has its own label.
    let (order, challenge, text) = begin("*.g.test", "dns-account-01").await;
    let hash =
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, client.kid.as_deref().unwrap().as_bytes());
    let label = base32(&hash.as_ref()[..10]);
    fixture.net.txt(&format!("_{label}._acme-challenge.g.test"), &[&text]);
    assert_eq!(answer(&client, &order, &challenge).await["status"], "valid");
    assert!(!fixture.net.questions().contains(&"_acme-challenge.g.test TXT".to_owned()));
}

/// Encodes ten bytes in base32 (RFC 4648 section 6).
fn base32(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let value = |bits: &[u8]| bits.iter().fold(0, |all, bit| all << 1 | usize::from(*bit));
    bits.chunks(5).map(|bits| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[value(bits)])).collect()
}

pub(crate) async fn tls_alpn01_rejects_certificates_that_differ_from_the_challenge(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let own = ["acme-tls/1"];
    let good = AlpnCertificate::of;
    for name in ["a.test", "127.0.0.1"] {
        let order = client.order(&[name]).await.ok().json();
        let challenge = client.challenge(&order, 0, "tls-alpn-01").await;
        let (der, key) = good(name, &client.key_authorization(&challenge)).make();
        fixture.net.serve_certificate(der, &key, &own);
        assert_eq!(answer(&client, &order, &challenge).await["status"], "valid", "{name}");
    }
    type Change = fn(&mut AlpnCertificate);
    let table: [(&str, Change, &[&str], &str, &str); 7] = [
        (
            "another name",
            |one| one.names = vec![GeneralName::Dns("b.test".to_owned())],
            &own,
            "unauthorized",
            "b.test",
        ),
        (
            "two names",
            |one| one.names.push(GeneralName::Dns("b.test".to_owned())),
            &own,
            "unauthorized",
            "not only for",
        ),
        (
            "another kind of name",
            |one| one.names = vec![GeneralName::Ip([127, 0, 0, 1].into())],
            &own,
            "unauthorized",
            "not only for",
        ),
        (
            "another key",
            |one| one.key_authorization.push('x'),
            &own,
            "unauthorized",
            "another key authorization",
        ),
        ("not critical", |one| one.critical = false, &own, "unauthorized", "critical"),
        ("not self-signed", |one| one.self_signed = false, &own, "unauthorized", "self-signed"),
        ("another protocol", |_| (), &["http/1.1"], "tls", ""),
    ];
    for (what, change, protocols, kind, part) in table {
        let order = client.order(&["a.test"]).await.ok().json();
        let challenge = client.challenge(&order, 0, "tls-alpn-01").await;
        let mut certificate = good("a.test", &client.key_authorization(&challenge));
        change(&mut certificate);
        let (der, key) = certificate.make();
        fixture.net.serve_certificate(der, &key, protocols);
        let (problem, detail) = problem(&answer(&client, &order, &challenge).await);
        assert!(problem == kind && detail.contains(part), "{what}: {problem}: {detail}");
    }
    // Wildcards have no challenge of this type, and IP addresses no DNS challenge.
    let kinds = async |name: &str| {
        let order = client.order(&[name]).await.ok().json();
        let found = client.fetch(order["authorizations"][0].as_str().unwrap()).await.ok().json();
        let all: Vec<String> = found["challenges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["type"].as_str().unwrap().to_owned())
            .collect();
        all
    };
    assert_eq!(kinds("*.a.test").await, ["dns-01", "dns-account-01"]);
    assert_eq!(kinds("192.0.2.7").await, ["http-01", "tls-alpn-01"]);
}

pub(crate) async fn persistent_dns_record_is_valid_for_its_account_only(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        options.caa_identities = vec!["ca.example".to_owned()];
        let reusing = DirectoryOptions { reuse_seconds: 86_400, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), reusing);
    })
    .await;
    let (client, other) = (Client::registered(&fixture.acme).await, Client::registered(&fixture.acme).await);
    let meta = client.get(&format!("{BASE}/acme/directory")).await.ok().json()["meta"].clone();
    let prefix = meta["accountHashPrefix"].as_str().unwrap();
    assert_eq!(meta["issuerDomainNames"], json!(["ca.example"]));
    let kid = client.kid.clone().unwrap();
    let thumbprint = client.key.thumbprint();
    let hashed = |name: &str| {
        let length = [u8::try_from(name.len()).unwrap()];
        let input = [&length[..], name.as_bytes(), thumbprint.as_bytes(), kid.as_bytes()].concat();
        format!("{prefix}sha-256/{}", b64(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &input)))
    };
    let record = |rest: &str| format!("ca.example; accounturi={}{rest}", hashed("a.test"));
    let authorize = async |client: &Client, name: &str| {
        let order = client.order(&[name]).await.ok().json();
        let challenge = client.challenge(&order, 0, "dns-persist-01").await;
        assert_eq!(challenge["issuerDomainNames"], json!(["ca.example"]));
        assert!(challenge.get("token").is_none());
        answer(client, &order, &challenge).await
    };
    fixture.net.txt("_validation-persist.a.test", &["v=spf1", &record("")]);
    assert_eq!(authorize(&client, "a.test").await["status"], "valid");
    assert_eq!(problem(&authorize(&client, "*.a.test").await).0, "unauthorized");
    assert_eq!(problem(&authorize(&other, "a.test").await).0, "unauthorized");
    fixture.net.txt("_validation-persist.a.test", &[&record("; policy=wildcard")]);
    assert_eq!(authorize(&client, "*.a.test").await["status"], "valid");
    fixture.net.txt("_validation-persist.b.test", &[&format!("ca.example; accounturi={kid}")]);
    assert_eq!(authorize(&client, "b.test").await["status"], "valid");
    // A proof is not valid longer than the record says.
    let until = fixture.fixture.clock.now_seconds() + 3_600;
    fixture.net.txt("_validation-persist.a.test", &[&record(&format!("; persistUntil={until}"))]);
    let order = json!({"identifiers": [{"type": "dns", "value": "a.test"}]});
    let order = client.post(&format!("{BASE}/acme/web/new-order"), order).await.ok().json();
    let challenge = client.challenge(&order, 0, "dns-persist-01").await;
    let found = answer(&client, &order, &challenge).await;
    let expires: jiff::Timestamp = found["expires"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires.as_second(), until);
    fixture.fixture.advance(3_601);
    assert_eq!(problem(&authorize(&client, "a.test").await).0, "unauthorized");
}

pub(crate) async fn persistent_dns_record_stays_valid_after_account_key_rollover(fixture: Fixture) {
    let fixture =
        AcmeFixture::with(fixture, |options| options.caa_identities = vec!["ca.example".to_owned()]).await;
    let mut client = Client::registered(&fixture.acme).await;
    let prefix = format!("{BASE}/acme/account-hash/");
    let input = ["\x01*", &client.key.thumbprint(), client.kid.as_deref().unwrap()].concat();
    let uri = format!("{prefix}sha-256/{}", digest(&input));
    fixture.net.txt("_validation-persist.a.test", &[&format!("ca.example; accounturi={uri}")]);
    let url = format!("{BASE}/acme/key-change");
    let new = super::client::AccountKey::p256();
    let header = json!({"alg": new.alg(), "jwk": new.jwk(), "url": url});
    let inner = new.jws(&header, &json!({"account": client.kid, "oldKey": client.key.jwk()}).to_string());
    client.post(&url, inner).await.ok();
    client.key = new.into();
    let order = client.order(&["a.test"]).await.ok().json();
    let challenge = client.challenge(&order, 0, "dns-persist-01").await;
    assert_eq!(answer(&client, &order, &challenge).await["status"], "valid");
}

pub(crate) async fn caa_records_are_looked_up_to_the_root(fixture: Fixture) {
    let fixture =
        AcmeFixture::with(fixture, |options| options.caa_identities = vec!["ca.example".to_owned()]).await;
    let client = Client::registered(&fixture.acme).await;
    let authorize = async |name: &str| {
        let order = client.order(&[name]).await.ok().json();
        let challenge = client.challenge(&order, 0, "http-01").await;
        fixture.net.challenge(challenge["token"].as_str().unwrap(), &client.key_authorization(&challenge));
        answer(&client, &order, &challenge).await
    };
    assert_eq!(authorize("x.a.test").await["status"], "valid");
    let questions = fixture.net.questions();
    for name in ["x.a.test CAA", "a.test CAA", "test CAA"] {
        assert!(questions.contains(&name.to_owned()), "{name}: {questions:?}");
    }
    fixture.net.caa("a.test", false, "issue", "other.example");
    let (kind, detail) = problem(&authorize("x.a.test").await);
    assert!(kind == "caa" && detail.contains("a.test") && detail.contains("ca.example"), "{kind}: {detail}");
    fixture.net.caa("x.a.test", false, "issue", "ca.example; validationmethods=http-01");
    assert_eq!(authorize("x.a.test").await["status"], "valid");
    fixture.net.caa("x.a.test", false, "issue", "ca.example; validationmethods=dns-01");
    assert_eq!(problem(&authorize("x.a.test").await).0, "caa");
    fixture.net.caa(
        "x.a.test",
        false,
        "issue",
        &format!("ca.example; accounturi={}", client.kid.as_deref().unwrap()),
    );
    assert_eq!(authorize("x.a.test").await["status"], "valid");
    fixture.net.caa("x.a.test", true, "tomorrow", "x");
    assert_eq!(problem(&authorize("x.a.test").await).0, "caa");
    // A failed CAA lookup does not count as "no records".
    fixture.net.reply("b.test", RecordType::CAA, Reply::Code(ResponseCode::ServFail));
    assert_eq!(problem(&authorize("x.b.test").await).0, "dns");
}

pub(crate) async fn caa_is_rechecked_when_an_authorization_is_old(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        options.caa_identities = vec!["ca.example".to_owned()];
        let trusting = DirectoryOptions { trust_authenticated: true, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), trusting);
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    let order = client.order(&["a.test"]).await.ok().json();
    prove(&fixture, &client, &order).await;
    fixture.net.caa("a.test", false, "issue", ";");
    fixture.fixture.advance(9 * 3_600);
    let (refused, _) = finalize(&client, &order, &["a.test"]).await;
    assert_eq!(refused.problem(), "caa");
    // The directory `web` requires no proof, so CAA is checked at finalization.
    let web = json!({"identifiers": [{"type": "dns", "value": "a.test"}]});
    let web = client.post(&format!("{BASE}/acme/web/new-order"), web).await.ok().json();
    let (refused, _) = finalize(&client, &web, &["a.test"]).await;
    assert_eq!(refused.problem(), "caa");
    fixture.net.caa("a.test", false, "issue", "ca.example");
    let (good, _) = finalize(&client, &order, &["a.test"]).await;
    assert_eq!(good.ok().json()["status"], "valid");
    // CAA is not checked again for a fresh proof.
    let order = client.order(&["b.test"]).await.ok().json();
    prove(&fixture, &client, &order).await;
    let before = fixture.net.questions().len();
    let (good, _) = finalize(&client, &order, &["b.test"]).await;
    good.ok();
    assert_eq!(fixture.net.questions().len(), before);
}

pub(crate) async fn validation_is_retried_until_the_challenge_response_appears(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| options.validation.pause_milliseconds = 3_000).await;
    let client = Client::registered(&fixture.acme).await;
    let order = client.order(&["a.test"]).await.ok().json();
    let challenge = client.challenge(&order, 0, "http-01").await;
    let posted = client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok();
    assert_eq!(posted.json()["status"], "processing");
    posted.header("retry-after");
    let token = challenge["token"].as_str().unwrap();
    super::world::eventually("the first try", async || (!fixture.net.requests().is_empty()).then_some(()))
        .await;
    fixture.net.challenge(token, &client.key_authorization(&challenge));
    let found = client.until_not(order["authorizations"][0].as_str().unwrap(), &["pending"]).await;
    assert_eq!(found["status"], "valid");
    // A second answer to the challenge changes nothing, and the other challenges are no longer listed.
    let repeated = client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok().json();
    assert_eq!(repeated["status"], "valid");
    assert!(repeated["validated"].is_string());
    assert_eq!(found["challenges"].as_array().unwrap().len(), 1);
    let requests = fixture.net.requests().len();
    assert!((2..=3).contains(&requests), "{requests}");
}

pub(crate) async fn failed_order_reports_the_failed_identifiers(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let only = DirectoryOptions { methods: vec![Method::Http01], ..DirectoryOptions::default() };
        options.directories.insert("default".to_owned(), only);
    })
    .await;
    let client = Client::registered(&fixture.acme).await;
    let answer = client.order(&["a.test", "b.test"]).await.ok();
    let order = answer.json();
    for index in 0..2 {
        let challenge = client.challenge(&order, index, "http-01").await;
        client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok();
    }
    for url in order["authorizations"].as_array().unwrap() {
        client.until_not(url.as_str().unwrap(), &["pending"]).await;
    }
    let failed = client.fetch(&answer.header("location")).await.ok().json();
    assert_eq!(failed["status"], "invalid");
    assert_eq!(failed["error"]["subproblems"][1]["identifier"]["value"], "b.test");
    let actions = fixture.fixture.actions().await;
    assert_eq!(actions.iter().filter(|action| *action == "acme_authorization.fail").count(), 2);
}
