//! An attacker has write access to the database and knows how the chains are hashed.

use audit::AuditOptions;
use audit_proof::head;
use audit_proof::stored_heads::StoredHeads;
use authority::keystore::KeyStore;
use keys::Keyring;

use crate::fixture::Fixture;

pub(crate) async fn rewritten_history_is_detected_by_the_witnessed_head(fixture: Fixture) {
    fixture.write(1, 5).await;
    let log = fixture.with_file(fixture.witness());
    log.sign().await.unwrap();
    log.send_to_witnesses().await.unwrap();
    fixture.write(1, 2).await;
    let stored_heads = StoredHeads::parse(&std::fs::read_to_string(fixture.witness()).unwrap()).unwrap();
    let before = fixture.audited(&stored_heads.signed).await;
    assert!(before.good && before.signed_heads == 1, "{:?}", before.faults);

    fixture.rewrite(0, 2, "user:mallory").await;

    assert_eq!(fixture.store.audit_verify().await.unwrap().faults, [""; 0], "the chain is whole");
    let unwitnessed = fixture.audited(&[]).await;
    assert!(unwitnessed.good, "without a head nothing is seen: {:?}", unwitnessed.faults);
    let audited = fixture.audited(&stored_heads.signed).await;
    assert!(
        !audited.good && audited.faults[0].contains("does not match the kept head"),
        "{:?}",
        audited.faults
    );
    let faults = fixture.faults().await;
    assert!(faults[0].contains("does not match a signed head"), "{faults:?}");
}

pub(crate) async fn head_that_is_altered_or_signed_by_another_key_is_rejected(fixture: Fixture) {
    fixture.write(1, 2).await;
    let signed = fixture.log.sign().await.unwrap();
    let (_, key) = fixture.log.public_key().await.unwrap();
    // Forge a head with another server's key over the same log: an attacker without the master key can do this.
    let other = fixture.database.open().await;
    let keystore = KeyStore::new(other.clone(), Keyring::ephemeral(), fixture.clock.clone());
    let parts = audit::AuditParts {
        store: other.clone(),
        keystore,
        clock: fixture.clock.clone(),
        options: AuditOptions::default(),
    };
    other.execute("-- test\nDELETE FROM audit_keys", Vec::new()).await.unwrap();
    other.execute("-- test\nDELETE FROM audit_heads", Vec::new()).await.unwrap();
    let forged = audit::AuditLog::new(parts).sign().await.unwrap();
    let check =
        |head: &api::audit::SignedHead| StoredHeads::parse(&head::line(head)).unwrap().check(Some(&key)).1;
    assert_eq!(check(&signed), [""; 0]);
    assert!(check(&forged)[0].contains("signed by key"), "{:?}", check(&forged));
    let mut altered = signed.clone();
    altered.heads.pop();
    assert!(check(&altered)[0].contains("the signature is not by"), "{:?}", check(&altered));
    // Two heads with the same number but different contents.
    let both = format!("{}\n{}", head::line(&signed), head::line(&forged));
    assert!(StoredHeads::parse(&both).unwrap().check(None).1[0].contains("twice with different contents"));
}

pub(crate) async fn truncated_chain_is_detected_by_a_signed_head(fixture: Fixture) {
    fixture.write(1, 4).await;
    let signed = fixture.log.sign().await.unwrap();
    let rows = fixture.store.audit_chain_page(0, 0, 100).await.unwrap();
    let last = rows.last().unwrap().sequence;
    assert!(last >= 3);
    let end = &rows[rows.len() - 3];
    fixture
        .store
        .execute(
            "-- test\nDELETE FROM audit_events WHERE shard = 0 AND sequence > ?1",
            vec![end.sequence.into()],
        )
        .await
        .unwrap();
    let head = "-- test\nUPDATE audit_chains SET sequence = ?1, hash = ?2 WHERE shard = 0";
    fixture.store.execute(head, vec![end.sequence.into(), end.hash.into()]).await.unwrap();
    assert_eq!(fixture.store.audit_verify().await.unwrap().faults, [""; 0], "the chain is whole");
    assert!(
        fixture.faults().await[0].contains("but a signed head covers event"),
        "{:?}",
        fixture.faults().await
    );
    let audited = fixture.audited(&[signed]).await;
    assert!(audited.faults[0].contains("of the kept head is missing"), "{:?}", audited.faults);
}
