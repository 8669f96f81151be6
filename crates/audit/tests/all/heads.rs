//! Tests of signed heads.

use audit::{AuditLog, AuditOptions};
use audit_proof::head;
use futures_util::future::join_all;
use testbed::tables::{DAY, NOW};

use crate::fixture::Fixture;

pub(crate) async fn signed_head_covers_all_chains_and_links_to_the_previous_head(fixture: Fixture) {
    fixture.write(1, 3).await;
    let first = fixture.log.sign().await.unwrap();
    fixture.write(1, 1).await;
    let second = fixture.log.sign().await.unwrap();
    let (server, key) = fixture.log.public_key().await.unwrap();
    for signed in [&first, &second] {
        let points = head::check(signed, Some(&key)).unwrap();
        assert_eq!(signed.server, server.to_string());
        assert_eq!(points.len(), signed.heads.len());
    }
    assert_eq!((first.sequence, second.sequence), (1, 2));
    assert_eq!(second.previous, head::hash(&first).to_string());
    assert_eq!(head::break_between(&first, &second), None);
    let ends: Vec<String> = fixture.store.audit_verify().await.unwrap().heads;
    let used: Vec<&String> = ends.iter().filter(|end| !end.contains(":0:")).collect();
    assert_eq!(second.heads.iter().collect::<Vec<_>>(), used);
    // A parsed head line equals the signed head. Any changed member is rejected.
    assert_eq!(fixture.log.heads_after(0).await.unwrap(), [first.clone(), second]);
    let mut changed = first;
    changed.at = "2026-01-01T00:00:00Z".to_owned();
    assert!(head::check(&changed, Some(&key)).is_err());
    assert_eq!(fixture.faults().await, [""; 0]);
}

pub(crate) async fn nodes_signing_concurrently_share_one_key_and_one_head_chain(fixture: Fixture) {
    fixture.write(1, 2).await;
    let mut nodes: Vec<AuditLog> = Vec::new();
    for _ in 0..4 {
        nodes.push(fixture.reopened(AuditOptions::default()).await);
    }
    let signed = join_all(nodes.iter().map(AuditLog::sign)).await;
    let signed: Vec<_> = signed.into_iter().flatten().collect();
    assert!(!signed.is_empty());
    assert!(signed.iter().all(|head| head.key == signed[0].key && head.server == signed[0].server));
    let stored = fixture.log.heads_after(0).await.unwrap();
    assert_eq!(stored.len(), signed.len());
    for pair in stored.windows(2) {
        assert_eq!((head::break_between(&pair[0], &pair[1]), pair[1].sequence), (None, pair[0].sequence + 1));
    }
    assert_eq!(fixture.faults().await, [""; 0]);
}

pub(crate) async fn no_head_is_signed_while_the_log_is_unchanged(fixture: Fixture) {
    fixture.write(1, 1).await;
    // The signing key is created with the first head, and its creation is logged.
    let first = fixture.log.sign_due().await.unwrap().unwrap();
    assert_eq!(first.sequence, 1);
    fixture.clock.advance(std::time::Duration::from_secs(599));
    assert_eq!(fixture.log.sign_due().await.unwrap(), None, "it is recent");
    fixture.clock.advance(std::time::Duration::from_secs(2));
    let second = fixture.log.sign_due().await.unwrap();
    assert_eq!(second.map(|head| head.sequence), None, "nothing was written since");
    fixture.write(1, 1).await;
    assert_eq!(fixture.log.sign_due().await.unwrap().unwrap().sequence, 2);
}

pub(crate) async fn clock_jump_does_not_stop_head_signing(fixture: Fixture) {
    fixture.write(1, 1).await;
    fixture.clock.set(NOW + 1_000 * DAY);
    fixture.log.sign().await.unwrap();
    fixture.clock.set(NOW);
    fixture.write(1, 1).await;
    assert_eq!(fixture.log.sign_due().await.unwrap().map(|head| head.sequence), Some(2));
    assert_eq!(fixture.faults().await, [""; 0]);
}
