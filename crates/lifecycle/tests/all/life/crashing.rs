//! Crash tests in pairs: before a commit, when nothing was stored, and after it, when the caller got no result.

use lifecycle::managed::NewCertificate;
use lifecycle::state::State;
use lifecycle::tables::managed::ManagedFilter;
use lifecycle::{CreateError, RevokeRequest, Selection};
use store::Fault;
use x509::crl::Reason;

use super::world::{DAY, Step, World};

const FAULTS: [Fault; 2] = [Fault::BeforeCommit, Fault::AfterCommit];
const STEPS: [Step; 3] = [Step::Claim, Step::Begin, Step::Finish];

/// Asserts one version for each run, one certificate made for each run, and no unfinished work.
async fn whole(world: &World, runs: usize) {
    let page = world
        .life
        .page(&ManagedFilter::default(), lifecycle::tables::managed::ManagedOrder::Created, None, 100)
        .await
        .unwrap();
    let mut versions = 0;
    for certificate in &page.rows {
        assert_eq!(certificate.state, State::Active, "{certificate:?}");
        assert!(certificate.renew_at_us().is_some());
        versions += world.life.versions(certificate.id, None, 100).await.unwrap().rows.len();
    }
    assert_eq!(versions, runs);
    assert_eq!(world.issuer("internal").made(), runs);
    assert_eq!(world.life.under_way().values().sum::<usize>(), 0);
    world.check().await;
}

pub(super) async fn crash_at_any_step_loses_nothing_and_issues_nothing_twice(world: World) {
    let mut runs = 0;
    for step in STEPS {
        for fault in FAULTS {
            let name = format!("n{runs}.example.org");
            world.life.create(NewCertificate::new(&[&name], "web"), "user:ann").await.unwrap();
            world.fail_at(step, fault);
            let _ = world.life.tick().await;
            world.settle().await;
            runs += 1;
            whole(&world, runs).await;
        }
    }
    // The same at a concurrent renewal of all certificates.
    for step in STEPS {
        for fault in FAULTS {
            world.advance(80 * DAY);
            world.fail_at(step, fault);
            let _ = world.life.tick().await;
            world.settle().await;
            runs += 6;
            whole(&world, runs).await;
        }
    }
}

pub(super) async fn two_consecutive_crashes_lose_nothing_and_issue_nothing_twice(world: World) {
    let mut runs = 0;
    for (first, second) in [
        (Step::Claim, Step::Begin),
        (Step::Begin, Step::Finish),
        (Step::Finish, Step::Claim),
        (Step::Begin, Step::Begin),
    ] {
        for fault in FAULTS {
            let name = format!("n{runs}.example.org");
            world.life.create(NewCertificate::new(&[&name], "web"), "user:ann").await.unwrap();
            world.fail_at(first, fault);
            let _ = world.life.tick().await;
            world.advance(10 * 60 * 1_000_000);
            world.fail_at(second, Fault::AfterCommit);
            let _ = world.life.tick().await;
            world.settle().await;
            runs += 1;
            whole(&world, runs).await;
        }
    }
}

pub(super) async fn crash_during_creation_stores_all_or_nothing(world: World) {
    let new = || NewCertificate::new(&["a.example.org"], "web");
    world.fail_next(Fault::BeforeCommit);
    let failure = world.life.create(new(), "user:ann").await.unwrap_err();
    assert!(matches!(&failure, CreateError::Data(error) if error.is_transient()), "{failure}");
    assert!(world.life.named("a.example.org").await.is_err());
    world.fail_next(Fault::AfterCommit);
    assert!(world.life.create(new(), "user:ann").await.is_err());
    // The certificate and its run exist, although the caller got no result.
    world.settle().await;
    whole(&world, 1).await;
    assert!(world.life.create(new(), "user:ann").await.is_err());
}

pub(super) async fn crash_during_revocation_revokes_once(world: World) {
    for (number, fault) in FAULTS.into_iter().enumerate() {
        for before_the_call in [true, false] {
            let certificate = world.issued(&format!("n{number}{before_the_call}.example.org")).await;
            if before_the_call {
                world.fail_next(fault);
            } else {
                world.fail_at(Step::RevokeFinish, fault);
            }
            let selection = Selection::Ids(vec![certificate.id]);
            let request = RevokeRequest { reason: Reason::Superseded, replace: false };
            let interrupted = world.life.revoke(&selection, request.clone(), "user:ann").await;
            assert!(interrupted.is_err(), "{interrupted:?}");
            world.settle().await;
            // A caller without a result repeats the request. Completed work is not repeated.
            let repeated = world.life.revoke(&selection, request, "user:ann").await.unwrap();
            assert_eq!(repeated.done + repeated.already, 1);
            let revoked = world.life.get(certificate.id).await.unwrap();
            assert_eq!(revoked.state, State::Revoked);
            assert_eq!(revoked.run, None);
            world.check().await;
        }
    }
}
