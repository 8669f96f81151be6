//! Tests of enrolment tokens, labels, groups and presence.

use std::time::Duration;

use agent::work::HostFacts;
use agent::{AgentError, AgentQuery, Labels, NewToken, OFFLINE_AFTER};
use store::{AuditFilter, Clock};

use super::server::World;

fn labels(of: &[(&str, &str)]) -> Labels {
    of.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn token_is_returned_once_and_stored_as_a_hash() {
    let world = World::new().await;
    let made = world
        .agents
        .create_token(NewToken { labels: Labels::new(), seconds: 60 }, "user:alice")
        .await
        .unwrap();
    assert!(made.token.starts_with("bulla-enroll-") && made.token.len() == 56, "{}", made.token.len());
    let database = std::fs::read(world.folder.path().join("bulla.db")).unwrap();
    let log = std::fs::read(world.folder.path().join("bulla.db-wal")).unwrap_or_default();
    for bytes in [database, log] {
        assert!(!bytes.windows(made.token.len()).any(|window| window == made.token.as_bytes()));
    }
    let listed = world.agents.tokens(None, 10).await.unwrap();
    assert_eq!(listed.rows, std::slice::from_ref(&made.row));
    world.agents.delete_token(made.row.id, "user:alice").await.unwrap();
    assert!(matches!(world.agents.delete_token(made.row.id, "x").await, Err(AgentError::NotFound(_))));
    for (new, part) in [
        (NewToken { labels: Labels::new(), seconds: 0 }, "seconds"),
        (NewToken { labels: Labels::new(), seconds: i64::MAX }, "seconds"),
        (NewToken { labels: labels(&[("a=b", "c")]), seconds: 60 }, "label"),
        (NewToken { labels: labels(&[("", "c")]), seconds: 60 }, "label"),
    ] {
        let error = world.agents.create_token(new, "user:alice").await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let audit = world.store.audit_page(&AuditFilter::default(), None, 10).await.unwrap();
    let actions: Vec<_> = audit.rows.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["agent_token.delete", "agent_token.create"]);
}

#[tokio::test]
async fn group_rejects_duplicate_name_stale_revision_and_empty_selector() {
    let world = World::new().await;
    let group = world
        .agents
        .put_group("web", &labels(&[("env", "prod")]), "the front", None, "user:alice")
        .await
        .unwrap();
    assert_eq!((group.revision, group.selector.as_str()), (1, r#"{"env":"prod"}"#));
    let taken = world.agents.put_group("web", &labels(&[("a", "b")]), "", None, "user:alice").await;
    assert!(matches!(taken, Err(AgentError::NameTaken(_))));
    let stale = world.agents.put_group("web", &labels(&[("a", "b")]), "", Some(9), "user:alice").await;
    assert!(matches!(stale, Err(AgentError::Changed)));
    let empty = world.agents.put_group("all", &Labels::new(), "", None, "user:alice").await;
    assert!(matches!(empty, Err(AgentError::Invalid(_))));
    world.agents.delete_group("web", "user:alice").await.unwrap();
    assert!(matches!(world.agents.group("web").await, Err(AgentError::NotFound(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_agent_is_online_until_it_stops() {
    let clock = Clock::manual(Clock::system().now_us());
    let world = World::with_life(Some(clock.clone())).await;
    let request = agent::work::Enrolment {
        token: world.token().await.to_string(),
        csr_pem: csr(),
        name: None,
        facts: HostFacts { hostname: "host-1".to_owned(), ..HostFacts::default() },
    };
    let agent = world.agents.enroll(&request).await.unwrap();
    assert_eq!(agent.name, "host-1");
    let same_name =
        agent::work::Enrolment { token: world.token().await.to_string(), csr_pem: csr(), ..request };
    let second = world.agents.enroll(&same_name).await.unwrap();
    assert!(second.name.starts_with("host-1-"), "{}", second.name);

    clock.advance(OFFLINE_AFTER + Duration::from_secs(1));
    let facts = HostFacts { hostname: "host-1".to_owned(), version: "9".to_owned(), ..HostFacts::default() };
    world.agents.poll(agent.agent, facts, 0).await.unwrap();
    let online = AgentQuery { online: Some(true), ..AgentQuery::default() };
    for _ in 0..6_000 {
        if !world.agents.list(&online, None, 10).await.unwrap().rows.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rows = world.agents.list(&online, None, 10).await.unwrap().rows;
    assert_eq!((rows.len(), rows[0].id, rows[0].facts.version.as_str()), (1, agent.agent, "9"));
    assert!(world.agents.is_online(&rows[0]));
    let counts = world.agents.counts().await.unwrap();
    assert_eq!((counts.online, counts.offline), (1, 1));
    let prod = AgentQuery { labels: labels(&[("env", "prod")]), ..AgentQuery::default() };
    assert_eq!(world.agents.list(&prod, None, 10).await.unwrap().rows.len(), 2);

    let changed = world
        .agents
        .update(agent.agent, 1, Some("front".to_owned()), Some(labels(&[("env", "test")])), "user:alice")
        .await
        .unwrap();
    assert_eq!((changed.name.as_str(), changed.revision), ("front", 2));
    let taken = world.agents.update(agent.agent, 2, Some(second.name.clone()), None, "user:alice").await;
    assert!(matches!(taken, Err(AgentError::NameTaken(_))));
    let stale = world.agents.update(agent.agent, 1, None, None, "user:alice").await;
    assert!(matches!(stale, Err(AgentError::Changed)));
}

fn csr() -> String {
    let key = keys::PrivateKey::generate(keys::KeyType::P256).unwrap();
    let subject = x509::DistinguishedName::empty();
    let tbs = x509::csr::tbs(&subject.der, keys::Signer::spki(&key), &[], None);
    let der = x509::build::signed(&tbs, &keys::Signer::algorithm(&key), &key.sign_now(&tbs).unwrap());
    x509::pem::encode("CERTIFICATE REQUEST", &der)
}

#[tokio::test]
async fn csr_with_invalid_signature_is_rejected_and_the_token_not_spent() {
    let world = World::new().await;
    let token = world.token().await;
    let good = csr();
    let (_, mut der) = x509::pem::blocks(good.as_bytes()).next().unwrap();
    let last = der.len() - 1;
    der[last] ^= 1;
    let enrol = |csr_pem: String| agent::work::Enrolment {
        token: token.to_string(),
        csr_pem,
        name: None,
        facts: HostFacts::default(),
    };
    for bad in [x509::pem::encode("CERTIFICATE REQUEST", &der), "nothing".to_owned()] {
        let error = world.agents.enroll(&enrol(bad)).await.unwrap_err();
        assert!(matches!(error, agent::EnrolError::Csr(_)), "{error}");
    }
    world.agents.enroll(&enrol(good)).await.unwrap();
}
