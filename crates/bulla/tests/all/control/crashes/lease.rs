//! Leases of dynamic credentials, created and revoked while the server is killed at its commits: no user of the database is left
//! without a lease.

use super::credential::attack;
use super::flow::Estate;
use super::{Points, Shim, Side};
use crate::control::House;
use crate::control::leases::Target;
use crate::world::{describe, run};

/// Commits of one sequence tested by default, each before and after.
const FEW: u64 = 3;
/// Number of clock changes after which the lifetime of every lease is over: an hour.
const PAST_LIFE: u64 = 3_600 / 130 + 1;

/// Creates a lease and revokes it, as a client that retries. Then each user has a live lease. Returns the number of kill points.
fn live(estate: &mut Estate, target: &Target, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
    points.arm(at, side);
    let made = estate.json_with_retry(&["credential", "lease", "create", "/team/db/read-only"]);
    let text = |field: &str| made[field].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let (user, id) = (text("username"), text("id"));
    assert!(target.has_role(&user), "acknowledged, so it exists: {made}");
    loop {
        let output = run(&mut estate.house.bulla(&["credential", "lease", "revoke", &id]));
        // 3: the server tries again. 6: it was revoked before a lost answer.
        if matches!(output.status.code(), Some(0 | 3 | 6)) {
            break;
        }
        assert!(estate.house.fell(), "{}", describe(&output));
        estate.raise();
    }
    let counted = points.counted();
    points.arm(0, side);
    estate.json_with_retry(&["ca", "list"]);
    let house = &estate.house;
    house.until("the user to be dropped", || !target.has_role(&user));
    // An unacknowledged lease may be live. A lease without confirmation is revoked, because the clock has passed its time.
    house.until("each user to have a live lease", || {
        let listed = house.json(&["credential", "lease", "list"]);
        let rows = listed["rows"].as_array().unwrap();
        rows.iter().all(|row| row["state"] == "active") && target.has_leased_roles(rows.len())
    });
    counted
}

#[test]
fn no_database_user_is_left_when_the_server_is_killed_around_a_lease() {
    let (mut house, target) = (House::prepared("", None), Target::start());
    house.put(Shim::new(&house.path("")), true);
    house.start();
    target.configure(&house);
    let mut estate = Estate::over(house);
    let points = estate.house.shim().clone();
    let all = live(&mut estate, &target, (&points, 0, Side::Before));
    attack(&mut estate, (all, FEW), |estate, _, at, side| live(estate, &target, (&points, at, side)));
    // Leases whose answers were lost end at their expiry.
    (0..PAST_LIFE).for_each(|_| points.past_leases());
    estate.house.until("all users to be dropped", || target.has_leased_roles(0));
    let audit = estate.json_with_retry(&["audit", "verify"]);
    assert_eq!(audit["good"], true, "{audit}");
}
