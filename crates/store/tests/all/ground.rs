//! Tests of shared and single transactions, audit chains, the outbox, and leases.

use std::sync::Arc;

use serde_json::json;
use store::{AuditEvent, AuditFilter, Fault, NewEvent, OutboxPosition, Store, StoreError, audit, emit};
use uuid::Uuid;

use testbed::tables::{NOW, World};

fn event(number: i64) -> AuditEvent {
    AuditEvent {
        at_us: NOW + number,
        actor: format!("user:{}", number % 3),
        action: "test.done",
        resource: format!("thing/{number}"),
        details: json!({ "number": number, "nul": "a\0b" }),
    }
}

async fn write(store: &Store, number: i64, fail: bool) -> Result<(), StoreError> {
    store
        .write("test", move |tx| {
            Box::pin(async move {
                audit(tx, vec![event(number)]).await?;
                let outbox_event = NewEvent {
                    at_us: NOW,
                    kind: "test.done",
                    subject: number.to_string(),
                    body: "{}".to_owned(),
                };
                emit(tx, vec![outbox_event]).await?;
                if fail { Err(StoreError::Stale("on purpose".to_owned())) } else { Ok(()) }
            })
        })
        .await
}

pub(crate) async fn audit_chains_verify_after_concurrent_writers(world: World) {
    let store = world.store.clone();
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { write(&store, number, number % 10 == 7).await.is_ok() })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += u64::from(task.await.unwrap());
    }
    assert_eq!(done, 180);
    let verified = store.audit_verify().await.unwrap();
    assert_eq!((verified.events, verified.faults.as_slice()), (180, &[][..]));
    let mut after = None;
    let mut listed = Vec::new();
    loop {
        let page = store.audit_page(&AuditFilter::default(), after.as_ref(), 50).await.unwrap();
        listed.extend(page.rows);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 180);
    assert!(listed.windows(2).all(|pair| pair[0].at_us > pair[1].at_us));
    let mine = AuditFilter { resource: Some("thing/5".to_owned()), ..AuditFilter::default() };
    assert_eq!(store.audit_page(&mine, None, 50).await.unwrap().rows.len(), 1);
}

/// The command line computes these hashes from an export (`cli`, `audit_chain.rs`), so they must never change.
pub(crate) async fn audit_hashes_match_known_values(world: World) {
    let alice = AuditEvent {
        at_us: 1_795_219_200_000_000,
        actor: "user:alice".to_owned(),
        action: "certificate.revoke",
        resource: "certificate/1".to_owned(),
        details: json!({ "reason": "test" }),
    };
    let read = AuditEvent {
        at_us: 1_795_219_200_000_001,
        actor: "token:ci".to_owned(),
        action: "credential.read",
        resource: "credential/a".to_owned(),
        details: json!({ "version": "v", "times": 2 }),
    };
    world.store.write("test", |tx| Box::pin(audit(tx, vec![alice, read]))).await.unwrap();
    let verified = world.store.audit_verify().await.unwrap();
    assert_eq!(verified.heads[0], "0:2:6b006e767a98c849572c26abbe8d30d8e5f10062cf6a7c49a3551f5d6381d80d");
}

pub(crate) async fn outbox_delivers_every_committed_event_once_and_in_order(world: World) {
    let store = Arc::new(world.store.clone());
    let writer = Arc::clone(&store);
    let writing = tokio::spawn(async move {
        let all = (0..100).map(|number| {
            let store = Arc::clone(&writer);
            tokio::spawn(async move { write(&store, number, false).await.unwrap() })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
    });
    let (mut position, mut seen) = (store.outbox_position("reader").await.unwrap(), Vec::new());
    assert_eq!(position, OutboxPosition::default());
    while seen.len() < 100 {
        for row in store.outbox_after(position, 7).await.unwrap() {
            assert!(row.position > position);
            position = row.position;
            seen.push(row.subject.parse::<i64>().unwrap());
        }
        store.outbox_advance("reader", position).await.unwrap();
        tokio::task::yield_now().await;
    }
    writing.await.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert_eq!(store.outbox_position("reader").await.unwrap(), position);
    assert_eq!(store.outbox_end().await.unwrap(), position);
    store.outbox_advance("slow", OutboxPosition { transaction: 0, id: 1 }).await.unwrap();
    assert!(store.outbox_trim(NOW + 1).await.unwrap() <= 1);
    store.outbox_advance("slow", position).await.unwrap();
    assert!(store.outbox_trim(NOW + 1).await.unwrap() >= 99);
}

pub(crate) async fn failed_commit_stores_nothing(world: World) {
    world.fail_next(Fault::BeforeCommit);
    assert!(write(&world.store, 1, false).await.unwrap_err().is_transient());
    assert_eq!(world.store.audit_verify().await.unwrap().events, 0);
    world.fail_next(Fault::AfterCommit);
    assert!(write(&world.store, 2, false).await.unwrap_err().is_transient());
    assert_eq!(world.store.audit_verify().await.unwrap().events, 1);
    write(&world.store, 3, false).await.unwrap();
    let verified = world.store.audit_verify().await.unwrap();
    assert_eq!((verified.events, verified.faults.len()), (2, 0));
}

pub(crate) async fn lease_has_one_holder_at_a_time(world: World) {
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let store = &world.store;
    assert!(store.lease("work", one, NOW, 10).await.unwrap());
    assert!(!store.lease("work", two, NOW + 9, 10).await.unwrap());
    assert!(store.lease("work", one, NOW + 9, 10).await.unwrap());
    assert!(!store.lease("work", two, NOW + 18, 10).await.unwrap());
    assert!(store.lease("work", two, NOW + 19, 10).await.unwrap());
    store.release("work", one).await.unwrap();
    assert!(!store.lease("work", one, NOW + 20, 10).await.unwrap());
    store.release("work", two).await.unwrap();
    assert!(store.lease("work", one, NOW + 20, 10).await.unwrap());
}
