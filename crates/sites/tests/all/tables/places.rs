//! Sites, node tokens, nodes, and their presence.

use sites::tables::{
    KEM_BYTES, NewStatement, NodeFilter, NodeLease, NodeRetirement, NodeRow, NodeTokenRow, SiteRow,
    delete_site, flip_nodes, insert_node, insert_node_token, insert_site, is_node_taken, live_nodes,
    lock_site, mistrust_node, node_certified, node_token, put_leases, put_statements, retire_node,
    set_node_address, sign_nodes_of_site, take_changes, update_site, use_node_token,
};
use store::Store;
use uuid::Uuid;

use testbed::tables::{NOW, World};
use testbed::walk;

const SECOND: i64 = 1_000_000;

fn site(name: &str) -> SiteRow {
    SiteRow {
        id: Uuid::now_v7(),
        name: name.to_owned(),
        attributes: r#"{"country":"DE"}"#.to_owned(),
        revision: 1,
        created_at_us: NOW,
        updated_at_us: NOW,
    }
}

pub(crate) fn node(name: &str, key: u8, site: &SiteRow) -> NodeRow {
    NodeRow {
        id: Uuid::now_v7(),
        name: name.to_owned(),
        site: site.id,
        site_name: site.name.clone(),
        site_attributes: site.attributes.clone(),
        attributes: "{}".to_owned(),
        address: format!("{name}.example:2410"),
        kem: vec![key; KEM_BYTES],
        spki_sha256: [key; 32],
        not_after_us: NOW,
        statement: "{}".to_owned(),
        sign_at_us: NOW + SECOND,
        revision: 1,
        changed: 0,
        enrolled_at_us: NOW,
        retired_at_us: None,
        hostile: false,
        lease_until_us: 0,
        present: false,
    }
}

/// Runs one call in a transaction.
macro_rules! write {
    ($store:expr, |$tx:ident| $work:expr) => {
        $store.write("test", move |$tx| Box::pin(async move { $work.await })).await.unwrap()
    };
}

pub(crate) async fn enter_site(store: &Store, name: &str) -> SiteRow {
    let site = site(name);
    let new = site.clone();
    assert!(write!(store, |tx| insert_site(tx, &new)));
    site
}

/// Inserts a node and returns it as stored, with its change number.
pub(crate) async fn enter(store: &Store, mut new: NodeRow) -> NodeRow {
    let given = new.clone();
    let (entered, changed) = store
        .write("test", move |tx| {
            Box::pin(async move {
                let changed = take_changes(tx, 1).await?;
                Ok((insert_node(tx, &NodeRow { changed, ..given }).await?, changed))
            })
        })
        .await
        .unwrap();
    assert!(entered);
    new.changed = changed;
    new
}

async fn beat(store: &Store, nodes: &[&NodeRow], until_us: i64) {
    let leases: Vec<_> = nodes.iter().map(|node| NodeLease { node: node.id, until_us }).collect();
    write!(store, |tx| put_leases(tx, &leases));
}

/// Determines the changes of presence and stores them. Returns the number of nodes that changed.
async fn flip_presence(store: &Store, now_us: i64) -> usize {
    let flips = sites::tables::SiteTables::of(store).presence_changes(now_us).await.unwrap();
    write!(store, |tx| flip_nodes(tx, &flips, now_us))
}

async fn changed_since(store: &Store, since: i64) -> Vec<(Uuid, bool)> {
    let rows = sites::tables::SiteTables::of(store).nodes_changed(since, 100).await.unwrap();
    rows.into_iter().map(|node| (node.id, node.present)).collect()
}

pub(crate) async fn site_names_are_unique_and_updates_require_the_current_revision(world: World) {
    let store = &world.store;
    let berlin = enter_site(store, "berlin").await;
    let tokyo = enter_site(store, "tokyo").await;
    let duplicate = site("berlin");
    assert!(!write!(store, |tx| insert_site(tx, &duplicate)), "the name is taken");
    let id = berlin.id;
    let change = |revision: i64, name: &'static str| {
        store.write("test", move |tx| Box::pin(update_site(tx, id, revision, name, "{}", NOW + 1)))
    };
    assert!(!change(7, "bonn").await.unwrap(), "another revision");
    assert!(!change(1, "tokyo").await.unwrap(), "the name is taken");
    assert!(change(1, "bonn").await.unwrap());
    let found = sites::tables::SiteTables::of(store).site(id).await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.revision, found.updated_at_us), ("bonn", 2, NOW + 1));
    assert_eq!(sites::tables::SiteTables::of(store).site_named("bonn").await.unwrap(), Some(found.clone()));
    assert_eq!(write!(store, |tx| lock_site(tx, id)), Some(found.clone()), "a lock changes nothing");
    let all = walk!(1, |after, limit| sites::tables::SiteTables::of(store).sites(after, limit));
    assert_eq!(all, [found, tokyo]);
    assert!(write!(store, |tx| delete_site(tx, id)));
    assert_eq!(write!(store, |tx| lock_site(tx, id)), None);
}

pub(crate) async fn node_join_token_is_used_once_and_rejected_when_expired(world: World) {
    let store = &world.store;
    let site = enter_site(store, "berlin").await;
    let token = |expires_at_us: i64| NodeTokenRow {
        id: Uuid::now_v7(),
        site: site.id,
        site_name: site.name.clone(),
        attributes: r#"{"security":"high"}"#.to_owned(),
        created_by: "user:alice".to_owned(),
        created_at_us: NOW,
        expires_at_us,
        used_at_us: None,
        node: None,
    };
    let (good, late) = (token(NOW + SECOND), token(NOW));
    for (token, hash) in [(good.clone(), [1; 32]), (late.clone(), [2; 32])] {
        write!(store, |tx| insert_node_token(tx, &token, &hash));
    }
    for (hash, found) in [([1; 32], Some(good.id)), ([2; 32], None), ([3; 32], None)] {
        let token = write!(store, |tx| node_token(tx, &hash, NOW));
        assert_eq!(token.map(|token| token.id), found, "looked at, and not used");
    }
    let by = Uuid::now_v7();
    let spend = |hash: [u8; 32]| {
        store.write("test", move |tx| Box::pin(async move { use_node_token(tx, &hash, NOW, by).await }))
    };
    let (first, second) = tokio::join!(spend([1; 32]), spend([1; 32]));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.is_some() != second.is_some(), "one of two at once");
    let used = first.or(second).unwrap();
    assert_eq!((used.id, used.node, used.used_at_us), (good.id, Some(by), Some(NOW)));
    assert_eq!((used.site, &used.attributes), (site.id, &good.attributes));
    assert_eq!(spend([2; 32]).await.unwrap(), None, "expired");
    assert_eq!(spend([3; 32]).await.unwrap(), None, "unknown");
    assert_eq!(write!(store, |tx| node_token(tx, &[1; 32], NOW)), None, "used");
    assert_eq!(sites::tables::SiteTables::of(store).node_of_token(&[1; 32], NOW).await.unwrap(), Some(by));
    assert_eq!(
        sites::tables::SiteTables::of(store).node_of_token(&[1; 32], NOW + SECOND).await.unwrap(),
        None,
        "it is over"
    );
    let all = walk!(1, |after, limit| sites::tables::SiteTables::of(store).node_tokens(after, limit));
    assert_eq!(all[0], late, "newest first");
    assert_eq!(all[1].site_name, "berlin");
    assert_eq!(sites::tables::SiteTables::of(store).purge_node_tokens(NOW + 1).await.unwrap(), 1);
}

pub(crate) async fn nodes_are_unique_by_key_and_name_and_listed_by_site(world: World) {
    let store = &world.store;
    let (berlin, tokyo) = (enter_site(store, "berlin").await, enter_site(store, "tokyo").await);
    let a = enter(store, node("a", 1, &berlin)).await;
    let b = enter(store, node("b", 2, &tokyo)).await;
    assert!(a.changed < b.changed);
    assert_eq!(sites::tables::SiteTables::of(store).node(a.id).await.unwrap(), Some(a.clone()));
    assert_eq!(sites::tables::SiteTables::of(store).node_of_key(&[2; 32]).await.unwrap(), Some(b.clone()));
    assert_eq!(sites::tables::SiteTables::of(store).node_named("b").await.unwrap(), Some(b.clone()));
    for (name, key, taken) in [("a", 9, true), ("z", 1, true), ("z", 9, false)] {
        assert_eq!(write!(store, |tx| is_node_taken(tx, name, &[key; 32])), taken, "{name} {key}");
    }
    let id = a.id;
    assert!(!write!(store, |tx| node_certified(tx, id, &[9; 32], NOW + 5)), "another key");
    assert!(write!(store, |tx| node_certified(tx, id, &[1; 32], NOW + 5)));
    assert!(write!(store, |tx| retire_node(tx, id, NOW + 6, NodeRetirement::Hostile)));
    assert!(!write!(store, |tx| retire_node(tx, id, NOW + 7, NodeRetirement::Ordinary)), "once");
    assert!(!write!(store, |tx| mistrust_node(tx, id)), "known");
    let id = b.id;
    assert!(!write!(store, |tx| mistrust_node(tx, id)), "not retired");
    let id = a.id;
    assert!(
        !write!(store, |tx| node_certified(tx, id, &[1; 32], NOW + 8)),
        "a retired one gets no certificate"
    );
    let retired = sites::tables::SiteTables::of(store).node(id).await.unwrap().unwrap();
    assert_eq!(
        (retired.retired_at_us, retired.hostile, retired.not_after_us),
        (Some(NOW + 6), true, NOW + 5)
    );
    assert!(retired.changed > b.changed, "the others are told");
    let listed = async |site: Option<Uuid>, retired: bool| -> Vec<String> {
        let filter = NodeFilter { site, retired };
        let all = walk!(1, |after, limit| sites::tables::SiteTables::of(store).nodes(&filter, after, limit));
        all.into_iter().map(|node| node.name).collect()
    };
    assert_eq!(listed(None, false).await, ["b"]);
    assert_eq!(listed(None, true).await, ["a", "b"]);
    assert_eq!(listed(Some(berlin.id), true).await, ["a"]);
    assert_eq!(listed(Some(berlin.id), false).await, [""; 0]);
    let (berlin_id, tokyo_id) = (berlin.id, tokyo.id);
    assert_eq!(write!(store, |tx| live_nodes(tx, Some(berlin_id))), 0);
    assert_eq!(write!(store, |tx| live_nodes(tx, Some(tokyo_id))), 1);
    assert_eq!(write!(store, |tx| live_nodes(tx, None)), 1);
}

pub(crate) async fn node_statements_are_due_after_changes_and_stored_once(world: World) {
    let store = &world.store;
    let berlin = enter_site(store, "berlin").await;
    let a = enter(store, node("a", 1, &berlin)).await;
    let b = enter(store, node("b", 2, &berlin)).await;
    let due = async |now_us: i64| -> Vec<Uuid> {
        sites::tables::SiteTables::of(store)
            .nodes_to_sign(now_us, 100)
            .await
            .unwrap()
            .into_iter()
            .map(|node| node.id)
            .collect()
    };
    assert!(due(NOW).await.is_empty());
    let (id, address) = (a.id, a.address.clone());
    assert!(!write!(store, |tx| set_node_address(tx, id, &address)), "it has that one");
    assert!(write!(store, |tx| set_node_address(tx, id, "a.example:1")));
    assert_eq!(due(NOW).await, [a.id]);
    let (site, first) =
        (berlin.id, sites::tables::SiteTables::of(store).nodes_to_sign(NOW, 100).await.unwrap());
    write!(store, |tx| sign_nodes_of_site(tx, site));
    // A statement made from the previous row is ignored.
    let early = NewStatement {
        node: id,
        statement: "\"early\"".to_owned(),
        made_from: (first[0].sign_at_us, first[0].changed),
        sign_at_us: NOW + 9 * SECOND,
    };
    write!(store, |tx| put_statements(tx, vec![early]));
    let rows = sites::tables::SiteTables::of(store).nodes_to_sign(NOW, 100).await.unwrap();
    assert_eq!(rows.len(), 2);
    let new: Vec<_> = rows
        .iter()
        .map(|row| NewStatement {
            node: row.id,
            statement: format!("[{:?}]", row.name),
            made_from: (row.sign_at_us, row.changed),
            sign_at_us: NOW + 9 * SECOND,
        })
        .collect();
    let since = sites::tables::SiteTables::of(store).last_change().await.unwrap();
    let late: Vec<_> =
        new.iter().map(|one| NewStatement { statement: "\"late\"".to_owned(), ..one.clone() }).collect();
    let before = store.statements_sent();
    write!(store, |tx| put_statements(tx, new));
    assert_eq!(store.statements_sent() - before, 2, "the numbers and the rows");
    write!(store, |tx| put_statements(tx, late));
    let rows = sites::tables::SiteTables::of(store).nodes_changed(since, 100).await.unwrap();
    let statements: Vec<_> = rows.iter().map(|row| row.statement.as_str()).collect();
    assert_eq!(statements.len(), 2);
    assert!(
        statements.contains(&"[\"a\"]") && statements.contains(&"[\"b\"]"),
        "of two that sign the same row one is heard: {statements:?}"
    );
    assert!(rows[0].changed > since && rows[1].changed == rows[0].changed + 1);
    assert!(due(NOW).await.is_empty());
    assert!(due(NOW + 9 * SECOND).await.is_empty(), "nobody heard them yet");
    beat(store, &[&a, &b], NOW + 20 * SECOND).await;
    assert_eq!(flip_presence(store, NOW).await, 2);
    assert_eq!(due(NOW + 9 * SECOND).await.len(), 2);
    assert_eq!(flip_presence(store, NOW + 21 * SECOND).await, 2);
    assert!(
        due(NOW + 9 * SECOND).await.is_empty(),
        "a node that is not heard gets no other statement by time"
    );
    write!(store, |tx| sign_nodes_of_site(tx, site));
    assert_eq!(due(NOW + 9 * SECOND).await.len(), 2, "but where something changed");
    assert_eq!(b.site, berlin.id);
}

pub(crate) async fn node_presence_follows_its_lease(world: World) {
    let store = &world.store;
    let berlin = enter_site(store, "berlin").await;
    let mut all = Vec::new();
    for number in 0..20 {
        all.push(enter(store, node(&format!("n{number:02}"), number, &berlin)).await);
    }
    let since = sites::tables::SiteTables::of(store).last_change().await.unwrap();
    assert_eq!(flip_presence(store, NOW).await, 0, "nobody is there before the first beat");
    let before = store.statements_sent();
    beat(store, &all.iter().collect::<Vec<_>>(), NOW + SECOND).await;
    assert_eq!(store.statements_sent() - before, 1);
    assert_eq!(flip_presence(store, NOW).await, 20);
    assert_eq!(flip_presence(store, NOW).await, 0, "told once");
    let changed = changed_since(store, since).await;
    assert!(changed.len() == 20 && changed.iter().all(|(_, present)| *present));
    let since = sites::tables::SiteTables::of(store).last_change().await.unwrap();
    // An older heartbeat does not shorten the lease.
    beat(store, &[&all[3]], NOW + 5 * SECOND).await;
    beat(store, &[&all[3]], NOW + 2 * SECOND).await;
    assert_eq!(flip_presence(store, NOW + SECOND).await, 19);
    let changed = changed_since(store, since).await;
    assert!(changed.len() == 19 && changed.iter().all(|(id, present)| !present && *id != all[3].id));
    // A heartbeat between reading and storing the changes counts.
    let late = sites::tables::SiteTables::of(store).presence_changes(NOW + 5 * SECOND).await.unwrap();
    assert_eq!(late, [(all[3].id, false)]);
    beat(store, &[&all[3]], NOW + 6 * SECOND).await;
    assert_eq!(write!(store, |tx| flip_nodes(tx, &late, NOW + 5 * SECOND)), 0);
    // A retired node has no lease, and its heartbeats grant none.
    let id = all[3].id;
    assert!(write!(store, |tx| retire_node(tx, id, NOW, NodeRetirement::Ordinary)));
    beat(store, &[&all[3]], NOW + 9 * SECOND).await;
    assert_eq!(flip_presence(store, NOW + 6 * SECOND).await, 0);
    let reloaded = sites::tables::SiteTables::of(store).node(id).await.unwrap().unwrap();
    assert_eq!((reloaded.present, reloaded.lease_until_us, reloaded.hostile), (false, 0, false));
    assert!(write!(store, |tx| mistrust_node(tx, id)), "it turned out later");
    assert!(sites::tables::SiteTables::of(store).node(id).await.unwrap().unwrap().hostile);
}

pub(crate) async fn concurrent_changes_are_visible_in_number_order(world: World) {
    let store = &world.store;
    let berlin = enter_site(store, "berlin").await;
    let writers = (0..4_u8).map(|writer| {
        let (store, site) = (store.clone(), berlin.clone());
        tokio::spawn(async move {
            for number in 0..10 {
                let key = writer * 10 + number;
                enter(&store, node(&format!("w{key}"), key, &site)).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    // A reader that continues from the last number misses no node, whatever is written meanwhile.
    let (mut since, mut seen) = (0, 0);
    while seen < 40 {
        let done = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let rows = sites::tables::SiteTables::of(store).nodes_changed(since, 7).await.unwrap();
        assert!(!(done && rows.is_empty()), "{seen} of 40 seen");
        seen += rows.len();
        since = rows.last().map_or(since, |row| row.changed);
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
}
