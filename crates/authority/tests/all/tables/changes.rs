//! Tests of changes that wait for approval, and of the votes for them.

use authority::change::{Approved, ChangeError, ProposedChange};
use authority::keystore::KeyStore;
use authority::principal::Principal;
use authority::tables::ChangeState;
use authority::{Authority, AuthorityOptions};
use futures_util::FutureExt;
use keys::Keyring;
use serde_json::json;
use store::Clock;
use testbed::tables::World;
use zeroize::Zeroizing;

fn authority(world: &World) -> Authority {
    let clock = Clock::system();
    let keystore = KeyStore::new(world.store.clone(), Keyring::ephemeral(), clock.clone());
    Authority::open(world.store.clone(), keystore, clock, AuthorityOptions::default()).unwrap()
}

fn proposed(object: &str, needed: u32) -> ProposedChange {
    ProposedChange {
        action: "profile.put".to_owned(),
        object: object.to_owned(),
        profiles: vec!["vip".to_owned()],
        needed,
        revision: Some(3),
        before: Some(json!({ "requires_approval": true })),
        after: Some(json!({ "requires_approval": false })),
        content: Zeroizing::new(r#"{"secret":"s3cret"}"#.to_owned()),
    }
}

fn person(actor: &str) -> Principal {
    Principal::from_actor(actor)
}

pub(crate) async fn change_requires_its_approvals_and_keeps_its_plan(world: World) {
    let authority = authority(&world);
    let ann = person("token:ci").with("user:ann");
    let change = authority.propose_change(proposed("profile/vip", 2), &ann).await.unwrap();
    assert_eq!((change.state, change.plan_sha256), (ChangeState::Open, change.plan.sha256()));
    assert!(!format!("{change:?}").contains("s3cret"));
    let (id, plan) = (change.id, Some(change.plan_sha256));
    let approve = async |shown, by: &Principal| authority.approve_change(id, shown, Some("fine"), by).await;

    let own = approve(plan, &person("user:ann")).await;
    assert!(matches!(own, Err(ChangeError::OwnRequest(_))), "{own:?}");
    let other = approve(Some([1; 32]), &person("user:bob")).await;
    assert!(matches!(other, Err(ChangeError::OtherPlan)), "{other:?}");
    let half = approve(plan, &person("user:bob")).await;
    assert!(matches!(half, Ok(Approved::Waits(progress)) if progress.given == 1), "{half:?}");
    let second = approve(plan, &person("certificate:laptop").with("user:bob")).await;
    assert!(matches!(second, Err(ChangeError::Repeated { given: 1, needed: 2 })), "{second:?}");
    for _ in 0..2 {
        // The second approval, as after a crash between the approval and its effect.
        let whole = approve(None, &person("user:carl")).await;
        let Ok(Approved::Apply(content)) = whole else { panic!("{whole:?}") };
        assert_eq!(*content, r#"{"secret":"s3cret"}"#);
    }
    authority.finish_change(id, None, &person("user:carl")).await.unwrap();
    let over = approve(None, &person("user:dave")).await;
    assert!(matches!(over, Err(ChangeError::Over("applied"))), "{over:?}");
    let applied = authority.pending_change(id).await.unwrap();
    assert_eq!((applied.state, applied.approvers.len()), (ChangeState::Applied, 2));

    // A change that was altered in the database is not applied.
    let change = authority.propose_change(proposed("profile/web", 1), &ann).await.unwrap();
    let forged = authority.propose_change(proposed("profile/web", 1), &ann).await.unwrap();
    let (id, plan) = (change.id, forged.plan.clone());
    let text = serde_json::to_string(&plan).unwrap();
    let write = world.store.write("forge", move |tx| {
        async move {
            let statement =
                "-- forge\nUPDATE pending_changes SET plan = ?2, plan_sha256 = ?3 WHERE uuid = ?1";
            tx.execute(statement, vec![id.into(), text.into(), plan.sha256().into()]).await
        }
        .boxed()
    });
    assert_eq!(write.await.unwrap(), 1);
    let answer = authority.approve_change(id, None, None, &person("user:bob")).await;
    assert!(matches!(answer, Err(ChangeError::Mismatch(_))), "{answer:?}");
}

pub(crate) async fn open_changes_are_listed_newest_first(world: World) {
    let authority = authority(&world);
    let mut ids = Vec::new();
    for at in 0..3 {
        let change = proposed(&format!("profile/{at}"), 1);
        ids.insert(0, authority.propose_change(change, &person("user:ann")).await.unwrap().id);
    }
    let first = authority.pending_changes(ChangeState::Open, None, 2).await.unwrap();
    let second = authority.pending_changes(ChangeState::Open, first.next.as_ref(), 2).await.unwrap();
    let listed: Vec<_> = first.rows.iter().chain(&second.rows).map(|change| change.id).collect();
    assert_eq!(listed, ids);
    for note in ["n\0", "n".repeat(2_001).as_str()] {
        let bad = authority.reject_change(ids[0], Some(note), &person("user:bob")).await;
        assert!(matches!(bad, Err(ChangeError::Note)), "{bad:?}");
    }
    authority.reject_change(ids[0], Some("no"), &person("user:bob")).await.unwrap();
    authority.void_change(ids[1], "it changed", &person("user:bob")).await.unwrap();
    assert_eq!(authority.pending_changes(ChangeState::Open, None, 9).await.unwrap().rows.len(), 1);
    let void = authority.pending_changes(ChangeState::Void, None, 9).await.unwrap().rows.remove(0);
    assert_eq!((void.id, void.note.as_deref()), (ids[1], Some("it changed")));
}
