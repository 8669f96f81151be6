//! Tests of pages, filters and counts, which are complete for any number of rows.

use std::collections::BTreeSet;

use lifecycle::managed::{KeyLocation, ManagedCertificate, NewCertificate};
use lifecycle::state::State;
use lifecycle::tables::managed::{
    Direction, GroupBy, Groups, ManagedCount, ManagedFilter, ManagedOrder, ManagedScope, ManagedSort,
};
use store::Cursor;
use uuid::Uuid;

use super::world::{DAY, LIFE, NOW, World};

async fn walk(world: &World, filter: &ManagedFilter, order: ManagedOrder) -> Vec<ManagedCertificate> {
    let mut all = Vec::new();
    let mut cursor: Option<Cursor> = None;
    loop {
        let page = world.life.page(filter, order, cursor.as_ref(), 7).await.unwrap();
        all.extend(page.rows);
        // The cursor goes through its text form, as a client sends it.
        cursor = page.next.map(|next| next.to_string().parse().unwrap());
        if cursor.is_none() {
            return all;
        }
    }
}

pub(super) async fn pages_list_every_certificate_once_in_each_order(world: World) {
    // Some certificates expire at the same time, and some were never issued.
    world.many(40).await;
    world.advance(DAY);
    for number in 0..20 {
        let mut new = NewCertificate::new(&[&format!("later{number}.example.org")], "web");
        new.issue = number % 2 == 0;
        world.life.create(new, "user:ann").await.unwrap();
    }
    world.life.tick().await.unwrap();
    for order in [ManagedOrder::Expiry, ManagedOrder::Name, ManagedOrder::Created, ManagedOrder::Issued] {
        let all = walk(&world, &ManagedFilter::default(), order).await;
        let ids: BTreeSet<Uuid> = all.iter().map(|one| one.id).collect();
        assert_eq!((all.len(), ids.len()), (60, 60), "{order:?}");
        let ends = |one: &ManagedCertificate| one.current.map_or(i64::MAX, |version| version.not_after_us);
        let sorted = match order {
            ManagedOrder::Expiry => all.is_sorted_by_key(ends),
            ManagedOrder::Name => all.is_sorted_by_key(|one| one.name.clone()),
            ManagedOrder::Created => all.is_sorted_by_key(|one| one.created_at_us),
            ManagedOrder::Issued => {
                all.is_sorted_by_key(|one| one.current.map_or(0, |version| version.not_before_us))
            }
        };
        assert!(sorted, "{order:?}");
    }
    let first = world.life.page(&ManagedFilter::default(), ManagedOrder::Name, None, 7).await.unwrap();
    let other =
        world.life.page(&ManagedFilter::default(), ManagedOrder::Expiry, first.next.as_ref(), 7).await;
    assert!(other.is_err(), "a cursor of another order");
}

/// Returns the values and counts of one grouping.
fn values(groups: &Groups) -> Vec<(Option<&str>, u64)> {
    groups.groups.iter().map(|group| (group.value.as_deref(), group.count)).collect()
}

pub(super) async fn descending_order_reverses_the_listing(world: World) {
    world.many(15).await;
    world.advance(DAY);
    for number in 0..6 {
        let mut new = NewCertificate::new(&[&format!("later{number}.example.org")], "web");
        new.issue = number % 2 == 0;
        world.life.create(new, "user:ann").await.unwrap();
    }
    world.life.tick().await.unwrap();
    let all = async |sort: ManagedSort| {
        let (mut ids, mut cursor): (Vec<Uuid>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page =
                world.life.sorted_page(&ManagedFilter::default(), sort, cursor.as_ref(), 4).await.unwrap();
            ids.extend(page.rows.iter().map(|one| one.id));
            cursor = page.next;
            if cursor.is_none() {
                return ids;
            }
        }
    };
    for by in [ManagedOrder::Expiry, ManagedOrder::Name, ManagedOrder::Created, ManagedOrder::Issued] {
        let ascending = all(by.into()).await;
        let mut descending = all(ManagedSort { by, direction: Direction::Descending }).await;
        descending.reverse();
        assert_eq!(ascending.len(), 21, "{by:?}");
        assert_eq!(ascending, descending, "{by:?}");
    }
    let sort = ManagedSort { by: ManagedOrder::Issued, direction: Direction::Descending };
    let newest = world.life.sorted_page(&ManagedFilter::default(), sort, None, 1).await.unwrap();
    assert!(newest.rows[0].name.starts_with("later"), "{:?}", newest.rows[0].name);
}

pub(super) async fn matching_certificates_are_counted_and_grouped(world: World) {
    world.many(12).await;
    let mut shop = NewCertificate::new(&["shop.example.org"], "web");
    (shop.owner, shop.team) = (Some("ann".to_owned()), Some("shop".to_owned()));
    let shop = world.life.create(shop, "user:ann").await.unwrap().certificate;
    let mut idle = NewCertificate::new(&["idle.example.org"], "web");
    (idle.issue, idle.owner) = (false, Some("bob".to_owned()));
    world.life.create(idle, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let version = world.life.versions(shop, None, 1).await.unwrap().rows.remove(0);
    let none = ManagedFilter::default;
    let exactly = |value| ManagedCount { value, exact: true };
    let by_owner = ManagedFilter { owner: Some("ann".to_owned()), ..none() };
    let by_serial = ManagedFilter { serial: Some(version.serial.clone()), ..none() };
    let by_fingerprint = ManagedFilter { fingerprint: Some(*version.fingerprint.as_bytes()), ..none() };
    for (filter, count) in [
        (none(), 14),
        (ManagedFilter { states: vec![State::Pending], ..none() }, 1),
        (by_owner.clone(), 1),
        (by_serial.clone(), 1),
        (by_fingerprint.clone(), 1),
        (ManagedFilter { serial: Some("00ff".to_owned()), ..none() }, 0),
        (ManagedFilter { key_type: Some("p256".to_owned()), ..none() }, 14),
        (ManagedFilter { key_type: Some("ed25519".to_owned()), ..none() }, 0),
        (ManagedFilter { finding: Some("key_type".to_owned()), ..none() }, 0),
        (ManagedFilter { contains: Some("HOP.ex".to_owned()), ..none() }, 1),
    ] {
        assert_eq!(world.life.count(&filter).await.unwrap(), exactly(count), "{filter:?}");
    }
    for filter in [by_serial, by_fingerprint] {
        assert_eq!(walk(&world, &filter, ManagedOrder::Name).await[0].id, shop);
    }
    let groups = async |by, filter: &ManagedFilter| world.life.groups(by, filter).await.unwrap();
    let owners = groups(GroupBy::Owner, &none()).await;
    assert_eq!(values(&owners), [(None, 12), (Some("ann"), 1), (Some("bob"), 1)]);
    assert!(owners.complete && owners.counted == 14);
    // The stored counts equal the counts of a filter that matches everything.
    let everything = ManagedFilter { profile: Some("web".to_owned()), ..none() };
    for by in GroupBy::ALL {
        let (maintained, counted) = (groups(by, &none()).await, groups(by, &everything).await);
        let issued = |groups: &Groups| values(groups).iter().filter(|(value, _)| value.is_some()).count();
        assert_eq!(issued(&maintained), issued(&counted), "{by:?}: {maintained:?} {counted:?}");
    }
    let part = ManagedFilter { contains: Some("idle".to_owned()), ..none() };
    let parts = groups(GroupBy::Owner, &part).await;
    assert_eq!((values(&parts), parts.complete), (vec![(Some("bob"), 1)], true));
    // Several groupings in one request: each ignores its own filter condition.
    let filters = [
        none(),
        everything,
        part,
        ManagedFilter { owner: Some("bob".to_owned()), states: vec![State::Active], ..none() },
        ManagedFilter { key_type: Some("p256".to_owned()), contains: Some("e".to_owned()), ..none() },
    ];
    for filter in filters {
        let before = world.store.statements_sent();
        let facets = world.life.facets(&GroupBy::ALL, &filter).await.unwrap();
        assert!(world.store.statements_sent() - before <= 3);
        for (by, facet) in GroupBy::ALL.into_iter().zip(facets) {
            let alone = groups(by, &filter.without(by)).await;
            let sorted = |groups: &Groups| {
                let mut all: Vec<_> =
                    groups.groups.iter().map(|one| (one.value.clone(), one.count)).collect();
                all.sort();
                (all, groups.counted, groups.complete)
            };
            assert_eq!(sorted(&facet), sorted(&alone), "{by:?} {filter:?}");
        }
    }
    // The counts follow changes. An archived certificate is in none of them.
    world.life.archive(shop, None, "user:ann").await.unwrap();
    assert_eq!(values(&groups(GroupBy::Owner, &none()).await), [(None, 12), (Some("bob"), 1)]);
    assert_eq!(values(&groups(GroupBy::Owner, &by_owner).await), []);
}

pub(super) async fn filters_return_only_matching_certificates(world: World) {
    let agent = world.agent().await;
    let mut wanted = NewCertificate::new(&["Shop.Example.org", "*.pay.example.net"], "web");
    wanted.environment = Some("prod".to_owned());
    wanted.owner = Some("ann".to_owned());
    wanted.team = Some("shop".to_owned());
    wanted.tags.insert("cost".to_owned(), "42".to_owned());
    wanted.issuer = Some("other".to_owned());
    let wanted = world.life.create(wanted, "user:ann").await.unwrap().certificate;
    let mut remote = NewCertificate::new(&["remote.example.org"], "careful");
    remote.key_location = KeyLocation::Agent { agent };
    let remote = world.life.create(remote, "user:ann").await.unwrap().certificate;
    world.many(20).await;
    let text = |text: &str| Some(text.to_owned());
    let none = ManagedFilter::default;
    let table: Vec<(ManagedFilter, Vec<Uuid>)> = vec![
        (ManagedFilter { environment: text("prod"), ..none() }, vec![wanted]),
        (ManagedFilter { owner: text("ann"), ..none() }, vec![wanted]),
        (ManagedFilter { team: text("shop"), ..none() }, vec![wanted]),
        (ManagedFilter { issuer: text("other"), ..none() }, vec![wanted]),
        (ManagedFilter { tag: Some(("cost".to_owned(), "42".to_owned())), ..none() }, vec![wanted]),
        (ManagedFilter { tag: Some(("cost".to_owned(), "4".to_owned())), ..none() }, vec![]),
        (ManagedFilter { suffix: text("example.NET"), ..none() }, vec![wanted]),
        (ManagedFilter { suffix: text("pay.example.net"), ..none() }, vec![wanted]),
        (ManagedFilter { contains: text("PAY"), ..none() }, vec![wanted]),
        (ManagedFilter { contains: text("%"), ..none() }, vec![]),
        (ManagedFilter { profile: text("careful"), ..none() }, vec![remote]),
        (
            ManagedFilter { within: Some(vec![ManagedScope::Profile("careful".to_owned())]), ..none() },
            vec![remote],
        ),
        (
            ManagedFilter {
                within: Some(vec![
                    ManagedScope::Team("shop".to_owned()),
                    ManagedScope::Profile("careful".to_owned()),
                ]),
                suffix: text("example.org"),
                ..none()
            },
            vec![remote, wanted],
        ),
        (
            ManagedFilter {
                within: Some(vec![ManagedScope::Every(vec![
                    ManagedScope::Team("shop".to_owned()),
                    ManagedScope::Issuer("other".to_owned()),
                ])]),
                ..none()
            },
            vec![wanted],
        ),
        (
            ManagedFilter {
                within: Some(vec![ManagedScope::Every(vec![
                    ManagedScope::Team("shop".to_owned()),
                    ManagedScope::Profile("careful".to_owned()),
                ])]),
                ..none()
            },
            vec![],
        ),
        (ManagedFilter { within: Some(vec![ManagedScope::Every(vec![])]), ..none() }, vec![]),
        (ManagedFilter { within: Some(vec![]), ..none() }, vec![]),
        (ManagedFilter { agent: Some(agent), ..none() }, vec![remote]),
        (ManagedFilter { states: vec![State::AwaitingApproval], ..none() }, vec![remote]),
        (ManagedFilter { expires_before_us: Some(NOW + LIFE), ..none() }, vec![]),
        (
            ManagedFilter {
                environment: text("prod"),
                owner: text("ann"),
                issuer: text("internal"),
                ..none()
            },
            vec![],
        ),
    ];
    for (filter, expected) in table {
        for order in [ManagedOrder::Expiry, ManagedOrder::Name, ManagedOrder::Created] {
            let found: BTreeSet<Uuid> = walk(&world, &filter, order).await.iter().map(|one| one.id).collect();
            assert_eq!(found, expected.iter().copied().collect(), "{filter:?}");
        }
    }
    let ending =
        ManagedFilter { expires_from_us: Some(NOW), expires_before_us: Some(NOW + LIFE + 1), ..none() };
    assert_eq!(walk(&world, &ending, ManagedOrder::Expiry).await.len(), 21);
    // A scope and a filter are combined.
    let scoped = ManagedFilter {
        within: Some(vec![ManagedScope::Profile("careful".to_owned())]),
        profile: text("web"),
        ..none()
    };
    assert!(walk(&world, &scoped, ManagedOrder::Name).await.is_empty());
}

pub(super) async fn counts_cover_all_certificates(world: World) {
    world.many(120).await;
    world.advance(LIFE / 2);
    for number in 0..80 {
        let mut new = NewCertificate::new(&[&format!("idle{number}.example.org")], "web");
        new.issue = false;
        world.life.create(new, "user:ann").await.unwrap();
    }
    let counts = world.life.counts().await.unwrap();
    assert_eq!(counts.certificates, 200);
    assert_eq!((counts.states[&State::Active], counts.states[&State::Pending]), (120, 80));
    assert_eq!((counts.expired, counts.expiring_days[&30], counts.expiring_days[&90]), (0, 0, 120));
    assert!(counts.due.is_empty());
    world.clock.set(NOW + LIFE);
    let counts = world.life.counts().await.unwrap();
    assert_eq!((counts.expired, counts.expiring_days[&7]), (0, 120));
    assert_eq!(counts.due["internal"], 120);
    world.advance(1_000_000);
    assert_eq!(world.life.counts().await.unwrap().expired, 120);
    world.check().await;
}
