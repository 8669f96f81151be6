//! The second person, on every path.

use lifecycle::approval::ApprovalState;
use lifecycle::job::JobState;
use lifecycle::managed::NewCertificate;
use lifecycle::policy::{AppliesTo, Policy};
use lifecycle::state::State;
use lifecycle::{ApprovalError, Selection};

use super::world::{DAY, World};

async fn open(world: &World) -> Vec<lifecycle::approval::Approval> {
    world.life.approvals(ApprovalState::Open, None, 100).await.unwrap().rows
}

pub(super) async fn a_second_person_has_to_consent(world: World) {
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "careful"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let waiting = world.life.get(created.certificate).await.unwrap();
    assert_eq!(waiting.state, State::AwaitingApproval);
    assert_eq!(world.issuer("internal").made(), 0);
    let approval = open(&world).await.remove(0);
    assert_eq!(approval.requested_by, "user:ann");
    assert_eq!(approval.job, created.job.unwrap());
    let own = world.life.approve(approval.id, None, "user:ann").await;
    assert!(matches!(own, Err(ApprovalError::SamePerson(_))));
    world.life.approve(approval.id, Some("fine"), "user:bob").await.unwrap();
    let twice = world.life.approve(approval.id, None, "user:carl").await;
    assert!(matches!(twice, Err(ApprovalError::Decided("approved"))), "{twice:?}");
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    let decided = world.life.approval(approval.id).await.unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
    assert_eq!((decided.decided_by.as_deref(), decided.note.as_deref()), (Some("user:bob"), Some("fine")));
    world.check().await;
}

pub(super) async fn the_scheduler_asks_too(world: World) {
    let plain = world.issued("a.example.org").await;
    let policy = Policy {
        applies_to: AppliesTo { all: true, ..AppliesTo::default() },
        requires_approval: true,
        ..Policy::default()
    };
    // Put after the next run was planned: the gate is asked when a run begins.
    world.life.put_policy("two-eyes-more", &policy, None, "user:ann").await.unwrap();
    world.clock.set(plain.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(plain.id).await.unwrap().state, State::AwaitingApproval);
    let approval = open(&world).await.remove(0);
    assert_eq!(approval.requested_by, "system:renewal");
    assert!(approval.reason.contains("two-eyes-more"));
    world.life.approve(approval.id, None, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let renewed = world.life.get(plain.id).await.unwrap();
    assert_eq!(renewed.state, State::Active);
    // The next one was planned with the gate known: asked for before anybody claims it.
    world.clock.set(renewed.renew_at_us().unwrap());
    let report = world.life.schedule().await.unwrap();
    assert_eq!(report.gated, 1);
    assert_eq!(open(&world).await.len(), 1);
    assert_eq!(world.life.schedule().await.unwrap().gated, 0);
    // A person who hastens it does not get around it.
    world.life.renew(&Selection::Ids(vec![plain.id]), "asked", "user:ann").await.unwrap();
    assert_eq!(world.life.tick().await.unwrap().done, 0);
    assert_eq!(world.issuer("internal").made(), 2);
    world.check().await;
}

pub(super) async fn a_refusal_ends_the_run_and_silence_does(world: World) {
    let create = |name: &'static str| {
        let life = world.life.clone();
        async move { life.create(NewCertificate::new(&[name], "careful"), "user:ann").await.unwrap() }
    };
    let refused = create("a.example.org").await;
    world.life.tick().await.unwrap();
    let approval = open(&world).await.remove(0);
    // Whoever asked may take it back.
    world.life.reject(approval.id, Some("no"), "user:ann").await.unwrap();
    let after = world.life.get(refused.certificate).await.unwrap();
    assert_eq!(after.state, State::Pending);
    assert_eq!(world.life.job(refused.job.unwrap()).await.unwrap().state, JobState::Cancelled);

    let silent = create("b.example.org").await;
    world.life.tick().await.unwrap();
    world.advance(8 * DAY);
    let expired = world.life.approve(
        open(&world).await.iter().find(|one| one.certificate == silent.certificate).unwrap().id,
        None,
        "user:bob",
    );
    assert!(matches!(expired.await, Err(ApprovalError::Decided("expired"))));
    assert!(world.life.schedule().await.unwrap().lapsed >= 1);
    let after = world.life.get(silent.certificate).await.unwrap();
    assert_eq!(after.state, State::Pending);
    assert_eq!(world.issuer("internal").made(), 0);
    world.check().await;
}

pub(super) async fn an_approval_falls_with_its_run(world: World) {
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "careful"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let approval = open(&world).await.remove(0);
    world.life.archive(created.certificate, None, "user:ann").await.unwrap();
    assert!(open(&world).await.is_empty());
    let late = world.life.approve(approval.id, None, "user:bob").await;
    assert!(matches!(late, Err(ApprovalError::Decided("withdrawn"))), "{late:?}");
    world.check().await;
}
