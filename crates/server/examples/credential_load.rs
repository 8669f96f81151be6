//! Benchmark: the credential store under load: CredHub requests over HTTPS with keep-alive connections. The client runs in a separate
//! process, so that the server's processor time is measured separately.
//!
//! ```console
//! $ cargo run --release -p server --example credential_load -- sqlite 1000 100000 1000000
//! $ cargo run --release -p server --example credential_load -- postgres 1000 100000 1000000
//! ```

#![allow(clippy::unwrap_used, reason = "a bench ends where something fails")]

mod load;

use std::process::Command;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use credentials::{
    CertificateParameters, Credentials, CredentialsOptions, GenerateRequest, Kind, Mode, Name, Parameters,
    Requester, SetRequest,
};
use futures_util::{StreamExt, stream};
use keys::{KeyType, Keyring};
use load::{LoadRequest, Plan, listener, processor_us};
use secrecy::ExposeSecret;
use serde_json::json;
use server::limit::LimitOptions;
use server::routes::credhub::{CredHub, CredHubOptions};
use server::{Components, Server, ServerOptions, State, access};
use store::testing::Cluster;
use store::{Clock, Store, StoreUrl};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Number of names that are read, from all parts of the table.
const KNOWN: usize = 5_000;
/// Concurrent writes while the database is filled.
const FILLING: usize = 512;
/// Actor of the requests, as in permissions.
const ACTOR: &str = "uaa-client:first-admin";

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        // The client process of this benchmark.
        Some("client") => load::client(&arguments.next().unwrap()),
        database => {
            let sizes: Vec<usize> = arguments.map(|text| text.parse().unwrap()).collect();
            let sizes = if sizes.is_empty() { vec![1_000] } else { sizes };
            println!(
                "{:>9} {:<48} {:>9} {:>9} {:>9} {:>9}",
                "at", "what", "a second", "p50 ms", "p99 ms", "our µs"
            );
            for count in sizes {
                tokio::runtime::Runtime::new()
                    .unwrap()
                    .block_on(measure(database.unwrap_or("sqlite"), count));
            }
        }
    }
}

fn admin() -> Requester {
    Requester::manager(ACTOR)
}

fn name_of(number: usize) -> String {
    format!("/concourse/team{}/pipeline{}/secret{number}", number % 20, number / 20 % 100)
}

/// A measured case: name; method, path and body; connections; maximum seconds and requests.
type LoadCase = (&'static str, [String; 3], usize, (u64, usize));

fn load_cases(count: usize) -> Vec<LoadCase> {
    const ANY: usize = usize::MAX;
    let get = |path: &str| ["GET".to_owned(), path.to_owned(), String::new()];
    let send = |method: &str, path: &str, body: serde_json::Value| {
        [method.to_owned(), path.to_owned(), body.to_string()]
    };
    let one = || get("data?current=true&name={id}");
    let references: Vec<serde_json::Value> =
        (0..50).map(|at| json!({ "credentials": { "credhub-ref": format!("/services/s{at}") } })).collect();
    let lookups: Vec<[String; 2]> =
        (0..5).map(|at| [format!("{{id}}/none{at}"), "{id}".to_owned()]).collect();
    let set =
        || send("PUT", "data", json!({ "name": "/set/{names}/{n}", "type": "value", "value": "{names}" }));
    let certificate = |at: &str, more: serde_json::Value| {
        let mut parameters =
            json!({ "common_name": "a.example", "ca": "/ca-ec", "alternative_names": ["a.example"] });
        for (key, value) in more.as_object().unwrap() {
            parameters[key] = value.clone();
        }
        let name = format!("/made/{at}/{{names}}/{{n}}");
        send("POST", "data", json!({ "name": name, "type": "certificate", "parameters": parameters }))
    };
    let ec = || certificate("ec", json!({ "key_type": "p256" }));
    let no_overwrite = json!({ "name": "/ca-rsa", "type": "certificate", "mode": "no-overwrite",
        "parameters": { "common_name": "Bench CA", "is_ca": true } });
    let password = json!({ "name": "/made/{names}/{n}", "type": "password" });
    let part = format!("data?name-like=secret{}", count - 1);
    vec![
        ("get by name, 1 connection", one(), 1, (3, ANY)),
        ("get by name, 8 connections", one(), 8, (5, ANY)),
        ("get by name, 32 connections", one(), 32, (5, ANY)),
        ("get what is not there, 8", get("data?current=true&name=/missing/{n}"), 8, (3, ANY)),
        ("name-like of a whole name (exact), 8", get("data?name-like={id}"), 8, (3, ANY)),
        ("name-like of a part of a name, 1", get(&part), 1, (3, ANY)),
        ("find by path, one of 2,000, 8", get("data?path=/concourse/team1/pipeline1"), 8, (3, ANY)),
        (
            "lookup of 5 secrets at 2 levels, 8",
            send("POST", "lookup", json!({ "lookups": lookups })),
            8,
            (3, ANY),
        ),
        (
            "interpolate 50 references, 8",
            send("POST", "interpolate", json!({ "p": references })),
            8,
            (3, ANY),
        ),
        ("set, new names, 8 connections", set(), 8, (5, ANY)),
        ("set, new names, 64 connections", set(), 64, (5, ANY)),
        ("generate password, 8", send("POST", "data", password), 8, (3, ANY)),
        ("generate EC certificate, 8", ec(), 8, (3, ANY)),
        ("generate EC certificate, 64", ec(), 64, (3, ANY)),
        ("generate RSA certificate from the stock, 8", certificate("rsa", json!({})), 8, (5, 60)),
        ("generate RSA certificate, the stock empty, 8", certificate("rsa2", json!({})), 8, (5, ANY)),
        ("generate, no-overwrite of an existing one, 8", send("POST", "data", no_overwrite), 8, (3, ANY)),
    ]
}

async fn fill(credentials: &Credentials, count: usize) {
    let all = stream::iter(0..count).map(|number| {
        let name = Name::parse(&name_of(number)).unwrap();
        let value = json!(format!("value {number}"));
        let request = SetRequest {
            name,
            kind: Kind::Value,
            value: value.into(),
            metadata: None,
            expected: None,
            expected_number: None,
            ttl_s: None,
        };
        async move { credentials.set(&admin(), request).await.unwrap() }
    });
    all.buffer_unordered(FILLING).for_each(|_| async {}).await;
    let services = |at: usize| json!({ "uri": format!("postgres://u:p@h/{at}") });
    for at in 0..50 {
        let name = Name::parse(&format!("/services/s{at}")).unwrap();
        let request = SetRequest {
            name,
            kind: Kind::Json,
            value: services(at).into(),
            metadata: None,
            expected: None,
            expected_number: None,
            ttl_s: None,
        };
        credentials.set(&admin(), request).await.unwrap();
    }
    for (name, kind) in [("/ca-ec", Some(KeyType::P256)), ("/ca-rsa", None)] {
        let parameters = CertificateParameters {
            common_name: Some("Bench CA".to_owned()),
            is_ca: true,
            self_sign: true,
            key_type: kind,
            ..CertificateParameters::default()
        };
        let request = GenerateRequest {
            name: Name::parse(name).unwrap(),
            parameters: Parameters::Certificate(Box::new(parameters)),
            mode: Mode::Overwrite,
            metadata: None,
            ttl_s: None,
        };
        credentials.generate(&admin(), request).await.unwrap();
    }
}

async fn measure(database: &str, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = (database == "postgres").then(Cluster::start);
    let url = match &cluster {
        Some(cluster) => cluster.database(),
        None => StoreUrl::sqlite(folder.path().join("bulla.db")),
    };
    let store = Store::open(&url).await.unwrap();
    let clock = Clock::system();
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let credentials =
        Credentials::open(store.clone(), keystore.clone(), clock.clone(), CredentialsOptions::default());
    let authority = Authority::open(store.clone(), keystore, clock.clone(), AuthorityOptions::default());
    credentials.set_publishing_authority(authority.unwrap());
    let began = Instant::now();
    fill(&credentials, count).await;
    println!(
        "{count:>9} {:<48} {:>9.0}",
        "set in the process, 512 at once",
        count as f64 / began.elapsed().as_secs_f64()
    );
    let token = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
    let unlimited = LimitOptions::unlimited();
    let exact_name_like = vec!["uaa-client:first-admin".to_owned()];
    let options = CredHubOptions { exact_name_like, ..CredHubOptions::default() };
    let stop = CancellationToken::new();
    let running_store = tokio::spawn(credentials.clone().run(stop.clone()));
    let hub = CredHub::new(credentials.clone(), options).unwrap();
    let components = Components { credentials: Some(hub), ..Components::default() };
    let state = State::builder(store, clock).limits(unlimited).components(components).build();
    let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), listener());
    options.credentials = Some("127.0.0.1:0".parse().unwrap());
    let running = Server::start(options, state).await.unwrap();
    let list = folder.path().join("names");
    let step = (count / KNOWN).max(1);
    let names: String = (0..count).step_by(step).map(|number| name_of(number) + "\n").collect();
    std::fs::write(&list, names).unwrap();
    // Taking the first key starts the generation of RSA keys in advance.
    let _ = credentials.stock().take();
    while credentials.stock().ready() < 64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let template = list.with_extension("template");
    for (what, [method, path, body], connections, (seconds, requests)) in load_cases(count) {
        std::fs::write(&template, format!("{method}\n{path}\n{body}\n{requests}\n")).unwrap();
        let plan = Plan {
            address: running.credential_address.unwrap(),
            token: token.clone(),
            ids: list.clone(),
            request: LoadRequest::Template,
            connections,
            seconds,
            names: format!("{}-{count}", Uuid::now_v7().simple()),
        };
        let before = processor_us();
        let ran = tokio::task::spawn_blocking(move || {
            Command::new(std::env::current_exe().unwrap()).args(["client", &plan.to_text()]).output().unwrap()
        });
        let ran = ran.await.unwrap();
        let spent = processor_us() - before;
        assert!(ran.status.success(), "{what}: {}", String::from_utf8_lossy(&ran.stderr));
        let [done, seconds, middle, slow] = load::parse_results(&ran.stdout);
        println!(
            "{count:>9} {what:<48} {:>9.0} {middle:>9.3} {slow:>9.3} {:>9.0}",
            done / seconds,
            spent as f64 / done
        );
    }
    stop.cancel();
    running.stop().await;
    running_store.await.unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    println!("{count:>9} {:<48} {}", "memory at most", memory.split_whitespace().nth(1).unwrap());
}
