//! Tests of agents that generate and use keys on their hosts, and deploy certificates there.

use agent::deploy::Outcome;
use agent::tables::{TargetSettings, insert_target, update_target};
use agent::work::{AgentJob, JobResult, Work, WorkSource};
use authority::principal::Principal;
use futures_util::FutureExt;
use keys::{KeyType, PrivateKey, Signer};
use lifecycle::approval::ApprovalState;
use lifecycle::job::JobId;
use lifecycle::managed::{CertificateChange, KeyLocation, NewCertificate, TargetRef};
use lifecycle::state::State;
use lifecycle::{CsrError, DataError, ExportError, ExportFormat, LifecycleActionError, Selection};
use store::AuditFilter;
use store::states::DeploymentState;
use uuid::Uuid;
use x509::build::{Extension, signed};
use x509::csr;
use x509::{DistinguishedName, GeneralName};

use super::world::{DAY, HOUR, World};

const TARGET: &str =
    r#"{"type":"files","fullchain":{"path":"/tmp/fullchain.pem"},"key":{"path":"/tmp/key.pem"}}"#;

pub(super) async fn target(world: &World, agent: Uuid, name: &str) -> TargetRef {
    let target = Uuid::now_v7();
    let settings = TargetSettings {
        name: name.to_owned(),
        agent,
        kind: "files".to_owned(),
        config: TARGET.to_owned(),
        secrets: None,
    };
    let now = world.clock.now_us();
    let stored = world
        .store
        .write("target", move |tx| async move { insert_target(tx, target, &settings, now).await }.boxed());
    stored.await.unwrap();
    TargetRef::Deploy { target, agent }
}

fn request(kind: KeyType, names: &[String]) -> (PrivateKey, Vec<u8>) {
    let key = PrivateKey::generate(kind).unwrap();
    let names: Vec<GeneralName> = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
    let extensions = [Extension::subject_alt_names(&names).critical(true)];
    let tbs = csr::tbs(&DistinguishedName::empty().der, key.spki(), &extensions, None);
    let signature = key.sign_now(&tbs).unwrap();
    let der = signed(&tbs, &key.algorithm(), &signature);
    (key, der)
}

pub(super) async fn jobs(world: &World, agent: Uuid) -> Vec<AgentJob> {
    WorkSource::jobs_for_agent(&world.life, agent, 16).await.unwrap()
}

pub(super) fn good(target: &TargetRef) -> JobResult {
    let TargetRef::Deploy { target, .. } = target else { panic!("{target:?}") };
    JobResult {
        outcome: Outcome::Deployed,
        target: Some(*target),
        error: None,
        rollback_error: None,
        served: None,
    }
}

pub(super) fn bad(error: &str) -> JobResult {
    JobResult::failed(None, error)
}

/// Creates a certificate with an agent key and targets, up to its CSR job.
async fn wanted(world: &World, agent: Uuid, targets: &[TargetRef]) -> (Uuid, JobId) {
    let mut new = NewCertificate::new(&["a.example.org", "10.0.0.1"], "web");
    new.key_location = KeyLocation::Agent { agent };
    new.targets = targets.to_vec();
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    (created.certificate, created.job.unwrap())
}

pub(super) async fn agent_generates_the_key_and_deploys_the_certificate(world: World) {
    let agent = world.agent().await;
    assert!(jobs(&world, agent).await.is_empty());
    let targets = [target(&world, agent, "one").await, target(&world, agent, "two").await];
    let (id, job) = wanted(&world, agent, &targets).await;
    assert_eq!(world.life.get(id).await.unwrap().state, State::AwaitingCsr);
    assert!(jobs(&world, Uuid::now_v7()).await.is_empty());
    let offered = jobs(&world, agent).await;
    let Work::Csr { key_type, names, .. } = &offered[0].work else { panic!("{offered:?}") };
    assert_eq!((offered.len(), offered[0].job, *key_type), (1, job.0, KeyType::P256));
    // A restarted agent gets no second job and generates no new key.
    assert!(jobs(&world, agent).await.is_empty());
    let (key, csr) = request(KeyType::P256, names);
    world.life.accept_csr(job, agent, &csr).await.unwrap();
    world.life.accept_csr(job, agent, &csr).await.unwrap();
    world.life.tick().await.unwrap();
    let issued = world.life.get(id).await.unwrap();
    assert_eq!(issued.state, State::Deploying);
    let versions = world.life.versions(id, None, 10).await.unwrap().rows;
    assert!(!versions[0].key_here);
    let leaf = x509::Certificate::parse(&versions[0].chain[0]).unwrap();
    assert_eq!(&*leaf.public_key.spki, key.spki());

    let offered = jobs(&world, agent).await;
    assert_eq!(offered.len(), 2);
    for (done, job) in offered.iter().enumerate() {
        let Work::Deploy { chain_pem, key_pem, target } = &job.work else { panic!("{job:?}") };
        assert!(chain_pem.contains("BEGIN CERTIFICATE") && key_pem.is_none());
        assert_eq!(world.life.get(id).await.unwrap().state, State::Deploying);
        let target_ref = TargetRef::Deploy { target: target.id, agent };
        assert!(targets.contains(&target_ref));
        let strange = world.life.deployed(JobId(job.job), Uuid::now_v7(), &good(&target_ref)).await;
        assert!(matches!(strange, Err(DataError::NotFound { .. })));
        world.life.deployed(JobId(job.job), agent, &good(&target_ref)).await.unwrap();
        world.life.deployed(JobId(job.job), agent, &good(&target_ref)).await.unwrap();
        assert_eq!(world.life.get(id).await.unwrap().state == State::Active, done == 1);
    }
    assert_eq!(
        agent::tables::Agents::of(&world.store)
            .deployments_of_certificate(id, None, 10)
            .await
            .unwrap()
            .rows
            .len(),
        2
    );
    assert_eq!(world.issuer("internal").made(), 1);
    world.check().await;
}

pub(super) async fn csr_that_differs_from_the_job_is_rejected(world: World) {
    let agent = world.agent().await;
    let (id, job) = wanted(&world, agent, &[]).await;
    let names: Vec<String> = vec!["a.example.org".to_owned(), "10.0.0.1".to_owned()];
    let refused = |csr: Vec<u8>| {
        let life = world.life.clone();
        async move { life.accept_csr(job, agent, &csr).await.unwrap_err().to_string() }
    };
    assert!(refused(vec![1, 2, 3]).await.starts_with("the CSR is rejected:"));
    let more = [&names[..], &["evil.example".to_owned()]].concat();
    assert!(refused(request(KeyType::P256, &more).1).await.contains("other names"));
    assert!(refused(request(KeyType::P256, &names[..1]).1).await.contains("other names"));
    assert!(refused(request(KeyType::P384, &names).1).await.contains("the key type is p384, expected p256"));
    let mut forged = request(KeyType::P256, &names).1;
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert!(refused(forged).await.contains("no valid proof of possession"));
    let good = request(KeyType::P256, &names).1;
    let other = world.life.accept_csr(job, Uuid::now_v7(), &good).await;
    assert!(matches!(other, Err(CsrError::Data(DataError::NotFound { .. }))));
    world.life.accept_csr(job, agent, &good).await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(id).await.unwrap().state, State::Active);
    // A second CSR is too late.
    let late = world.life.accept_csr(job, agent, &request(KeyType::P256, &names).1).await;
    assert!(matches!(late, Err(CsrError::NotWaiting(_))));
    world.check().await;
}

pub(super) async fn failed_deployment_is_retried_and_finally_fails(world: World) {
    let agent = world.agent().await;
    let target_ref = target(&world, agent, "one").await;
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.targets = vec![target_ref.clone()];
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let offered = jobs(&world, agent).await;
    let Work::Deploy { key_pem, .. } = &offered[0].work else { panic!("{offered:?}") };
    // The key is on this server. The agent needs it, and the audit log records that it got it.
    assert!(key_pem.is_some());
    let filter = AuditFilter { action: Some("certificate.give_key".to_owned()), ..AuditFilter::default() };
    let log = world.store.audit_page(&filter, None, 10).await.unwrap().rows;
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].actor, format!("agent:{agent}"));
    assert_eq!(log[0].resource, format!("certificate/{}", created.certificate));
    assert!(!log[0].details.contains("PRIVATE"), "{}", log[0].details);
    let job = JobId(offered[0].job);
    for attempt in 1..10 {
        world.life.deployed(job, agent, &bad("nginx -t says no")).await.unwrap();
        let now = world.life.job(job).await.unwrap();
        assert_eq!((now.attempts, now.state.name()), (attempt, "queued"));
        assert!(jobs(&world, agent).await.is_empty());
        world.clock.set(now.next_attempt_at_us);
        assert_eq!(jobs(&world, agent).await.len(), 1);
    }
    world.life.deployed(job, agent, &bad("nginx -t says no")).await.unwrap();
    let failed = world.life.get(created.certificate).await.unwrap();
    assert_eq!(failed.state, State::Failed);
    assert_eq!(failed.last_error.as_deref(), Some("nginx -t says no"));
    // The version exists and can be deployed again.
    world.life.redeploy(created.certificate, "user:ann").await.unwrap();
    let offered = jobs(&world, agent).await;
    assert_ne!(offered[0].job, job.0);
    world.life.deployed(JobId(offered[0].job), agent, &good(&target_ref)).await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    world.check().await;
}

pub(super) async fn run_expires_when_the_agent_sends_no_csr(world: World) {
    let agent = world.agent().await;
    let (id, job) = wanted(&world, agent, &[]).await;
    assert_eq!(jobs(&world, agent).await.len(), 1);
    // The job is offered again after a while, even if the agent failed.
    world.advance(HOUR);
    assert_eq!(jobs(&world, agent).await.len(), 1);
    world.life.deployed(job, agent, &bad("no entropy")).await.unwrap();
    assert_eq!(world.life.get(id).await.unwrap().last_error.as_deref(), Some("no entropy"));
    world.advance(HOUR);
    assert_eq!(jobs(&world, agent).await.len(), 1);
    world.advance(4 * DAY);
    assert_eq!(world.life.schedule().await.unwrap().lapsed, 1);
    let failed = world.life.get(id).await.unwrap();
    assert_eq!(failed.state, State::Failed);
    assert!(jobs(&world, agent).await.is_empty());
    // The next run is scheduled.
    world.clock.set(failed.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    assert_eq!(jobs(&world, agent).await.len(), 1);
    world.check().await;
}

pub(super) async fn unreported_deployment_expires_after_days(world: World) {
    let agent = world.agent().await;
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.targets = vec![target(&world, agent, "one").await, target(&world, agent, "two").await];
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(jobs(&world, agent).await.len(), 2);
    // When the lease expires, the job is offered again. Days later it is given up.
    world.advance(HOUR);
    world.life.schedule().await.unwrap();
    assert_eq!(jobs(&world, agent).await.len(), 2);
    world.advance(4 * DAY);
    world.life.schedule().await.unwrap();
    let failed = world.life.get(created.certificate).await.unwrap();
    assert_eq!((failed.state, failed.failures), (State::Failed, 1));
    assert!(jobs(&world, agent).await.is_empty());
    let all = agent::tables::Agents::of(&world.store)
        .deployments_of_certificate(created.certificate, None, 10)
        .await
        .unwrap()
        .rows;
    assert!(all.iter().all(|one| one.state == DeploymentState::Cancelled), "{all:?}");
    // The renewal is still scheduled.
    assert!(failed.renew_at_us().is_some());
    world.check().await;
}

pub(super) async fn unknown_agents_and_targets_are_rejected(world: World) {
    let (agent, other) = (world.agent().await, world.agent().await);
    let target_ref = target(&world, agent, "one").await;
    let TargetRef::Deploy { target, .. } = target_ref else { panic!("{target_ref:?}") };
    let with = |change: &dyn Fn(&mut NewCertificate)| {
        let mut new = NewCertificate::new(&["a.example.org"], "web");
        change(&mut new);
        let life = world.life.clone();
        async move { life.create(new, "user:ann").await.unwrap_err().to_string() }
    };
    let nobody = Uuid::now_v7();
    let error = with(&|new| new.key_location = KeyLocation::Agent { agent: nobody }).await;
    assert_eq!(error, format!("unknown agent \"{nobody}\"; create it first"));
    let error = with(&|new| new.targets = vec![TargetRef::Deploy { target: nobody, agent }]).await;
    assert_eq!(error, format!("unknown target \"{nobody}\"; create it first"));
    let error = with(&|new| new.targets = vec![TargetRef::Deploy { target, agent: other }]).await;
    assert_eq!(error, format!("unknown target of the agent \"{other}\"; create it first"));
    world.check().await;
}

pub(super) async fn newer_version_cancels_the_deployment_of_the_older(world: World) {
    let agent = world.agent().await;
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.targets = vec![target(&world, agent, "one").await];
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let old = jobs(&world, agent).await.remove(0);
    world.life.renew(&Selection::Ids(vec![created.certificate]), "asked", "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let new = jobs(&world, agent).await;
    assert_eq!(new.len(), 1);
    assert_ne!(new[0].job, old.job);
    // A late report changes nothing.
    world.life.deployed(JobId(old.job), agent, &bad("late")).await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Deploying);
    let Work::Deploy { target, .. } = &new[0].work else { panic!("{new:?}") };
    let target_ref = TargetRef::Deploy { target: target.id, agent };
    world.life.deployed(JobId(new[0].job), agent, &good(&target_ref)).await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    world.check().await;
}

/// Changes the settings of a target, which increases its revision.
async fn move_target(world: &World, target: &TargetRef, revision: i64) {
    let TargetRef::Deploy { target, agent } = *target else { panic!("{target:?}") };
    let settings = TargetSettings {
        name: "elsewhere".to_owned(),
        agent,
        kind: "files".to_owned(),
        config: TARGET.replace("/tmp/key.pem", "/tmp/everyone.pem"),
        secrets: None,
    };
    let moved = world.store.write("target", move |tx| {
        let settings = settings.clone();
        async move { update_target(tx, target, revision, &settings, 2).await }.boxed()
    });
    assert!(moved.await.unwrap());
}

/// Approves the only open approval, and runs the scheduler.
async fn approve(world: &World) {
    let open = world.life.approvals(ApprovalState::Open, None, 10).await.unwrap().rows.remove(0);
    world.life.approve(open.id, None, None, &Principal::from_actor("user:bob")).await.unwrap();
    world.life.tick().await.unwrap();
}

pub(super) async fn key_of_a_guarded_certificate_is_sent_to_approved_targets_only(world: World) {
    let agent = world.agent().await;
    let (one, two) = (target(&world, agent, "one").await, target(&world, agent, "two").await);
    let mut new = NewCertificate::new(&["a.example.org"], "careful");
    new.targets = vec![one.clone()];
    let id = world.life.create(new, "user:ann").await.unwrap().certificate;
    world.life.tick().await.unwrap();
    approve(&world).await;

    // The target changed after the approval and before its agent asks for work.
    move_target(&world, &one, 1).await;
    assert!(jobs(&world, agent).await.is_empty());
    let failed = world.life.get(id).await.unwrap();
    assert!(failed.last_error.as_deref().is_some_and(|error| error.contains("approved plan")), "{failed:?}");
    let second = world.life.redeploy(id, "user:ann").await;
    assert!(matches!(second, Err(LifecycleActionError::NotApproved(_))), "{second:?}");
    let export = world.life.export(id, &ExportFormat::ChainAndKey, "user:ann").await.map(drop);
    assert!(matches!(export, Err(ExportError::NotApproved(_))), "{export:?}");
    world.life.export(id, &ExportFormat::Chain, "user:ann").await.map(drop).unwrap();

    // The renewal shows the target as it is now, and another one.
    let both = CertificateChange { targets: Some(vec![one, two]), ..CertificateChange::default() };
    world.life.update(id, None, &both, "user:ann").await.unwrap();
    world.life.renew(&Selection::Ids(vec![id]), "asked", "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    approve(&world).await;
    let offered = jobs(&world, agent).await;
    let keys = offered.iter().filter(|job| matches!(&job.work, Work::Deploy { key_pem: Some(_), .. }));
    assert_eq!(keys.count(), 2, "{offered:?}");
    world.check().await;
}
