//! The server, killed at its commits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::House;
use super::flow::Estate;
use super::proxy::Proxy;
use super::{Points, Shim, Side, pairs};
use crate::world::run;

/// Commits of one certificate life tested by default, each before and after.
const FEW: u64 = 5;
/// Commits tested by default on PostgreSQL.
const FEW_POSTGRES: u64 = 3;
/// Commits tested by default from the creation of a certificate to its first version by ACME.
const FEW_ACME: u64 = 3;
/// Commits of a first start tested by default.
const FEW_FIRST: u64 = 4;
/// Maximum time from startup to the first commit of the server's background loops.
const LOOPS_BEGIN: Duration = Duration::from_secs(120);

/// Runs one life after the other, each interrupted at another point.
fn lives(
    estate: &mut Estate,
    points: &dyn Points,
    few: u64,
    live: impl Fn(&mut Estate, &str, (&dyn Points, u64, Side)) -> u64,
) {
    let all = live(estate, "counted.example", (points, 0, Side::Before));
    // The number of commits varies between lives: background tasks commit too, and more in a longer life.
    let mut shortest = all.max(1);
    for (number, (at, side)) in pairs(all, few).into_iter().enumerate() {
        let (at, falls) = (at.min(shortest), estate.falls);
        let name = format!("{side:?}-{at}-{number}.example").to_lowercase();
        let counted = live(estate, &name, (points, at, side));
        // A life with fewer commits leaves the point armed. Disarm it before the next life.
        points.arm(0, side);
        estate.json_with_retry(&["ca", "list"]);
        let killed = estate.falls > falls;
        eprintln!("killed {side:?} commit {at} of some {all}: {killed}");
        assert!(killed || counted < at, "{side:?} commit {at} of {counted} was passed");
        if !killed {
            shortest = counted.max(1);
        }
    }
    assert!(estate.falls > 0, "none was killed");
    estate.verify();
}

#[test]
fn server_survives_a_kill_around_a_commit_without_loss_or_duplicates() {
    let mut estate = Estate::new(None, true);
    let points = estate.house.shim().clone();
    lives(&mut estate, &points, FEW, Estate::live_attacked);
}

#[test]
fn server_on_postgresql_survives_a_kill_around_a_commit() {
    let cluster = store::testing::Cluster::shared();
    let url = cluster.database().to_string();
    let (base_url, folder) = url.split_once("?host=").unwrap();
    let between = tempfile::TempDir::new().unwrap();
    let proxy = Proxy::start(between.path(), &PathBuf::from(folder));
    let url = format!("{base_url}?host={}&sslmode=disable", between.path().display());
    let mut estate = Estate::new(Some(url), true);
    lives(&mut estate, &proxy, FEW_POSTGRES, Estate::live_attacked);
}

/// Kills client and server of an ACME order together, and the challenge response with them.
#[test]
fn acme_order_issues_one_certificate_when_both_sides_are_killed() {
    let mut estate = Estate::new(None, true);
    estate.issue_by_acme();
    let points = estate.house.shim().clone();
    lives(&mut estate, &points, FEW_ACME, Estate::begin);
}

/// Interrupts the very first start. The next start completes it, and an admin can log in.
#[test]
fn interrupted_first_start_is_completed_by_the_next_start() {
    let start = |at: u64, side: Side| {
        let mut house = House::prepared("", None);
        house.put(Shim::new(&house.path("")), true);
        let shim = house.shim().clone();
        shim.arm(at, side);
        let began = house.try_start().is_ok();
        // Background loops commit as well. The last points may come after the server reports that it is up.
        let up = Instant::now();
        while began && shim.counted() < at && up.elapsed() < LOOPS_BEGIN {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A point may already be counted while the shim still decides whether to kill at it.
        let reached = shim.counted() >= at || shim.disarm() >= at;
        let fell = !began || (reached && house.fell());
        shim.disarm();
        assert_eq!(fell, !began || reached, "{side:?} commit {at}: it died where it was to");
        if fell {
            shim.past_leases();
            house.start();
        }
        let entered = run(&mut house.bulla(&["ca", "list", "--output", "json"]));
        assert!(entered.status.success(), "{side:?} commit {at}: {}", crate::world::describe(&entered));
        let cas: serde_json::Value = serde_json::from_slice(&entered.stdout).unwrap();
        assert_eq!(
            cas["rows"].as_array().unwrap().len(),
            2,
            "{side:?} commit {at}: a root and an issuing one"
        );
        house.does(&["cert", "create", "a.example"]);
        house.until("its first certificate", || {
            house.json(&["cert", "show", "a.example"])["status"] == "active"
        });
        assert_eq!(house.json(&["audit", "verify"])["good"], true);
        fell
    };
    let all = commits_of_a_first_start();
    let pairs = pairs(all, FEW_FIRST);
    let fell = pairs.iter().filter(|(at, side)| start(*at, *side)).count();
    assert!(fell > 0, "none of {} was killed", pairs.len());
}

/// Returns the number of commits until the server answers.
fn commits_of_a_first_start() -> u64 {
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), true);
    house.start();
    house.shim().counted()
}
