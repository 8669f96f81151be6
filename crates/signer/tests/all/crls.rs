//! A CRL never drops a revocation.

use authority::crl::CrlError;
use authority::revoke::Selection;
use keys::SignError;
use x509::crl::Reason;

use crate::taken_over::{Forgery, empty, on_hold, same};
use crate::world::World;

testbed::on_both! { crate::world::World:
    crl_that_removes_a_revocation_is_rejected
    revocation_of_an_expired_certificate_leaves_the_crl
    certificate_hold_can_be_lifted
    restored_older_crl_is_detected_after_restart
    crl_lost_before_storage_is_signed_again
}

/// Returns the signer's error for a forged next CRL.
async fn refusal(world: &World, forgery: Forgery) -> String {
    world.taken_over.next(forgery);
    match world.authority.tick().await {
        Err(CrlError::Sign(SignError::Failed(reason))) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

async fn revoke(world: &World, name: &str, reason: Reason) -> x509::Fingerprint {
    let issued = world.issue("web", &[name]).await.unwrap();
    let which = Selection::Fingerprint(issued.fingerprint);
    world.authority.revoke(which, reason, None, "user:test").await.unwrap();
    issued.fingerprint
}

async fn crl_that_removes_a_revocation_is_rejected(mut world: World) {
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    for restarted in [false, true] {
        if restarted {
            // After the restart, the newest CRL is read from the database.
            world.restart_signer().await;
        }
        revoke(&world, "b.example", Reason::Superseded).await;
        let reason = refusal(&world, Forgery::Crl(empty, 0)).await;
        assert!(reason.contains("removes the revocation"), "{reason}");
        let reason = refusal(&world, Forgery::Crl(on_hold, 0)).await;
        assert!(reason.contains("removes the revocation"), "{reason}");
        let reason = refusal(&world, Forgery::Crl(same, -2)).await;
        assert!(reason.contains("its number is below"), "{reason}");
        assert!(world.authority.tick().await.unwrap().crls >= 1, "as it is, it is signed");
    }
}

async fn revocation_of_an_expired_certificate_leaves_the_crl(world: World) {
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    // 47 days of the certificate, and the lifetime of a CRL.
    world.clock.advance(std::time::Duration::from_secs(50 * 86_400));
    world.authority.tick().await.unwrap();
    let crl = world.authority.crl(world.ca.id, authority::crl::CrlPart::Full).await.unwrap().unwrap();
    assert_eq!(crl.entries, 0);
}

async fn certificate_hold_can_be_lifted(world: World) {
    let held = revoke(&world, "a.example", Reason::CertificateHold).await;
    world.authority.tick().await.unwrap();
    let which = Selection::Fingerprint(held);
    world.authority.revoke(which, Reason::RemoveFromCrl, None, "user:test").await.unwrap();
    world.authority.tick().await.unwrap();
    let crl = world.authority.crl(world.ca.id, authority::crl::CrlPart::Full).await.unwrap().unwrap();
    assert_eq!(crl.entries, 0);
}

/// The signer's own folder has the newer CRL.
async fn restored_older_crl_is_detected_after_restart(mut world: World) {
    world.rules.crl_folder = Some(world.socket().parent().unwrap().to_owned());
    world.restart_signer().await;
    world.authority.tick().await.unwrap();
    let older = authority::tables::Revocations::of(&world.store).crl(world.ca.id, 0).await.unwrap().unwrap();
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    put(&world, older).await;
    world.restart_signer().await;
    revoke(&world, "b.example", Reason::Superseded).await;
    let reason = refusal(&world, Forgery::Crl(empty, 1)).await;
    assert!(reason.contains("removes the revocation"), "{reason}");
}

async fn crl_lost_before_storage_is_signed_again(world: World) {
    world.authority.tick().await.unwrap();
    let before = authority::tables::Revocations::of(&world.store).crl(world.ca.id, 0).await.unwrap().unwrap();
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    // As if the server had stopped between signature and commit.
    put(&world, before).await;
    revoke(&world, "b.example", Reason::Superseded).await;
    world.authority.tick().await.unwrap();
    let crl = world.authority.crl(world.ca.id, authority::crl::CrlPart::Full).await.unwrap().unwrap();
    assert_eq!(crl.entries, 2);
}

/// Replaces the stored CRL, including its number.
async fn put(world: &World, crl: authority::tables::CrlRow) {
    let built =
        authority::tables::BuiltCrl { ca: world.ca.id, shard: 0, built: 0, refresh_at_us: i64::MAX, crl };
    let stored = world.store.write("crl", move |tx| {
        Box::pin(async move { authority::tables::crl_store(tx, &built, None).await })
    });
    assert!(stored.await.unwrap());
}
