//! Tests of two-person approval on every path.

use std::sync::atomic::Ordering;

use authority::principal::Principal;
use authority::signer_checks::ApprovalSource;
use futures_util::FutureExt;
use lifecycle::approval::{Approval, ApprovalState};
use lifecycle::job::JobState;
use lifecycle::managed::{CertificateChange, NewCertificate};
use lifecycle::policy::{Policy, PolicyScope};
use lifecycle::state::State;
use lifecycle::tables::approvals;
use lifecycle::{ApprovalError, RunApprovals, Selection};

use super::world::{DAY, Mood, World};

async fn open(world: &World) -> Vec<lifecycle::approval::Approval> {
    world.life.approvals(ApprovalState::Open, None, 100).await.unwrap().rows
}

pub(super) async fn issuance_requires_approval_by_a_second_person(world: World) {
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "careful"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let waiting = world.life.get(created.certificate).await.unwrap();
    assert_eq!(waiting.state, State::AwaitingApproval);
    assert_eq!(world.issuer("internal").made(), 0);
    let approval = open(&world).await.remove(0);
    assert_eq!(approval.requested_by, "user:ann");
    assert_eq!(approval.job, created.job.unwrap());
    let own = world.life.approve(approval.id, None, None, &person("user:ann")).await;
    assert!(matches!(own, Err(ApprovalError::SamePerson(_))));
    world.life.approve(approval.id, None, Some("fine"), &person("user:bob")).await.unwrap();
    let twice = world.life.approve(approval.id, None, None, &person("user:carl")).await;
    assert!(matches!(twice, Err(ApprovalError::Decided("approved"))), "{twice:?}");
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    let decided = world.life.approval(approval.id).await.unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
    assert_eq!((decided.decided_by.as_deref(), decided.note.as_deref()), (Some("user:bob"), Some("fine")));
    world.check().await;
}

pub(super) async fn signer_reads_the_approval_of_a_run(world: World) {
    let consents = RunApprovals::new(world.store.clone());
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "careful"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let run = created.job.unwrap().to_string();
    assert!(consents.of_run(&run).await.unwrap().is_none(), "it is open");
    let approval = open(&world).await.remove(0);
    world.life.approve(approval.id, None, None, &person("user:bob")).await.unwrap();
    let given = consents.of_run(&run).await.unwrap().unwrap();
    assert_eq!((given.decided_by.as_str(), given.sha256), ("user:bob", given.plan.sha256()));
    assert_eq!(given.plan.names, ["a.example.org"]);
    assert_eq!(given.barred, ["user:ann"]);
    for other in ["", "r", "018f0000-0000-7000-8000-00000000ffff"] {
        assert!(consents.of_run(other).await.unwrap().is_none(), "{other:?}");
    }
}

pub(super) async fn scheduled_renewal_requires_approval_by_policy(world: World) {
    let plain = world.issued("a.example.org").await;
    let policy = Policy {
        applies_to: PolicyScope { all: true, ..PolicyScope::default() },
        requires_approval: true,
        ..Policy::default()
    };
    // The policy is stored after the next run was scheduled. Approval is checked when a run begins.
    world.life.put_policy("two-eyes-more", &policy, None, "user:ann").await.unwrap();
    world.clock.set(plain.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(plain.id).await.unwrap().state, State::AwaitingApproval);
    let approval = open(&world).await.remove(0);
    assert_eq!(approval.requested_by, "system:renewal");
    assert!(approval.reason.contains("two-eyes-more"));
    world.life.approve(approval.id, None, None, &person("user:ann")).await.unwrap();
    world.life.tick().await.unwrap();
    let renewed = world.life.get(plain.id).await.unwrap();
    assert_eq!(renewed.state, State::Active);
    // The next run was scheduled when the policy existed, so its approval is requested before the run is claimed.
    world.clock.set(renewed.renew_at_us().unwrap());
    let report = world.life.schedule().await.unwrap();
    assert_eq!(report.gated, 1);
    assert_eq!(open(&world).await.len(), 1);
    assert_eq!(world.life.schedule().await.unwrap().gated, 0);
    // An early manual renewal does not bypass the approval.
    world.life.renew(&Selection::Ids(vec![plain.id]), "asked", "user:ann").await.unwrap();
    assert_eq!(world.life.tick().await.unwrap().done, 0);
    assert_eq!(world.issuer("internal").made(), 2);
    world.check().await;
}

pub(super) async fn rejection_or_expiry_of_an_approval_ends_the_run(world: World) {
    let create = |name: &'static str| {
        let life = world.life.clone();
        async move { life.create(NewCertificate::new(&[name], "careful"), "user:ann").await.unwrap() }
    };
    let refused = create("a.example.org").await;
    world.life.tick().await.unwrap();
    let approval = open(&world).await.remove(0);
    // The requester can withdraw the request.
    world.life.reject(approval.id, Some("no"), &person("user:ann")).await.unwrap();
    let after = world.life.get(refused.certificate).await.unwrap();
    assert_eq!(after.state, State::Pending);
    assert_eq!(world.life.job(refused.job.unwrap()).await.unwrap().state, JobState::Cancelled);

    let silent = create("b.example.org").await;
    world.life.tick().await.unwrap();
    world.advance(8 * DAY);
    let bob = person("user:bob");
    let expired = world.life.approve(
        open(&world).await.iter().find(|one| one.certificate == silent.certificate).unwrap().id,
        None,
        None,
        &bob,
    );
    assert!(matches!(expired.await, Err(ApprovalError::Decided("expired"))));
    assert!(world.life.schedule().await.unwrap().lapsed >= 1);
    let after = world.life.get(silent.certificate).await.unwrap();
    assert_eq!(after.state, State::Pending);
    assert_eq!(world.issuer("internal").made(), 0);
    world.check().await;
}

pub(super) async fn approval_is_withdrawn_when_its_run_ends(world: World) {
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "careful"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let approval = open(&world).await.remove(0);
    world.life.archive(created.certificate, None, "user:ann").await.unwrap();
    assert!(open(&world).await.is_empty());
    let late = world.life.approve(approval.id, None, None, &person("user:bob")).await;
    assert!(matches!(late, Err(ApprovalError::Decided("withdrawn"))), "{late:?}");
    world.check().await;
}

fn person(actor: &str) -> Principal {
    Principal::from_actor(actor)
}

/// Asserts that each of these actors cannot approve.
async fn refused(world: &World, approval: uuid::Uuid, actors: &[&str]) {
    for actor in actors {
        let answer = world.life.approve(approval, None, None, &person(actor)).await;
        assert!(matches!(answer, Err(ApprovalError::SamePerson(_))), "{actor}: {answer:?}");
    }
}

fn named(names: &[&str]) -> CertificateChange {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateChange { names: Some(names), ..CertificateChange::default() }
}

/// Creates a certificate that waits for approval.
async fn waiting(world: &World) -> (uuid::Uuid, Approval) {
    let new = NewCertificate::new(&["a.example.org"], "careful");
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let approval = open(world).await.remove(0);
    (created.certificate, approval)
}

pub(super) async fn changed_plan_voids_an_open_approval(world: World) {
    let (certificate, first) = waiting(&world).await;
    let plan = first.plan.clone().unwrap();
    assert_eq!(
        (plan.names.as_slice(), Some(plan.sha256())),
        (&["a.example.org".to_owned()][..], first.plan_sha256)
    );
    // A change of fields outside the plan does not affect the approval.
    let renamed = CertificateChange { name: Some("shop".to_owned()), ..CertificateChange::default() };
    world.life.update(certificate, None, &renamed, "user:bob").await.unwrap();
    assert_eq!(open(&world).await.len(), 1);

    let change = named(&["a.example.org", "evil.example.org"]);
    world.life.update(certificate, None, &change, "user:bob").await.unwrap();
    let void = world.life.approve(first.id, None, None, &person("user:carl")).await;
    assert!(matches!(void, Err(ApprovalError::Decided("void"))), "{void:?}");
    world.life.tick().await.unwrap();
    assert_eq!(world.issuer("internal").made(), 0);
    let second = open(&world).await.remove(0);
    assert_ne!(second.plan_sha256, first.plan_sha256);
    let second = world.life.approval(second.id).await.unwrap();
    assert_eq!(second.previous, Some(first.id));
    let fields: Vec<&str> = second.changes.iter().map(|change| change.name).collect();
    assert_eq!(fields, ["names"]);
    refused(&world, second.id, &["user:ann", "user:bob"]).await;
    // The plan that was shown first is not the plan of this approval.
    let shown = world.life.approve(second.id, first.plan_sha256, None, &person("user:carl")).await;
    assert!(matches!(shown, Err(ApprovalError::OtherPlan)), "{shown:?}");
    world.life.approve(second.id, second.plan_sha256, None, &person("user:carl")).await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(certificate).await.unwrap().state, State::Active);
    assert_eq!(world.issuer("internal").made(), 1);
    world.check().await;
}

pub(super) async fn changed_plan_voids_a_given_approval(world: World) {
    let (certificate, first) = waiting(&world).await;
    world.life.approve(first.id, None, None, &person("user:carl")).await.unwrap();
    world.life.update(certificate, None, &named(&["evil.example.org"]), "user:bob").await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.issuer("internal").made(), 0);
    assert_eq!(world.life.approval(first.id).await.unwrap().state, ApprovalState::Void);
    let second = open(&world).await.remove(0);
    refused(&world, second.id, &["user:ann", "user:bob"]).await;
    world.check().await;
}

async fn profile(world: &World, body: &'static str) {
    let put = world.store.write("profile", move |tx| {
        async move { authority::tables::put_profile(tx, "careful", body, 1, None).await }.boxed()
    });
    put.await.unwrap().unwrap();
}

pub(super) async fn changed_profile_voids_an_approval(world: World) {
    profile(&world, r#"{"ca":"one"}"#).await;
    let (_, first) = waiting(&world).await;
    profile(&world, r#"{"ca":"two"}"#).await;
    let changed = world.life.approve(first.id, None, None, &person("user:carl")).await;
    assert!(matches!(changed, Err(ApprovalError::PlanChanged)), "{changed:?}");
    world.life.tick().await.unwrap();
    let second = open(&world).await.remove(0);
    assert_eq!(second.previous, Some(first.id));

    // Approved for one profile, and started with another.
    world.life.approve(second.id, None, None, &person("user:carl")).await.unwrap();
    profile(&world, r#"{"ca":"three"}"#).await;
    world.life.tick().await.unwrap();
    assert_eq!(world.issuer("internal").made(), 0);
    assert_eq!(world.life.approval(second.id).await.unwrap().state, ApprovalState::Void);

    // The profile changes before a decision: the next tick requests approval again.
    world.life.tick().await.unwrap();
    let third = open(&world).await.remove(0);
    profile(&world, r#"{"ca":"four"}"#).await;
    assert_eq!(world.life.schedule().await.unwrap().voided, 1);
    assert_eq!(world.life.approval(third.id).await.unwrap().state, ApprovalState::Void);
    world.check().await;
}

pub(super) async fn certificate_is_revoked_when_its_plan_changed_during_issuance(world: World) {
    let (certificate, first) = waiting(&world).await;
    world.life.approve(first.id, None, None, &person("user:carl")).await.unwrap();
    let issuer = world.issuer("internal");
    *issuer.mood.lock() = Mood::Crowded(2);
    let life = world.life.clone();
    let tick = tokio::spawn(async move { life.tick().await });
    testbed::until("the issuer is asked", || issuer.requests.load(Ordering::SeqCst) == 1).await;
    world.life.update(certificate, None, &named(&["evil.example.org"]), "user:bob").await.unwrap();
    issuer.at_once_max.store(2, Ordering::SeqCst);
    tick.await.unwrap().unwrap();
    *issuer.mood.lock() = Mood::Well;
    let after = world.life.get(certificate).await.unwrap();
    assert!(after.current.is_none(), "{after:?}");
    assert_eq!(world.life.approval(first.id).await.unwrap().state, ApprovalState::Void);
    world.life.tick().await.unwrap();
    // The certificate issued for the old plan is revoked. Approval of the new plan is requested.
    assert_eq!(world.own.revoked.lock().len(), 1);
    let second = open(&world).await.remove(0);
    refused(&world, second.id, &["user:ann", "user:bob"]).await;
    world.check().await;
}

pub(super) async fn approval_without_a_plan_is_void(world: World) {
    let (_, first) = waiting(&world).await;
    // As in a database from before plans were stored.
    let job = first.job.row();
    let old = world.store.write("old", move |tx| {
        async move {
            let mut row = approvals::active_approvals(tx, vec![job]).await?.remove(0);
            approvals::void_approvals(tx, vec![job], 1).await?;
            row.uuid = uuid::Uuid::now_v7();
            (row.plan, row.plan_sha256) = (None, None);
            approvals::insert_approvals(tx, &[row]).await
        }
        .boxed()
    });
    old.await.unwrap();
    let old = open(&world).await.remove(0);
    assert_eq!(old.plan_sha256, None);
    world.life.schedule().await.unwrap();
    assert_eq!(world.life.approval(old.id).await.unwrap().state, ApprovalState::Void);
    world.life.tick().await.unwrap();
    assert!(open(&world).await.remove(0).plan_sha256.is_some());
    world.check().await;
}

pub(super) async fn author_of_a_plan_change_cannot_approve_the_scheduled_renewal(world: World) {
    let (certificate, first) = waiting(&world).await;
    world.life.approve(first.id, None, None, &person("user:carl")).await.unwrap();
    world.life.tick().await.unwrap();
    world.life.update(certificate, None, &named(&["b.example.org"]), "user:bob").await.unwrap();
    let renewal = world.life.get(certificate).await.unwrap().renew_at_us().unwrap();
    world.clock.set(renewal);
    world.life.tick().await.unwrap();
    let second = open(&world).await.remove(0);
    assert_eq!(second.requested_by, "system:renewal");
    refused(&world, second.id, &["user:bob"]).await;
    // Ann's plan was carried out. The renewal is the plan of the scheduler.
    world.life.approve(second.id, None, None, &person("user:ann")).await.unwrap();
    world.check().await;
}

pub(super) async fn requester_cannot_approve_under_another_identity(world: World) {
    // Ann's token made the request long ago.
    for noted in [person("token:ci").with("user:ann"), person("user:ann").with("email:ann@example.org")] {
        let note = world.store.write("note", move |tx| {
            let noted = noted.clone();
            async move { authority::tables::store_principal_marks(tx, &noted).await }.boxed()
        });
        note.await.unwrap();
    }
    let new = NewCertificate::new(&["a.example.org"], "careful");
    world.life.create(new, "token:ci").await.unwrap();
    world.life.tick().await.unwrap();
    let approval = open(&world).await.remove(0);
    refused(&world, approval.id, &["user:ann", "token:ci"]).await;
    for mark in ["user:ann", "email:ann@example.org"] {
        let other = person("certificate:laptop").with(mark);
        let other = world.life.approve(approval.id, None, None, &other).await;
        assert!(matches!(other, Err(ApprovalError::SamePerson(_))), "{mark}: {other:?}");
    }
    world.life.approve(approval.id, None, None, &person("token:bob").with("user:bob")).await.unwrap();
    world.check().await;
}

pub(super) async fn issuance_requires_the_number_of_approvals_of_the_profile(world: World) {
    let body = |days: u32| {
        let names = r#""names":{"dns_allowed":[".example.org"]}"#;
        let validity = format!(r#""validity":{{"default_seconds":{}}}"#, days * 86_400);
        let text =
            format!(r#"{{"name":"careful",{names},{validity},"requires_approval":true,"approvals":2}}"#);
        &*Box::leak(text.into_boxed_str())
    };
    profile(&world, body(30)).await;
    let (certificate, first) = waiting(&world).await;
    assert_eq!((first.progress.given, first.progress.needed), (0, 2));
    refused(&world, first.id, &["user:ann"]).await;
    world.life.approve(first.id, first.plan_sha256, Some("fine"), &person("user:bob")).await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.issuer("internal").made(), 0, "one of two");
    let half = world.life.approval(first.id).await.unwrap();
    assert_eq!((half.state, half.progress.given), (ApprovalState::Open, 1));
    assert_eq!(half.approvers, ["user:bob"]);
    // Bob is one person, whichever identity he uses.
    for identity in [person("user:bob"), person("token:ci").with("user:bob")] {
        let answer = world.life.approve(first.id, None, None, &identity).await;
        assert!(matches!(answer, Err(ApprovalError::Repeated { given: 1, needed: 2 })), "{answer:?}");
    }

    // The plan changes: Bob's approval was for the old plan.
    profile(&world, body(31)).await;
    let changed = world.life.approve(first.id, None, None, &person("user:carl")).await;
    assert!(matches!(changed, Err(ApprovalError::PlanChanged)), "{changed:?}");
    world.life.tick().await.unwrap();
    let second = open(&world).await.remove(0);
    assert_eq!((second.progress.given, second.progress.needed), (0, 2));
    world.life.approve(second.id, None, None, &person("user:carl")).await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.issuer("internal").made(), 0, "one of two");
    world.life.approve(second.id, None, None, &person("user:bob")).await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(certificate).await.unwrap().state, State::Active);
    let given = world.life.approval(second.id).await.unwrap();
    // Both approved at the same time, so they are sorted by name.
    assert_eq!(given.approvers, ["user:bob", "user:carl"]);
    assert_eq!(given.decided_by.as_deref(), Some("user:bob"));
    world.check().await;
}
