//! Dynamic credentials, created and revoked while the server is killed at its commits: no user at the database outlives its lease.

use super::credential::attack;
use super::flow::Estate;
use super::{Points, Shim, Side};
use crate::control::House;
use crate::control::leases::Target;
use crate::world::{describe, run};

const ROLE: &str = "/team/db/read-only";
/// Exit code for a lease that does not exist.
const NO_LEASE: i32 = 6;
/// Exit code for a user that the database has not dropped yet. The lease is revoked, and the server retries the drop.
const NOT_DROPPED: i32 = 3;

/// Revokes a lease as a client that retries.
fn revoke(estate: &mut Estate, name: &str, id: &str) {
    loop {
        let output = run(&mut estate.house.bulla(&["credential", "lease", "revoke", id]));
        // After a lost answer the lease may have ended.
        if matches!(output.status.code(), Some(0 | NO_LEASE | NOT_DROPPED)) {
            return;
        }
        assert!(estate.house.fell(), "{name}: {}", describe(&output));
        estate.raise();
    }
}

/// Creates two credentials as a client that retries, and revokes one. Afterwards the users of the database are exactly
/// the users of the leases. Returns the number of kill points.
fn live(
    estate: &mut Estate,
    target: &Target,
    name: &str,
    (points, at, side): (&dyn Points, u64, Side),
) -> u64 {
    points.arm(at, side);
    let create = ["credential", "lease", "create", ROLE, "--ttl", "1d"];
    // A client that loses the answer has no credential, and creates another one.
    let [kept, revoked] = [(); 2].map(|()| estate.asked(&create));
    let id = revoked["id"].as_str().unwrap();
    revoke(estate, name, id);
    let counted = points.counted();
    points.arm(0, side);
    estate.asked(&["ca", "list"]);
    // A lease whose creation was interrupted ends a minute after it began.
    estate.house.shim().past_leases();
    let user = |lease: &serde_json::Value| lease["username"].as_str().unwrap().to_owned();
    let (kept_user, revoked_user) = (user(&kept), user(&revoked));
    let mut listed = Vec::new();
    estate.house.until("only the users of leases exist", || {
        let leases = estate.house.json(&["credential", "lease", "list"]);
        listed = leases["rows"].as_array().unwrap().iter().map(user).collect();
        listed == [kept_user.as_str()] && target.users() == 1
    });
    assert!(target.has_role(&kept_user) && !target.has_role(&revoked_user), "{name}: {listed:?}");
    revoke(estate, name, kept["id"].as_str().unwrap());
    estate.house.until("no user is left", || target.users() == 0);
    counted
}

#[test]
fn database_users_never_outlive_their_leases_when_the_server_is_killed() {
    let target = Target::start();
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), true);
    house.start();
    target.configure(&house);
    let mut estate = Estate::over(house);
    let points = estate.house.shim().clone();
    let all = live(&mut estate, &target, "counted", (&points, 0, Side::Before));
    attack(&mut estate, all, |estate, name, at, side| live(estate, &target, name, (&points, at, side)));
    let audit = estate.asked(&["audit", "verify"]);
    assert_eq!(audit["good"], true, "{audit}");
}
