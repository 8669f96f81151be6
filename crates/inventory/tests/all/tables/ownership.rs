//! Tests of ownership rules and of the attributes that they match.

use std::sync::Arc;

use futures_util::FutureExt;
use inventory::tables::endpoint_notices::{EndpointNotice, put_notices};
use inventory::tables::kept_tags::{RESOURCES_PER_CERTIFICATE_MAX, TagsRow, put_resource_tags};
use inventory::tables::ownership::{
    OWNERSHIP_NAMES_MAX, OWNERSHIP_RULES_MAX, OwnershipInsertion, OwnershipSettings, delete_ownership_rule,
    insert_ownership_rule, last_ownership_position, note_ownership_changed, update_ownership_rule,
};
use inventory::tables::watches::{WatchSettings, WatchTimes, insert_watch};
use store::{EndpointKey, NewCertificate, Store, StoreError};
use uuid::Uuid;

use testbed::tables::{DAY, NOW, World, answered, certificate, key};
use testbed::walk;

fn settings(name: &str, position: u32) -> OwnershipSettings {
    OwnershipSettings { name: name.to_owned(), position, body: format!(r#"{{"when":{{}},"n":"{name}"}}"#) }
}

async fn make(store: &Store, name: &str, position: u32, at_us: i64) -> (Uuid, OwnershipInsertion) {
    let (id, settings) = (Uuid::now_v7(), settings(name, position));
    let made = store.write("make", move |tx| {
        async move { insert_ownership_rule(tx, id, &settings, at_us).await }.boxed()
    });
    (id, made.await.unwrap())
}

pub(crate) async fn ownership_rule_is_created_updated_and_deleted(world: World) {
    let store = &world.store;
    assert_eq!(inventory::tables::Ownership::of(store).changed_us().await.unwrap(), 0, "none ever was");
    let (id, made) = make(store, "b", 10, NOW).await;
    assert_eq!(made, OwnershipInsertion::Made);
    make(store, "a", 20, NOW + 1).await;
    assert_eq!(make(store, "b", 30, NOW + 2).await.1, OwnershipInsertion::Taken);
    assert_eq!(inventory::tables::Ownership::of(store).changed_us().await.unwrap(), NOW + 1);
    let row = inventory::tables::Ownership::of(store).rule(id).await.unwrap().unwrap();
    assert_eq!((&row.settings, row.revision), (&settings("b", 10), 1));
    assert_eq!((row.created_at_us, row.updated_at_us), (NOW, NOW));
    assert_eq!(inventory::tables::Ownership::of(store).rule_named("b").await.unwrap().as_ref(), Some(&row));
    assert_eq!(inventory::tables::Ownership::of(store).rule_named("B").await.unwrap(), None);

    let change = |name: &'static str, revision| {
        store.write("change", move |tx| {
            async move { update_ownership_rule(tx, id, revision, &settings(name, 25), NOW + 9).await }.boxed()
        })
    };
    assert!(change("b2", 1).await.unwrap());
    assert!(!change("b3", 1).await.unwrap(), "it was changed by another request");
    assert!(matches!(change("a", 2).await, Err(StoreError::Conflict { .. })));
    let row = inventory::tables::Ownership::of(store).rule(id).await.unwrap().unwrap();
    assert_eq!((&row.settings, row.revision), (&settings("b2", 25), 2));
    assert_eq!((row.created_at_us, row.updated_at_us), (NOW, NOW + 9));
    assert_eq!(inventory::tables::Ownership::of(store).changed_us().await.unwrap(), NOW + 9);

    let delete = |at_us| store.write("delete", move |tx| delete_ownership_rule(tx, id, at_us).boxed());
    assert!(delete(NOW + 11).await.unwrap() && !delete(NOW + 12).await.unwrap());
    assert_eq!(inventory::tables::Ownership::of(store).rule(id).await.unwrap(), None);
    assert_eq!(
        inventory::tables::Ownership::of(store).changed_us().await.unwrap(),
        NOW + 11,
        "a removal is a change"
    );
}

pub(crate) async fn ownership_rules_are_limited_and_listed_by_position(world: World) {
    let store = &world.store;
    let fill = store.write("fill", |tx| {
        async move {
            for n in 0..OWNERSHIP_RULES_MAX {
                let position = u32::try_from(n / 4).unwrap();
                let settings = settings(&format!("r{:04}", OWNERSHIP_RULES_MAX - n), position);
                insert_ownership_rule(tx, Uuid::now_v7(), &settings, NOW).await?;
            }
            last_ownership_position(tx).await
        }
        .boxed()
    });
    assert_eq!(fill.await.unwrap(), 249);
    assert_eq!(make(store, "more", 1, NOW).await.1, OwnershipInsertion::Full);
    let rows = walk!(300, |after, size| inventory::tables::Ownership::of(store).rules(after, size));
    let keys: Vec<_> = rows.iter().map(|row| (row.settings.position, row.settings.name.clone())).collect();
    assert_eq!(keys.len(), OWNERSHIP_RULES_MAX);
    assert!(keys.is_sorted(), "by position, then by name");
    let all = inventory::tables::Ownership::of(store).rules(None, OWNERSHIP_RULES_MAX).await.unwrap();
    assert_eq!((all.rows, all.next), (rows, None), "all are one page");
}

pub(crate) async fn certificate_names_and_watch_groups_are_read_in_bulk(world: World) {
    let store = &world.store;
    let few = certificate("a.example", "CN=Issuing", NOW + DAY);
    let many: Arc<NewCertificate> = {
        let mut many = certificate("b.example", "CN=Issuing", NOW + DAY).as_ref().clone();
        many.names = (0..OWNERSHIP_NAMES_MAX + 9).map(|n| format!("n{n}.b.example")).collect();
        Arc::new(many)
    };
    let scan = world.scan().await;
    store::Scans::of(store)
        .record(scan.id, &[answered("a.example", &few, NOW), answered("b.example", &many, NOW)])
        .await
        .unwrap();
    let before = store.statements_sent();
    let names =
        inventory::tables::Ownership::of(store).names(vec![few.sha256, many.sha256, [9; 32]]).await.unwrap();
    assert_eq!(store.statements_sent() - before, 1);
    assert_eq!(names[&few.sha256], ["a.example", "www.a.example"]);
    assert_eq!(names[&many.sha256], many.names[..OWNERSHIP_NAMES_MAX], "the first, in their order");
    assert_eq!(names.len(), 2);
    assert!(inventory::tables::Ownership::of(store).names(Vec::new()).await.unwrap().is_empty());

    let endpoints =
        inventory::tables::EndpointNotices::of(store).seen_endpoints(scan.id, 0, NOW, 10).await.unwrap();
    assert_eq!(endpoints[0].address, Some("192.0.2.1".parse().unwrap()));
    let watch = Uuid::now_v7();
    let row = endpoints.iter().find(|seen| seen.endpoint.host == "b.example").unwrap().row;
    let group = WatchSettings {
        name: "edge".to_owned(),
        group: "prod".to_owned(),
        spec: "{}".to_owned(),
        interval_us: DAY,
        jitter_us: 0,
        enabled: true,
    };
    let notified = store.write("told", move |tx| {
        async move {
            let times = WatchTimes { planned_at_us: NOW, next_run_at_us: NOW };
            insert_watch(tx, watch, &group, times, NOW).await?;
            let notified = EndpointNotice { leaf: 1, issuer: 1, chain: 0, conditions: 0, expiry: false };
            put_notices(tx, watch, &[(row, notified)]).await
        }
        .boxed()
    });
    notified.await.unwrap();
    let before = store.statements_sent();
    let groups = inventory::tables::Ownership::of(store)
        .groups(&[key("a.example"), key("b.example"), key("c.example")])
        .await
        .unwrap();
    assert_eq!(store.statements_sent() - before, 1);
    assert_eq!(groups, [(1, "prod".to_owned())].into(), "only of the one that a watch told of");
}

pub(crate) async fn tags_are_stored_by_endpoint_and_read_by_certificate(world: World) {
    let store = &world.store;
    let long = "n".repeat(store::HOST_BYTES_MAX + 1);
    let tags_row = |host: &str, leaf: Option<u8>, tags: Option<&str>| TagsRow {
        protocol: "aws-acm".to_owned(),
        host: host.to_owned(),
        sha256: leaf.map(|leaf| [leaf; 32]),
        tags: tags.map(str::to_owned),
    };
    let put = async |some: Vec<TagsRow>| {
        store.write("put", move |tx| put_resource_tags(tx, some).boxed()).await.unwrap();
    };
    put(vec![
        tags_row("b", Some(1), Some("{\"b\":\"1\"}")),
        tags_row("a", Some(1), Some("{\"a\":\"1\"}")),
        tags_row("waiting", None, Some("{\"w\":\"1\"}")),
        tags_row(&long, Some(2), Some("{\"l\":\"1\"}")),
    ])
    .await;
    let resource = |host: &str| EndpointKey { protocol: "aws-acm".to_owned(), port: 0, ..key(host) };
    let before = store.statements_sent();
    let resources = [resource("waiting"), resource("none"), resource("b"), resource(&long)];
    let of_resources = inventory::tables::ResourceTags::of(store).of_resources(&resources).await.unwrap();
    assert_eq!(store.statements_sent() - before, 1);
    let text = |text: &str| text.to_owned();
    assert_eq!(
        of_resources,
        [(0, text("{\"w\":\"1\"}")), (2, text("{\"b\":\"1\"}")), (3, text("{\"l\":\"1\"}"))].into()
    );
    let of_leaves = inventory::tables::ResourceTags::of(store)
        .tags_of_certificates(vec![[1; 32], [2; 32], [9; 32]])
        .await
        .unwrap();
    assert_eq!(of_leaves[&[1; 32]], ["{\"a\":\"1\"}", "{\"b\":\"1\"}"], "by place");
    assert_eq!((of_leaves[&[2; 32]].len(), of_leaves.len()), (1, 2));
    assert!(
        inventory::tables::ResourceTags::of(store).tags_of_certificates(Vec::new()).await.unwrap().is_empty()
    );

    // Another certificate at the same location, other tags, then no tags.
    put(vec![tags_row("a", Some(3), Some("{\"a\":\"2\"}")), tags_row("b", None, None)]).await;
    let of_leaves = inventory::tables::ResourceTags::of(store)
        .tags_of_certificates(vec![[1; 32], [3; 32]])
        .await
        .unwrap();
    assert_eq!(of_leaves, [([3; 32], vec![text("{\"a\":\"2\"}")])].into());

    // One certificate in very many locations: only the first ones are read.
    put((0..RESOURCES_PER_CERTIFICATE_MAX + 9)
        .map(|n| tags_row(&format!("n{n:03}"), Some(7), Some("{}")))
        .collect())
    .await;
    let of_leaves =
        inventory::tables::ResourceTags::of(store).tags_of_certificates(vec![[7; 32]]).await.unwrap();
    assert_eq!(of_leaves[&[7; 32]].len(), RESOURCES_PER_CERTIFICATE_MAX);

    let noted = store.write("note", |tx| note_ownership_changed(tx, NOW + 5).boxed());
    noted.await.unwrap();
    assert_eq!(inventory::tables::Ownership::of(store).changed_us().await.unwrap(), NOW + 5);
}
