//! Life cycle of sites and nodes: enrolment, changes, membership, retirement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use enrollment::{Certified, Certify, CertifyError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use keyless::places::{SignedStatement, Statement};
use keys::sealed::NodeKey;
use keys::{KeyType, Keyring, PrivateKey, Signer};
use sites::Attributes;
use sites::tables::NodeRetirement;
use sites::work::{EnrolledNode, Heartbeat, HeartbeatResponse, Membership, NodeEnrolment};
use sites::{NewNodeToken, NewSite, NodeQuery, SiteError, Sites, SitesParts, node_domain, node_uri};
use store::{AuditFilter, Clock, Store};
use testbed::{Database, Issuer};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::build::Extension;
use x509::{Certificate, GeneralName};

/// The maximum time that the tests wait for an event.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Certifier(Arc<Issuer>);

impl Certify for Certifier {
    fn certify(
        &self,
        names: Vec<GeneralName>,
        spki: Vec<u8>,
        _: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>> {
        let chain = self.0.chain("node", &spki, &[Extension::subject_alt_names(&names)]);
        let not_after_us = Certificate::parse(&chain[0]).unwrap().not_after.0 * 1_000_000;
        let chain_pem = chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect();
        async move { Ok(Certified { chain_pem, not_after_us }) }.boxed()
    }
}

/// A database with servers on top.
struct World {
    store: Store,
    keystore: KeyStore,
    issuer: Arc<Issuer>,
    servers: Vec<Sites>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _database: Database,
}

impl World {
    async fn with(servers: usize) -> Self {
        Self::over(Database::sqlite(), servers).await
    }

    async fn on_postgres(servers: usize) -> Self {
        Self::over(Database::postgres().await, servers).await
    }

    async fn over(database: Database, servers: usize) -> Self {
        let store = database.open().await;
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), Clock::system());
        let mut world = Self {
            store,
            keystore,
            issuer: Arc::new(Issuer::new()),
            servers: Vec::new(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            _database: database,
        };
        for _ in 0..servers {
            world.serve(&world.stop.clone());
        }
        world
    }

    fn serve(&mut self, stop: &CancellationToken) {
        let places = Sites::new(SitesParts {
            store: self.store.clone(),
            keystore: self.keystore.clone(),
            clock: Clock::system(),
            certify: Arc::new(Certifier(Arc::clone(&self.issuer))),
            identity: Arc::new(|uri| *x509::SpkiHash::of(uri.as_bytes()).as_bytes()),
            ca_pem: self.issuer.root_pem().into(),
        });
        let (running, until) = (places.clone(), stop.clone());
        self.tasks.spawn(async move { running.run(until).await });
        self.servers.push(places);
    }

    fn places(&self) -> &Sites {
        &self.servers[0]
    }

    async fn site(&self, name: &str, attributes: &[(&str, &str)]) -> Uuid {
        let new = site(name, attributes);
        self.places().create_site(new, "user:alice").await.unwrap().id
    }

    async fn token(&self, site: &str, attributes: &[(&str, &str)]) -> String {
        let attributes = Attributes::of(attributes.iter().copied()).unwrap();
        let new = NewNodeToken { site: site.to_owned(), attributes, seconds: 600 };
        self.places().create_token(new, "user:alice").await.unwrap().token.to_string()
    }

    async fn node(&self, site: &str, name: &str) -> Node {
        let host = Host::new(name);
        let token = self.token(site, &[]).await;
        let enrolled = self.places().enroll(&host.enrolment(&token)).await.unwrap();
        Node { enrolled }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn site(name: &str, attributes: &[(&str, &str)]) -> NewSite {
    NewSite { name: name.to_owned(), attributes: Attributes::of(attributes.iter().copied()).unwrap() }
}

/// A host with its keys.
struct Host {
    name: String,
    key: PrivateKey,
    kem: NodeKey,
}

impl Host {
    fn new(name: &str) -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        Self { name: name.to_owned(), key, kem: NodeKey::generate().unwrap() }
    }

    fn csr(&self) -> String {
        let subject = x509::DistinguishedName::empty();
        let tbs = x509::csr::tbs(&subject.der, self.key.spki(), &[], None);
        let signature = self.key.sign_now(&tbs).unwrap();
        let der = x509::build::signed(&tbs, &Signer::algorithm(&self.key), &signature);
        x509::pem::encode("CERTIFICATE REQUEST", &der)
    }

    fn enrolment(&self, token: &str) -> NodeEnrolment {
        NodeEnrolment {
            token: token.to_owned(),
            csr_pem: self.csr(),
            kem: self.kem.public().to_text(),
            address: format!("{}.example:2410", self.name),
            name: Some(self.name.clone()),
        }
    }
}

struct Node {
    enrolled: EnrolledNode,
}

impl Node {
    fn id(&self) -> Uuid {
        self.enrolled.node
    }

    fn read(&self, signed: &SignedStatement) -> Statement {
        signed.verify(&STANDARD.decode(&self.enrolled.statement_key).unwrap()).unwrap()
    }

    async fn beat(&self, places: &Sites, since: i64) -> HeartbeatResponse {
        places.beat(self.id(), Heartbeat { since, ..Heartbeat::default() }).await.unwrap()
    }

    /// Sends heartbeats to this server until a response satisfies `done`, and returns that response.
    async fn until(&self, places: &Sites, what: &str, done: impl Fn(&Membership) -> bool) -> Membership {
        let began = Instant::now();
        loop {
            let membership = self.beat(places, 0).await.membership;
            if done(&membership) {
                return membership;
            }
            assert!(began.elapsed() < TIMEOUT, "{what}: {membership:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn sees(&self, membership: &Membership, other: Uuid) -> bool {
        membership.nodes.iter().any(|signed| self.read(signed).node == other)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_enrolls_with_a_token_and_gets_site_and_token_attributes() {
    let world = World::with(1).await;
    let places = world.places();
    world.site("berlin", &[("country", "DE"), ("security", "low")]).await;
    let token = world.token("berlin", &[("security", "high")]).await;
    let host = Host::new("b1");
    let enrolled = places.enroll(&host.enrolment(&token)).await.unwrap();
    assert_eq!((enrolled.name.as_str(), enrolled.site.as_str()), ("b1", "berlin"));
    let node = Node { enrolled };
    let statement = node.read(&node.enrolled.statement);
    assert_eq!(statement.node, node.id());
    assert_eq!(statement.attributes.to_string(), "country=DE security=high", "its own over its site's");
    assert_eq!((&statement.kem, statement.address.as_str()), (host.kem.public(), "b1.example:2410"));
    let life = statement.not_after_s - statement.issued_at_s;
    assert!(statement.holds_at(Clock::system().now_seconds()) && (3_599..=3_600).contains(&life), "{life}");
    let (_, leaf) = x509::pem::certificates(node.enrolled.certificate_pem.as_bytes()).next().unwrap();
    let leaf = Certificate::parse(&leaf).unwrap();
    let names = [GeneralName::Uri(node_uri(node.id())), GeneralName::Dns(node_domain(node.id()))];
    assert_eq!(leaf.subject_alt_names[..], names);
    assert_eq!(statement.tls_spki_sha256, leaf.public_key.spki_sha256);

    // The response was lost: the same token and keys return the same node. With another key, the token counts as used.
    let repeated = places.enroll(&host.enrolment(&token)).await.unwrap();
    assert_eq!(repeated.node, node.id());
    let other_kem = Host { kem: NodeKey::generate().unwrap(), ..host };
    let refused = places.enroll(&other_kem.enrolment(&token)).await.unwrap_err();
    assert!(matches!(refused, SiteError::OtherKey), "{refused}");
    let refused = places.enroll(&Host::new("b2").enrolment(&token)).await.unwrap_err();
    assert!(matches!(refused, SiteError::Token), "{refused}");
    assert!(places.check_key(node.id(), &leaf.der).await.is_ok());
    let stranger = world.node("berlin", "b3").await;
    let refused = places.check_key(stranger.id(), &leaf.der).await.unwrap_err();
    assert!(matches!(refused, SiteError::OtherKey), "another's certificate: {refused}");
    let renewed = places.renew(node.id(), &other_kem.csr()).await.unwrap();
    assert_eq!(renewed.statement, node.enrolled.statement, "it holds for a while yet");
    let refused = places.renew(node.id(), &Host::new("b1").csr()).await.unwrap_err();
    assert!(matches!(refused, SiteError::OtherKey), "{refused}");
    let filter = AuditFilter { action: Some("key_node.enroll".to_owned()), ..AuditFilter::default() };
    let audit = world.store.audit_page(&filter, None, 10).await.unwrap();
    assert_eq!(audit.rows.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_enrollment_is_rejected_without_using_the_token() {
    let world = World::with(1).await;
    world.site("berlin", &[]).await;
    let token = world.token("berlin", &[]).await;
    let host = Host::new("b1");
    let good = || host.enrolment(&token);
    let short = STANDARD.encode([7; 1_215]);
    for bad in [
        NodeEnrolment { csr_pem: "none".to_owned(), ..good() },
        NodeEnrolment { kem: short, ..good() },
        NodeEnrolment { kem: "!".to_owned(), ..good() },
        NodeEnrolment { address: "nowhere".to_owned(), ..good() },
        NodeEnrolment { name: Some("a/b".to_owned()), ..good() },
        NodeEnrolment { name: Some(Uuid::now_v7().to_string()), ..good() },
    ] {
        let refused = world.places().enroll(&bad).await.err().unwrap();
        assert!(matches!(refused, SiteError::Invalid(_) | SiteError::Csr(_)), "{refused}");
    }
    let other_kind = PrivateKey::generate(KeyType::P384).unwrap();
    let refused = world.places().enroll(&Host { key: other_kind, ..Host::new("b1") }.enrolment(&token)).await;
    assert!(matches!(refused, Err(SiteError::Csr(_))));
    let first = world.places().enroll(&good()).await.unwrap();
    let second = world.token("berlin", &[]).await;
    let refused = world.places().enroll(&host.enrolment(&second)).await.unwrap_err();
    assert!(matches!(refused, SiteError::KeyTaken), "{refused}");
    world.places().enroll(&Host::new("b2").enrolment(&second)).await.unwrap();
    // A name that is already taken is accepted.
    let repeated = world.node("berlin", "b1").await;
    assert!(repeated.enrolled.name.starts_with("b1-") && first.name == "b1", "{}", repeated.enrolled.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_enrollment_after_a_site_change_keeps_the_token() {
    let world = World::with(1).await;
    let places = world.places();
    let names: Vec<String> = (0..32).map(|number| format!("a{number}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let berlin = world.site("berlin", &all[..20]).await;
    let token = world.token("berlin", &all[20..]).await;
    let host = Host::new("b1");
    places
        .update_site(berlin, 1, site("berlin", &[&all[..20], &[("more", "1")]].concat()), "user:alice")
        .await
        .unwrap();
    let refused = places.enroll(&host.enrolment(&token)).await.unwrap_err();
    assert!(matches!(refused, SiteError::Invalid(_)), "{refused}");
    assert!(refused.to_string().contains("the site has changed since the token was"), "{refused}");
    places.update_site(berlin, 2, site("berlin", &all[..20]), "user:alice").await.unwrap();
    places.enroll(&host.enrolment(&token)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_reports_nodes_that_join_and_leave() {
    every_server_sends_membership(World::with(2).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_reports_nodes_that_join_and_leave_on_postgresql() {
    every_server_sends_membership(World::on_postgres(2).await).await;
}

async fn every_server_sends_membership(world: World) {
    let (first_server, second_server) = (&world.servers[0], &world.servers[1]);
    world.site("berlin", &[("country", "DE")]).await;
    let (a, b) = (world.node("berlin", "a").await, world.node("berlin", "b").await);
    assert!(a.beat(first_server, 0).await.membership.nodes.is_empty(), "nobody was heard yet");
    // Each node sends its heartbeats to another server.
    let began = Instant::now();
    let membership = loop {
        b.beat(second_server, 0).await;
        let membership = a.beat(first_server, 0).await.membership;
        if a.sees(&membership, b.id()) && a.sees(&membership, a.id()) {
            break membership;
        }
        assert!(began.elapsed() < TIMEOUT, "{membership:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // A stall of this machine may let a lease expire before the nodes are listed.
    let began = Instant::now();
    let listed = loop {
        b.beat(second_server, 0).await;
        a.beat(first_server, 0).await;
        let listed = first_server.nodes(&NodeQuery::default(), None, 10).await.unwrap().rows;
        if listed.iter().all(|node| node.present) {
            break listed;
        }
        assert!(began.elapsed() < TIMEOUT, "{listed:?}");
    };
    // Node b stops its heartbeats. Both servers report it as gone to nodes that know it.
    let lease_end = listed.iter().find(|node| node.id == b.id()).unwrap().lease_until_us;
    for server in [first_server, second_server] {
        let began = Instant::now();
        loop {
            let news = a.beat(server, membership.since).await.membership;
            if news.gone == [b.id()] {
                assert!(!news.anew && news.since > membership.since);
                break;
            }
            // After a stall of this machine, the lease of node a has expired, too. Its heartbeat renews it.
            let is_known = |gone: &Uuid| [a.id(), b.id()].contains(gone);
            assert!(news.gone.iter().all(is_known) && began.elapsed() < TIMEOUT, "{news:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(Clock::system().now_us() >= lease_end, "not before its lease was over");
    // A heartbeat makes it present again.
    let began = Instant::now();
    while !a.sees(&a.beat(first_server, 0).await.membership, b.id()) {
        b.beat(second_server, 0).await;
        assert!(began.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retired_node_is_rejected_immediately() {
    let world = World::with(2).await;
    world.site("berlin", &[]).await;
    let (a, b) = (world.node("berlin", "a").await, world.node("berlin", "b").await);
    let (_, leaf) = x509::pem::certificates(b.enrolled.certificate_pem.as_bytes()).next().unwrap();
    let began = Instant::now();
    while !a.sees(&a.beat(world.places(), 0).await.membership, b.id()) {
        b.beat(world.places(), 0).await;
        assert!(began.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.places().retire(b.id(), NodeRetirement::Hostile, "user:alice").await.unwrap();
    let refused = world.places().check_key(b.id(), &leaf).await.unwrap_err();
    assert!(matches!(refused, SiteError::Retired), "{refused}");
    assert!(world.places().beat(b.id(), Heartbeat::default()).await.is_err());
    let membership = a.beat(world.places(), 0).await.membership;
    assert!(!a.sees(&membership, b.id()), "the server that retired it knows at once");
    a.until(&world.servers[1], "the other server is told", |membership| {
        !a.sees(membership, b.id()) && a.sees(membership, a.id())
    })
    .await;
    let repeated = world.places().retire(b.id(), NodeRetirement::Ordinary, "user:alice").await.unwrap_err();
    assert!(matches!(repeated, SiteError::Retired), "{repeated}");
    world.places().retire(b.id(), NodeRetirement::Hostile, "user:alice").await.unwrap();
    let row = world.places().node_by_name_or_id("b").await.unwrap();
    assert!(row.hostile && row.retired_at_us.is_some() && !row.present);
    let live = world.places().nodes(&NodeQuery::default(), None, 10).await.unwrap().rows;
    assert_eq!(live.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_node_attributes_and_address_are_restated() {
    let world = World::with(1).await;
    let places = world.places();
    let berlin = world.site("berlin", &[("country", "DE")]).await;
    let a = world.node("berlin", "a").await;
    let changed = site("bonn", &[("country", "DE"), ("region", "EU")]);
    let before = places.site("berlin").await.unwrap();
    assert!(matches!(
        places.update_site(berlin, before.revision + 1, changed.clone(), "user:alice").await,
        Err(SiteError::Changed)
    ));
    places.update_site(berlin, before.revision, changed, "user:alice").await.unwrap();
    let stated = |membership: &Membership| membership.nodes.first().map(|signed| a.read(signed));
    a.until(places, "a statement with the site's attributes", |membership| {
        stated(membership).is_some_and(|statement| {
            statement.attributes.to_string() == "country=DE region=EU" && statement.site == "bonn"
        })
    })
    .await;
    let moved = Heartbeat { address: Some("10.0.0.9:1".to_owned()), ..Heartbeat::default() };
    places.beat(a.id(), moved).await.unwrap();
    a.until(places, "a statement with the address", |membership| {
        stated(membership).is_some_and(|statement| statement.address == "10.0.0.9:1")
    })
    .await;
    let bad = Heartbeat { address: Some("nowhere".to_owned()), ..Heartbeat::default() };
    assert!(matches!(places.beat(a.id(), bad).await, Err(SiteError::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_empty_site_can_be_deleted_and_its_tokens_are_removed() {
    let world = World::with(1).await;
    let places = world.places();
    let berlin = world.site("berlin", &[]).await;
    let a = world.node("berlin", "a").await;
    let left = world.token("berlin", &[]).await;
    let refused = places.delete_site(berlin, "user:alice").await.unwrap_err();
    assert!(matches!(refused, SiteError::NotEmpty(1)), "{refused}");
    places.retire(a.id(), NodeRetirement::Ordinary, "user:alice").await.unwrap();
    places.delete_site(berlin, "user:alice").await.unwrap();
    let refused = places.enroll(&Host::new("b").enrolment(&left)).await.unwrap_err();
    assert!(matches!(refused, SiteError::Token), "{refused}");
    assert!(matches!(places.delete_site(berlin, "user:alice").await, Err(SiteError::NotFound(_))));
    let taken = places.create_site(site("bonn", &[]), "user:alice").await.unwrap();
    let refused = places.create_site(site("bonn", &[]), "user:alice").await.unwrap_err();
    assert!(matches!(refused, SiteError::NameTaken(_)), "{refused}");
    for bad in ["", "a/b", &taken.id.to_string()] {
        assert!(places.create_site(site(bad, &[]), "user:alice").await.is_err(), "{bad:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_does_not_report_live_nodes_as_gone() {
    let mut world = World::with(0).await;
    let first = CancellationToken::new();
    world.serve(&first);
    world.site("berlin", &[]).await;
    let a = world.node("berlin", "a").await;
    let membership =
        a.until(&world.servers[0].clone(), "itself", |membership| a.sees(membership, a.id())).await;
    first.cancel();
    world.tasks.join_next().await;
    let until = world.places().node(a.id()).await.unwrap().lease_until_us;
    while Clock::system().now_us() <= until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Its lease has expired. Another server starts and receives its heartbeat: no change is reported.
    let stop = world.stop.clone();
    world.serve(&stop);
    let second = world.servers[1].clone();
    let began = Instant::now();
    loop {
        let news = a.beat(&second, membership.since).await.membership;
        assert!(news.gone.is_empty() && news.nodes.is_empty() && news.since == membership.since, "{news:?}");
        if second.node(a.id()).await.unwrap().lease_until_us > until {
            break;
        }
        assert!(began.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_starting_together_share_one_statement_key() {
    let world = World::with(3).await;
    world.site("berlin", &[]).await;
    let mut joining = JoinSet::new();
    for (number, server) in world.servers.iter().enumerate() {
        let (server, token) = (server.clone(), world.token("berlin", &[]).await);
        joining.spawn(async move {
            let host = Host::new(&format!("n{number}"));
            server.enroll(&host.enrolment(&token)).await.unwrap()
        });
    }
    let all = joining.join_all().await;
    assert!(all.windows(2).all(|two| two[0].statement_key == two[1].statement_key));
    for one in all {
        let key = STANDARD.decode(&one.statement_key).unwrap();
        assert_eq!(one.statement.verify(&key).unwrap().node, one.node);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_statements_scale_with_rounds_not_heartbeats() {
    const NODES: usize = 10;
    const BEATS: usize = 150;
    let world = World::with(1).await;
    let places = world.places();
    world.site("berlin", &[]).await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(world.node("berlin", &format!("n{number}")).await);
    }
    let began = Instant::now();
    while places.counts() != (NODES, 0) {
        join_all(nodes.iter().map(|node| node.beat(places, 0))).await;
        assert!(began.elapsed() < TIMEOUT, "{:?}", places.counts());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (began, before) = (Instant::now(), world.store.statements_sent());
    for _ in 0..BEATS {
        join_all(nodes.iter().map(|node| node.beat(places, 1))).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sent = world.store.statements_sent() - before;
    let rounds = began.elapsed().as_millis() as u64 / 250 + 2;
    assert!(sent <= rounds * 8, "{sent} statements for {} beats in {rounds} rounds", NODES * BEATS);
}
