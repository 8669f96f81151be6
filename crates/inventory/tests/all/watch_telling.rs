//! Tests of the events of watch runs: each problem and its end are reported once, and expected changes are not reported.

use std::collections::BTreeSet;

use fleet::Mix;
use inventory::ownership::{Assignment, Conditions, NewRule, Ownership, TagKeys};
use inventory::tables::watches::WatchOutcome;
use inventory::watch::{NewWatch, Runner, WatchOptions, Watches};
use serde_json::Value;
use store::{OutboxPosition, OutboxRow};
use testbed::{until, until_async};
use uuid::Uuid;

use crate::watch::{ENDPOINTS, HOUR, World};

/// More events than any run in these tests reports.
const EVENTS: i64 = 1_000;

/// A world, one of its nodes, and the position up to which its events were read.
pub(crate) struct Listener {
    pub(crate) world: World,
    pub(crate) node: Watches,
    runner: Runner,
    position: OutboxPosition,
}

/// A set of `subject condition`.
type Events = BTreeSet<String>;

impl Listener {
    pub(crate) async fn new(world: World) -> Self {
        let node = world.node().await;
        let runner = node.runner();
        Self { world, node, runner, position: OutboxPosition::default() }
    }

    /// Runs a watch that is due and returns the events of the run.
    pub(crate) async fn run(&mut self, id: Uuid) -> Vec<OutboxRow> {
        self.world.clock.advance(HOUR);
        assert_eq!(self.runner.tick().await.unwrap(), 1);
        self.runner.idle().await;
        let last = self.world.row(id).await.last.unwrap();
        assert_eq!((last.outcome, &last.error), (WatchOutcome::Finished, &None));
        self.news("watch.finished").await
    }

    /// Returns the events since the last call, up to an event of the kind `last`. On PostgreSQL events become visible once no older
    /// transaction is open in any database of the cluster. Other tests have open transactions.
    async fn news(&mut self, last: &str) -> Vec<OutboxRow> {
        let mut all = Vec::new();
        while all.last().is_none_or(|event: &OutboxRow| event.kind != last) {
            let more = self.world.store.outbox_after(self.position, EVENTS).await.unwrap();
            self.position = more.last().map_or(self.position, |event| event.position);
            if more.is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            all.extend(more);
        }
        all
    }

    /// Returns the problems that are expected from the fleet's own description of its endpoints.
    fn expected(&self) -> Events {
        let mut condition_events = Events::new();
        for truth in self.world.fleet.truth() {
            for condition in truth.findings.iter().filter_map(|code| condition(code)) {
                condition_events.insert(format!("endpoint/{} {condition}", truth.target));
            }
        }
        condition_events
    }
}

fn is_critical(code: &str) -> bool {
    let mut all = x509::lint::RULES.iter().chain(scan::rules::RULES);
    all.any(|rule| rule.code == code && rule.severity == x509::Severity::Critical)
}

fn condition(code: &str) -> Option<&'static str> {
    Some(match code {
        "endpoint.name-mismatch" => "mismatch",
        "chain.self-signed"
        | "chain.untrusted-root"
        | "chain.incomplete"
        | "chain.expired-intermediate"
        | "chain.invalid" => "untrusted",
        "certificate.weak-key"
        | "certificate.weak-signature"
        | "certificate.sha1-signature"
        | "protocol.obsolete"
        | "protocol.weak-cipher" => "weak",
        "endpoint.staple-revoked" => "revoked",
        "endpoint.key-not-proven" => "key_not_proven",
        "certificate.not-yet-valid" => "not_yet_valid",
        // The fleet's leaf with a lifetime of ten years outlives the CA that issued it.
        "certificate.lifetime" => "chain_ends",
        "certificate.expired" => return None,
        _ if is_critical(code) => "critical",
        _ => return None,
    })
}

pub(crate) fn body(event: &OutboxRow) -> Value {
    serde_json::from_str(&event.body).unwrap()
}

fn condition_events(events: &[OutboxRow], kind: &str) -> Events {
    let of_kind = events.iter().filter(|event| event.kind == kind);
    let all: Vec<String> = of_kind
        .map(|event| format!("{} {}", event.subject, body(event)["condition"].as_str().unwrap()))
        .collect();
    let set: Events = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len(), "each is told once");
    set
}

pub(crate) fn kinds(events: &[OutboxRow]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

async fn troubles_are_told_once_and_their_end_too(world: World) {
    let mut listener = Listener::new(world).await;
    let row = listener.node.create(&listener.world.watch("edge"), "user:a").await.unwrap();
    let first = listener.run(row.id).await;
    let reported = condition_events(&first, "endpoint.trouble");
    let expected = listener.expected();
    let differ: Vec<_> = reported.symmetric_difference(&expected).collect();
    assert!(differ.is_empty(), "told or expected alone: {differ:?}");
    assert!(reported.len() > 5, "{reported:?}");
    assert!(!kinds(&first).contains(&"endpoint.certificate_changed"), "what is there at first is not new");
    let found = first.iter().filter(|event| event.kind == "certificate.found").count();
    assert!(found > 10, "{found}");

    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"], "nothing has changed");

    // First one endpoint is removed from the watch, then the watch itself.
    let mut removed: Vec<String> = reported
        .iter()
        .filter_map(|one| one.strip_prefix("endpoint/")?.split(' ').next().map(str::to_owned))
        .collect();
    let removed = removed.swap_remove(0);
    let mut fewer: NewWatch = listener.world.watch("edge");
    fewer.spec.targets.retain(|target| *target != removed);
    let read = listener.world.row(row.id).await;
    listener.node.update(&read, &fewer, "user:a").await.unwrap();
    let events = listener.run(row.id).await;
    let of_removed: Events =
        reported.iter().filter(|one| one.starts_with(&format!("endpoint/{removed} "))).cloned().collect();
    assert_eq!(condition_events(&events, "endpoint.trouble_over"), of_removed);
    assert_eq!(condition_events(&events, "endpoint.trouble"), Events::new());

    let read = listener.world.row(row.id).await;
    listener.node.delete(&read, "user:a").await.unwrap();
    let events = listener.news("watch.removed").await;
    assert_eq!(condition_events(&events, "endpoint.trouble_over"), &reported - &of_removed);
    assert!(
        inventory::tables::EndpointNotices::of(&listener.world.store)
            .unseen_endpoints(row.id, None, 0, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let ends = |events: &[OutboxRow], kind: &str| -> BTreeSet<String> {
        events.iter().filter(|event| event.kind == kind).map(|event| event.subject.clone()).collect()
    };
    let unserved = ends(&events, "certificate.unserved");
    assert!(
        unserved.is_subset(&ends(&first, "certificate.found")) && unserved.len() + 3 > found,
        "{unserved:?}"
    );
    listener.world.fleet.stop().await;
}

async fn a_renewal_is_expected_and_another_endpoint_is_new(world: World) {
    let mut listener = Listener::new(world).await;
    let mut new = listener.world.watch("edge");
    let late = new.spec.targets.pop().unwrap();
    let row = listener.node.create(&new, "user:a").await.unwrap();
    let first = listener.run(row.id).await;
    assert_eq!(condition_events(&first, "endpoint.trouble"), Events::new());

    let truth = listener.world.fleet.truth().into_iter().find(|truth| truth.target != late).unwrap();
    let now = listener.world.fleet.replace_certificate(&truth.host).unwrap();
    new.spec.targets.push(late.clone());
    let read = listener.world.row(row.id).await;
    listener.node.update(&read, &new, "user:a").await.unwrap();
    let events = listener.run(row.id).await;
    let changed: BTreeSet<(String, String, bool)> = events
        .iter()
        .filter(|event| event.kind == "endpoint.certificate_changed")
        .map(|event| {
            let body = body(event);
            (event.subject.clone(), body["change"].as_str().unwrap().to_owned(), body["quiet"] == true)
        })
        .collect();
    let expected = [
        (format!("endpoint/{}", truth.target), "renewed".to_owned(), true),
        (format!("endpoint/{late}"), "new".to_owned(), false),
    ];
    assert_eq!(changed, BTreeSet::from(expected));
    let of = |kind: &str| -> Vec<&str> {
        events.iter().filter(|event| event.kind == kind).map(|event| event.subject.as_str()).collect()
    };
    assert!(of("certificate.found").contains(&format!("found/{now}").as_str()));
    assert_eq!(of("certificate.unserved"), [format!("found/{}", truth.leaf_sha256.unwrap())]);
    listener.world.fleet.stop().await;
}

async fn silence_is_told_once_and_its_end_too(world: World) {
    let mut listener = Listener::new(world).await;
    let row = listener.node.create(&listener.world.watch("edge"), "user:a").await.unwrap();
    let first = listener.run(row.id).await;
    assert_eq!(condition_events(&first, "endpoint.trouble"), Events::new());
    // Names are no longer resolved, so no endpoint answers.
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let other_node = listener.world.node_with(closed, WatchOptions::default()).await;
    let local = std::mem::replace(&mut listener.runner, other_node.runner());
    let events = listener.run(row.id).await;
    let targets = listener.world.targets.iter();
    let silent: Events = targets.map(|target| format!("endpoint/{target} silent")).collect();
    assert_eq!(condition_events(&events, "endpoint.trouble"), silent);
    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"], "it is told once");
    listener.runner = local;
    let events = listener.run(row.id).await;
    assert_eq!(condition_events(&events, "endpoint.trouble_over"), silent);
    assert_eq!(condition_events(&events, "endpoint.trouble"), Events::new());
    listener.world.fleet.stop().await;
}

/// The run ends while a pass waits for the database, which another process holds. SQLite commits a transaction even if its caller no
/// longer waits: the last pass must not begin before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_under_way_at_the_end_of_a_run_is_not_repeated_by_the_last_pass() {
    let (world, gates) = World::sqlite_with(Mix::Healthy).await.gated();
    let mut listener = Listener::new(world).await;
    let row = listener.node.create(&listener.world.watch("edge"), "user:a").await.unwrap();
    assert_eq!(listener.runner.tick().await.unwrap(), 1);
    let world = &listener.world;
    until_async("all endpoints are stored", async || {
        world.scans().await.iter().any(|scan| scan.observations == ENDPOINTS as u64)
    })
    .await;
    let write_lock = world.lock_writes("endpoints_told");
    let before = world.store.statements_sent();
    gates.notices.add_permits(1);
    // The pass reads the rules and the endpoints, then it waits for the lock.
    until("the pass has read the endpoints", || world.store.statements_sent() >= before + 2).await;
    gates.end.add_permits(1);
    // A last pass that does not wait would read the endpoints now, and queue a second transaction.
    let queued = || world.store.pools().iter().any(|pool| pool.name == "writers" && pool.in_use > 0);
    for _ in 0..20 {
        if queued() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    drop(write_lock);
    listener.runner.idle().await;
    assert_eq!(listener.world.row(row.id).await.last.unwrap().outcome, WatchOutcome::Finished);
    let events = listener.news("watch.finished").await;
    let found: Vec<_> = events.iter().filter(|event| event.kind == "certificate.found").collect();
    let certificates: BTreeSet<_> = found.iter().map(|event| &event.subject).collect();
    assert_eq!((certificates.len(), certificates.len() > 10), (found.len(), true), "each is told once");
    listener.world.fleet.stop().await;
}

fn owned(name: &str, position: u32, when: Conditions) -> NewRule {
    let assign = Assignment {
        team: Some(name.to_owned()),
        owner: Some("ann".to_owned()),
        environment: Some("lab".to_owned()),
        tags: [("from".to_owned(), name.to_owned())].into(),
    };
    NewRule { name: name.to_owned(), position: Some(position), when, assign, from_tags: TagKeys::default() }
}

async fn events_name_the_owner_and_follow_rule_changes(world: World) {
    let mut listener = Listener::new(world).await;
    let rules = Ownership::new(listener.world.store.clone(), listener.world.clock.clone());
    let local = Conditions {
        network: Some("127.0.0.0/8".to_owned()),
        source: Some("FLEET".to_owned()),
        ..Conditions::default()
    };
    rules.create(&owned("rest", 20, local), "user:a").await.unwrap();
    let elsewhere = Conditions { network: Some("192.0.2.0/24".to_owned()), ..Conditions::default() };
    rules.create(&owned("elsewhere", 10, elsewhere), "user:a").await.unwrap();

    let row = listener.node.create(&listener.world.watch("edge"), "user:a").await.unwrap();
    let first = listener.run(row.id).await;
    let of = |events: &[OutboxRow], kind: &str| -> Vec<Value> {
        events.iter().filter(|event| event.kind == kind).map(body).collect()
    };
    let (troubles, found) = (of(&first, "endpoint.trouble"), of(&first, "certificate.found"));
    assert!(troubles.len() > 5 && found.len() > 10, "{} {}", troubles.len(), found.len());
    for reported in troubles.iter().chain(&found) {
        let says =
            (&reported["team"], &reported["owner"], &reported["environment"], &reported["tags"]["from"]);
        let [rest, ann, lab] = ["rest", "ann", "lab"].map(Value::from);
        assert_eq!(says, (&rest, &ann, &lab, &rest), "{reported}");
    }

    // A rule for one certificate: the expiry events of certificates are reported again with their owner, and nothing else.
    let mut names = found.iter().filter_map(|reported| reported["certificate_name"].as_str());
    let name = names.find(|name| !name.contains('=')).unwrap().to_owned();
    let one = Conditions { name: Some(name.clone()), ..Conditions::default() };
    rules.create(&owned("one", 1, one), "user:a").await.unwrap();
    let events = listener.run(row.id).await;
    let repeated = of(&events, "certificate.found");
    assert_eq!((repeated.len(), events.len()), (found.len(), found.len() + 1), "and the run's end");
    for reported in &repeated {
        let wanted =
            if reported["certificate_name"] == name.as_str() { &["one"][..] } else { &["one", "rest"] };
        assert!(wanted.contains(&reported["team"].as_str().unwrap()), "{reported}");
    }
    assert!(repeated.iter().any(|reported| reported["team"] == "rest"));
    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"], "nothing has changed");
    listener.world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_name_the_owner_and_follow_rule_changes_on_sqlite() {
    events_name_the_owner_and_follow_rule_changes(World::sqlite_with(Mix::AllKinds).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_name_the_owner_and_follow_rule_changes_on_postgres() {
    events_name_the_owner_and_follow_rule_changes(World::postgres_with(Mix::AllKinds).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_endpoint_and_its_recovery_are_reported_once_on_sqlite() {
    silence_is_told_once_and_its_end_too(World::sqlite_with(Mix::Healthy).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_endpoint_and_its_recovery_are_reported_once_on_postgres() {
    silence_is_told_once_and_its_end_too(World::postgres_with(Mix::Healthy).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_and_their_end_are_reported_once_on_sqlite() {
    troubles_are_told_once_and_their_end_too(World::sqlite_with(Mix::AllKinds).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_and_their_end_are_reported_once_on_postgres() {
    troubles_are_told_once_and_their_end_too(World::postgres_with(Mix::AllKinds).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_is_quiet_and_added_endpoint_is_new_on_sqlite() {
    a_renewal_is_expected_and_another_endpoint_is_new(World::sqlite_with(Mix::Healthy).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_is_quiet_and_added_endpoint_is_new_on_postgres() {
    a_renewal_is_expected_and_another_endpoint_is_new(World::postgres_with(Mix::Healthy).await).await;
}
