//! Scans by the server itself. Here it scans its own endpoint.

use inventory::tables::history::{HistoryKey, HistoryRow, put_history};
use serde_json::{Value, json};
use store::{Clock, Store, StoreUrl};

use super::House;
use crate::world::{describe, run};

#[test]
fn watch_runs_automatically_and_on_demand() {
    let mut house = House::up();
    let target = format!("127.0.0.1:{}", house.port);
    let made = house.json(&["watch", "add", "self", &target, "--every", "1h", "--group", "own"]);
    assert_eq!((&made["interval_s"], &made["jitter_s"]), (&json!(3600), &json!(360)));
    let last = |house: &House| house.json(&["watch", "show", "self"])["last_run"].clone();
    house.until("the first run", || last(&house)["outcome"] == "finished");
    let first = last(&house);
    assert_eq!(
        (&first["counts"]["endpoints"], &first["counts"]["answered"]),
        (&json!(1), &json!(1)),
        "{first}"
    );
    // The endpoint is new. Its certificate is from the server's own CA, and known.
    let news = (&first["counts"]["changed"], &first["counts"]["new_certificates"]);
    assert_eq!(news, (&json!(1), &json!(0)), "{first}");
    // The scan result is in the inventory.
    let seen: Value = serde_json::from_slice(&house.does(&["api", "/api/v1/inventory"]).stdout).unwrap();
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(1), "{seen}");
    let table = String::from_utf8(house.does(&["watch", "status"]).stdout).unwrap();
    assert!(table.contains("self") && table.contains("finished") && table.contains("planned"), "{table}");

    // The root is not trusted on this machine: there is an alert until the certificate is dismissed.
    let untrusted = |state: &str| {
        let alerts = house.json(&["alert", "list", "--state", state]);
        let kinds = alerts["rows"].as_array().unwrap().iter().map(|alert| alert["kind"].clone());
        kinds.filter(|kind| kind == "endpoint.untrusted").count()
    };
    house.until("the alert", || untrusted("open") == 1);
    let leaf = house.json(&["cert", "found"])["rows"][0]["leaf"]["fingerprint"].clone();
    house.does(&["cert", "dismiss", leaf.as_str().unwrap(), "--note", "our own", "--for", "1d"]);
    assert_eq!(house.json(&["cert", "found"])["rows"][0]["state"], "ignored");

    house.does(&["watch", "run", "self"]);
    house.until("the second run", || {
        let now = last(&house);
        now["outcome"] == "finished" && now["scan"] != first["scan"]
    });
    house.until("the alert's end", || untrusted("resolved") == 1);
    assert_eq!(untrusted("open"), 0);
    house.until("the figures", || {
        let metrics = String::from_utf8(house.does(&["api", "/metrics"]).stdout).unwrap();
        metrics.contains("bulla_watch_last_run_failed{watch=\"self\"} 0")
            && metrics.contains("bulla_certificate_not_after_seconds{")
    });
    house.does(&["watch", "pause", "self"]);
    let refused = run(&mut house.bulla(&["watch", "run", "self"]));
    assert_eq!(refused.status.code(), Some(6), "{}", describe(&refused));

    // A restart keeps the state.
    house.kill();
    house.start();
    house.does(&["watch", "resume", "self"]);
    assert_eq!(house.json(&["watch", "list"])["rows"][0]["name"], "self");
    house.does(&["watch", "remove", "self"]);
    assert_eq!(house.json(&["watch", "list"])["rows"], json!([]));

    let file = run(&mut house.bulla(&["watch", "add", "files", "/etc/ssl"]));
    assert_eq!(file.status.code(), Some(6), "{}", describe(&file));
}

#[test]
fn cloud_listing_failure_does_not_block_other_targets() {
    let mut house = House::prepared("", None);
    let file = house.path("clouds.toml");
    std::fs::write(&file, "[[azure]]\nsubscription = \"1\"\n[pools]\nclouds = 64\nazure.concurrency = 65\n")
        .unwrap();
    house.configure(&format!("[watch]\nclouds_file = {:?}\n", file.to_str().unwrap()));
    let refused = house.try_start().unwrap_err();
    assert!(refused.contains("azure with 65 concurrent calls"), "{refused}");
    // The subscription does not matter: this build cannot list any, or has no credentials.
    std::fs::write(&file, "[[azure]]\nsubscription = \"1\"\n").unwrap();
    house.start();

    let unknown = run(&mut house.bulla(&["watch", "add", "clouds", "--source", "aws"]));
    assert_eq!(unknown.status.code(), Some(6), "{}", describe(&unknown));
    assert!(describe(&unknown).contains("known sources: all, azure/1"), "{}", describe(&unknown));
    let target = format!("127.0.0.1:{}", house.port);
    let made = house.json(&["watch", "add", "estate", &target, "--source", "azure"]);
    assert_eq!(made["sources"], json!(["azure"]));
    let last = || house.json(&["watch", "show", "estate"])["last_run"].clone();
    house.until("the first run", || last()["outcome"] == "finished");
    let counts = last()["counts"].clone();
    assert_eq!((&counts["answered"], &counts["not_listed"]), (&json!(1), &json!(1)), "{counts}");
    let why = counts["not_listed_first"][0].as_str().unwrap();
    assert!(why.starts_with("azure/1: "), "{why}");
    house.until("the alert", || {
        let alerts = house.json(&["alert", "list"]);
        alerts["rows"].as_array().unwrap().iter().any(|alert| alert["kind"] == "watch.incomplete")
    });
    // Alerts of a removed watch are resolved.
    house.does(&["watch", "remove", "estate"]);
    house.until("the alert's end", || {
        let alerts = house.json(&["alert", "list"]);
        alerts["rows"].as_array().unwrap().iter().all(|alert| alert["kind"] != "watch.incomplete")
    });
}

#[test]
fn history_keeps_scan_and_server_measurements_across_restarts() {
    let mut house = House::up();
    let of = |house: &House, series: &str| {
        let listed = house.json(&["watch", "history"]);
        let rows = listed["rows"].as_array().unwrap();
        rows.iter().find(|row| row["series"] == series).cloned().unwrap_or_default()
    };
    // A server measures itself from startup.
    house.until("the first look", || of(&house, "tasks")["last"]["count"].as_u64() >= Some(1));
    let tasks = of(&house, "tasks");
    assert_eq!((&tasks["verdict"], &tasks["unit"]), (&json!("learning"), &json!("tasks")), "{tasks}");
    assert!(tasks["last"]["p50"].as_f64() > Some(5.0), "{tasks}");

    let target = format!("127.0.0.1:{}", house.port);
    house.does(&["watch", "add", "self", &target, "--every", "1h"]);
    house.until("the run", || house.json(&["watch", "show", "self"])["last_run"]["outcome"] == "finished");
    // Measurements are saved on shutdown, and visible after a restart, as for another server.
    assert_eq!(house.stop(), Some(0));
    house.start();
    house.until("the next look", || of(&house, "scan.duration/1-9")["last"]["count"] == 1);
    let errors = of(&house, "provider.errors/endpoints");
    assert_eq!((&errors["last"]["count"], &errors["last"]["mean"]), (&json!(1), &json!(0.0)), "{errors}");
    let batch = of(&house, "writer.batch");
    assert_eq!((&batch["last"]["mean"], &batch["verdict"]), (&json!(1.0), &json!("shown")), "{batch}");
    assert!(of(&house, "writer.flush")["last"]["p99"].as_f64() > Some(0.0));
    let table = String::from_utf8(house.does(&["watch", "history"]).stdout).unwrap();
    assert!(table.contains("database.pool") && table.contains("seconds"), "{table}");
    let metrics = String::from_utf8(house.does(&["api", "/metrics"]).stdout).unwrap();
    assert!(metrics.contains("bulla_drift{series=\"tasks\"} 0"), "{metrics}");
    // Revocation is never checked here, so the metrics are 0.
    for line in [
        "bulla_revocation_hits_total{kind=\"crl\"} 0",
        "bulla_revocation_list_age_seconds_bucket{le=\"86400.0\"} 0",
        "bulla_revocation_list_age_seconds_bucket{le=\"+Inf\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// Adds cloud calls to the history, as another process would.
fn called(house: &House, good: u64, failed: u64) {
    let url = StoreUrl::sqlite(house.path("data/inventory.db"));
    let key = HistoryKey {
        from_us: Clock::system().now_us(),
        series: "provider.errors/aws".to_owned(),
        node: uuid::Uuid::now_v7(),
    };
    // Failed calls have the value 1, in the bucket of index 0.
    let row = HistoryRow { key, sketch: format!("1;{failed};{good};0:{failed}") };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(&url).await.unwrap();
        let put = store.write("called", move |tx| Box::pin(async move { put_history(tx, &[row]).await }));
        put.await.unwrap();
    });
}

#[test]
fn drift_raises_one_alert_and_resolves_it_after_recovery() {
    let mut house = House::up();
    let alerts = |house: &House, state: &str| -> Vec<Value> {
        let listed = house.json(&["alert", "list", "--state", state]);
        let all = listed["rows"].as_array().unwrap().iter();
        all.filter(|alert| alert["kind"] == "drift.provider_errors").cloned().collect()
    };
    // Drift is checked at startup, and a stop releases the lease, so the test does not wait for the next minute.
    let restart = |house: &mut House| {
        assert_eq!(house.stop(), Some(0));
        house.start();
    };
    called(&house, 900, 100);
    restart(&mut house);
    house.until("the alert", || alerts(&house, "open").len() == 1);
    let alert = alerts(&house, "open")[0].clone();
    assert_eq!(alert["subject"], "drift/provider.errors/aws", "{alert}");
    let shown = house.json(&["alert", "show", alert["id"].as_str().unwrap()]);
    assert!(shown.to_string().contains("10.0 %"), "{shown}");

    restart(&mut house);
    let drifting = |house: &House| {
        let metrics = String::from_utf8(house.does(&["api", "/metrics"]).stdout).unwrap();
        metrics.contains("bulla_drift{series=\"provider.errors/aws\"} 1")
    };
    house.until("the next look", || drifting(&house));
    called(&house, 100_000, 1);
    restart(&mut house);
    house.until("the alert's end", || alerts(&house, "resolved").len() == 1);
    assert_eq!(alerts(&house, "resolved")[0]["count"], 1, "a restart tells nothing twice");
    assert!(alerts(&house, "open").is_empty() && !drifting(&house));
}
