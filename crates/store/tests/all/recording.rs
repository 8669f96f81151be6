//! Tests of recording observations.

use std::sync::Arc;

use store::{ChangeKind, EndpointKey, Fault, InventoryFilter, NewCertificate, Recorded, Store, StoreError};
use uuid::Uuid;
use x509::Severity;

use testbed::tables::{DAY, NOW, World, answered, certificate, issuing, key, silent};
use testbed::walk;

fn recorded(inserted: u64, duplicates: u64, new_certificates: u64, changed: u64) -> Recorded {
    Recorded { inserted, duplicates, new_certificates, changed }
}

pub(crate) async fn observation_stores_endpoint_certificate_and_history(world: World) {
    let scan = world.scan().await;
    let leaf = certificate("a.example", "CN=Issuing CA", NOW + 30 * DAY);
    let seen = scan.leaf_observation("a.example", &leaf);
    assert_eq!(scan.record(std::slice::from_ref(&seen)).await, recorded(1, 0, 2, 1));

    let endpoint = store::Inventory::of(&world.store).endpoint(&key("a.example")).await.unwrap().unwrap();
    assert_eq!(endpoint.endpoint, seen.endpoint);
    assert_eq!((endpoint.first_seen_us, endpoint.last_observed_us), (scan.at, scan.at));
    assert_eq!(endpoint.last_answered_us, Some(scan.at));
    assert_eq!(
        (endpoint.outcome, endpoint.answering, endpoint.severity),
        (events::ProbeOutcome::Answered, true, Some(Severity::Low))
    );
    let facts = endpoint.leaf.unwrap();
    assert_eq!((facts.sha256, facts.not_after_us, facts.key_bits), (leaf.sha256, leaf.not_after_us, 256));
    assert_eq!((facts.subject.as_str(), facts.issuer.as_str()), ("CN=a.example", "CN=Issuing CA"));
    let last = endpoint.last.unwrap();
    assert_eq!((last.scan, last.address, last.tls_version), (scan.id, seen.address, Some(0x0304)));
    assert_eq!((last.findings, last.trust), (seen.findings.clone(), seen.trust.clone()));

    let stored =
        store::Inventory::of(&world.store).certificate_by_sha256(&leaf.sha256).await.unwrap().unwrap();
    assert_eq!((&stored.der[..], &stored.names), (&leaf.der[..], &leaf.names));
    assert_eq!(
        (stored.spki_sha256, stored.first_seen_us, stored.last_seen_us),
        (leaf.spki_sha256, scan.at, scan.at)
    );

    let history =
        store::Inventory::of(&world.store).endpoint_history(&key("a.example"), None, 10).await.unwrap().rows;
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].leaf_sha256, history[0].change), (Some(leaf.sha256), Some(ChangeKind::New)));
    let chain = store::Inventory::of(&world.store).chain(history[0].chain.unwrap()).await.unwrap();
    assert_eq!(chain.iter().map(|c| c.sha256).collect::<Vec<_>>(), [leaf.sha256, issuing().sha256]);
    assert_eq!(chain[1].names, issuing().names);
}

pub(crate) async fn replayed_batch_is_counted_as_duplicates(world: World) {
    let scan = world.scan().await;
    let leaf = certificate("a.example", "CN=CA", NOW + DAY);
    let batch = [scan.leaf_observation("a.example", &leaf), scan.silent("b.example")];
    assert_eq!(scan.record(&batch).await, recorded(2, 0, 2, 2));
    assert_eq!(scan.record(&batch).await, recorded(0, 2, 0, 0));
    // A resumed scan probes the endpoint again with another result: the first observation is kept.
    let repeated = answered("b.example", &leaf, scan.at + 5);
    assert_eq!(scan.record(&[repeated]).await, recorded(0, 1, 0, 0));
    let row = store::Scans::of(&world.store).get(scan.id).await.unwrap().unwrap();
    assert_eq!((row.observations, row.answered, row.changes, row.new_certificates), (2, 1, 2, 2));
    assert!(
        !store::Inventory::of(&world.store).endpoint(&key("b.example")).await.unwrap().unwrap().answering
    );
}

pub(crate) async fn repeated_endpoint_in_a_batch_is_stored_once(world: World) {
    let scan = world.scan().await;
    let leaf = certificate("a.example", "CN=CA", NOW + DAY);
    let batch = [
        scan.leaf_observation("a.example", &leaf),
        scan.silent("a.example"),
        scan.leaf_observation("c.example", &leaf),
    ];
    assert_eq!(scan.record(&batch).await, recorded(2, 1, 2, 2));
    assert!(store::Inventory::of(&world.store).endpoint(&key("a.example")).await.unwrap().unwrap().answering);
}

pub(crate) async fn crash_before_commit_stores_nothing(world: World) {
    let scan = world.scan().await;
    let batch = [scan.leaf_observation("a.example", &certificate("a.example", "CN=CA", NOW + DAY))];
    world.fail_next(Fault::BeforeCommit);
    assert!(scan.try_record(&batch).await.unwrap_err().is_transient());
    assert_eq!(store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap().observations, 0);
    assert!(store::Inventory::of(&world.store).endpoint(&key("a.example")).await.unwrap().is_none());
    // Row IDs that were cached in the failed transaction are not used again.
    assert_eq!(scan.record(&batch).await, recorded(1, 0, 2, 1));
    check_references(&world).await;
}

pub(crate) async fn retry_after_a_crash_after_commit_stores_everything_once(world: World) {
    let scan = world.scan().await;
    let batch = [scan.leaf_observation("a.example", &certificate("a.example", "CN=CA", NOW + DAY))];
    world.fail_next(Fault::AfterCommit);
    assert!(scan.try_record(&batch).await.unwrap_err().is_transient());
    assert_eq!(store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap().observations, 1);
    assert_eq!(scan.record(&batch).await, recorded(0, 1, 0, 0));
    check_references(&world).await;
}

pub(crate) async fn unknown_scan_is_rejected(world: World) {
    let id = Uuid::now_v7();
    assert!(
        matches!(store::Scans::of(&world.store).record(id, &[silent("a", NOW)]).await, Err(StoreError::UnknownScan(u)) if u == id)
    );
}

pub(crate) async fn older_observation_is_added_to_the_history_only(world: World) {
    let (older, newer) = (world.scan().await, world.scan().await);
    let leaf = certificate("a.example", "CN=CA", NOW + DAY);
    newer.record(&[newer.leaf_observation("a.example", &leaf)]).await;
    let before = store::Inventory::of(&world.store).endpoint(&key("a.example")).await.unwrap();
    assert_eq!(older.record(&[older.silent("a.example")]).await, recorded(1, 0, 0, 0));
    assert_eq!(store::Inventory::of(&world.store).endpoint(&key("a.example")).await.unwrap(), before);
    let history =
        store::Inventory::of(&world.store).endpoint_history(&key("a.example"), None, 10).await.unwrap().rows;
    assert_eq!(history.iter().map(|row| row.scan).collect::<Vec<_>>(), [newer.id, older.id]);
    assert_eq!(store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap().answering, 1);
}

pub(crate) async fn silent_endpoint_keeps_its_last_certificate(world: World) {
    let (first, second) = (world.scan().await, world.scan().await);
    let leaf = certificate("a.example", "CN=CA", NOW + DAY);
    first.record(&[first.leaf_observation("a.example", &leaf)]).await;
    second.record(&[second.silent("a.example")]).await;
    let endpoint = store::Inventory::of(&world.store).endpoint(&key("a.example")).await.unwrap().unwrap();
    assert!(!endpoint.answering);
    assert_eq!(endpoint.outcome, events::ProbeOutcome::Refused);
    assert_eq!((endpoint.last_answered_us, endpoint.last_observed_us), (Some(first.at), second.at));
    assert_eq!(endpoint.leaf.unwrap().sha256, leaf.sha256);
    // The second scan did not see the certificate, so it was last seen in the first one.
    let stored =
        store::Inventory::of(&world.store).certificate_by_sha256(&leaf.sha256).await.unwrap().unwrap();
    assert_eq!(stored.last_seen_us, first.at);
}

pub(crate) async fn hostile_texts_are_stored_sanitized_and_truncated(world: World) {
    let scan = world.scan().await;
    let mut hostile = NewCertificate::clone(&certificate("evil", "CN=\0evil", NOW + DAY));
    hostile.subject = "CN=nul\0; DROP TABLE endpoints; -- '".to_owned();
    hostile.issuer = format!("CN={}\0", "i".repeat(20_000));
    hostile.names = vec!["nul\0.example".to_owned(), "n".repeat(20_000), String::new()];
    let leaf = Arc::new(hostile);
    let mut seen = scan.leaf_observation("evil.example", &leaf);
    seen.endpoint.host = format!("/srv/{}/cert.pem", "deep/".repeat(2_000));
    seen.findings = "[\"\0\"]".to_owned();
    scan.record(&[seen.clone()]).await;
    assert_eq!(scan.record(&[seen.clone()]).await.duplicates, 1);
    let endpoint = store::Inventory::of(&world.store).endpoint(&seen.endpoint).await.unwrap().unwrap();
    assert!(endpoint.endpoint.host.len() <= store::HOST_BYTES_MAX);
    let stored =
        store::Inventory::of(&world.store).certificate_by_sha256(&leaf.sha256).await.unwrap().unwrap();
    assert_eq!(stored.subject, "CN=nul\u{fffd}; DROP TABLE endpoints; -- '");
    assert_eq!(stored.names.len(), 3);
}

pub(crate) async fn concurrent_writers_share_endpoints_and_certificates(world: World) {
    let other = Store::open(&world.url).await.unwrap();
    let (a, b) = (world.scan().await, world.scan().await);
    let leaves: Vec<_> = (0..20)
        .map(|n| certificate(&format!("{n}.example"), &format!("CN=CA {}", n % 3), NOW + n * DAY))
        .collect();
    let batches = |at| -> Vec<_> {
        (0..10_usize)
            .map(|round| -> Vec<_> {
                (0..20_usize)
                    .map(|n| {
                        answered(&format!("host-{}.example", (n * 7 + round * 20) % 100), &leaves[n], at)
                    })
                    .collect()
            })
            .collect()
    };
    let mut reversed = batches(b.at);
    reversed.reverse();
    reversed.iter_mut().for_each(|batch| batch.reverse());
    let patiently = async |store: &Store, id, batches: Vec<Vec<_>>| {
        for batch in batches {
            loop {
                match store::Scans::of(store).record(id, &batch).await {
                    Ok(_) => break,
                    Err(error) if error.is_transient() => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    tokio::join!(patiently(&world.store, a.id, batches(a.at)), patiently(&other, b.id, reversed));
    let summary = store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap();
    assert_eq!((summary.endpoints, summary.observations, summary.certificates), (100, 200, 21));
    check_references(&world).await;
}

pub(crate) async fn maintained_counts_equal_the_rows(world: World) {
    let leaves: Vec<_> = (0..6)
        .map(|n| certificate(&format!("l{n}.example"), &format!("CN=CA {}", n % 3), NOW + n * DAY))
        .collect();
    for round in 0..5_usize {
        let scan = world.scan().await;
        let batch: Vec<_> = (0..30_usize)
            .map(|n| {
                let host = format!("h{n}.example");
                let mut seen = match (n + round) % 4 {
                    0 => scan.silent(&host),
                    other => scan.leaf_observation(&host, &leaves[(n * other + round) % 6]),
                };
                seen.severity =
                    [None, Some(Severity::Info), Some(Severity::Medium), Some(Severity::Critical)]
                        [(n * 3 + round) % 4];
                seen
            })
            .collect();
        scan.record(&batch).await;
        check_references(&world).await;
    }
}

pub(crate) async fn sql_statements_prepare_and_avoid_full_table_scans(world: World) {
    assert!(testbed::check_statements(&world.store, store::STATEMENTS).await > 500);
}

pub(crate) async fn unknown_severity_code_is_an_error(world: World) {
    let scan = world.scan().await;
    scan.record(&[scan.silent("a.example")]).await;
    let change = async |text: &'static str| {
        let work = world.store.write("test", move |tx| Box::pin(tx.execute(text, Vec::new())));
        assert_eq!(work.await.unwrap(), 1, "{text}");
    };
    change("UPDATE endpoints SET severity = 9").await;
    let filter = InventoryFilter::default();
    let error = store::Inventory::of(&world.store).page(&filter, None, 10).await.unwrap_err().to_string();
    assert!(error.ends_with("endpoints.severity: unknown code 9 of severity"), "{error}");
    let error = scan.try_record(&[scan.silent("a.example")]).await.unwrap_err().to_string();
    assert!(error.ends_with("endpoints.severity: unknown code 9 of severity"), "{error}");
}

/// Asserts that counts, references and current states match the rows.
pub(crate) async fn check_references(world: &World) {
    let filter = InventoryFilter::default();
    let rows = walk!(100, |after, size| store::Inventory::of(&world.store).page(&filter, after, size));
    let summary = store::Inventory::of(&world.store).summary(NOW, 3 * DAY).await.unwrap();
    assert_eq!(summary.endpoints, rows.len() as u64);
    assert_eq!(summary.answering, rows.iter().filter(|row| row.answering).count() as u64);
    for (severity, count) in &summary.severities {
        assert_eq!(*count, rows.iter().filter(|row| row.severity == Some(*severity)).count() as u64);
    }
    let graded = rows.iter().filter(|row| row.severity.is_some()).count() as u64;
    assert_eq!(summary.severities.iter().map(|(_, count)| count).sum::<u64>(), graded);
    let ends = |from: i64, to: i64| {
        let within = |row: &&store::InventoryRow| {
            row.leaf.as_ref().is_some_and(|leaf| (from..to).contains(&leaf.not_after_us))
        };
        rows.iter().filter(within).count() as u64
    };
    assert_eq!((summary.expired, summary.expiring), (ends(i64::MIN, NOW), ends(NOW, NOW + 3 * DAY)));

    let issuers = walk!(100, |after, size| store::Inventory::of(&world.store).issuers(after, size));
    assert_eq!(issuers.iter().map(|issuer| issuer.certificates).sum::<u64>(), summary.certificates);
    for issuer in &issuers {
        let leaves: Vec<_> = rows
            .iter()
            .filter_map(|row| row.leaf.as_ref())
            .filter(|leaf| leaf.issuer == issuer.issuer)
            .collect();
        assert_eq!(issuer.endpoints, leaves.len() as u64, "{}", issuer.issuer);
        assert_eq!(issuer.soonest_not_after_us, leaves.iter().map(|leaf| leaf.not_after_us).min());
    }
    let mut observations = 0;
    for row in &rows {
        let history = walk!(50, |after, size| store::Inventory::of(&world.store).endpoint_history(
            &row.endpoint,
            after,
            size
        ));
        observations += history.len() as u64;
        assert_eq!(history[0].outcome, row.outcome);
        let shown = history.iter().find_map(|seen| seen.leaf_sha256);
        assert_eq!(shown, row.leaf.as_ref().map(|leaf| leaf.sha256));
        if let Some(chain) = row.chain {
            let chain = store::Inventory::of(&world.store).chain(chain).await.unwrap();
            assert_eq!(Some(chain[0].sha256), shown);
        }
        let EndpointKey { host, port, .. } = &row.endpoint;
        assert!(
            !store::Inventory::of(&world.store)
                .endpoints_of_host(host, Some(*port), None, 10)
                .await
                .unwrap()
                .rows
                .is_empty()
        );
    }
    assert_eq!(summary.observations, observations);
}
