//! The client of the credential store with a real server, on SQLite and on PostgreSQL.

use std::net::SocketAddr;
use std::time::Duration;

use authority::keystore::KeyStore;
use client::{Change, Client, Error, Limits};
use credentials::{
    Credentials, CredentialsOptions, Kind, Name, Operations, PermissionPath, Requester, SetRequest,
};
use keys::Keyring;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::limit::LimitOptions;
use server::listen::server_certificate;
use server::routes::credhub::{CredHub, CredHubOptions};
use server::{Components, Running, Server, ServerOptions, State, access};
use store::{Clock, Store};
use testbed::Database;

use crate::world::{Authority, HOUR, now};

/// Maximum time to wait before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A credential store and its server, which restarts on the same port.
struct CredentialServer {
    store: Store,
    clock: Clock,
    credentials: Credentials,
    ca: Authority,
    admin: String,
    address: SocketAddr,
    api: Option<SocketAddr>,
    running: Option<Running>,
    // Keep this field last: the store must be dropped before the database.
    database: Database,
}

fn admin() -> Requester {
    Requester::manager("uaa-client:bootstrap")
}

fn at(text: &str) -> Name {
    Name::parse(text).unwrap()
}

impl CredentialServer {
    async fn sqlite() -> Self {
        Self::on(Database::sqlite()).await
    }

    async fn postgres() -> Self {
        Self::on(Database::postgres().await).await
    }

    async fn on(database: Database) -> Self {
        Self::down(database).await.started().await
    }

    /// Creates a server that is configured but not started.
    async fn down(database: Database) -> Self {
        let store = database.open().await;
        let clock = Clock::manual(now() * 1_000_000);
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let options = CredentialsOptions::default();
        let credentials = Credentials::open(store.clone(), keystore, clock.clone(), options);
        let token = access::bootstrap(&store, &clock).await.unwrap().unwrap();
        let free = SocketAddr::from(([127, 0, 0, 1], fleet::free_port()));
        Self {
            store,
            clock,
            credentials,
            ca: Authority::new("test root"),
            admin: token.expose_secret().to_owned(),
            address: free,
            api: None,
            running: None,
            database,
        }
    }

    async fn started(mut self) -> Self {
        self.start().await;
        self
    }

    async fn start(&mut self) {
        let leaf = self.ca.leaf(&["127.0.0.1"]);
        let certificate = server_certificate(&[leaf.der], &leaf.key).unwrap();
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), certificate);
        options.credentials = Some(self.address);
        options.client_roots = vec![self.ca.root.clone()];
        let began = std::time::Instant::now();
        let running = loop {
            let hub = CredHub::new(self.credentials.clone(), CredHubOptions::default()).unwrap();
            let unlimited = LimitOptions::unlimited();
            let components = Components { credentials: Some(hub), ..Components::default() };
            let state = State::builder(self.store.clone(), self.clock.clone()).limits(unlimited);
            match Server::start(options.clone(), state.components(components).build()).await {
                Ok(running) => break running,
                // Another process may have taken the port while the server was down.
                Err(error) => assert!(began.elapsed() < TIMEOUT, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        self.api = Some(running.address);
        self.running = Some(running);
    }

    async fn stop(&mut self) {
        assert!(self.running.take().unwrap().stop().await);
    }

    async fn set(&self, name: &str, value: &str) {
        let request = SetRequest::new(at(name), Kind::Password, json!(value));
        self.credentials.set(&admin(), request).await.unwrap();
        // On PostgreSQL an event is visible after all earlier transactions have ended, including those of other tests.
        testbed::until_async(&format!("the event of {name} is seen"), async || {
            self.store.outbox_stable_end().await.unwrap() == self.store.outbox_end().await.unwrap()
        })
        .await;
    }

    async fn grant(&self, actor: &str, path: &str) {
        let path = PermissionPath::parse(path).unwrap();
        let read = Operations::parse(&["read"]).unwrap();
        self.credentials.grant(&admin(), actor, &path, read).await.unwrap();
    }

    /// Creates a new API token of this name with the role `viewer`, which has no permission on credentials.
    async fn token(&self, name: &str) -> String {
        let root = reqwest::Certificate::from_der(&self.ca.root).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
        let body = json!({ "name": name, "grants": [{ "role": "viewer", "scope": "any" }] });
        let request = http.post(format!("https://{}/api/v1/tokens", self.api.unwrap()));
        let answer = request.bearer_auth(&self.admin).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        answer.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned()
    }

    /// Revokes the API token of this name.
    async fn forget_token(&self, name: &str) {
        let root = reqwest::Certificate::from_der(&self.ca.root).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
        let url = format!("https://{}/api/v1/tokens", self.api.unwrap());
        let listed = http.get(&url).bearer_auth(&self.admin).send().await.unwrap();
        let listed: Value = listed.json().await.unwrap();
        let all = listed["items"].as_array().unwrap();
        let id = all.iter().find(|one| one["name"] == name).unwrap()["id"].as_str().unwrap().to_owned();
        let request = http.delete(format!("{url}/{id}")).bearer_auth(&self.admin).header("if-match", "*");
        assert_eq!(request.send().await.unwrap().status(), 204);
    }

    fn builder(&self) -> client::Builder {
        let root = x509::pem::encode("CERTIFICATE", &self.ca.root);
        Client::builder(format!("https://{}", self.address)).roots(root)
    }

    /// Returns an administrator's client that does not subscribe to changes and caches for a long time.
    fn client(&self) -> Client {
        self.builder().bearer(&self.admin).limits(Limits { follow: false, ..long() }).build().unwrap()
    }
}

/// Cache entries do not become stale during a test.
fn long() -> Limits {
    Limits {
        ttl: Duration::from_secs(86_400),
        negative_ttl: Duration::from_secs(86_400),
        lifetime: Duration::from_secs(86_400),
        deadline: TIMEOUT,
        ..Limits::default()
    }
}

/// Every value is requested again each time. Cached values are used only if the server does not respond.
fn anew() -> Limits {
    let none = Duration::ZERO;
    Limits { ttl: none, negative_ttl: none, revalidate: none, ..long() }
}

async fn value(client: &Client, name: &str) -> Result<String, Error> {
    Ok(client.get(name).await?.text(&[]).unwrap().expose().to_owned())
}

/// Waits until the client reads this value for the name.
async fn until_value(client: &Client, name: &str, wanted: &str) {
    let began = std::time::Instant::now();
    loop {
        let got = value(client, name).await;
        if got.as_deref() == Ok(wanted) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{name} is {got:?}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn next(changes: &mut client::Changes) -> Change {
    tokio::time::timeout(TIMEOUT, changes.next()).await.expect("a change")
}

/// Returns the next change of a name. Skips [`Change::Any`], which reports changed permissions before or after it.
async fn next_named(changes: &mut client::Changes) -> Change {
    loop {
        match next(changes).await {
            Change::Any => {}
            named => return named,
        }
    }
}

fn named(name: &str) -> Change {
    Change::Name(client::Name::parse(name).unwrap())
}

testbed::on_both! { super::CredentialServer:
    changes_are_sent_only_to_clients_with_read_permission
    changed_value_is_refetched_and_others_stay_cached
    changed_value_is_cached_before_an_outage
    interrupted_change_stream_resumes_without_a_gap
    cached_values_are_refetched_once_in_one_request_after_a_gap
    cached_value_is_dropped_when_permission_or_token_is_revoked
}

#[tokio::test]
async fn concurrent_lookups_of_one_name_share_one_request() {
    let server = CredentialServer::sqlite().await;
    server.set("/a", "one").await;
    let client = server.client();
    let names = vec![vec!["/A"]; 1_000];
    for answer in client.lookup_many(&names).await {
        assert_eq!(answer.unwrap().unwrap().name(), "/a");
    }
    let stats = client.stats();
    assert_eq!((stats.requests, stats.connections, stats.handshakes), (1, 1, 1), "{stats:?}");
    assert_eq!((stats.misses, stats.hits), (1_000, 0), "{stats:?}");
    assert_eq!(value(&client, "/a").await.unwrap(), "one");
    assert!(matches!(client.get("/none").await, Err(Error::NotFound(_))));
    assert!(matches!(client.get("/none").await, Err(Error::NotFound(_))));
    let stats = client.stats();
    assert_eq!((stats.requests, stats.hits), (2, 2), "that there is none is remembered: {stats:?}");
}

#[tokio::test]
async fn concurrent_cache_misses_share_batched_requests() {
    let server = CredentialServer::sqlite().await;
    for number in 0..20 {
        server.set(&format!("/main/p{number}/s"), &format!("p{number}")).await;
    }
    server.set("/main/s", "team").await;
    let client = server.client();
    let lists: Vec<Vec<String>> =
        (0..200).map(|number| vec![format!("/main/p{number}/s"), "/main/s".to_owned()]).collect();
    for (number, answer) in client.lookup_many(&lists).await.into_iter().enumerate() {
        let wanted = if number < 20 { format!("p{number}") } else { "team".to_owned() };
        assert_eq!(answer.unwrap().unwrap().text(&[]).unwrap().expose(), wanted, "{number}");
    }
    let stats = client.stats();
    assert!(stats.requests <= 4, "400 names: {stats:?}");
    // Each name of the lists is cached separately, including missing names.
    client.lookup(&["/main/p150/s", "/main/s"]).await.unwrap().unwrap();
    assert_eq!(client.stats().requests, stats.requests);
}

/// An invalid name of one caller does not affect the other callers.
#[tokio::test]
async fn invalid_name_fails_alone_in_a_batched_lookup() {
    let server = CredentialServer::sqlite().await;
    server.set("/a", "one").await;
    let client = server.client();
    let lists: Vec<Vec<&str>> = (0..9).map(|number| vec![if number == 5 { "/a b" } else { "/a" }]).collect();
    for (number, answer) in client.lookup_many(&lists).await.into_iter().enumerate() {
        match (number, answer) {
            (5, Ok(None)) => {}
            (_, Ok(Some(credential))) if number != 5 => assert_eq!(credential.name(), "/a"),
            (_, other) => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(client.stats().requests, 1, "nobody is asked for apart");
}

#[tokio::test]
async fn concurrent_lookups_share_one_login_and_expired_tokens_are_renewed() {
    let server = CredentialServer::sqlite().await;
    server.set("/t/a", "one").await;
    server.grant("uaa-client:ci", "/t/*").await;
    let token = server.token("ci").await;
    let limits = Limits { follow: false, ..anew() };
    let client = server.builder().client_credentials("ci", token).limits(limits).build().unwrap();
    let names: Vec<Vec<String>> =
        (0..100).map(|number| vec![format!("/t/{number}"), "/t/a".to_owned()]).collect();
    for answer in client.lookup_many(&names).await {
        answer.unwrap().unwrap();
    }
    assert_eq!((client.stats().logins, client.stats().connections), (1, 1));
    // Only the server's clock advances: the client still considers the token valid.
    server.clock.advance(Duration::from_secs(2 * HOUR.unsigned_abs()));
    assert_eq!(value(&client, "/t/a").await.unwrap(), "one");
    assert_eq!(client.stats().logins, 2);
    let wrong = server.builder().client_credentials("ci", "bulla_wrong").limits(limits).build().unwrap();
    for _ in 0..20 {
        assert!(matches!(value(&wrong, "/t/a").await, Err(Error::Denied(_))));
    }
    assert_eq!(wrong.stats().logins, 1, "guessing is not repeated");
}

#[tokio::test]
async fn client_certificate_authenticates_to_the_credential_store() {
    let server = CredentialServer::sqlite().await;
    server.set("/m/a", "one").await;
    let leaf = server.ca.leaf(&["app.example"]);
    let root = reqwest::Certificate::from_der(&server.ca.root).unwrap();
    let http = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    let body = json!({ "name": "app", "match": "dns:app.example", "grants": [] });
    let request = http.post(format!("https://{}/api/v1/client-certificates", server.api.unwrap()));
    assert_eq!(request.bearer_auth(&server.admin).json(&body).send().await.unwrap().status(), 201);
    server.grant("certificate:app", "/m/*").await;
    let pem = format!("{}{}", leaf.key.to_pkcs8_pem().as_str(), x509::pem::encode("CERTIFICATE", &leaf.der));
    let client = server.builder().identity(pem).limits(long()).build().unwrap();
    assert_eq!(value(&client, "/m/a").await.unwrap(), "one");
}

/// A value with a time to live is not cached beyond its expiry.
#[tokio::test]
async fn expired_versions_are_not_served_from_the_cache() {
    let server = CredentialServer::sqlite().await;
    let ending = |ttl_s| SetRequest {
        ttl_s: Some(ttl_s),
        ..SetRequest::new(at("/short"), Kind::Password, json!("one"))
    };
    server.credentials.set(&admin(), ending(3_600)).await.unwrap();
    let client = server.client();
    assert_eq!(value(&client, "/short").await.unwrap(), "one");
    assert_eq!(value(&client, "/short").await.unwrap(), "one");
    assert_eq!(client.stats().requests, 1, "an hour is left");
    server.credentials.set(&admin(), ending(1)).await.unwrap();
    let client = server.client();
    assert_eq!(value(&client, "/short").await.unwrap(), "one");
    // By the client's clock the value expires within two seconds. The server's clock stands still, so the client reads the value
    // again.
    testbed::until_async("the value is asked for again", async || {
        assert_eq!(value(&client, "/short").await.unwrap(), "one");
        client.stats().requests > 1
    })
    .await;
}

async fn changes_are_sent_only_to_clients_with_read_permission(server: CredentialServer) {
    server.grant("uaa-client:ci", "/Mine/*").await;
    server.grant("uaa-client:ci", "/theirs/one").await;
    let client = server.builder().bearer(server.token("ci").await).limits(long()).build().unwrap();
    let all = server.builder().bearer(&server.admin).limits(long()).build().unwrap();
    let (mut changes, mut everything) = (client.changes(), all.changes());
    assert_eq!(
        (next(&mut changes).await, next(&mut everything).await),
        (Change::Any, Change::Any),
        "it begins"
    );
    for name in ["/theirs/two", "/mineral", "/mine/a", "/theirs/one/more", "/THEIRS/ONE"] {
        server.set(name, "canary-value").await;
    }
    server.credentials.delete(&admin(), &at("/mine/a")).await.unwrap();
    for wanted in ["/mine/a", "/theirs/one", "/mine/a"] {
        assert_eq!(next(&mut changes).await, named(wanted));
    }
    for wanted in ["/theirs/two", "/mineral", "/mine/a", "/theirs/one/more", "/theirs/one", "/mine/a"] {
        assert_eq!(next(&mut everything).await, named(wanted));
    }
    // Granted and revoked permissions apply to the next event.
    server.grant("uaa-client:ci", "/theirs/*").await;
    server.set("/theirs/two", "again").await;
    assert_eq!(next_named(&mut changes).await, named("/theirs/two"));
    let path = PermissionPath::parse("/theirs/*").unwrap();
    let granted = server.credentials.permissions_at(&admin(), &path).await.unwrap();
    server.credentials.revoke_permission(&admin(), granted[0].id).await.unwrap();
    server.set("/theirs/two", "secret").await;
    server.set("/mine/last", "x").await;
    assert_eq!(next_named(&mut changes).await, named("/mine/last"));
}

async fn changed_value_is_refetched_and_others_stay_cached(server: CredentialServer) {
    server.set("/a", "one").await;
    server.set("/b", "kept").await;
    let client = server.builder().bearer(&server.admin).limits(long()).build().unwrap();
    let mut changes = client.changes();
    assert_eq!(next(&mut changes).await, Change::Any);
    assert_eq!(value(&client, "/a").await.unwrap(), "one");
    assert_eq!(value(&client, "/b").await.unwrap(), "kept");
    let before = client.stats();
    server.set("/a", "two").await;
    assert_eq!(next(&mut changes).await, named("/a"));
    assert_eq!(value(&client, "/a").await.unwrap(), "two");
    assert_eq!(value(&client, "/b").await.unwrap(), "kept");
    assert_eq!(client.stats().requests, before.requests + 1, "the other is still known");
    // Subscribers also receive changes of names that did not exist before.
    assert!(client.get("/new").await.is_err());
    server.set("/new", "here").await;
    assert_eq!(next(&mut changes).await, named("/new"));
    assert_eq!(value(&client, "/new").await.unwrap(), "here");
    server.credentials.delete(&admin(), &at("/a")).await.unwrap();
    assert_eq!(next(&mut changes).await, named("/a"));
    assert!(matches!(client.get("/a").await, Err(Error::NotFound(_))));
}

/// No value is requested between the change and the outage.
async fn changed_value_is_cached_before_an_outage(mut server: CredentialServer) {
    server.set("/a", "one").await;
    let client = server.builder().bearer(&server.admin).limits(long()).build().unwrap();
    let mut changes = client.changes();
    assert_eq!(next(&mut changes).await, Change::Any);
    assert_eq!(value(&client, "/a").await.unwrap(), "one");
    let before = client.stats();
    server.set("/a", "two").await;
    assert_eq!(next(&mut changes).await, named("/a"));
    testbed::until("the value is asked for", || client.stats().requests != before.requests).await;
    // A graceful shutdown completes the requests in flight.
    server.stop().await;
    assert_eq!(value(&client, "/a").await.unwrap(), "two");
}

async fn interrupted_change_stream_resumes_without_a_gap(mut server: CredentialServer) {
    server.set("/a", "one").await;
    let client = server.builder().bearer(&server.admin).limits(long()).build().unwrap();
    let mut changes = client.changes();
    assert_eq!(next(&mut changes).await, Change::Any);
    assert_eq!(value(&client, "/a").await.unwrap(), "one");
    server.stop().await;
    server.set("/a", "two").await;
    assert_eq!(value(&client, "/a").await.unwrap(), "one", "without this CRL, revocation cannot be");
    server.start().await;
    assert_eq!(next(&mut changes).await, named("/a"), "what happened meanwhile, and no gap");
    assert_eq!(value(&client, "/a").await.unwrap(), "two");
    assert_eq!(client.stats().gaps, 1, "the beginning alone");
}

async fn cached_values_are_refetched_once_in_one_request_after_a_gap(mut server: CredentialServer) {
    for name in ["/a", "/b", "/c"] {
        server.set(name, "one").await;
    }
    let client = server.builder().bearer(&server.admin).limits(long()).build().unwrap();
    let mut changes = client.changes();
    assert_eq!(next(&mut changes).await, Change::Any);
    let all = [vec!["/a"], vec!["/b"], vec!["/c"]];
    assert!(client.lookup_many(&all).await.iter().all(Result::is_ok));
    server.stop().await;
    server.set("/a", "two").await;
    // Delete the events of the outage from the outbox.
    assert!(server.store.outbox_trim(i64::MAX).await.unwrap() > 0);
    server.start().await;
    assert_eq!(next(&mut changes).await, Change::Any);
    let before = client.stats();
    assert!(client.lookup_many(&all).await.iter().all(Result::is_ok));
    assert_eq!(value(&client, "/a").await.unwrap(), "two");
    assert!(client.lookup_many(&all).await.iter().all(Result::is_ok));
    let stats = client.stats();
    assert_eq!(stats.requests, before.requests + 1, "once, together: {before:?} {stats:?}");
    assert_eq!(stats.gaps, 2, "{stats:?}");
}

async fn cached_value_is_dropped_when_permission_or_token_is_revoked(server: CredentialServer) {
    server.set("/a/x", "one").await;
    let token = server.token("reader").await;
    let path = PermissionPath::parse("/a/*").unwrap();
    let read = Operations::parse(&["read"]).unwrap();
    let granted = server.credentials.grant(&admin(), "uaa-client:reader", &path, read).await.unwrap();
    // Cache entries do not expire for a day.
    let client = server.builder().bearer(&token).limits(long()).build().unwrap();
    let mut changes = client.changes();
    assert_eq!(next(&mut changes).await, Change::Any);
    until_value(&client, "/a/x", "one").await;
    let until_refused = async |refused: fn(&Error) -> bool| {
        let began = std::time::Instant::now();
        loop {
            match client.get("/a/x").await {
                Err(error) if refused(&error) => break,
                other => assert!(began.elapsed() < TIMEOUT, "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    server.credentials.revoke_permission(&admin(), granted.id).await.unwrap();
    until_refused(|error| matches!(error, Error::NotFound(_))).await;
    // The cached "not found" is also replaced before its day is over.
    server.grant("uaa-client:reader", "/a/x").await;
    until_value(&client, "/a/x", "one").await;
    server.forget_token("reader").await;
    until_refused(|error| matches!(error, Error::Denied(_))).await;
}

#[tokio::test]
async fn client_starts_while_the_store_is_down_and_serves_cached_values() {
    let mut server = CredentialServer::down(Database::sqlite()).await;
    server.set("/a", "one").await;
    let client = server.builder().bearer(&server.admin).limits(anew()).build().unwrap();
    let forgetful = Limits { lifetime: Duration::ZERO, ..anew() };
    let forgetful = server.builder().bearer(&server.admin).limits(forgetful).build().unwrap();
    let error = value(&client, "/a").await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("cannot be reached"), "{error}");
    server.start().await;
    until_value(&client, "/a", "one").await;
    until_value(&forgetful, "/a", "one").await;
    server.stop().await;
    assert_eq!(value(&client, "/a").await.unwrap(), "one", "from the cache");
    assert!(client.stats().stale_hits >= 1);
    assert!(value(&forgetful, "/a").await.unwrap_err().is_unavailable(), "past its lifetime");
    assert!(client.get("/unknown").await.unwrap_err().is_unavailable());
    // While the store is known to be unavailable, the client sends few requests.
    let before = client.stats();
    for _ in 0..500 {
        assert_eq!(value(&client, "/a").await.unwrap(), "one");
    }
    let request_count = client.stats().requests - before.requests;
    assert!(request_count < 100, "{request_count} requests for 500 questions");
    server.set("/a", "two").await;
    server.start().await;
    until_value(&client, "/a", "two").await;
    until_value(&forgetful, "/a", "two").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_values_are_served_while_the_database_is_down() {
    let server = CredentialServer::on(Database::dedicated_postgres().await).await;
    server.set("/a", "one").await;
    let client = server.builder().bearer(&server.admin).limits(anew()).build().unwrap();
    assert_eq!(value(&client, "/a").await.unwrap(), "one");
    server.database.stop().await;
    let before = client.stats().stale_hits;
    assert_eq!(value(&client, "/a").await.unwrap(), "one");
    assert!(client.stats().stale_hits > before, "{:?}", client.stats());
    let error = client.get("/unknown").await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    server.database.resume().await;
    let began = std::time::Instant::now();
    loop {
        match client.get("/unknown").await {
            Err(Error::NotFound(_)) => break,
            other => assert!(began.elapsed() < TIMEOUT, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.set("/a", "two").await;
    until_value(&client, "/a", "two").await;
}

#[tokio::test]
async fn debug_output_contains_no_secrets() {
    let server = CredentialServer::sqlite().await;
    server.set("/a", "canary-51f0").await;
    let builder = server.builder().client_credentials("ci", "canary-51f0");
    let shown = format!("{builder:?}");
    let client = builder.build().unwrap();
    let credential = server.client().get("/a").await.unwrap();
    let template = client::Template::parse("((/a))", None).unwrap();
    let shown = format!("{shown}{client:?}{credential:?}{template:?}{:?}", client.get("/a").await);
    assert!(!shown.contains("canary"), "{shown}");
    assert!(shown.contains("/a"));
}
