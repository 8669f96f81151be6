//! Tests of dns-01 records with a real BIND: signed updates, aliases, propagation and hooks.

use std::time::{Duration, Instant};

use callout::HttpConfig;
use issuers::dns01::{Dns01Config, Solver, TxtRecord};
use issuers::{HostPolicy, IssuerError};
use outbound::resolve::Resolver;
use serde_json::{Value, json};

use super::fake::{Fake, Response};
use super::named::{Named, SECRET_256, SECRET_512};
use super::world::{programs, run};

fn solver(publisher: Value, propagation: Value) -> Solver {
    solver_on(&HostPolicy::default(), publisher, propagation)
}

/// Returns a solver that publishes with the program `hook`, on a host that defines it.
fn hooked(argv: &[&str], propagation: Value) -> Solver {
    let host = HostPolicy { programs: programs(&[("hook", argv)]), ..HostPolicy::default() };
    solver_on(&host, json!({"type": "exec", "program": "hook"}), propagation)
}

fn solver_on(host: &HostPolicy, publisher: Value, propagation: Value) -> Solver {
    let config: Dns01Config =
        serde_json::from_value(json!({"publisher": publisher, "propagation": propagation, "ttl": 1}))
            .unwrap();
    Solver::new(&config, &HttpConfig::default(), &Resolver::system().unwrap(), host).unwrap()
}

fn record(name: &str, value: &str) -> TxtRecord {
    TxtRecord { name: name.to_owned(), value: value.to_owned() }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_updates_add_records_and_remove_only_their_own() {
    let named = Named::start();
    let name = "_acme-challenge.www.example.test";
    for (key, algorithm, secret) in
        [("acme-key", "hmac-sha256", SECRET_256), ("long-key", "hmac-sha512", SECRET_512)]
    {
        let publisher = json!({
            "type": "rfc2136", "server": named.address, "tsig_name": key, "tsig_algorithm": algorithm,
            "tsig_secret": secret,
        });
        let solver = solver(publisher, named.propagation());
        let (mut first, mut second) = (Vec::new(), Vec::new());
        solver.present(&[record(name, "one"), record(name, "two")], &mut first, soon()).await.unwrap();
        solver.present(&[record(name, "three")], &mut second, soon()).await.unwrap();
        assert_eq!(named.texts(name), ["one", "three", "two"]);
        // Publishing a record again causes no error and no duplicate.
        solver.present(&[record(name, "one")], &mut Vec::new(), soon()).await.unwrap();
        assert_eq!(named.texts(name).len(), 3);
        solver.remove(&mut first, soon()).await;
        assert_eq!((named.texts(name), first.len()), (vec!["three".to_owned()], 0));
        solver.remove(&mut second, soon()).await;
        let mut removed = vec![record(name, "three")];
        solver.remove(&mut removed, soon()).await;
        assert_eq!((named.texts(name).len(), removed.len()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cname_is_followed_into_its_target_zone() {
    let named = Named::start();
    let solver = solver(named.publisher(), named.propagation());
    let mut placed = Vec::new();
    solver
        .present(&[record("_acme-challenge.alias.example.test", "here")], &mut placed, soon())
        .await
        .unwrap();
    assert_eq!(placed, [record("alias.delegated.test", "here")]);
    assert_eq!(named.texts("alias.delegated.test"), ["here"]);
    solver.remove(&mut placed, soon()).await;
    assert!(named.texts("alias.delegated.test").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_update_refusals_name_their_cause() {
    let named = Named::start();
    let with = |key: &str, secret: &str, zone: Option<&str>| {
        let mut publisher = named.publisher();
        (publisher["tsig_name"], publisher["tsig_secret"]) = (json!(key), json!(secret));
        publisher["zone"] = json!(zone);
        solver(publisher, named.propagation())
    };
    let other_secret = "b3RoZXIgc2VjcmV0IG90aGVyIHNlY3JldA==";
    let table = [
        (with("unknown-key", SECRET_256, None), "BADKEY"),
        (with("acme-key", other_secret, None), "BADSIG"),
        (with("idle-key", SECRET_256, None), "update-policy"),
        (with("acme-key", SECRET_256, Some("elsewhere.test")), "not authoritative"),
    ];
    for (solver, words) in table {
        let mut placed = Vec::new();
        let requested = record("_acme-challenge.x.example.test", "v");
        let error = solver.present(std::slice::from_ref(&requested), &mut placed, soon()).await.unwrap_err();
        let IssuerError::Unproven { name, reason } = error else { panic!("{words}") };
        assert_eq!(name, requested.name);
        assert!(reason.contains(words), "{words}: {reason}");
        assert_eq!(placed, [requested], "it might be there, so it is to be removed");
    }
    let mut placed = Vec::new();
    let nowhere = solver(named.publisher(), named.propagation());
    let error = nowhere.present(&[record("_acme-challenge.nowhere.invalid", "v")], &mut placed, soon()).await;
    assert!(error.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_propagation_is_awaited_and_then_reported() {
    let named = Named::start();
    // A program that reports success and does nothing, as if a secondary server never got the record.
    let mut propagation = named.propagation();
    propagation["wait_seconds"] = json!(1);
    let error = hooked(&["/bin/true"], propagation)
        .present(&[record("_acme-challenge.y.example.test", "v")], &mut Vec::new(), soon())
        .await
        .unwrap_err();
    assert!(error.to_string().contains(&named.address.to_string()), "{error}");
    // A program that publishes the record a moment later.
    let port = named.address.port();
    let script = format!(
        "(sleep 0.3; printf 'server 127.0.0.1 {port}\\nupdate add %s 1 TXT %s\\nsend\\n' \"$1\" \"$2\" | \
         nsupdate -y hmac-sha256:acme-key:{SECRET_256}) >/dev/null 2>&1 & wait"
    );
    let script = format!("[ $0 = present ] || exit 0; {script}");
    let solver = hooked(&["/bin/sh", "-c", &script], named.propagation());
    let mut placed = Vec::new();
    solver.present(&[record("_acme-challenge.y.example.test", "late")], &mut placed, soon()).await.unwrap();
    assert_eq!(named.texts("_acme-challenge.y.example.test"), ["late"]);
    solver.remove(&mut placed, soon()).await;
    assert!(placed.is_empty());
    run("nsupdate", &["-V"], "bind9-dnsutils");
}

#[tokio::test]
async fn dns_hooks_receive_action_name_and_value() {
    let fake = Fake::start(|requested| {
        let refused = requested.json()["name"] == json!("_acme-challenge.no.example");
        Response::new(if refused { 409 } else { 200 }, "no room")
    })
    .await;
    let publisher = json!({"type": "webhook", "url": fake.url("/dns"), "secret": "0123456789abcdef"});
    let solver_ = solver(publisher, json!({"check": false}));
    let mut placed = Vec::new();
    solver_.present(&[record("_acme-challenge.a.example", "v")], &mut placed, soon()).await.unwrap();
    solver_.remove(&mut placed, soon()).await;
    let bodies: Vec<Value> = fake.seen().iter().map(|requested| requested.json()).collect();
    let of = |action: &str, ttl: u32| json!({"action": action, "name": "_acme-challenge.a.example", "value": "v", "ttl": ttl});
    assert_eq!(bodies, [of("present", 1), of("cleanup", 0)]);
    assert!(fake.seen().iter().all(|requested| requested.header("x-bulla-signature").is_some()));
    let error =
        solver_.present(&[record("_acme-challenge.no.example", "v")], &mut placed, soon()).await.unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    let error = hooked(&["/bin/sh", "-c", "echo wrong zone >&2; exit 4"], json!({"check": false}))
        .present(&[record("_acme-challenge.a.example", "v")], &mut Vec::new(), soon())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("code 4: wrong zone"), "{error}");
}
