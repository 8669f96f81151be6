//! Benchmark: cost of a separate signer process: `cargo run --release -p signer --example apart_rate`.
//!
//! Issues certificates with SQLite, first with the CA keys in this process, then in a signer process behind a socket.

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::ca_keys::CaKeys;
use authority::issue::{IssueRequest, Source};
use authority::keystore::KeyStore;
use authority::profile::Profile;
use authority::signer_checks::{CheckedCaKeys, NoApprovals, SignerRules};
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use signer::{SealedKeys, SignerClient, SignerOptions, SignerServer, SocketAccess};
use store::{Clock, Store, StoreUrl};
use tokio_util::sync::CancellationToken;
use x509::GeneralName;

/// Requests in flight, as with 64 connections.
const IN_FLIGHT: usize = 64;
/// Argument of the child process that runs the signer.
const SIGNER: &str = "signer";

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, folder] = arguments.as_slice()
        && word == SIGNER
    {
        return serve(Path::new(folder)).await;
    }
    let count = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let folder = std::env::temp_dir().join(format!("bulla-apart-{}", std::process::id()));
    let mut rates = BTreeMap::new();
    for mode in ["embedded", "apart"] {
        let folder = folder.join(mode);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let authority = open(&folder, mode == "apart").await;
        let mut child = (mode == "apart").then(|| {
            let exe = std::env::current_exe().unwrap();
            std::process::Command::new(exe).arg(SIGNER).arg(&folder).spawn().unwrap()
        });
        while authority.ca_keys().ready().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        prepare(&authority).await;
        issue(&authority, 500, IN_FLIGHT).await;
        for (what, lanes, count) in
            [("64 in flight", IN_FLIGHT, count), ("one after the other", 1, count / 20)]
        {
            let began = Instant::now();
            issue(&authority, count, lanes).await;
            let rate = count as f64 / began.elapsed().as_secs_f64();
            println!("{mode:<10} {what:<22} {rate:>10.0} certificates/s");
            rates.entry(what).or_insert_with(Vec::new).push(rate);
        }
        if let Some(child) = &mut child {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    for (what, rates) in rates {
        println!("apart / embedded, {what}: {:.2}", rates[1] / rates[0]);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn options() -> AuthorityOptions {
    AuthorityOptions { base_url: "http://pki.example".to_owned(), ..AuthorityOptions::default() }
}

async fn store(folder: &Path) -> Store {
    Store::open(&StoreUrl::sqlite(folder.join("rate.db"))).await.unwrap()
}

async fn open(folder: &Path, apart: bool) -> Authority {
    let (store, clock) = (store(folder).await, Clock::system());
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    if !apart {
        return Authority::open(store, keystore, clock, options()).unwrap();
    }
    let keys: Arc<dyn CaKeys> = Arc::new(SignerClient::new(&folder.join("socket")));
    Authority::open_with_keys(store, keystore, keys, clock, options()).unwrap()
}

/// Runs the signer process.
async fn serve(folder: &Path) {
    let (store, clock) = (store(folder).await, Clock::system());
    let ring = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone()).ring();
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    keystore.add_provider(Arc::new(SealedKeys::new(ring)));
    let authority = Authority::open(store, keystore, clock, options()).unwrap();
    let checked = Arc::new(CheckedCaKeys::new(authority, SignerRules::default(), Arc::new(NoApprovals)));
    let users = BTreeSet::from([rustix::process::geteuid().as_raw()]);
    let options = SignerOptions { path: folder.join("socket"), users, access: SocketAccess::Owner };
    let _server = SignerServer::start(options, checked, CancellationToken::new()).await.unwrap();
    std::future::pending::<()>().await;
}

async fn prepare(authority: &Authority) {
    authority.create_root(&NewCa::root("root", "CN=Root"), "user:rate").await.unwrap();
    authority.create_intermediate("root", &NewCa::intermediate("ca", "CN=CA"), "user:rate").await.unwrap();
    let names = serde_json::from_value(serde_json::json!({ "dns_allowed": [".example"] })).unwrap();
    authority.put_profile(Profile::for_servers("web", names), None, "user:rate").await.unwrap();
}

async fn issue(authority: &Authority, count: usize, lanes: usize) {
    let key = Arc::new(PrivateKey::generate(KeyType::P256).unwrap());
    let each = (0..lanes).map(|lane| {
        let (authority, key) = (authority.clone(), Arc::clone(&key));
        tokio::spawn(async move {
            for number in (lane..count).step_by(lanes) {
                let names = vec![GeneralName::Dns(format!("n{number}.host.example"))];
                let request = IssueRequest::new("web", key.spki().to_vec(), names, Source::Api, "user:rate");
                authority.issue(request).await.unwrap();
            }
        })
    });
    for lane in each.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
}
