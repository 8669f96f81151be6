//! Tests of endpoint changes, scan comparison and endpoint history.

use events::ProbeOutcome;
use store::{ChangeKind, ChangeRow};

use testbed::tables::{DAY, NOW, World, certificate, key};
use testbed::walk;

fn shown(rows: &[ChangeRow]) -> Vec<(&str, ChangeKind)> {
    rows.iter().map(|row| (row.endpoint.host.as_str(), row.kind)).collect()
}

pub(crate) async fn each_kind_of_change_is_listed_since_a_time(world: World) {
    let (old, new) = (certificate("l", "CN=CA", NOW + DAY), certificate("l", "CN=CA", NOW + 9 * DAY));
    let first = world.scan().await;
    first
        .record(&[
            first.leaf_observation("a-same", &old),
            first.leaf_observation("b-changed", &old),
            first.leaf_observation("c-gone", &old),
            first.silent("d-returned"),
            first.silent("e-outcome"),
        ])
        .await;
    let second = world.scan().await;
    let mut reset = second.silent("e-outcome");
    reset.outcome = ProbeOutcome::Reset;
    second
        .record(&[
            second.leaf_observation("a-same", &old),
            second.leaf_observation("b-changed", &new),
            second.silent("c-gone"),
            second.leaf_observation("d-returned", &new),
            reset,
            second.leaf_observation("f-new", &new),
        ])
        .await;

    let since = walk!(2, |after, size| store::Inventory::of(&world.store).diff(second.at, after, size));
    assert_eq!(
        shown(&since),
        [
            ("b-changed", ChangeKind::CertificateChanged),
            ("c-gone", ChangeKind::Gone),
            ("d-returned", ChangeKind::Returned),
            ("e-outcome", ChangeKind::OutcomeChanged),
            ("f-new", ChangeKind::New),
        ]
    );
    assert_eq!((since[0].old_sha256, since[0].new_sha256), (Some(old.sha256), Some(new.sha256)));
    assert_eq!((since[1].old_sha256, since[1].new_sha256), (Some(old.sha256), None));
    assert_eq!((since[2].old_sha256, since[2].new_sha256), (None, Some(new.sha256)));
    assert_eq!(
        (since[3].old_outcome, since[3].new_outcome),
        (Some(ProbeOutcome::Refused), Some(ProbeOutcome::Reset))
    );
    assert_eq!((since[4].old_outcome, since[4].observed_at_us), (None, second.at));

    assert_eq!(walk!(3, |after, size| store::Inventory::of(&world.store).diff(0, after, size)).len(), 10);
    assert!(store::Inventory::of(&world.store).diff(second.at + 1, None, 10).await.unwrap().rows.is_empty());
}

pub(crate) async fn two_scans_are_compared(world: World) {
    let (old, new) = (certificate("l", "CN=CA", NOW + DAY), certificate("l", "CN=CA", NOW + 9 * DAY));
    let a = world.scan().await;
    a.record(&[
        a.leaf_observation("same", &old),
        a.leaf_observation("changed", &old),
        a.leaf_observation("gone", &old),
        a.silent("returned"),
        a.silent("outcome"),
        a.leaf_observation("skipped", &old),
    ])
    .await;
    // A scan in between records the change first. The comparison of scans a and b still reports it.
    let between = world.scan().await;
    between.record(&[between.leaf_observation("changed", &new)]).await;
    let b = world.scan().await;
    let mut reset = b.silent("outcome");
    reset.outcome = ProbeOutcome::Reset;
    b.record(&[
        b.leaf_observation("fresh", &new),
        reset,
        b.leaf_observation("returned", &old),
        b.silent("gone"),
        b.leaf_observation("changed", &new),
        b.leaf_observation("same", &old),
    ])
    .await;
    let mut rows =
        walk!(2, |after, size| store::Inventory::of(&world.store).diff_scans(a.id, b.id, after, size));
    rows.sort_by(|a, b| a.endpoint.cmp(&b.endpoint));
    assert_eq!(
        shown(&rows),
        [
            ("changed", ChangeKind::CertificateChanged),
            ("fresh", ChangeKind::New),
            ("gone", ChangeKind::Gone),
            ("outcome", ChangeKind::OutcomeChanged),
            ("returned", ChangeKind::Returned),
            ("skipped", ChangeKind::NotScanned),
        ]
    );
    assert_eq!((rows[0].old_sha256, rows[0].new_sha256), (Some(old.sha256), Some(new.sha256)));
    assert_eq!((rows[5].new_outcome, rows[5].observed_at_us), (None, a.at));
    assert!(
        store::Inventory::of(&world.store).diff_scans(b.id, b.id, None, 10).await.unwrap().rows.is_empty()
    );
}

pub(crate) async fn a_page_of_a_comparison_reads_a_bounded_number_of_endpoints(world: World) {
    let (old, new) = (certificate("l", "CN=CA", NOW + DAY), certificate("l", "CN=CA", NOW + 9 * DAY));
    let hosts: Vec<String> = (0..20).map(|number| format!("h{number:02}")).collect();
    let (a, b) = (world.scan().await, world.scan().await);
    a.record(&hosts.iter().map(|host| a.leaf_observation(host, &old)).collect::<Vec<_>>()).await;
    let certificate_of = |host: &String| if host == "h17" { &new } else { &old };
    let probed = hosts.iter().filter(|host| *host != "h18");
    b.record(&probed.map(|host| b.leaf_observation(host, certificate_of(host))).collect::<Vec<_>>()).await;

    let inventory = store::Inventory::of(&world.store);
    let first = inventory.diff_scans_in(a.id, b.id, None, 10, 3).await.unwrap();
    assert!(first.rows.is_empty(), "the first three endpoints are the same");
    let next = first.next.expect("the other endpoints were not read");
    let ids = store::Inventory::compared_scans(&next).unwrap();
    assert_eq!(ids, (a.id, b.id));
    for range in [1, 3, 19, 20, 100] {
        let rows = walk!(2, |after, size| inventory.diff_scans_in(a.id, b.id, after, size, range));
        let wanted = [("h17", ChangeKind::CertificateChanged), ("h18", ChangeKind::NotScanned)];
        assert_eq!(shown(&rows), wanted, "{range} endpoints a page");
    }
}

pub(crate) async fn the_last_comparable_scans_may_be_far_apart(world: World) {
    let scans = store::Scans::of(&world.store);
    let finished = async |at: i64, targets: &str| {
        let id = uuid::Uuid::now_v7();
        scans.begin(id, at, targets).await.unwrap();
        scans.finish(id, at + 1, store::ScanState::Finished, "{}").await.unwrap();
        id
    };
    let earlier = finished(NOW, r#"{"targets":["net"]}"#).await;
    for number in 1..120 {
        finished(NOW + number, &format!(r#"{{"targets":["other-{number}"]}}"#)).await;
    }
    assert_eq!(scans.last_comparable_scans().await.unwrap(), None);
    let later = finished(NOW + 120, r#"{"targets":["net"]}"#).await;
    assert_eq!(scans.last_comparable_scans().await.unwrap(), Some((earlier, later)));
}

pub(crate) async fn endpoint_history_is_paged_newest_first(world: World) {
    let mut expected = Vec::new();
    for n in 0..7 {
        let scan = world.scan().await;
        scan.record(&[scan.leaf_observation("a", &certificate("a", "CN=CA", NOW + n / 3 * DAY))]).await;
        expected.insert(0, scan.at);
    }
    let rows =
        walk!(3, |after, size| store::Inventory::of(&world.store).endpoint_history(&key("a"), after, size));
    assert_eq!(rows.iter().map(|row| row.observed_at_us).collect::<Vec<_>>(), expected);
    let changed: Vec<_> = rows.iter().map(|row| row.change.is_some()).collect();
    assert_eq!(changed, [true, false, false, true, false, false, true]);
    assert!(
        store::Inventory::of(&world.store)
            .endpoint_history(&key("unknown"), None, 3)
            .await
            .unwrap()
            .rows
            .is_empty()
    );
}
