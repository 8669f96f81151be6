//! Tests of an agent from its token to a deployed certificate, with failures in between.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agent::AgentQuery;
use agent::client::{Agent, AgentRunError, WorkReport};
use agent::deploy::{Outcome, Target};
use enrollment::client::JoinOptions;
use serde_json::json;
use store::Clock;
use testbed::until;
use tokio_util::sync::CancellationToken;

use super::server::World;
use crate::deploy::world::target;

fn options(world: &World, token: zeroize::Zeroizing<String>) -> JoinOptions {
    JoinOptions {
        server: world.url(),
        token: token.into(),
        ca_pem: None,
        ca_sha256: Some(world.leaf),
        name: Some("web-1".to_owned()),
        state: world.state(),
    }
}

async fn enrolled(world: &World) -> uuid::Uuid {
    Agent::enroll(&options(world, world.token().await)).await.unwrap().agent
}

async fn opened(world: &World) -> Agent {
    opened_with(world, &world.files_allowed()).await
}

async fn opened_with(world: &World, policy: &str) -> Agent {
    Agent::open(&world.state(), world.policy(policy), Clock::system()).await.unwrap()
}

fn pair(world: &World) -> Target {
    target(json!({"type": "files", "fullchain": world.etc("f.pem"), "key": world.etc("k.pem")}))
}

fn files(world: &World, folder: &str) -> usize {
    std::fs::read_dir(world.state().join(folder)).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enrolled_agent_generates_a_key_and_deploys_the_issued_certificate() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    let row = world.agents.agent(agent).await.unwrap();
    assert_eq!((row.name.as_str(), row.labels.as_str()), ("web-1", r#"{"env":"prod"}"#));
    let target = world.source.order(agent, "a.example", pair(&world));
    let worked = opened(&world).await.work_once().await.unwrap();
    assert_eq!(worked, WorkReport { done: 2, failed: 0 });
    let results = world.source.results();
    assert_eq!((results.len(), results[0].outcome, results[0].target), (1, Outcome::Deployed, Some(target)));
    assert_eq!(Some(std::fs::read_to_string(world.etc("f.pem")).unwrap()), world.source.chain_pem());
    // The key was generated on this host and never leaves it. Only the CSR was sent.
    let key = std::fs::read_to_string(world.etc("k.pem")).unwrap();
    let key = keys::PrivateKey::from_pem(&key).unwrap();
    let csrs = world.source.csrs();
    assert_eq!(csrs.len(), 1);
    let csr = x509::csr::CertificateRequest::parse(&csrs[0]).unwrap();
    assert_eq!(&*csr.public_key.spki, keys::Signer::spki(&key));
    assert_eq!((files(&world, "csr"), files(&world, "keys")), (0, 1), "the CSR has done its work");
    let status = Agent::status(&world.state()).unwrap().unwrap();
    assert_eq!((status.agent, status.certificates.len(), status.cut_off), (agent, 1, 0));
    assert_eq!(status.certificates[0].names, ["a.example"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_agent_reuses_its_key_and_csr() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    world.source.order(agent, "a.example", pair(&world));
    // The request is processed, but its response is lost. The agent is stopped and started again.
    world.source.lose_next_answer();
    let mut first = opened(&world).await;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let running = tokio::spawn(async move {
        let ended = first.run(stopping).await;
        drop(first);
        ended
    });
    while world.source.csrs().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.abort();
    let _ = running.await;
    assert_eq!(files(&world, "keys"), 1);
    assert_eq!(opened(&world).await.work_once().await.unwrap().failed, 0);
    let csrs = world.source.csrs();
    assert!(csrs.len() >= 2, "sent again");
    assert!(csrs.iter().all(|csr| *csr == csrs[0]), "the same request, bit for bit");
    assert_eq!(files(&world, "keys"), 1, "and the same key");
    assert_eq!(world.source.results()[0].outcome, Outcome::Deployed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_agent_is_woken_by_work_and_reconnects_after_an_outage() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    let mut running = opened(&world).await;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let task = tokio::spawn(async move { running.run(stopping).await });
    while world.source.polls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let first = world.source.order(agent, "a.example", pair(&world));
    world.agents.wake(agent);
    until("the CSR", || !world.source.csrs().is_empty()).await;
    // The certificate exists now. The issuing server wakes the agent.
    world.agents.wake(agent);
    until("the deployment", || world.source.is_deployed(first)).await;

    world.unavailable.store(true, Ordering::SeqCst);
    world.agents.wake(agent);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let second = world.source.order(agent, "b.example", pair(&world));
    world.unavailable.store(false, Ordering::SeqCst);
    world.agents.wake(agent);
    until("the second deployment", || {
        world.agents.wake(agent);
        world.source.is_deployed(second)
    })
    .await;
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enrollment_repeated_after_a_lost_response_yields_the_same_agent() {
    let world = World::new().await;
    let token = world.token().await;
    let first = Agent::enroll(&options(&world, token.clone())).await.unwrap();
    // As after a lost response: the key is stored, the agent is not.
    std::fs::remove_file(world.state().join("agent.json")).unwrap();
    std::fs::remove_file(world.state().join("identity.pem")).unwrap();
    let repeated = Agent::enroll(&options(&world, token.clone())).await.unwrap();
    assert_eq!(first.agent, repeated.agent);
    // An enrolled agent cannot enrol again.
    let twice = Agent::enroll(&options(&world, token.clone())).await.unwrap_err();
    assert!(matches!(twice, AgentRunError::Enrolled { .. }), "{twice}");
    // Another host with the same token is rejected.
    let other = JoinOptions { state: world.folder.path().join("other"), ..options(&world, token) };
    let error = Agent::enroll(&other).await.unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("unknown, used, or expired"), "{error}");
    assert_eq!(world.agents.list(&AgentQuery::default(), None, 10).await.unwrap().rows.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_the_pinned_ca_is_rejected_before_the_token_is_spent() {
    let world = World::new().await;
    let token = world.token().await;
    let wrong =
        JoinOptions { ca_sha256: Some(x509::Fingerprint::of(b"another")), ..options(&world, token.clone()) };
    assert!(Agent::enroll(&wrong).await.unwrap_err().to_string().contains("does not answer"));
    let stranger = crate::deploy::world::Issuer::new();
    let wrong =
        JoinOptions { ca_pem: Some(stranger.root_pem()), ca_sha256: None, ..options(&world, token.clone()) };
    assert!(Agent::enroll(&wrong).await.is_err());
    // The token is still valid, and the root certificate can replace the fingerprint.
    let right =
        JoinOptions { ca_pem: Some(world.issuer.root_pem()), ca_sha256: None, ..options(&world, token) };
    Agent::enroll(&right).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_ca_above_the_server_certificate_is_accepted() {
    let world = World::new().await;
    let above = world.issuer.chain(
        "x",
        keys::Signer::spki(&keys::PrivateKey::generate(keys::KeyType::P256).unwrap()),
        &[],
    );
    let pinned = JoinOptions {
        ca_sha256: Some(x509::Fingerprint::of(&above[1])),
        ..options(&world, world.token().await)
    };
    Agent::enroll(&pinned).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retired_agent_and_foreign_key_with_its_name_get_no_work() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    // The CA would certify any key for that name. The key is still not the agent's key.
    let key = keys::PrivateKey::generate(keys::KeyType::P256).unwrap();
    let name = x509::GeneralName::Uri(agent::agent_uri(agent));
    let names = x509::build::Extension::subject_alt_names(&[name]);
    let shown = world.issuer.chain("agent", keys::Signer::spki(&key), &[names]);
    let error = world.agents.check_key(agent, &shown[0]).await.unwrap_err();
    assert!(matches!(error, agent::AgentError::OtherKey), "{error}");

    world.agents.retire(agent, "user:alice").await.unwrap();
    let error = opened(&world).await.work_once().await.unwrap_err().to_string();
    assert!(error.contains("403") && error.contains("retired"), "{error}");
    assert!(world.agents.retire(agent, "user:alice").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_is_renewed_before_it_expires() {
    let world = World::new().await;
    enrolled(&world).await;
    let certificate = || std::fs::read(world.state().join("identity.pem")).unwrap();
    let before = certificate();
    opened(&world).await.work_once().await.unwrap();
    assert_eq!(certificate(), before, "too early");
    // 70 of the 90 days of its lifetime later. TLS uses the real time.
    let later = Clock::manual(Clock::system().now_us() + 70 * x509::DAY * 1_000_000);
    let mut agent = Agent::open(&world.state(), world.policy(""), later).await.unwrap();
    agent.work_once().await.unwrap();
    assert_ne!(certificate(), before);
    // The agent connects with the new certificate.
    drop(agent);
    opened(&world).await.work_once().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_deployment_is_reported_with_its_reason() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    let failing = target(json!({"type": "files", "fullchain": world.etc("f.pem"), "key": world.etc("k.pem"),
        "validate": ["sh", "-c", "echo no, thanks; exit 1"]}));
    world.source.order(agent, "a.example", failing);
    let user = rustix::process::geteuid().as_raw();
    let command =
        format!("[commands.no]\nargv = [\"sh\", \"-c\", \"echo no, thanks; exit 1\"]\nuser = \"{user}\"\n");
    let mut agent = opened_with(&world, &(world.files_allowed() + &command)).await;
    assert_eq!(agent.work_once().await.unwrap(), WorkReport { done: 1, failed: 1 });
    let results = world.source.results();
    assert_eq!(results[0].outcome, Outcome::RolledBack);
    assert!(results[0].error_text().unwrap().contains("no, thanks"));
    assert!(!world.etc("k.pem").exists());
    assert_eq!(files(&world, "keys"), 1, "the key is kept for the next try");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_names_are_reported_and_no_key_is_generated() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    world.source.order(agent, "not a name", pair(&world));
    assert_eq!(opened(&world).await.work_once().await.unwrap(), WorkReport { done: 0, failed: 1 });
    assert_eq!(world.source.results()[0].outcome, Outcome::Failed);
    assert_eq!(files(&world, "keys"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_policy_lines_are_reported_and_nothing_is_written() {
    let world = World::new().await;
    let agent = enrolled(&world).await;
    let job = target(json!({"type": "files", "fullchain": world.etc("f.pem"), "key": world.etc("k.pem"),
        "reload": ["touch", world.etc("run")]}));
    world.source.order(agent, "a.example", job);
    let mut opened = opened_with(&world, "").await;
    assert_eq!(opened.work_once().await.unwrap(), WorkReport { done: 1, failed: 1 });
    let results = world.source.results();
    assert_eq!(results[0].outcome, Outcome::Failed, "nothing was changed");
    let error = results[0].error_text().unwrap();
    for line in [
        format!("\n[[files]]\npath = \"{}\"\n", world.etc("k.pem").display()),
        format!("argv = [\"touch\", \"{}\"]\n", world.etc("run").display()),
    ] {
        assert!(error.contains(&line), "{line}: {error}");
    }
    assert_eq!(std::fs::read_dir(world.etc("")).unwrap().count(), 0);
}
