//! Tests of objects that teams own.

use std::time::Duration;

use api::access::Object;
use authority::tables::put_team;
use authority::teams::{OwnershipRights, Owns, Quota, QuotaError, TeamDirectory};
use futures_util::FutureExt;
use testbed::tables::World;

const DAY_US: i64 = 86_400_000_000;

/// Stores a team. Returns the object that another team owns, if that prevented the change.
async fn put(world: &World, team: &str, owns: Owns, quota: Quota, now_us: i64) -> Option<(String, String)> {
    let team = team.to_owned();
    let done = world.store.write("test", move |tx| {
        let (team, owns) = (team.clone(), owns.clone());
        async move { put_team(tx, &team, &owns, quota, now_us).await }.boxed()
    });
    done.await.unwrap().map(|taken| (taken.object, taken.team))
}

fn profiles(names: &[&str]) -> Owns {
    Owns { profiles: names.iter().map(|name| (*name).to_owned()).collect(), ..Owns::default() }
}

pub(super) async fn owned_object_belongs_to_one_team(world: World) {
    let teams = TeamDirectory::new(world.store.clone());
    let none = Quota::default();
    assert_eq!(put(&world, "a", profiles(&["web", "mail"]), none, 1).await, None);
    let both = Owns { names: vec!["web".to_owned()], ..profiles(&["web"]) };
    let taken = Some(("web".to_owned(), "a".to_owned()));
    assert_eq!(put(&world, "b", both, none, 2).await, taken, "a name is another kind of object");
    assert!(!teams.ownership().await.unwrap().owns_any(authority::teams::OwnedKind::Name), "nothing changed");

    // A released object is free. The next owner has it from then on, and the object counts as moved.
    assert_eq!(put(&world, "a", profiles(&["mail"]), none, 3).await, None);
    assert_eq!(put(&world, "a", profiles(&["mail", "web"]), none, 4).await, None);
    assert_eq!(put(&world, "a", Owns::default(), none, 5).await, None);
    assert_eq!(put(&world, "b", profiles(&["web"]), none, 6).await, None);
    teams.forget();
    let check_holder = async |issued_at_us| {
        let ownership = teams.ownership().await.unwrap();
        let rights = OwnershipRights::CertificateHolder { issued_at_us };
        ownership.check_issue(&Object::profile("web"), &rights).map(|team| team.map(str::to_owned))
    };
    assert!(check_holder(5).await.is_err());
    assert_eq!(check_holder(6).await, Ok(Some("b".to_owned())));
    assert_eq!(put(&world, "b", profiles(&["web"]), none, 7).await, None);
    teams.forget();
    assert_eq!(check_holder(6).await, Ok(Some("b".to_owned())), "written once more, it did not move");
}

pub(super) async fn team_certificate_quota_is_enforced_per_day(world: World) {
    let teams = TeamDirectory::new(world.store.clone());
    let two = Quota { certificates_per_day: Some(2), ..Quota::default() };
    assert_eq!(put(&world, "a", Owns::default(), two, 1).await, None);
    for team in ["a", "a", "b", "b", "b"] {
        teams.check_quota(team, DAY_US).await.unwrap();
        teams.count(team, DAY_US).await.unwrap();
    }
    for refused in [teams.check_quota("a", DAY_US + 1).await, teams.count("a", DAY_US + 1).await] {
        let Err(QuotaError::Over(over)) = refused else { panic!("{refused:?}") };
        assert_eq!((over.most, over.retry_after), (2, Duration::from_micros(DAY_US as u64 - 1)));
    }
    teams.count("a", 2 * DAY_US).await.unwrap();
    // Without a quota no certificates are counted.
    assert_eq!(put(&world, "a", Owns::default(), Quota::default(), 2).await, None);
    teams.forget();
    for _ in 0..3 {
        teams.count("a", 2 * DAY_US).await.unwrap();
    }
}
