//! A CRL never takes a revocation back.

use authority::crl::CrlError;
use authority::revoke::Selection;
use keys::SignError;
use x509::crl::Reason;

use crate::taken_over::{Forgery, empty, on_hold, same};
use crate::world::World;

testbed::on_both! { crate::world::World:
    a_crl_that_drops_a_revocation_is_refused
    a_revocation_leaves_the_crl_when_its_certificate_expired
    a_hold_may_be_lifted
    an_older_crl_put_back_does_not_count_at_the_start
    a_crl_that_was_lost_before_it_was_stored_is_made_again
}

/// The signer's words on the next CRL.
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

async fn a_crl_that_drops_a_revocation_is_refused(mut world: World) {
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    for restarted in [false, true] {
        if restarted {
            // Then the newest CRL is read from the database.
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

async fn a_revocation_leaves_the_crl_when_its_certificate_expired(world: World) {
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    // 47 days, and a CRL's life.
    world.clock.advance(std::time::Duration::from_secs(50 * 86_400));
    world.authority.tick().await.unwrap();
    let crl = world.authority.crl(world.ca.id, authority::crl::CrlPart::Full).await.unwrap().unwrap();
    assert_eq!(crl.entries, 0);
}

async fn a_hold_may_be_lifted(world: World) {
    let held = revoke(&world, "a.example", Reason::CertificateHold).await;
    world.authority.tick().await.unwrap();
    let which = Selection::Fingerprint(held);
    world.authority.revoke(which, Reason::RemoveFromCrl, None, "user:test").await.unwrap();
    world.authority.tick().await.unwrap();
    let crl = world.authority.crl(world.ca.id, authority::crl::CrlPart::Full).await.unwrap().unwrap();
    assert_eq!(crl.entries, 0);
}

/// The signer's own folder has the newer one.
async fn an_older_crl_put_back_does_not_count_at_the_start(mut world: World) {
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

async fn a_crl_that_was_lost_before_it_was_stored_is_made_again(world: World) {
    world.authority.tick().await.unwrap();
    let before = authority::tables::Revocations::of(&world.store).crl(world.ca.id, 0).await.unwrap().unwrap();
    revoke(&world, "a.example", Reason::KeyCompromise).await;
    world.authority.tick().await.unwrap();
    // As if the server had ended between signature and commit.
    put(&world, before).await;
    revoke(&world, "b.example", Reason::Superseded).await;
    world.authority.tick().await.unwrap();
    let crl = world.authority.crl(world.ca.id, authority::crl::CrlPart::Full).await.unwrap().unwrap();
    assert_eq!(crl.entries, 2);
}

/// Puts a CRL in the place of the stored one, number and all.
async fn put(world: &World, crl: authority::tables::CrlRow) {
    let built =
        authority::tables::BuiltCrl { ca: world.ca.id, shard: 0, built: 0, refresh_at_us: i64::MAX, crl };
    let stored = world.store.write("crl", move |tx| {
        Box::pin(async move { authority::tables::crl_store(tx, &built, None).await })
    });
    assert!(stored.await.unwrap());
}
