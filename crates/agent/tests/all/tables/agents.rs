//! Tests of agents, tokens, groups, targets and deployments.

use agent::tables::{
    AgentFacts, AgentFilter, AgentRow, AgentTokenRow, DeploymentResult, NewDeployment, TargetSettings,
    cancel_deployments, delete_target, finish_deployments, insert_agent, insert_agent_group,
    insert_agent_token, insert_deployments, insert_target, open_deployments, retire_agent,
    set_agent_certificate, set_agents_last_seen, update_agent, update_agent_group, update_target,
    use_agent_token,
};
use store::Store;
use store::states::DeploymentState;
use uuid::Uuid;

use testbed::tables::{NOW, World};

const SECOND: i64 = 1_000_000;

fn agent(name: &str, key: u8) -> AgentRow {
    let facts = AgentFacts {
        hostname: name.to_owned(),
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        version: "1".to_owned(),
        addresses: "[]".to_owned(),
    };
    AgentRow {
        id: Uuid::now_v7(),
        name: name.to_owned(),
        labels: "{}".to_owned(),
        spki_sha256: [key; 32],
        not_after_us: NOW,
        facts,
        revision: 1,
        enrolled_at_us: NOW,
        last_seen_at_us: NOW,
        retired_at_us: None,
    }
}

async fn enter(store: &Store, agent: &AgentRow, labels: &[(&str, &str)]) -> bool {
    let agent = agent.clone();
    let labels: Vec<_> =
        labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    store
        .write("test", move |tx| Box::pin(async move { insert_agent(tx, &agent, &labels).await }))
        .await
        .unwrap()
}

async fn names(store: &Store, filter: &AgentFilter) -> Vec<String> {
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let page = agent::tables::Agents::of(store).page(filter, after.as_ref(), 2).await.unwrap();
        names.extend(page.rows.into_iter().map(|agent| agent.name));
        match page.next {
            Some(next) => after = Some(next),
            None => return names,
        }
    }
}

pub(crate) async fn agent_join_token_is_used_once_and_rejected_when_expired(world: World) {
    let store = &world.store;
    let token = |expires_at_us: i64| AgentTokenRow {
        id: Uuid::now_v7(),
        labels: r#"{"env":"prod"}"#.to_owned(),
        created_by: "user:alice".to_owned(),
        created_at_us: NOW,
        expires_at_us,
        used_at_us: None,
        agent: None,
    };
    let (good, late) = (token(NOW + SECOND), token(NOW));
    for (token, hash) in [(good.clone(), [1; 32]), (late, [2; 32])] {
        store
            .write("test", move |tx| Box::pin(async move { insert_agent_token(tx, &token, &hash).await }))
            .await
            .unwrap();
    }
    let by = Uuid::now_v7();
    let spend = |hash: [u8; 32]| {
        store.write("test", move |tx| Box::pin(async move { use_agent_token(tx, &hash, NOW, by).await }))
    };
    let (first, second) = tokio::join!(spend([1; 32]), spend([1; 32]));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.is_some() != second.is_some(), "one of two at once");
    let used = first.or(second).unwrap();
    assert_eq!((used.id, used.agent, used.used_at_us), (good.id, Some(by), Some(NOW)));
    assert_eq!(used.labels, good.labels);
    assert_eq!(spend([2; 32]).await.unwrap(), None, "expired");
    assert_eq!(spend([3; 32]).await.unwrap(), None, "unknown");
    let page = agent::tables::Agents::of(store).tokens(None, 1).await.unwrap();
    assert_eq!((page.rows.len(), page.next.is_some()), (1, true));
    assert_eq!(agent::tables::Agents::of(store).purge_tokens(NOW + 1).await.unwrap(), 1);
}

pub(crate) async fn agents_are_unique_by_key_and_name_and_filtered_by_labels(world: World) {
    let store = &world.store;
    let all = [agent("b", 1), agent("a", 2), agent("c", 3), agent("d", 4)];
    assert!(enter(store, &all[0], &[("env", "prod"), ("os", "debian")]).await);
    assert!(enter(store, &all[1], &[("env", "prod")]).await);
    assert!(enter(store, &all[2], &[("env", "test")]).await);
    assert!(enter(store, &all[3], &[]).await);
    assert!(!enter(store, &agent("a", 9), &[]).await, "the name is taken");
    assert!(!enter(store, &agent("e", 1), &[]).await, "the key is taken");
    assert_eq!(agent::tables::Agents::of(store).of_key(&[2; 32]).await.unwrap(), Some(all[1].clone()));
    assert_eq!(agent::tables::Agents::of(store).named("c").await.unwrap(), Some(all[2].clone()));
    assert_eq!(agent::tables::Agents::of(store).get(Uuid::now_v7()).await.unwrap(), None);
    let having = |labels: &[(&str, &str)]| AgentFilter {
        labels: labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect(),
        ..AgentFilter::default()
    };
    assert_eq!(names(store, &having(&[])).await, ["a", "b", "c", "d"]);
    assert_eq!(names(store, &having(&[("env", "prod")])).await, ["a", "b"]);
    assert_eq!(names(store, &having(&[("env", "prod"), ("os", "debian")])).await, ["b"]);
    assert_eq!(names(store, &having(&[("env", "debian")])).await, Vec::<String>::new());

    let id = all[3].id;
    let change = |revision: i64, name: &'static str| {
        store.write("test", move |tx| {
            Box::pin(async move {
                update_agent(tx, id, revision, name, r#"{"env":"test"}"#, &[("env".into(), "test".into())])
                    .await
            })
        })
    };
    assert!(!change(7, "z").await.unwrap(), "another revision");
    assert!(!change(1, "a").await.unwrap(), "the name is taken");
    assert!(change(1, "z").await.unwrap());
    assert_eq!(names(store, &having(&[("env", "test")])).await, ["c", "z"]);
    let retired =
        store.write("test", move |tx| Box::pin(async move { retire_agent(tx, id, NOW).await })).await;
    assert!(retired.unwrap());
    assert_eq!(names(store, &having(&[("env", "test")])).await, ["c"]);
    let certified = store
        .write("test", move |tx| Box::pin(async move { set_agent_certificate(tx, id, &[8; 32], NOW).await }))
        .await;
    assert!(!certified.unwrap(), "a retired one gets no certificate");
}

pub(crate) async fn agents_last_seen_are_updated_in_one_statement(world: World) {
    let store = &world.store;
    let all: Vec<_> = (0..20).map(|n| agent(&format!("host-{n:02}"), n)).collect();
    for one in &all {
        assert!(enter(store, one, &[]).await);
    }
    let seen: Vec<_> = all[..5]
        .iter()
        .map(|one| (one.id, NOW + SECOND, AgentFacts { version: "2".to_owned(), ..one.facts.clone() }))
        .collect();
    let before = store.statements_sent();
    store
        .write("test", move |tx| Box::pin(async move { set_agents_last_seen(tx, &seen).await }))
        .await
        .unwrap();
    assert_eq!(store.statements_sent() - before, 1);
    let counts = agent::tables::Agents::of(store).counts(NOW + 1).await.unwrap();
    assert_eq!((counts.online, counts.offline), (5, 15));
    let found = agent::tables::Agents::of(store).get(all[0].id).await.unwrap().unwrap();
    assert_eq!((found.last_seen_at_us, found.facts.version.as_str()), (NOW + SECOND, "2"));
    let offline = AgentFilter { seen_before_us: Some(NOW + 1), ..AgentFilter::default() };
    assert_eq!(names(store, &offline).await.len(), 15);
    let online = AgentFilter { seen_from_us: Some(NOW + 1), ..AgentFilter::default() };
    assert_eq!(names(store, &online).await, ["host-00", "host-01", "host-02", "host-03", "host-04"]);
}

pub(crate) async fn agent_group_updates_require_the_current_revision(world: World) {
    let store = &world.store;
    let enter = |name: &'static str| {
        store.write("test", move |tx| Box::pin(insert_agent_group(tx, name, r#"{"env":"prod"}"#, "", NOW)))
    };
    assert!(enter("web").await.unwrap());
    assert!(!enter("web").await.unwrap());
    let change = |revision: i64| {
        store.write("test", move |tx| Box::pin(update_agent_group(tx, "web", revision, "{}", "all", NOW)))
    };
    assert!(change(1).await.unwrap());
    assert!(!change(1).await.unwrap());
    let group = agent::tables::Agents::of(store).group("web").await.unwrap().unwrap();
    assert_eq!((group.selector.as_str(), group.revision), ("{}", 2));
    assert_eq!(agent::tables::Agents::of(store).groups(None, 10).await.unwrap().rows, [group]);
}

pub(crate) async fn target_names_are_unique_and_updates_require_the_current_revision(world: World) {
    let store = &world.store;
    let (mine, other, id) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let settings = |name: &str, agent: Uuid| TargetSettings {
        name: name.to_owned(),
        agent,
        kind: "jks".to_owned(),
        config: "{}".to_owned(),
        secrets: Some(vec![1, 2, 3]),
    };
    let enter = |id: Uuid, settings: TargetSettings| {
        store.write("test", move |tx| Box::pin(async move { insert_target(tx, id, &settings, NOW).await }))
    };
    assert!(enter(id, settings("web", mine)).await.unwrap());
    assert!(!enter(Uuid::now_v7(), settings("web", mine)).await.unwrap(), "the name is taken");
    assert!(enter(Uuid::now_v7(), settings("mail", other)).await.unwrap());
    let change = |revision: i64, settings: TargetSettings| {
        store.write("test", move |tx| {
            Box::pin(async move { update_target(tx, id, revision, &settings, NOW + 1).await })
        })
    };
    assert!(!change(1, settings("mail", mine)).await.unwrap(), "the name is taken");
    let plain = TargetSettings { secrets: None, ..settings("www", mine) };
    assert!(change(1, plain.clone()).await.unwrap());
    assert!(!change(1, plain.clone()).await.unwrap(), "another revision");
    let found = agent::tables::Agents::of(store).target(id).await.unwrap().unwrap();
    assert_eq!((&found.settings, found.revision, found.updated_at_us), (&plain, 2, NOW + 1));
    assert_eq!(
        agent::tables::Agents::of(store).targets(Some(mine), None, 10).await.unwrap().rows,
        std::slice::from_ref(&found)
    );
    assert_eq!(agent::tables::Agents::of(store).target_named("www").await.unwrap(), Some(found));
    let first = agent::tables::Agents::of(store).targets(None, None, 1).await.unwrap();
    let rest = agent::tables::Agents::of(store).targets(None, first.next.as_ref(), 10).await.unwrap();
    assert_eq!((first.rows[0].settings.name.as_str(), rest.rows.len()), ("mail", 1));
    let delete =
        |id: Uuid| store.write("test", move |tx| Box::pin(async move { delete_target(tx, id).await }));
    assert!(delete(id).await.unwrap());
    assert!(!delete(id).await.unwrap());
}

pub(crate) async fn repeated_deployment_reports_are_counted_once(world: World) {
    let store = &world.store;
    let (certificate, agent) = (Uuid::now_v7(), Uuid::now_v7());
    let targets = [Uuid::now_v7(), Uuid::now_v7()];
    let new = targets.map(|target| NewDeployment {
        job: 7,
        target,
        agent,
        certificate,
        fingerprint: [5; 32],
        created_at_us: NOW,
    });
    for _ in 0..2 {
        let new = new.clone();
        store
            .write("test", move |tx| Box::pin(async move { insert_deployments(tx, &new).await }))
            .await
            .unwrap();
    }
    let report = |target: Uuid, state: DeploymentState| {
        let result = DeploymentResult {
            job: 7,
            target,
            state,
            error: (state == DeploymentState::RolledBack).then(|| "a\0b".to_owned()),
            served: (state == DeploymentState::Deployed).then_some([5; 32]),
            at_us: NOW + state.code(),
        };
        store.write("test", move |tx| {
            Box::pin(async move {
                let done = finish_deployments(tx, &[result]).await?;
                Ok((done.len(), open_deployments(tx, 7).await?))
            })
        })
    };
    assert_eq!(
        report(targets[0], DeploymentState::RolledBack).await.unwrap(),
        (1, (2, 2)),
        "a failure may be tried again"
    );
    assert_eq!(report(targets[0], DeploymentState::Deployed).await.unwrap(), (1, (1, 2)));
    assert_eq!(
        report(targets[0], DeploymentState::RolledBack).await.unwrap(),
        (0, (1, 2)),
        "what is over is over"
    );
    assert_eq!(
        report(Uuid::now_v7(), DeploymentState::Deployed).await.unwrap(),
        (0, (1, 2)),
        "another's target"
    );
    let rows = agent::tables::Agents::of(store).deployments_of_job(7).await.unwrap();
    assert_eq!(
        (rows[0].state, rows[0].attempts, rows[0].served),
        (DeploymentState::Deployed, 2, Some([5; 32]))
    );
    assert_eq!((rows[1].state, rows[1].attempts, &rows[1].requested), (DeploymentState::Waiting, 0, &new[1]));
    assert_eq!(
        agent::tables::Agents::of(store).deployments_of_target(targets[1], None, 5).await.unwrap().rows,
        rows[1..]
    );
    let first =
        agent::tables::Agents::of(store).deployments_of_certificate(certificate, None, 1).await.unwrap();
    assert_eq!(first.rows, rows[1..], "newest first");
    let rest = agent::tables::Agents::of(store)
        .deployments_of_certificate(certificate, first.next.as_ref(), 5)
        .await
        .unwrap();
    assert_eq!(rest.rows, rows[..1]);
    let cancel =
        store.write("test", move |tx| Box::pin(async move { cancel_deployments(tx, 7, NOW).await })).await;
    assert_eq!(cancel.unwrap(), 1);
}
