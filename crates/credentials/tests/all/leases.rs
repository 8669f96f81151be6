//! Dynamic credentials at a real PostgreSQL server with passwords.

use std::sync::{Arc, Mutex, Weak};

use callout::Databases;
use credentials::tables::insert_lease;
use credentials::{
    ConnectionSettings, ConnectionTls, CredentialError, LeaseRequest, LeaseRow, LeaseState, NewLease,
    Operation, Operations, PermissionPath, Requester, RoleSettings,
};
use futures_util::FutureExt;
use keys::Secret;
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use store::testing::{Cluster, localhost_certificate};
use store::{IdentityKind, IdentitySettings, NewIdentity};
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::fixture::{Fixture, admin, client, name};

/// Rounds after which a lease must have ended. The first one is enough, unless the database is busy.
const ROUNDS_MAX: usize = 20;
/// Seconds after which each delayed revocation is due.
const DELAY_MAX_S: u64 = 60;
const CREATE: &str = "CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password_scram}}'";

/// A server with the role `keeper`, which may create roles but is no superuser, and its database `shop`.
struct Target {
    cluster: Cluster,
    port: u16,
}

impl Target {
    fn start() -> Self {
        let cluster = Cluster::start();
        assert!(cluster.psql("postgres", "CREATE ROLE keeper LOGIN CREATEROLE PASSWORD 'keeper-secret'"));
        assert!(cluster.psql("postgres", "CREATE DATABASE shop OWNER keeper"));
        assert!(cluster.psql("shop", "GRANT CREATE ON SCHEMA public TO PUBLIC"));
        let port = cluster.require_passwords();
        cluster.stop();
        cluster.resume();
        Self { cluster, port }
    }

    /// Returns a server that concurrent tests share, and none may stop.
    async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Target>> = Mutex::new(Weak::new());
        let start = || {
            let mut shared = SHARED.lock().unwrap();
            shared.upgrade().unwrap_or_else(|| {
                let target = Arc::new(Self::start());
                *shared = Arc::downgrade(&target);
                target
            })
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    async fn dedicated() -> Self {
        tokio::task::spawn_blocking(Self::start).await.unwrap()
    }

    fn has_role(&self, role: &str) -> bool {
        let probe = format!("SELECT 1 / (SELECT count(*) FROM pg_roles WHERE rolname = '{role}')");
        self.cluster.psql("shop", &probe)
    }

    async fn log_in(
        &self,
        user: &str,
        password: &str,
    ) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.port).user(user).password(password).dbname("shop");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

fn keeper() -> Requester {
    Requester { manages_databases: true, ..admin() }
}

fn settings(port: u16, password: Option<&str>) -> ConnectionSettings {
    ConnectionSettings {
        name: "shop".to_owned(),
        host: "127.0.0.1".to_owned(),
        port,
        database: "shop".to_owned(),
        username: "keeper".to_owned(),
        password: password.map(Secret::new),
        tls: ConnectionTls::Disable,
        roots: None,
        same_database: false,
    }
}

async fn connect(fixture: &Fixture, port: u16) {
    fixture.credentials.set_databases(Databases::new(Resolver::system().unwrap(), Guard::default()));
    fixture.credentials.set_connection(&keeper(), settings(port, Some("keeper-secret"))).await.unwrap();
}

/// Sets up the role `/team/db/read-only`, and lets `uaa-client:app` read its credentials.
async fn role(fixture: &Fixture, creation: &[&str]) {
    let settings = RoleSettings {
        connection: "shop".to_owned(),
        creation: creation.iter().map(|text| (*text).to_owned()).collect(),
        ..RoleSettings::default()
    };
    fixture.credentials.set_role(&keeper(), &name("/team/db/read-only"), settings).await.unwrap();
    let path = PermissionPath::parse("/team/db/*").unwrap();
    let read = Operations::of(Operation::Read);
    fixture.credentials.grant(&admin(), "uaa-client:app", &path, read).await.unwrap();
}

async fn create(fixture: &Fixture, requester: &Requester) -> NewLease {
    let role = name("/team/db/read-only");
    fixture.credentials.create_lease(requester, &role, LeaseRequest::default()).await.unwrap()
}

async fn own(fixture: &Fixture, requester: &Requester) -> Vec<LeaseRow> {
    fixture.credentials.leases(requester, None, None, 100).await.unwrap().rows
}

/// Runs rounds until no lease of the actor is left. Between rounds, the clock moves past the delay of the next attempt.
async fn rounds(fixture: &Fixture, requester: &Requester) {
    for _ in 0..ROUNDS_MAX {
        fixture.credentials.lease_round().await.unwrap();
        if own(fixture, requester).await.is_empty() {
            return;
        }
        fixture.advance(DELAY_MAX_S);
    }
    panic!("{:?}", own(fixture, requester).await);
}

pub(crate) async fn credential_works_until_its_lease_is_revoked(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(&fixture, &[CREATE]).await;
    let app = client("app");
    let NewLease { lease, password } = create(&fixture, &app).await;
    assert_eq!(lease.state, LeaseState::Active);
    assert!(target.log_in(&lease.username, "wrong").await.is_err());
    let session = target.log_in(&lease.username, password.expose()).await.unwrap();
    let other = create(&fixture, &app).await;
    let other_session = target.log_in(&other.lease.username, other.password.expose()).await.unwrap();
    session.batch_execute(&format!("CREATE TABLE t_{} (id int)", lease.username)).await.unwrap();

    assert!(fixture.credentials.revoke_lease(&app, lease.id).await.unwrap());
    assert!(session.batch_execute("SELECT 1").await.is_err(), "the session has ended");
    assert!(target.log_in(&lease.username, password.expose()).await.is_err());
    assert!(!target.has_role(&lease.username));
    other_session.batch_execute("SELECT 1").await.expect("sessions of others continue");
    assert!(fixture.credentials.revoke_lease(&app, other.lease.id).await.unwrap());
    assert_eq!(own(&fixture, &app).await, []);
    let probe = format!("SELECT * FROM t_{}", lease.username);
    assert!(target.cluster.psql("shop", &probe), "its objects belong to the keeper");
    let log = fixture.log().await;
    for action in ["credential.lease ", "credential.lease_revoke ", "credential.lease_end "] {
        assert!(log.iter().any(|line| line.contains(action)), "{action}: {log:?}");
    }
    assert!(!log.iter().any(|line| line.contains(password.expose())));
}

pub(crate) async fn expired_lease_is_revoked_by_the_next_round(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(&fixture, &[CREATE]).await;
    let app = client("app");
    let lease = create(&fixture, &app).await.lease;
    fixture.credentials.lease_round().await.unwrap();
    assert!(target.has_role(&lease.username), "it has not expired");
    fixture.advance(3_600);
    let report = fixture.credentials.lease_round().await.unwrap();
    assert_eq!((report.revoked, report.failed), (1, 0));
    assert!(!target.has_role(&lease.username));
    assert_eq!(own(&fixture, &app).await, []);
}

/// Inserts an API token.
async fn identity(fixture: &Fixture, name: &str) -> Uuid {
    let id = Uuid::now_v7();
    let settings = IdentitySettings {
        name: name.to_owned(),
        email: None,
        grants: "[]".to_owned(),
        enabled: true,
        expires_at_us: None,
    };
    let new = NewIdentity {
        id,
        kind: IdentityKind::Token,
        key_hash: store_hash(id),
        label: String::new(),
        settings,
        created_at_us: 0,
        created_by: "test".to_owned(),
    };
    let insert =
        fixture.store.write("test", move |tx| async move { store::insert_identity(tx, &new).await }.boxed());
    insert.await.unwrap();
    id
}

fn store_hash(id: Uuid) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..16].copy_from_slice(id.as_bytes());
    hash
}

pub(crate) async fn leases_end_with_their_identity(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(&fixture, &[CREATE]).await;
    let (deleted_identity, other_identity) =
        (identity(&fixture, "app").await, identity(&fixture, "other").await);
    let app = Requester { identity: Some(deleted_identity), ..client("app") };
    let admin = Requester { identity: Some(other_identity), ..admin() };
    let (first, second) = (create(&fixture, &app).await.lease, create(&fixture, &admin).await.lease);
    fixture.credentials.lease_round().await.unwrap();
    assert!(target.has_role(&first.username));
    let delete = fixture.store.write("test", move |tx| {
        async move { store::delete_identity(tx, deleted_identity, 1).await }.boxed()
    });
    delete.await.unwrap();
    rounds(&fixture, &app).await;
    assert!(!target.has_role(&first.username));
    assert!(target.has_role(&second.username), "of another identity");
    assert!(fixture.credentials.revoke_lease(&admin, second.id).await.unwrap());
}

/// A crash after the role was created, before the lease became active.
pub(crate) async fn lease_without_confirmation_is_revoked_a_minute_later(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(&fixture, &[CREATE]).await;
    let app = client("app");
    let made = create(&fixture, &app).await.lease;
    let now_us = fixture.clock.now_us();
    let crashed = LeaseRow {
        id: Uuid::now_v7(),
        username: format!("{}_x", made.username),
        state: LeaseState::Creating,
        next_at_us: now_us + 60_000_000,
        ..made.clone()
    };
    let (row, revision) = (crashed.clone(), connection(&fixture).await);
    let insert =
        fixture.store.write("test", move |tx| async move { insert_lease(tx, &row, revision).await }.boxed());
    assert!(insert.await.unwrap());
    let as_keeper = format!("SET ROLE keeper; CREATE ROLE {} LOGIN", crashed.username);
    assert!(target.cluster.psql("shop", &as_keeper));
    fixture.credentials.lease_round().await.unwrap();
    assert!(target.has_role(&crashed.username), "its creation may still run");
    fixture.advance(60);
    fixture.credentials.lease_round().await.unwrap();
    assert!(!target.has_role(&crashed.username));
    assert_eq!(own(&fixture, &app).await.len(), 1, "the active lease stays");
    assert!(fixture.credentials.revoke_lease(&app, made.id).await.unwrap());
}

/// Returns the revision of the connection.
async fn connection(fixture: &Fixture) -> Uuid {
    fixture.credentials.connections(&keeper()).await.unwrap()[0].row().id
}

/// A client that disconnects, or a process that ends, while the database does not answer.
pub(crate) async fn abandoned_request_leaves_a_lease_that_is_revoked(fixture: Fixture) {
    let target = Target::shared().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    connect(&fixture, silent.local_addr().unwrap().port()).await;
    role(&fixture, &[CREATE]).await;
    let app = client("app");
    let (store, requester) = (fixture.credentials.clone(), app.clone());
    let request = tokio::spawn(async move {
        store.create_lease(&requester, &name("/team/db/read-only"), LeaseRequest::default()).await
    });
    // The lease is durable before the first byte is sent to the database.
    let _connection = silent.accept().await.unwrap();
    assert_eq!(own(&fixture, &app).await[0].state, LeaseState::Creating);
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    let moved = ConnectionSettings { same_database: true, ..settings(target.port, Some("keeper-secret")) };
    let refused = fixture.credentials.set_connection(&keeper(), settings(target.port, Some("x"))).await;
    assert!(matches!(refused, Err(CredentialError::Bad(text)) if text.contains("1 leases")));
    fixture.credentials.set_connection(&keeper(), moved).await.unwrap();
    fixture.credentials.lease_round().await.unwrap();
    assert_eq!(own(&fixture, &app).await.len(), 1);
    fixture.advance(61);
    rounds(&fixture, &app).await;
}

pub(crate) async fn revocation_is_retried_until_the_database_answers(fixture: Fixture) {
    let target = Target::dedicated().await;
    connect(&fixture, target.port).await;
    role(&fixture, &[CREATE]).await;
    let app = client("app");
    let lease = create(&fixture, &app).await.lease;
    target.cluster.stop();
    assert!(!fixture.credentials.revoke_lease(&app, lease.id).await.unwrap());
    fixture.credentials.lease_round().await.unwrap();
    let [row] = &own(&fixture, &app).await[..] else { panic!("one lease") };
    assert_eq!((row.state, row.tries), (LeaseState::Revoking, 1));
    assert!(row.error.is_some(), "{row:?}");
    assert_eq!(fixture.credentials.lease_round().await.unwrap().failed, 0, "not before the delay");
    assert!(fixture.credentials.renew_lease(&app, lease.id, LeaseRequest::default()).await.is_err());
    target.cluster.resume();
    assert!(target.has_role(&lease.username));
    fixture.advance(61);
    rounds(&fixture, &app).await;
    assert!(!target.has_role(&lease.username));
}

pub(crate) async fn rejected_creation_leaves_neither_lease_nor_password(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(
        &fixture,
        &["CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password}}'", "GRANT nobody TO \"{{name}}\""],
    )
    .await;
    let app = client("app");
    let made =
        fixture.credentials.create_lease(&app, &name("/team/db/read-only"), LeaseRequest::default()).await;
    let Err(CredentialError::Remote(text)) = made else { panic!("{made:?}") };
    assert!(text.contains("statement 2") && text.contains("nobody"), "{text}");
    assert_eq!(own(&fixture, &app).await, []);
    let log = fixture.log().await.join("\n");
    let user = log.split("\"user\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(!target.has_role(user), "{user}");
    let quoted = RoleSettings { connection: "shop".to_owned(), ..RoleSettings::default() };
    let bad = ["CREATE ROLE \"{{name}}\" PASSWORD {{password}}".to_owned()];
    let quoted = RoleSettings { creation: bad.to_vec(), ..quoted };
    let refused = fixture.credentials.set_role(&keeper(), &name("/team/x"), quoted).await.unwrap_err();
    assert!(refused.to_string().contains("without quotes"), "{refused}");
}

pub(crate) async fn leases_need_read_permission_and_belong_to_their_actor(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(&fixture, &[CREATE]).await;
    let (app, other) = (client("app"), client("other"));
    let request_lease = |who: Requester| {
        let store = fixture.credentials.clone();
        async move { store.create_lease(&who, &name("/team/db/read-only"), LeaseRequest::default()).await }
    };
    assert!(matches!(request_lease(other.clone()).await, Err(CredentialError::NoRole)));
    let lease = request_lease(app.clone()).await.unwrap().lease;
    let none = LeaseRequest::default();
    assert!(matches!(fixture.credentials.lease(&other, lease.id).await, Err(CredentialError::NoLease)));
    assert!(matches!(
        fixture.credentials.renew_lease(&other, lease.id, none).await,
        Err(CredentialError::NoLease)
    ));
    assert!(matches!(
        fixture.credentials.revoke_lease(&other, lease.id).await,
        Err(CredentialError::NoLease)
    ));
    let path = PermissionPath::parse("/team/db/*").unwrap();
    let below = fixture.credentials.revoke_leases_below(&other, &path).await;
    assert!(matches!(below, Err(CredentialError::Forbidden)));
    assert!(matches!(
        fixture.credentials.leases(&app, Some(&path), None, 10).await,
        Err(CredentialError::Forbidden)
    ));
    // Neither a reader nor an administrator of credentials may write SQL.
    let settings = RoleSettings { creation: vec![CREATE.to_owned()], ..RoleSettings::default() };
    for who in [&app, &admin()] {
        let set = fixture.credentials.set_role(who, &name("/team/x"), settings.clone()).await;
        assert!(matches!(set, Err(CredentialError::Forbidden)));
    }
    assert!(target.has_role(&lease.username));
    assert_eq!(fixture.credentials.revoke_leases_below(&admin(), &path).await.unwrap(), 1);
    rounds(&fixture, &app).await;
    assert!(!target.has_role(&lease.username));
}

pub(crate) async fn stored_password_is_only_sent_to_its_address(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    fixture.credentials.set_connection(&keeper(), settings(target.port, None)).await.unwrap();
    role(&fixture, &[CREATE]).await;
    let app = client("app");
    let lease = create(&fixture, &app).await.lease;
    assert!(fixture.credentials.revoke_lease(&app, lease.id).await.unwrap());
    let changes: [fn(&mut ConnectionSettings); 5] = [
        |settings| settings.port += 1,
        |settings| settings.host = "localhost".to_owned(),
        |settings| settings.database = "postgres".to_owned(),
        |settings| settings.username = "other".to_owned(),
        |settings| settings.tls = ConnectionTls::VerifyFull,
    ];
    for change in changes {
        let mut settings = settings(target.port, None);
        change(&mut settings);
        let refused = fixture.credentials.set_connection(&keeper(), settings).await;
        assert!(matches!(refused, Err(CredentialError::Bad(text)) if text.contains("password again")));
    }
    // The database of the store is changed by somebody else.
    let stolen = "UPDATE credential_connections SET host = 'localhost'";
    fixture.store.execute(&format!("-- test\n{stolen}"), Vec::new()).await.unwrap();
    let made =
        fixture.credentials.create_lease(&app, &name("/team/db/read-only"), LeaseRequest::default()).await;
    assert!(matches!(made, Err(CredentialError::Sealed { .. })), "{made:?}");
}

pub(crate) async fn renewal_extends_a_lease_to_its_maximum(fixture: Fixture) {
    let target = Target::shared().await;
    connect(&fixture, target.port).await;
    role(
        &fixture,
        &["CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password_scram}}' VALID UNTIL '{{expiration}}'"],
    )
    .await;
    let app = client("app");
    let too_long = LeaseRequest { ttl_s: Some(86_401), clamps_ttl: false };
    let refused = fixture.credentials.create_lease(&app, &name("/team/db/read-only"), too_long).await;
    assert!(matches!(refused, Err(CredentialError::Bad(text)) if text.contains("at most 86400 seconds")));
    let lease = create(&fixture, &app).await.lease;
    let until = |us: i64| {
        let probe = format!(
            "SELECT 1 / (SELECT count(*) FROM pg_roles WHERE rolname = '{}' AND rolvaliduntil = to_timestamp({}))",
            lease.username,
            us / 1_000_000
        );
        target.cluster.psql("shop", &probe)
    };
    assert!(until(lease.expires_at_us));
    fixture.advance(3_000);
    let renewed = fixture.credentials.renew_lease(&app, lease.id, LeaseRequest::default()).await.unwrap();
    assert_eq!(renewed.expires_at_us, lease.expires_at_us + 3_000_000_000);
    assert!(until(renewed.expires_at_us));
    fixture.advance(3_000);
    fixture.credentials.lease_round().await.unwrap();
    assert!(target.has_role(&lease.username), "it was renewed");
    let day = LeaseRequest { ttl_s: Some(86_400), clamps_ttl: true };
    let last = fixture.credentials.renew_lease(&app, lease.id, day).await.unwrap();
    assert_eq!(last.expires_at_us, lease.max_expires_at_us);
    fixture.advance(86_400);
    rounds(&fixture, &app).await;
    assert!(!target.has_role(&lease.username));
}

pub(crate) async fn roles_are_listed_in_pages(fixture: Fixture) {
    connect(&fixture, 1).await;
    let settings = RoleSettings {
        connection: "shop".to_owned(),
        creation: vec![CREATE.to_owned()],
        ..RoleSettings::default()
    };
    let all: Vec<String> = (0..5).map(|number| format!("/team/{}/Role-{number}", number % 2)).collect();
    for path in &all {
        fixture.credentials.set_role(&keeper(), &name(path), settings.clone()).await.unwrap();
    }
    let path = PermissionPath::parse("/team/1/*").unwrap();
    let read = Operations::of(Operation::Read);
    fixture.credentials.grant(&admin(), "uaa-client:app", &path, read).await.unwrap();
    let listed = async |who: &Requester| {
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = fixture.credentials.roles(who, after.as_ref(), 2).await.unwrap();
            assert!(page.rows.len() <= 2, "{:?}", page.rows);
            found.extend(page.rows.into_iter().map(|role| role.name));
            pages += 1;
            after = page.next;
            if after.is_none() {
                return (found, pages);
            }
        }
    };
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(listed(&keeper()).await, (sorted, 3));
    assert_eq!(listed(&client("app")).await.0, ["/team/1/Role-1", "/team/1/Role-3"]);
    assert_eq!(listed(&client("other")).await.0, Vec::<String>::new());
    let first = fixture.credentials.roles(&keeper(), None, 1).await.unwrap().next;
    let other = fixture.credentials.leases(&keeper(), None, first.as_ref(), 1).await;
    assert!(matches!(other, Err(CredentialError::Bad(_))), "a cursor of another list: {other:?}");
}

pub(crate) async fn tls_to_the_database_is_verified_as_configured(fixture: Fixture) {
    /// Fails on a session without TLS.
    const ENCRYPTED: &str = "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl) \
         THEN RAISE 'no TLS'; END IF; END $$";
    let (certificate, key) = localhost_certificate();
    let start = move || {
        let cluster = Cluster::start();
        assert!(cluster.psql("postgres", "CREATE ROLE keeper LOGIN CREATEROLE"));
        assert!(cluster.psql("postgres", "CREATE DATABASE shop OWNER keeper"));
        let port = cluster.enable_tls(&certificate, &key);
        cluster.stop();
        cluster.resume();
        (cluster, port, certificate)
    };
    let (cluster, port, ours) = tokio::task::spawn_blocking(start).await.unwrap();
    let theirs = localhost_certificate().0;
    connect(&fixture, port).await;
    role(&fixture, &[CREATE, ENCRYPTED]).await;
    let app = client("app");
    for (host, tls, roots, fault) in [
        ("localhost", ConnectionTls::VerifyFull, Some(&ours), None),
        ("127.0.0.1", ConnectionTls::VerifyCa, Some(&ours), None),
        ("127.0.0.1", ConnectionTls::VerifyFull, Some(&ours), Some("certificate")),
        ("localhost", ConnectionTls::VerifyFull, Some(&theirs), Some("certificate")),
        ("localhost", ConnectionTls::VerifyCa, Some(&theirs), Some("certificate")),
        ("localhost", ConnectionTls::VerifyFull, None, Some("certificate")),
        ("localhost", ConnectionTls::Disable, None, Some("no TLS")),
    ] {
        let settings = ConnectionSettings {
            host: host.to_owned(),
            tls,
            roots: roots.cloned(),
            same_database: true,
            ..settings(port, Some("keeper-secret"))
        };
        fixture.credentials.set_connection(&keeper(), settings).await.unwrap();
        let request = LeaseRequest::default();
        let made = fixture.credentials.create_lease(&app, &name("/team/db/read-only"), request).await;
        match (made, fault) {
            (Ok(made), None) => {
                let probe = format!(
                    "SELECT 1 / (SELECT count(*) FROM pg_roles WHERE rolname = '{}')",
                    made.lease.username
                );
                assert!(cluster.psql("shop", &probe));
                assert!(fixture.credentials.revoke_lease(&app, made.lease.id).await.unwrap());
                assert!(!cluster.psql("shop", &probe));
            }
            (Err(CredentialError::Remote(text)), Some(fault)) => {
                assert!(text.contains(fault), "{host} {tls} {roots:?}: {text}");
            }
            (made, _) => panic!("{host} {tls} {roots:?}: {made:?}"),
        }
        assert_eq!(own(&fixture, &app).await, []);
    }
}
