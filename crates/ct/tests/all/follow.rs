//! Tests of the static-ct log follower with honest and misbehaving logs.

use std::time::Duration;

use ct::follow::{Alarm, FollowError, FollowOptions, Follower, LogPosition, StartPosition, Step};
use ct::{DomainSet, Issuance, LogKey, LogList};
use fleet::ct::{CtAuthority, CtLog, CtLogOptions, IssuedPair, Quota, Trouble};
use outbound::http::Client;
use outbound::rate::Pace;
use outbound::resolve::Resolver;
use store::Clock;

const DAYS: i64 = 90;

fn client() -> Client {
    Client::new(&Resolver::with_upstreams(Vec::new()), &outbound::http::Options::default()).unwrap()
}

fn now() -> i64 {
    Clock::system().now_seconds()
}

/// Follows from the beginning and reads partial tiles immediately, so that tests need not wait for tiles to fill.
fn options() -> FollowOptions {
    FollowOptions {
        start: StartPosition::Beginning,
        partial_wait_max: Duration::ZERO,
        pace: Pace::default(),
        ..FollowOptions::default()
    }
}

struct World {
    log: CtLog,
    authority: CtAuthority,
    follower: Follower,
    domains: DomainSet,
    clock: Clock,
}

impl World {
    async fn new() -> Self {
        Self::with(&CtLogOptions::default(), options()).await
    }

    async fn with(log: &CtLogOptions, options: FollowOptions) -> Self {
        let log = CtLog::start(log).await.unwrap();
        let clock = Clock::manual(now() * 1_000_000);
        let key = LogKey::new(log.submission_url(), log.spki()).unwrap();
        let follower = Follower::new(key, &log.monitoring_url(), client(), options, clock.clone());
        let domains = DomainSet::compile(["ours.example"], 7).unwrap();
        Self { log, authority: CtAuthority::new(1).unwrap(), follower, domains, clock }
    }

    /// Logs `count` entries: certificates of another domain, and ours at the given indexes. Returns ours.
    fn fill(&self, count: usize, ours: &[usize]) -> Vec<IssuedPair> {
        let other = self.issue("other.example");
        let mut logged = Vec::new();
        for position in 0..count {
            if ours.contains(&position) {
                let pair = self.issue(&format!("host-{position}.ours.example"));
                self.log.add_precertificate(&pair);
                logged.push(pair);
            } else if position % 2 == 0 {
                self.log.add_precertificate(&other);
            } else {
                self.log.add_certificate(&other);
            }
        }
        self.log.publish().unwrap();
        logged
    }

    fn issue(&self, name: &str) -> IssuedPair {
        self.authority.issue(&[name], now(), DAYS).unwrap()
    }

    async fn step(&self, position: Option<&LogPosition>) -> Result<Step, FollowError> {
        self.follower.step(position, &self.domains).await
    }

    /// Steps until nothing is left to read. Serializes and parses the position after each step, as the database does.
    async fn follow(&self, position: Option<LogPosition>) -> (Vec<String>, LogPosition) {
        let (mut names, mut position) = (Vec::new(), position);
        loop {
            let step = self.step(position.as_ref()).await.unwrap();
            names.extend(step.matches.iter().map(|one| one.issuance.names[0].clone()));
            let row = serde_json::to_string(&step.position).unwrap();
            let stored: LogPosition = serde_json::from_str(&row).unwrap();
            if !step.more {
                return (names, stored);
            }
            position = Some(stored);
        }
    }

    async fn alarm(&self, position: &LogPosition) -> Alarm {
        match self.step(Some(position)).await {
            Err(FollowError::Alarm(alarm)) => *alarm,
            other => panic!("no alarm: {other:?}"),
        }
    }
}

fn names(pairs: &[IssuedPair]) -> Vec<String> {
    pairs.iter().map(|pair| pair.names[0].clone()).collect()
}

#[tokio::test]
async fn every_log_entry_is_read_once_across_restarts() {
    for (gzip, drop_partials) in [(true, true), (false, false)] {
        let log = CtLogOptions { gzip, drop_partials, ..CtLogOptions::default() };
        let world = World::with(&log, FollowOptions { tiles_per_step: 1, ..options() }).await;
        let mut ours = world.fill(700, &[0, 255, 256, 511, 512, 699]);
        let (mut found, position) = world.follow(None).await;
        assert_eq!((position.next, position.size, position.behind()), (700, 700, 0));
        // The tile that was partial is full now, and the log has grown beyond it.
        ours.extend(world.fill(400, &[0, 67, 68, 399]));
        let (more, position) = world.follow(Some(position)).await;
        found.extend(more);
        assert_eq!(found, names(&ours), "gzip {gzip}");
        assert_eq!(position.next, 1_100);
        assert_eq!(world.follow(Some(position.clone())).await, (Vec::new(), position), "nothing new");
        world.log.stop().await;
    }
}

#[tokio::test]
async fn follower_starts_at_the_tree_head_of_a_listed_log() {
    let world = World::new().await;
    let before = world.fill(300, &[299]);
    let list = LogList::parse(world.log.log_list().as_bytes()).unwrap();
    let log = &list.tiled[0];
    let options = FollowOptions { start: StartPosition::Head, ..options() };
    let follower =
        Follower::new(log.key.clone(), &log.monitoring_url, client(), options, world.clock.clone());
    let step = follower.step(None, &world.domains).await.unwrap();
    assert_eq!((step.position.next, step.entries), (300, 0), "{} was before", before[0].names[0]);
    let ours = world.fill(10, &[3]);
    let step = follower.step(Some(&step.position), &world.domains).await.unwrap();
    assert_eq!((step.entries, step.matches.len(), step.behind), (10, 1, 0));
    let found = &step.matches[0];
    assert_eq!((found.index, found.issuance.names.as_slice()), (303, ours[0].names.as_slice()));
    assert_eq!(found.issuance.id, Issuance::from_der(&ours[0].certificate).id, "one with its certificate");
    assert_eq!(world.domains.domain(found.domains[0]), Some("ours.example"));
    assert_eq!(follower.issuer(&found.chain[0]).await.unwrap(), ours[0].issuer);
}

#[tokio::test]
async fn partial_tile_is_read_after_a_bounded_wait() {
    let wait_max = Duration::from_secs(300);
    let world =
        World::with(&CtLogOptions::default(), FollowOptions { partial_wait_max: wait_max, ..options() })
            .await;
    world.fill(300, &[10, 290]);
    let step = world.step(None).await.unwrap();
    assert_eq!((step.entries, step.matches.len(), step.behind), (256, 1, 44), "it says that it is behind");
    world.clock.advance(wait_max / 2);
    let step = world.step(Some(&step.position)).await.unwrap();
    assert_eq!((step.entries, step.behind), (0, 44));
    world.clock.advance(wait_max);
    let step = world.step(Some(&step.position)).await.unwrap();
    assert_eq!((step.entries, step.matches.len(), step.behind), (44, 1, 0));
}

#[tokio::test]
async fn fork_raises_a_persistent_alarm() {
    let world = World::new().await;
    world.fill(300, &[]);
    let (_, position) = world.follow(None).await;
    world.log.fork(17).unwrap();
    let Alarm::Forked { old, new } = world.alarm(&position).await else {
        panic!("the same size, another root")
    };
    assert_eq!((old, new), (position.note.clone(), world.log.checkpoint()), "the evidence is both notes");
    world.fill(300, &[299]);
    for _ in 0..2 {
        assert!(matches!(world.alarm(&position).await, Alarm::Forked { .. }), "grown on from another past");
    }
}

#[tokio::test]
async fn rollback_raises_an_alarm_and_stale_checkpoint_does_not() {
    let world = World::new().await;
    world.fill(300, &[]);
    let (_, first) = world.follow(None).await;
    let early = world.log.checkpoint();
    world.fill(500, &[]);
    let (_, position) = world.follow(Some(first.clone())).await;
    world.log.serve_stale(&early);
    let step = world.step(Some(&position)).await.unwrap();
    assert_eq!((step.position.clone(), step.entries), (position.clone(), 0), "a cache's");
    world.log.roll_back(700).unwrap();
    let Alarm::RolledBack { from, to, .. } = world.alarm(&position).await else { panic!("signed later") };
    assert_eq!((from, to), (800, 700));
    // A follower that saw only the smaller tree detects the rollback when the old, larger checkpoint is served again.
    let (_, smaller) = world.follow(Some(first)).await;
    world.log.serve_stale(&position.note);
    assert!(matches!(world.alarm(&smaller).await, Alarm::RolledBack { from: 800, to: 700, .. }));
}

#[tokio::test]
async fn stale_checkpoint_of_a_forked_tree_raises_an_alarm() {
    let world = World::new().await;
    world.fill(300, &[]);
    world.log.fork(17).unwrap();
    let forked = world.log.checkpoint();
    world.log.fork(17).unwrap();
    world.fill(300, &[]);
    let (_, position) = world.follow(None).await;
    assert_eq!(position.size, 600);
    world.log.serve_stale(&forked);
    assert!(matches!(world.alarm(&position).await, Alarm::Forked { .. }));
}

#[tokio::test]
async fn checkpoint_signed_by_another_key_raises_an_alarm() {
    let world = World::new().await;
    let other = CtLog::start(&CtLogOptions::default()).await.unwrap();
    let key = LogKey::new(other.submission_url(), other.spki()).unwrap();
    let follower = Follower::new(key, &world.log.monitoring_url(), client(), options(), world.clock.clone());
    match follower.step(None, &world.domains).await {
        Err(FollowError::Alarm(alarm)) => assert_eq!(alarm.code(), "bad-checkpoint"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn transient_errors_are_retried_within_a_step() {
    let world = World::new().await;
    let ours = world.fill(600, &[5, 300, 599]);
    world.log.trouble(&[Trouble::Status(503), Trouble::HalfBody]);
    let step = world.step(None).await.unwrap();
    assert_eq!(step.entries, 600);
    assert_eq!(step.matches.len(), ours.len());
    world.fill(10, &[]);
    world.log.trouble(&[Trouble::Status(500)]);
    assert_eq!(world.step(Some(&step.position)).await.unwrap().entries, 10);
}

#[tokio::test]
async fn missing_partial_tile_is_read_from_the_full_tile() {
    let log = CtLogOptions { drop_partials: false, ..CtLogOptions::default() };
    let world = World::with(&log, options()).await;
    let ours = world.fill(100, &[7, 99]);
    let early = world.log.checkpoint();
    world.fill(400, &[]);
    world.log.serve_stale(&early);
    // The follower reads the checkpoint, then the partial tile of the edge, then the partial data tile. Neither partial tile exists
    // any more.
    for status in [404, 403] {
        let key = LogKey::new(world.log.submission_url(), world.log.spki()).unwrap();
        let follower =
            Follower::new(key, &world.log.monitoring_url(), client(), options(), world.clock.clone());
        let failure = Trouble::Status(status);
        world.log.trouble(&[Trouble::Nothing, failure, Trouble::Nothing, failure]);
        let step = follower.step(None, &world.domains).await.unwrap();
        assert_eq!((step.entries, step.matches.len()), (100, ours.len()), "{status}");
    }
}

#[tokio::test]
async fn corrupt_tile_is_retried_once_and_then_raises_an_alarm() {
    let log = CtLogOptions { gzip: false, ..CtLogOptions::default() };
    let world = World::with(&log, FollowOptions { tiles_at_once: 1, ..options() }).await;
    world.fill(256, &[200]);
    // The edge of the tree is one tile with one hash, which is cached. The next read is the data tile.
    let position = LogPosition { next: 0, ..world.step(None).await.unwrap().position };
    world.log.trouble(&[Trouble::Status(404)]);
    assert!(
        matches!(world.step(Some(&position)).await, Err(FollowError::Unavailable { .. })),
        "no checkpoint"
    );
    let broken =
        FollowOptions { start: StartPosition::Beginning, tiles_at_once: 1, tiles_per_step: 1, ..options() };
    let key = LogKey::new(world.log.submission_url(), world.log.spki()).unwrap();
    let follower = Follower::new(key, &world.log.monitoring_url(), client(), broken, world.clock.clone());
    // With a whole step left to read, the follower fetches no checkpoint. The data tile is fetched twice.
    let ok = world.log.counts().requests;
    world.log.trouble(&[Trouble::Corrupt, Trouble::Corrupt]);
    match follower.step(Some(&position), &world.domains).await {
        Err(FollowError::Alarm(alarm)) => assert_eq!(alarm.code(), "wrong-tile"),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.log.counts().requests - ok, 2, "once more, then the alarm");
    world.log.trouble(&[Trouble::Corrupt]);
    let step = follower.step(Some(&position), &world.domains).await.unwrap();
    assert_eq!((step.entries, step.matches.len()), (256, 1), "a cache that mended itself");
}

#[tokio::test]
async fn unavailable_log_reports_retry_after_and_is_not_queried_before() {
    let limits = FollowOptions {
        answer_limit: Duration::from_millis(200),
        wait_max: Duration::from_millis(10),
        ..options()
    };
    let world = World::with(&CtLogOptions::default(), limits).await;
    world.fill(3, &[]);
    world.log.trouble(&[Trouble::Hang]);
    match world.step(None).await {
        Err(FollowError::Unavailable { retry_after, .. }) => assert!(retry_after > Duration::ZERO),
        other => panic!("{other:?}"),
    }
    let quota = Quota { per_minute: Some(1), retry_after: true, ..Quota::default() };
    let limits = FollowOptions { answer_limit: options().answer_limit, ..limits };
    let world = World::with(&CtLogOptions { quota, ..CtLogOptions::default() }, limits).await;
    world.fill(3, &[]);
    match world.step(None).await {
        Err(FollowError::Unavailable { retry_after, reason }) => {
            assert!(retry_after > Duration::from_secs(50), "{retry_after:?}: {reason}");
        }
        other => panic!("{other:?}"),
    }
    let requests_before = world.log.counts().requests;
    assert!(world.step(None).await.is_err());
    assert_eq!(world.log.counts().requests, requests_before, "it is left alone until then");
}

#[tokio::test]
async fn malformed_certificate_is_matched_by_its_names() {
    let world = World::new().await;
    let pair = world.issue("broken.ours.example");
    let mut broken = pair.certificate.clone();
    broken.extend([0, 0]);
    broken[1] = 0x80;
    world.log.add_raw_certificate(&broken, &pair.issuer);
    world.log.publish().unwrap();
    let step = world.step(None).await.unwrap();
    assert_eq!((step.entries, step.unreadable), (1, 1));
    let found = &step.matches[0].issuance;
    assert!(!found.readable && found.names.contains(&"broken.ours.example".to_owned()), "{found:?}");
}

#[tokio::test]
async fn connections_are_reused_and_an_idle_log_becomes_stale() {
    let world = World::with(&CtLogOptions::default(), FollowOptions { tiles_at_once: 4, ..options() }).await;
    world.fill(2_600, &[]);
    let step = world.step(None).await.unwrap();
    assert_eq!((step.entries, step.stale), (2_600, None));
    let counts = world.log.counts();
    assert!(counts.requests >= 14 && counts.connections <= 5, "{counts:?}");
    world.clock.advance(Duration::from_secs(90_000));
    let stale = world.step(Some(&step.position)).await.unwrap().stale.unwrap();
    assert!(stale >= Duration::from_secs(89_000), "{stale:?}");
}

#[tokio::test]
async fn follower_runs_until_its_receiver_is_dropped() {
    let world = World::new().await;
    let ours = world.fill(300, &[1, 299]);
    let (sender, mut results) = tokio::sync::mpsc::channel(1);
    let follower = std::sync::Arc::new(world.follower);
    let domains = std::sync::Arc::new(world.domains);
    let task = tokio::spawn({
        let follower = follower.clone();
        async move { follower.run(None, domains, Duration::from_millis(5), sender).await }
    });
    let first = results.recv().await.unwrap().step.unwrap();
    assert_eq!(first.matches.len(), ours.len());
    let pair = world.authority.issue(&["later.ours.example"], now(), DAYS).unwrap();
    world.log.add_certificate(&pair);
    world.log.publish().unwrap();
    let later = loop {
        let step = results.recv().await.unwrap().step.unwrap();
        if step.entries > 0 {
            break step;
        }
    };
    assert_eq!(later.matches[0].issuance.names, ["later.ours.example"]);
    drop(results);
    task.await.unwrap();
}
