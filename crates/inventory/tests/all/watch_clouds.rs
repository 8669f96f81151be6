//! Tests of watches that list certificates in clouds and clusters along with their scans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clouds::{
    Chain, CloudCertificate, CloudResource, CloudSource, CloudStore, Provider, Sink, SourceError, Tags,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use inventory::history::History;
use inventory::ownership::{Assignment, Conditions, NewRule, Ownership, TagKeys};
use inventory::tables::history::HistoryKey;
use inventory::watch::{NewWatch, WatchError, WatchOptions};
use outbound::Deadline;
use parking_lot::Mutex;
use store::{EndpointKey, InventoryRow, OutboxRow};
use x509::Fingerprint;

use crate::watch::World;
use crate::watch_telling::{Listener, body, kinds};

/// A part whose listing can fail independently of the other part.
const EAST: &str = "east";
const WEST: &str = "west";

/// A source with two parts, filled by the test.
pub(crate) struct Shelf {
    name: Arc<str>,
    /// Certificate chains, by part and resource name.
    stored: Mutex<BTreeMap<(&'static str, &'static str), Vec<Vec<u8>>>>,
    /// Tags, by resource name.
    tags: Mutex<BTreeMap<&'static str, Tags>>,
    east_denied: AtomicBool,
    read: AtomicUsize,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            name: "kubernetes/shelf".into(),
            stored: Mutex::default(),
            tags: Mutex::default(),
            east_denied: AtomicBool::new(false),
            read: AtomicUsize::new(0),
        }
    }
}

impl Shelf {
    fn put(&self, part: &'static str, resource: &'static str, chain: &[Vec<u8>]) {
        self.stored.lock().insert((part, resource), chain.to_vec());
    }

    fn take(&self, part: &'static str, resource: &'static str) {
        assert!(self.stored.lock().remove(&(part, resource)).is_some());
    }

    fn tag(&self, resource: &'static str, tags: &[(&str, &str)]) {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.tags.lock().insert(resource, tags);
    }

    fn read(&self) -> usize {
        self.read.load(Ordering::SeqCst)
    }

    async fn list_all(&self, sink: &Sink) -> Result<(), SourceError> {
        let stored = self.stored.lock().clone();
        for part in [EAST, WEST] {
            if part == EAST && self.east_denied.load(Ordering::SeqCst) {
                sink.failed(part, SourceError::Configuration("no credentials".to_owned()));
                continue;
            }
            for ((_, name), chain) in stored.iter().filter(|((of, _), _)| *of == part) {
                let resource = CloudResource { store: CloudStore::KubernetesSecret, name: (*name).into() };
                let marker = Fingerprint::of(&chain[0]).to_string();
                let chain = sink.unchanged(&resource, &marker).unwrap_or_else(|| {
                    self.read.fetch_add(1, Ordering::SeqCst);
                    Chain::Read(chain.clone())
                });
                let used_by = Vec::new();
                let tags = Some(self.tags.lock().get(name).cloned().unwrap_or_default());
                let certificate =
                    CloudCertificate { resource, chain, not_after: None, used_by, tags, marker };
                sink.seen(part, certificate).await?;
            }
            sink.listed(part);
        }
        Ok(())
    }
}

impl CloudSource for Shelf {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn provider(&self) -> Provider {
        Provider::Kubernetes
    }

    fn list<'a>(&'a self, sink: &'a Sink, _: Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        self.list_all(sink).boxed()
    }
}

fn chain() -> Vec<Vec<u8>> {
    x509::pem::certificates(include_bytes!("../../../scan/tests/fixtures/chain.pem"))
        .map(|(_, der)| der)
        .collect()
}

/// Returns the subjects of the events of `kind`.
fn of(events: &[OutboxRow], kind: &str) -> BTreeSet<String> {
    events.iter().filter(|event| event.kind == kind).map(|event| event.subject.clone()).collect()
}

fn found(leaf: &[u8]) -> BTreeSet<String> {
    BTreeSet::from([format!("found/{}", Fingerprint::of(leaf))])
}

/// Returns the counts of the last run.
fn counts(events: &[OutboxRow]) -> serde_json::Value {
    body(events.iter().find(|event| event.kind == "watch.finished").unwrap())["counts"].clone()
}

async fn what_clouds_keep_is_listed_beside_the_looks(world: World) {
    let (chain, root) =
        (chain(), x509::pem::certificates(world.fleet.roots_pem().as_bytes()).next().unwrap().1);
    world.shelf.put(WEST, "prod/web/tls", &chain);
    world.shelf.put(EAST, "prod/mesh/root", std::slice::from_ref(&root));
    let mut listener = Listener::new(world).await;
    let mut new: NewWatch = listener.world.watch("estate");
    new.spec.sources = vec!["kubernetes/shelf".to_owned()];
    let row = listener.node.create(&new, "user:a").await.unwrap();

    let first = listener.run(row.id).await;
    let counted = counts(&first);
    let scanned = listener.world.targets.len() as u64;
    assert_eq!(counted["endpoints"], scanned + 2, "{counted}");
    assert_eq!(
        (&counted["answered"], &counted["not_listed"]),
        (&(scanned + 2).into(), &0.into()),
        "{counted}"
    );
    assert!(of(&first, "certificate.found").is_superset(&found(&chain[0])));
    let stored = first.iter().find(|event| found(&chain[0]).contains(&event.subject)).unwrap();
    assert_eq!(body(stored)["detail"], "kept in kubernetes-secret:prod/web/tls");
    assert!(of(&first, "endpoint.certificate_changed").is_empty(), "what is there at first is not new");
    assert_eq!(listener.world.shelf.read(), 2);

    // Nothing has changed: no certificate is read, and nothing is reported.
    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"]);
    assert_eq!(listener.world.shelf.read(), 2);

    // A certificate is not reported as removed if its part could not be listed.
    listener.world.shelf.east_denied.store(true, Ordering::SeqCst);
    listener.world.shelf.take(WEST, "prod/web/tls");
    let events = listener.run(row.id).await;
    let counted = counts(&events);
    assert_eq!(counted["not_listed"], 1);
    assert_eq!(counted["not_listed_first"][0], "kubernetes/shelf east: no credentials");
    assert_eq!(kinds(&events), ["watch.finished"], "of what is missing the next whole run tells");

    // A certificate that its source no longer lists is reported as removed. A new location is reported as new.
    listener.world.shelf.east_denied.store(false, Ordering::SeqCst);
    listener.world.shelf.put(WEST, "prod/api/tls", std::slice::from_ref(&root));
    let events = listener.run(row.id).await;
    assert_eq!(counts(&events)["not_listed"], 0);
    let reported: Vec<_> = of(&events, "endpoint.certificate_changed").into_iter().collect();
    assert_eq!(reported, ["endpoint/kubernetes-secret:prod/api/tls"]);
    assert_eq!(of(&events, "certificate.unserved"), found(&chain[0]));
    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"]);

    // A watch of clouds only, then a watch of an unknown source.
    let mut alone = NewWatch { name: "clouds".to_owned(), ..new.clone() };
    alone.spec.targets.clear();
    let alone = listener.node.create(&alone, "user:a").await.unwrap();
    let (store, clock) = (listener.world.store.clone(), listener.world.clock.clone());
    let samples = History::new(store.clone(), clock, None).samples().clone();
    let options = WatchOptions { samples: Some(samples.clone()), ..WatchOptions::default() };
    let node = listener.world.node_with(listener.world.fleet.dns(), options).await;
    let mut runner = node.runner();
    assert_eq!(runner.tick().await.unwrap(), 1);
    runner.idle().await;
    let last = listener.world.row(alone.id).await.last.unwrap();
    let counted: serde_json::Value = serde_json::from_str(&last.counts.unwrap()).unwrap();
    assert_eq!((&counted["endpoints"], &counted["answered"]), (&2.into(), &2.into()), "{counted}");
    // The duration of listings is its own series, separate from the duration of scans.
    samples.store(&store).await.unwrap();
    let rows =
        inventory::tables::History::of(&store).page(&HistoryKey::default(), i64::MAX, 100).await.unwrap();
    let durations: Vec<_> =
        rows.iter().map(|row| row.key.series.as_str()).filter(|series| series.contains("duration")).collect();
    assert_eq!(durations, ["list.duration/1-9"]);
    let mut unknown = NewWatch { name: "unknown".to_owned(), ..new };
    unknown.spec.sources = vec!["aws".to_owned()];
    let refused = listener.node.create(&unknown, "user:a").await.unwrap_err();
    assert!(matches!(&refused, WatchError::Invalid(why) if why.contains("aws")), "{refused}");
    listener.world.fleet.stop().await;
}

/// The tags of a certificate in a cloud store determine its owner, there and wherever else the certificate is served.
async fn a_clouds_own_tags_say_whose_a_certificate_is(world: World) {
    let (chain, root) =
        (chain(), x509::pem::certificates(world.fleet.roots_pem().as_bytes()).next().unwrap().1);
    world.shelf.put(WEST, "prod/web/tls", &chain);
    world.shelf.put(WEST, "prod/web/copy", &chain);
    world.shelf.put(EAST, "prod/mesh/root", std::slice::from_ref(&root));
    world.shelf.tag("prod/web/tls", &[("team", "payments"), ("env", "live")]);
    let mut listener = Listener::new(world).await;
    let rules = Ownership::new(listener.world.store.clone(), listener.world.clock.clone());
    let text = |text: &str| Some(text.to_owned());
    let rule = |name: &str, position: u32, when: Conditions, team: &str, from_tags: TagKeys| NewRule {
        name: name.to_owned(),
        position: Some(position),
        when,
        assign: Assignment { team: text(team), ..Assignment::default() },
        from_tags,
    };
    let taken = TagKeys { team: text("Team"), environment: text("env"), ..TagKeys::default() };
    let from_tags = rule("tags", 10, Conditions::default(), "nobody", taken);
    rules.create(&from_tags, "user:a").await.unwrap();
    let rest = rule("rest", 20, Conditions::default(), "platform", TagKeys::default());
    rules.create(&rest, "user:a").await.unwrap();

    let mut new: NewWatch = listener.world.watch("estate");
    new.spec.sources = vec!["kubernetes/shelf".to_owned()];
    let row = listener.node.create(&new, "user:a").await.unwrap();
    let of = |events: &[OutboxRow], leaf: &[u8]| {
        let subject = found(leaf).pop_first().unwrap();
        let reported =
            events.iter().rfind(|event| event.kind == "certificate.found" && event.subject == subject);
        let body = body(reported?);
        Some((body["team"].as_str()?.to_owned(), body["environment"].as_str().map(str::to_owned)))
    };
    let first = listener.run(row.id).await;
    assert_eq!(of(&first, &root), Some(("platform".to_owned(), None)), "it has no tags");
    let named = of(&first, &chain[0]).unwrap();
    assert!(
        [("payments", Some("live")), ("platform", None)].contains(&(named.0.as_str(), named.1.as_deref())),
        "a place has its own tags and no others: {named:?}"
    );
    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"], "nothing has changed");

    // A change of a tag that no rule uses is not reported.
    listener.world.shelf.tag("prod/web/tls", &[("team", "payments"), ("env", "live"), ("version", "2")]);
    assert_eq!(kinds(&listener.run(row.id).await), ["watch.finished"]);

    // A reported certificate gets other tags: its expiry is reported again with the new owner.
    listener.world.shelf.tag("prod/web/tls", &[("team", "bank")]);
    listener.world.shelf.tag("prod/web/copy", &[("team", "bank")]);
    let events = listener.run(row.id).await;
    assert_eq!(of(&events, &chain[0]), Some(("bank".to_owned(), None)));
    assert!(
        events.iter().all(|event| ["certificate.found", "watch.finished"].contains(&event.kind.as_str()))
    );

    // An endpoint is owned by every team that the tags of its stored certificate name.
    let store = &listener.world.store;
    let endpoints = store::Inventory::of(store)
        .endpoints_of_certificate(Fingerprint::of(&chain[0]).as_bytes(), None, 10)
        .await;
    let stored = endpoints.unwrap().rows.swap_remove(0);
    let served = InventoryRow {
        endpoint: EndpointKey {
            host: "web.example".to_owned(),
            port: 443,
            protocol: "tls".to_owned(),
            server_name: "web.example".to_owned(),
            address: String::new(),
        },
        ..stored.clone()
    };
    let all = rules.rules().await.unwrap();
    let before = store.statements_sent();
    let assignments = all.assignments_for(store, &[stored, served.clone()]).await.unwrap();
    assert!(store.statements_sent() - before <= 4, "four statements at most");
    let teams: Vec<_> = assignments.into_iter().map(|assign| assign.unwrap().team.unwrap()).collect();
    assert_eq!(teams, ["bank", "bank"]);

    // Once no location keeps the certificate, its tags are removed too.
    listener.world.shelf.take(WEST, "prod/web/tls");
    listener.world.shelf.take(WEST, "prod/web/copy");
    listener.run(row.id).await;
    let assignments = all.assignments_for(&listener.world.store, &[served]).await.unwrap();
    assert_eq!(assignments[0].as_ref().unwrap().team.as_deref(), Some("platform"));
    listener.world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_tags_determine_certificate_ownership_on_sqlite() {
    a_clouds_own_tags_say_whose_a_certificate_is(World::sqlite_with(fleet::Mix::Healthy).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_tags_determine_certificate_ownership_on_postgres() {
    a_clouds_own_tags_say_whose_a_certificate_is(World::postgres_with(fleet::Mix::Healthy).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_certificates_are_listed_along_with_scans_on_sqlite() {
    what_clouds_keep_is_listed_beside_the_looks(World::sqlite_with(fleet::Mix::Healthy).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_certificates_are_listed_along_with_scans_on_postgres() {
    what_clouds_keep_is_listed_beside_the_looks(World::postgres_with(fleet::Mix::Healthy).await).await;
}
