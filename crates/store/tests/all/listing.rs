//! Tests of pages, filters and lookups.

use std::sync::Arc;

use store::{InventoryFilter, InventoryOrder, NewCertificate, ScanState, StoreError};
use uuid::Uuid;
use x509::Severity;

use testbed::tables::{DAY, NOW, World, certificate, hosts, issuing, key};
use testbed::walk;

/// Hosts h0 to h4. The leaf certificate of host hN expires in 5 - N days. Host h3 never answers.
async fn five_hosts(world: &World) {
    let scan = world.scan().await;
    let batch: Vec<_> = (0..5_i64)
        .map(|n| {
            let host = format!("h{n}.example");
            let issuer = if n % 2 == 0 { "CN=Even CA, O=100% Trust" } else { "CN=Odd_CA" };
            let mut seen = match n {
                3 => scan.silent(&host),
                _ => scan.leaf_observation(&host, &certificate(&host, issuer, NOW + (5 - n) * DAY)),
            };
            seen.severity = Severity::from_code(n);
            seen
        })
        .collect();
    scan.record(&batch).await;
}

async fn listed(world: &World, filter: InventoryFilter) -> Vec<String> {
    let page = store::Inventory::of(&world.store).page(&filter, None, 100).await.unwrap();
    assert!(page.next.is_none());
    hosts(&page, |row| row.endpoint.host.trim_end_matches(".example").to_owned())
}

pub(crate) async fn inventory_is_ordered_by_expiry_or_host(world: World) {
    five_hosts(&world).await;
    assert_eq!(listed(&world, InventoryFilter::default()).await, ["h4", "h2", "h1", "h0", "h3"]);
    let by_host = InventoryFilter { order: InventoryOrder::Host, ..InventoryFilter::default() };
    assert_eq!(listed(&world, by_host.clone()).await, ["h0", "h1", "h2", "h3", "h4"]);
    // Hosts are ordered by bytes, independent of the locale: upper case before lower case, a hyphen before a dot.
    let scan = world.scan().await;
    scan.record(&[scan.silent("H9.example"), scan.silent("h0-a.example"), scan.silent("é.example")]).await;
    assert_eq!(listed(&world, by_host).await, ["H9", "h0-a", "h0", "h1", "h2", "h3", "h4", "é"]);
}

pub(crate) async fn inventory_filters_return_only_matching_endpoints(world: World) {
    five_hosts(&world).await;
    let none = InventoryFilter::default;
    let table: Vec<(InventoryFilter, &[&str])> = vec![
        (InventoryFilter { expiring_before_us: Some(NOW + 3 * DAY), ..none() }, &["h4"]),
        (InventoryFilter { expiring_before_us: Some(NOW + 3 * DAY + 1), ..none() }, &["h4", "h2"]),
        (
            InventoryFilter {
                expiring_from_us: Some(NOW + 3 * DAY),
                expiring_before_us: Some(NOW + 5 * DAY),
                ..none()
            },
            &["h2", "h1"],
        ),
        (InventoryFilter { issuer_contains: Some("odd_ca".into()), ..none() }, &["h1"]),
        (InventoryFilter { issuer_contains: Some("0% t".into()), ..none() }, &["h4", "h2", "h0"]),
        (InventoryFilter { issuer_contains: Some("oddxca".into()), ..none() }, &[]),
        (InventoryFilter { host_contains: Some("H2.".into()), ..none() }, &["h2"]),
        (InventoryFilter { host_contains: Some("%".into()), ..none() }, &[]),
        (InventoryFilter { severity_at_least: Some(Severity::Medium), ..none() }, &["h4", "h2", "h3"]),
        (InventoryFilter { answering: Some(false), ..none() }, &["h3"]),
        (
            InventoryFilter { answering: Some(true), severity_at_least: Some(Severity::High), ..none() },
            &["h4"],
        ),
        (InventoryFilter { changed_since_us: Some(NOW + 1), ..none() }, &[]),
        (
            InventoryFilter { changed_since_us: Some(NOW), order: InventoryOrder::Host, ..none() },
            &["h0", "h1", "h2", "h3", "h4"],
        ),
    ];
    for (filter, expected) in table {
        assert_eq!(listed(&world, filter.clone()).await, expected, "{filter:?}");
    }
}

pub(crate) async fn pages_are_complete_while_rows_are_inserted(world: World) {
    let scan = world.scan().await;
    // Three expiry times for sixty hosts, so that pages end between equal keys.
    let leaves: Vec<_> = (0..3).map(|n| certificate(&format!("l{n}"), "CN=CA", NOW + n * DAY)).collect();
    let first: Vec<_> =
        (0..60_usize).map(|n| scan.leaf_observation(&format!("h{n:02}.example"), &leaves[n % 3])).collect();
    scan.record(&first).await;
    for order in [InventoryOrder::Expiry, InventoryOrder::Host] {
        let filter = InventoryFilter { order, ..InventoryFilter::default() };
        let mut found = Vec::new();
        let mut cursor = None;
        for round in 0.. {
            let page = store::Inventory::of(&world.store).page(&filter, cursor.as_ref(), 7).await.unwrap();
            found.extend(hosts(&page, |row| row.endpoint.host.clone()));
            // Rows are inserted before and after the cursor.
            let late = ["a", "z"].map(|side| {
                scan.leaf_observation(&format!("{side}-{order:?}-{round}.example"), &leaves[round % 3])
            });
            scan.record(&late).await;
            match page.next {
                Some(next) if round < 40 => cursor = Some(next),
                _ => break,
            }
        }
        let mut sorted = found.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), found.len(), "no row comes twice");
        for n in 0..60 {
            assert!(found.contains(&format!("h{n:02}.example")), "{order:?}: h{n:02} is missing");
        }
    }
}

pub(crate) async fn cursor_of_another_listing_is_rejected(world: World) {
    five_hosts(&world).await;
    let filter = InventoryFilter::default();
    let cursor = store::Inventory::of(&world.store).page(&filter, None, 2).await.unwrap().next.unwrap();
    let by_host = InventoryFilter { order: InventoryOrder::Host, ..filter };
    for error in [
        store::Inventory::of(&world.store).page(&by_host, Some(&cursor), 2).await.err(),
        store::Inventory::of(&world.store).known_endpoints(Some(&cursor), 2).await.err(),
    ] {
        assert!(matches!(error, Some(StoreError::BadCursor)));
    }
    for text in ["", "!!", "bm90IGpzb24", "W251bGxd"] {
        assert!(matches!(text.parse::<store::Cursor>(), Err(StoreError::BadCursor)), "{text:?}");
    }
    // A last page of exactly the requested size has no next cursor.
    let rest =
        store::Inventory::of(&world.store).page(&InventoryFilter::default(), Some(&cursor), 3).await.unwrap();
    assert_eq!((rest.rows.len(), rest.next), (3, None));
}

pub(crate) async fn certificates_are_found_by_fingerprint_prefix_and_name(world: World) {
    let scan = world.scan().await;
    let with = |first: [u8; 3], names: &[&str]| {
        let mut made = NewCertificate::clone(&certificate(names[0], "CN=CA", NOW + DAY));
        made.sha256[..3].copy_from_slice(&first);
        made.names = names.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(made)
    };
    let a = with([0xab, 0xcd, 0x10], &["Shop.example", "*.shop.example"]);
    let b = with([0xab, 0xcd, 0x20], &["workshop.example", "shop-a.example", "x.y.shop.example"]);
    scan.record(&[scan.leaf_observation("a", &a), scan.leaf_observation("b", &b)]).await;

    let found = store::Inventory::of(&world.store).certificate("ABCD:1").await.unwrap().unwrap();
    assert_eq!(found.sha256, a.sha256);
    assert_eq!(found.names, a.names);
    assert!(matches!(
        store::Inventory::of(&world.store).certificate("abcd").await,
        Err(StoreError::AmbiguousFingerprint(_))
    ));
    assert!(matches!(
        store::Inventory::of(&world.store).certificate("abc").await,
        Err(StoreError::BadFingerprint(_))
    ));
    assert!(store::Inventory::of(&world.store).certificate("abce").await.unwrap().is_none());

    let named = walk!(1, |after, size| store::Inventory::of(&world.store).certificates_below_domain(
        "shop.EXAMPLE",
        after,
        size
    ));
    let names: Vec<_> = named.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["Shop.example", "*.shop.example", "x.y.shop.example"]);
    assert_eq!(named[2].certificate.sha256, b.sha256);
}

pub(crate) async fn endpoints_of_a_ca_include_those_of_certificates_below_it(world: World) {
    five_hosts(&world).await;
    let leaf = certificate("h1.example", "CN=Odd_CA", NOW + 4 * DAY);
    let page =
        store::Inventory::of(&world.store).endpoints_of_certificate(&leaf.sha256, None, 10).await.unwrap();
    assert_eq!(hosts(&page, |row| row.endpoint.host.clone()), ["h1.example"]);
    let ca = issuing().sha256;
    let below =
        walk!(2, |after, size| store::Inventory::of(&world.store).endpoints_of_certificate(&ca, after, size));
    assert_eq!(below.len(), 4);
    // An endpoint is listed once, even if its chain repeats a certificate.
    let scan = world.scan().await;
    let mut odd = scan.leaf_observation("twice.example", &leaf);
    odd.chain = vec![Arc::clone(&leaf), issuing(), issuing()];
    scan.record(&[odd]).await;
    let below =
        walk!(2, |after, size| store::Inventory::of(&world.store).endpoints_of_certificate(&ca, after, size));
    assert_eq!(below.len(), 5);
    let none = store::Inventory::of(&world.store).endpoints_of_certificate(&[0; 32], None, 10).await.unwrap();
    assert!(none.rows.is_empty());
}

pub(crate) async fn issuers_are_listed_with_their_counts(world: World) {
    five_hosts(&world).await;
    let issuers = walk!(2, |after, size| store::Inventory::of(&world.store).issuers(after, size));
    let shown: Vec<_> =
        issuers.iter().map(|row| (row.issuer.as_str(), row.certificates, row.endpoints)).collect();
    assert_eq!(shown, [("CN=Even CA, O=100% Trust", 3, 3), ("CN=Odd_CA", 1, 1), ("CN=Root", 1, 0)]);
    assert_eq!(issuers[0].soonest_not_after_us, Some(NOW + DAY));
    assert_eq!(issuers[2].soonest_not_after_us, None);
}

pub(crate) async fn scans_are_started_finished_and_resumed(world: World) {
    let store = &world.store;
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    store::Scans::of(store).begin(first, NOW, r#"{"targets":1}"#).await.unwrap();
    store::Scans::of(store).begin(first, NOW, r#"{"targets":1}"#).await.unwrap(); // a retry
    store::Scans::of(store).begin(second, NOW, r#"{"targets":2}"#).await.unwrap(); // the same microsecond
    assert_eq!(store::Scans::of(store).page(None, 10).await.unwrap().rows.len(), 2);
    assert_eq!(store::Scans::of(store).latest_unfinished().await.unwrap().unwrap().id, second);

    store::Scans::of(store).finish(second, NOW + 5, ScanState::Finished, r#"{"seen":0}"#).await.unwrap();
    let row = store::Scans::of(store).get(second).await.unwrap().unwrap();
    assert_eq!((row.state, row.finished_at_us, row.started_at_us), (ScanState::Finished, Some(NOW + 5), NOW));
    assert_eq!((row.spec.as_str(), row.summary.as_deref()), (r#"{"targets":2}"#, Some(r#"{"seen":0}"#)));

    let leaf = certificate("a", "CN=CA", NOW);
    let seen: Vec<_> = ["b", "a", "c"].map(|host| testbed::tables::answered(host, &leaf, NOW)).into();
    store::Scans::of(store).record(first, &seen).await.unwrap();
    store::Scans::of(store).finish(first, NOW + 6, ScanState::Interrupted, "{}").await.unwrap();
    let open = store::Scans::of(store).latest_unfinished().await.unwrap().unwrap();
    assert_eq!((open.id, open.state), (first, ScanState::Interrupted));
    store::Scans::of(store).resume(first).await.unwrap();
    assert_eq!(store::Scans::of(store).get(first).await.unwrap().unwrap().state, ScanState::Running);
    let mut scanned = walk!(2, |after, size| store::Scans::of(store).endpoints(first, after, size));
    scanned.sort();
    assert_eq!(scanned, ["a", "b", "c"].map(key));
    assert!(store::Scans::of(store).endpoints(second, None, 2).await.unwrap().rows.is_empty());

    let listed = walk!(1, |after, size| store::Scans::of(store).page(after, size));
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [second, first]);
    let unknown = store::Scans::of(store).finish(Uuid::nil(), NOW, ScanState::Finished, "{}").await;
    assert!(matches!(unknown, Err(StoreError::UnknownScan(_))));
}

pub(crate) async fn known_endpoints_report_whether_they_are_silent(world: World) {
    five_hosts(&world).await;
    let known = walk!(2, |after, size| store::Inventory::of(&world.store).known_endpoints(after, size));
    assert_eq!(known.len(), 5);
    for row in known {
        assert_eq!(row.silent, row.endpoint == key("h3.example"), "{row:?}");
        assert_eq!(row.last_observed_us, NOW);
    }
}
