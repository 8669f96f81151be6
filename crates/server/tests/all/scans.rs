//! Scans over the API, and the differences between two scans.

use std::sync::Arc;

use events::ProbeOutcome;
use serde_json::{Value, json};
use store::{EndpointKey, NewCertificate, NewObservation, PruneMode, ScanState, Scans};
use uuid::Uuid;

use crate::world::World;

const SCANS: &str = "/api/v1/scans";
const DIFF: &str = "/api/v1/inventory/diff";

fn observation(host: &str, at_us: i64, outcome: ProbeOutcome) -> NewObservation {
    NewObservation {
        endpoint: EndpointKey {
            host: host.to_owned(),
            port: 443,
            protocol: "tls".to_owned(),
            server_name: String::new(),
            address: String::new(),
        },
        address: None,
        observed_at_us: at_us,
        outcome,
        answered: false,
        tls_version: None,
        cipher_suite: None,
        chain: Vec::new(),
        trust: String::new(),
        severity: None,
        findings: "[]".to_owned(),
        detail: "{}".to_owned(),
    }
}

/// Creates a finished scan of these hosts.
async fn scanned(world: &World, at_us: i64, target: &str, hosts: &[(&str, ProbeOutcome)]) -> Uuid {
    let (id, scans) = (Uuid::now_v7(), Scans::of(&world.store));
    scans
        .begin(
            id,
            at_us,
            &json!({ "targets": [target], "settings": { "ca_files": ["/secret"] } }).to_string(),
        )
        .await
        .unwrap();
    let rows: Vec<NewObservation> =
        hosts.iter().map(|(host, outcome)| observation(host, at_us + 1, *outcome)).collect();
    scans.record(id, &rows).await.unwrap();
    scans.finish(id, at_us + 2, ScanState::Finished, "{}").await.unwrap();
    id
}

fn changes(answer: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = answer["items"].as_array().unwrap();
    items.iter().map(|one| (text(&one["endpoint"]["host"]), text(&one["change"]))).collect()
}

#[tokio::test]
async fn scan_diff_reports_changes_by_endpoint() {
    let world = World::start().await;
    let missing = world.get(DIFF).await.expect(404);
    assert!(missing.json()["hint"].as_str().unwrap().contains("since"), "{missing:?}");
    let outcomes = &ProbeOutcome::ALL;
    let (one, other) = (outcomes[1], outcomes[2]);
    let first = scanned(&world, 1_000_000, "net", &[("a", one), ("b", one), ("c", one)]).await;
    let elsewhere = scanned(&world, 2_000_000, "other", &[("x", one)]).await;
    let second = scanned(&world, 3_000_000, "net", &[("a", one), ("b", other), ("d", one)]).await;
    let scans = world.get(SCANS).await.expect(200).json();
    let ids: Vec<&Value> = scans["items"].as_array().unwrap().iter().map(|scan| &scan["id"]).collect();
    assert_eq!(ids, [&json!(second), &json!(elsewhere), &json!(first)]);
    assert_eq!(
        (&scans["items"][0]["endpoints"], &scans["items"][0]["state"]),
        (&json!(3), &json!("finished"))
    );
    assert_eq!(scans["items"][0]["spec"]["targets"], json!(["net"]));

    // The default is the last two scans of the same targets, even with other scans in between.
    let last = world.get(DIFF).await.expect(200).json();
    let named = world.get(&format!("{DIFF}?from={first}&to={second}")).await.expect(200).json();
    assert_eq!(last, named);
    let wanted = [("b", "outcome-changed"), ("d", "new"), ("c", "not-scanned")];
    let wanted = wanted.map(|(host, change)| (host.to_owned(), change.to_owned()));
    assert_eq!(changes(&named), wanted, "{named}");
    assert_eq!(named["items"][0]["old_outcome"], one.to_string());
    assert_eq!(named["items"][0]["new_outcome"], other.to_string());

    assert_eq!((&last["from"], &last["to"]), (&json!(first), &json!(second)));

    let since = world.get(&format!("{DIFF}?since=1970-01-01T00:00:02.5Z")).await.expect(200).json();
    assert_eq!(changes(&since), wanted[..2], "{since}");
    for (query, status) in [
        (format!("from={first}"), 400),
        (format!("from={first}&to={second}&since=1970-01-01T00:00:00Z"), 400),
        (format!("from={first}&to={}", Uuid::nil()), 404),
        ("since=yesterday".to_owned(), 400),
    ] {
        world.get(&format!("{DIFF}?{query}")).await.expect(status);
    }
}

/// Returns a certificate whose SHA-256 has this byte only.
fn certificate(byte: u8) -> Arc<NewCertificate> {
    Arc::new(NewCertificate {
        sha256: [byte; 32],
        der: vec![byte; 8].into(),
        subject: "CN=shop.example".to_owned(),
        issuer: "CN=shop.example".to_owned(),
        serial: "0a".to_owned(),
        not_before_us: 0,
        not_after_us: 1_000_000,
        key_algorithm: "EC".to_owned(),
        key_bits: 256,
        spki_sha256: [byte; 32],
        names: Vec::new(),
    })
}

#[tokio::test]
async fn endpoints_are_found_by_the_fingerprint_of_a_certificate_in_their_chain() {
    let world = World::start().await;
    let (id, scans) = (Uuid::now_v7(), Scans::of(&world.store));
    scans.begin(id, 1_000_000, &json!({ "targets": ["net"] }).to_string()).await.unwrap();
    let serving = |host: &str, leaf: u8| NewObservation {
        answered: true,
        chain: vec![certificate(leaf), certificate(0xcc)],
        ..observation(host, 1_000_001, ProbeOutcome::ALL[0])
    };
    scans.record(id, &[serving("shop.example", 0xaa), serving("mail.example", 0xbb)]).await.unwrap();
    let found = async |query: &str| -> Vec<String> {
        let found = world.get(&format!("/api/v1/search?q={query}")).await.expect(200).json();
        let hits = found["hits"].as_array().unwrap().iter();
        hits.map(|hit| format!("{} {} {} {}", hit["kind"], hit["name"], hit["matched"], hit["how"]))
            .map(|hit| hit.replace('"', ""))
            .collect()
    };
    assert_eq!(found(&"aa".repeat(32)).await, ["endpoint shop.example:443 fingerprint exact"]);
    assert_eq!(found("AA:AA:AA").await, ["endpoint shop.example:443 fingerprint prefix"]);
    let both = ["endpoint mail.example:443 fingerprint exact", "endpoint shop.example:443 fingerprint exact"];
    assert_eq!(found(&"cc".repeat(32)).await, both);
    assert_eq!(found(&"ab".repeat(32)).await, [""; 0]);
}

#[tokio::test]
async fn a_list_of_scans_has_the_first_targets_of_each_and_their_number() {
    let world = World::start().await;
    let (scans, targets) = (Scans::of(&world.store), |count: usize| -> Vec<String> {
        (0..count).map(|number| format!("host-{number}.example")).collect()
    });
    let mut made = Vec::new();
    for number in 0..120_i64 {
        let targets = if number == 119 { targets(10_000) } else { targets(1) };
        let id = Uuid::now_v7();
        scans.begin(id, 1_000_000 + number, &json!({ "targets": targets }).to_string()).await.unwrap();
        made.insert(0, json!(id));
    }
    let ids = |page: &Value| -> Vec<Value> {
        page["items"].as_array().unwrap().iter().map(|scan| scan["id"].clone()).collect()
    };
    let answer = world.get(&format!("{SCANS}?limit=110")).await.expect(200);
    assert!(answer.text.len() < 100_000, "{} bytes", answer.text.len());
    let page = answer.json();
    assert_eq!(ids(&page), made[..110]);
    let rest = format!("{SCANS}?limit=110&cursor={}", page["next"].as_str().unwrap());
    let rest = world.get(&rest).await.expect(200).json();
    assert_eq!((ids(&rest), &rest["next"]), (made[110..].to_vec(), &Value::Null));

    let (large, small) = (&page["items"][0], &page["items"][1]);
    assert_eq!(large["spec"]["targets"], json!(targets(20)));
    assert_eq!((&large["targets"], &small["targets"]), (&json!(10_000), &json!(1)));
    assert_ne!(large["scope"], small["scope"]);
    assert_eq!(small["scope"], page["items"][2]["scope"]);
}

#[tokio::test]
async fn a_scan_is_listed_with_what_it_covers_and_without_paths_of_its_host() {
    let world = World::start().await;
    // A test of the server's scan kit compares it with what a watch stores.
    let stored = include_str!("scan_spec.json");
    Scans::of(&world.store).begin(Uuid::now_v7(), 1_000_000, stored).await.unwrap();
    let answer = world.get(SCANS).await.expect(200);
    assert!(!answer.text.contains("/home/"), "{answer:?}");
    let spec = json!({
        "targets": ["a.example", "@hosts.txt"],
        "sources": ["aws-main"],
        "ports": "443,8443",
        "server_names": ["b.example"],
        "starttls": "smtp",
        "all_addresses": true,
        "again": false,
    });
    assert_eq!(answer.json()["items"][0]["spec"], spec);
}

#[tokio::test]
async fn the_pages_of_a_comparison_compare_the_same_two_scans() {
    let world = World::start().await;
    let (one, other) = (ProbeOutcome::ALL[1], ProbeOutcome::ALL[2]);
    let first = scanned(&world, 1_000_000, "net", &[("a", one), ("b", one), ("c", one)]).await;
    let second = scanned(&world, 2_000_000, "net", &[("a", other), ("b", other), ("c", one)]).await;
    let page = world.get(&format!("{DIFF}?limit=1")).await.expect(200).json();
    assert_eq!(changes(&page), [("a".to_owned(), "outcome-changed".to_owned())]);
    let next = page["next"].as_str().unwrap();

    // A scan that finishes between two pages is for the next comparison.
    let third = scanned(&world, 3_000_000, "net", &[("a", other), ("b", other), ("c", other)]).await;
    let rest = world.get(&format!("{DIFF}?cursor={next}")).await.expect(200).json();
    assert_eq!(changes(&rest), [("b".to_owned(), "outcome-changed".to_owned())]);
    assert_eq!((&rest["from"], &rest["to"]), (&json!(first), &json!(second)));
    let named = world.get(&format!("{DIFF}?from={first}&to={second}&cursor={next}")).await.expect(200).json();
    assert_eq!(named, rest);
    world.get(&format!("{DIFF}?from={second}&to={third}&cursor={next}")).await.expect(400);
    let now = world.get(DIFF).await.expect(200).json();
    assert_eq!(changes(&now), [("c".to_owned(), "outcome-changed".to_owned())]);
}

#[tokio::test]
async fn a_comparison_with_a_pruned_scan_is_gone() {
    let world = World::start().await;
    let one = ProbeOutcome::ALL[1];
    // `rare` keeps the first scan. No observation of the second one stays.
    let mut ids = vec![scanned(&world, 1_000_000, "net", &[("a", one), ("rare", one)]).await];
    for at_us in [2_000_000, 3_000_000, 4_000_000] {
        ids.push(scanned(&world, at_us, "net", &[("a", one)]).await);
    }
    let now = 9_000_000;
    let mut pruning = Scans::of(&world.store).pruning(now, now, PruneMode::Remove).await.unwrap();
    while pruning.step().await.unwrap().is_some() {}
    let scans = world.get(SCANS).await.expect(200).json();
    assert_eq!(scans["items"][2]["pruned_at"], "1970-01-01T00:00:09Z");
    assert_eq!(scans["items"][1]["pruned_at"], Value::Null);
    assert_eq!(scans["items"].as_array().unwrap().len(), 3, "{scans}");
    let removed = world.get(&format!("{DIFF}?from={}&to={}", ids[1], ids[3])).await.expect(410).json();
    assert!(removed["detail"].as_str().unwrap().contains("is not stored"), "{removed}");
    let pruned = world.get(&format!("{DIFF}?from={}&to={}", ids[0], ids[2])).await.expect(410).json();
    assert_eq!(pruned["type"], "https://bulla.dev/problems/pruned");
    assert!(pruned["detail"].as_str().unwrap().contains("1970-01-01"), "{pruned}");
    world.get(&format!("{DIFF}?since=1970-01-01T00:00:00Z")).await.expect(410);
    world.get(&format!("{DIFF}?since=1970-01-01T00:00:02Z")).await.expect(200);
    world.get(DIFF).await.expect(200);
}
