//! The server, killed at its commits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::House;
use super::flow::Estate;
use super::proxy::Proxy;
use super::{Points, Shim, Side, pairs};
use crate::world::run;

/// Commits of a life that are tried when not all are, each before and after.
const FEW: u64 = 5;
/// The same on PostgreSQL, where a commit is a commit as well.
const FEW_POSTGRES: u64 = 3;
/// Commits from the entry of a certificate to its first version by ACME.
const FEW_ACME: u64 = 3;
/// Commits of a first start.
const FEW_FIRST: u64 = 4;
/// How long after it is up a server's loops may take to commit for the first time.
const LOOPS_BEGIN: Duration = Duration::from_secs(30);

/// One life after the other, each cut off at another point.
fn lives(
    estate: &mut Estate,
    points: &dyn Points,
    few: u64,
    live: impl Fn(&mut Estate, &str, (&dyn Points, u64, Side)) -> u64,
) {
    let all = live(estate, "counted.example", (points, 0, Side::Before));
    let pairs = pairs(all, few);
    for (at, side) in &pairs {
        let falls = estate.falls;
        let name = format!("{side:?}-{at}.example").to_lowercase();
        let counted = live(estate, &name, (points, *at, *side));
        // A life that had fewer commits than that leaves the point armed: it is the next one's no more.
        points.arm(0, *side);
        estate.asked(&["ca", "list"]);
        let killed = estate.falls > falls;
        eprintln!("killed {side:?} commit {at} of some {all}: {killed}");
        assert!(killed || counted < *at, "{side:?} commit {at} of {counted} was passed");
    }
    // A life has more or fewer commits than another: what goes on beside it commits too, the more the longer it takes.
    assert!(estate.falls as usize * 2 > pairs.len(), "{} of {} were killed", estate.falls, pairs.len());
    estate.verify();
}

#[test]
fn a_server_killed_around_a_commit_loses_nothing_and_issues_nothing_twice() {
    let mut estate = Estate::new(None, true);
    let points = estate.house.shim().clone();
    lives(&mut estate, &points, FEW, Estate::live_attacked);
}

#[test]
fn a_server_killed_around_a_commit_on_postgresql_loses_nothing_and_issues_nothing_twice() {
    let cluster = store::testing::Cluster::shared();
    let url = cluster.database().to_string();
    let (place, folder) = url.split_once("?host=").unwrap();
    let between = tempfile::TempDir::new().unwrap();
    let proxy = Proxy::start(between.path(), &PathBuf::from(folder));
    let url = format!("{place}?host={}&sslmode=disable", between.path().display());
    let mut estate = Estate::new(Some(url), true);
    lives(&mut estate, &proxy, FEW_POSTGRES, Estate::live_attacked);
}

/// Client and server of an ACME order fall together, and its proof with them.
#[test]
fn an_acme_order_whose_both_sides_are_killed_around_a_commit_gives_one_certificate() {
    let mut estate = Estate::new(None, true);
    estate.issue_by_acme();
    let points = estate.house.shim().clone();
    lives(&mut estate, &points, FEW_ACME, Estate::begin);
}

/// The very first start, cut off: the next one ends what it began, and somebody can enter.
#[test]
fn a_first_start_that_is_killed_is_ended_by_the_next_one() {
    let start = |at: u64, side: Side| {
        let mut house = House::prepared("", None);
        house.put(Shim::new(&house.path("")), true);
        let shim = house.shim().clone();
        shim.arm(at, side);
        let began = house.try_start().is_ok();
        // Loops that begin with the server commit beside it: the last points may come after it says that it is up.
        let up = Instant::now();
        while began && shim.counted() < at && up.elapsed() < LOOPS_BEGIN {
            std::thread::sleep(Duration::from_millis(5));
        }
        // While it has been counted only, it may still be looked up whether this is the one.
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
    assert!(fell * 2 > pairs.len(), "{fell} of {} were killed", pairs.len());
}

/// Until it answers.
fn commits_of_a_first_start() -> u64 {
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), true);
    house.start();
    house.shim().counted()
}
