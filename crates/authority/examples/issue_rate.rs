//! Benchmark: throughput of the CA with SQLite and PostgreSQL: `cargo run --release -p authority --example issue_rate`.
//!
//! Measures issuance with 64 requests in flight, revocation of 1,000 certificates by filter including the CRL, CRLs with 10,000, 50,000
//! and 100,000 entries, and OCSP responses, new and cached. The processor time is of this process, without the database server.

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::crl::CrlPart;
use authority::issue::{IssueRequest, Source};
use authority::keystore::KeyStore;
use authority::names::NameRules;
use authority::profile::Profile;
use authority::revoke::{RevocationFilter, Selection};
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions};
use futures_util::stream::{self, StreamExt};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use store::testing::Cluster;
use store::{Clock, Store, StoreUrl};
use x509::crl::Reason;
use x509::ocsp::{CertificateId, OcspHash, Request};
use x509::{GeneralName, SerialNumber};

/// Requests in flight, as with 64 connections.
const IN_FLIGHT: usize = 64;

#[tokio::main]
async fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    println!("{:<58} {:>12} {:>14}", "", "each, µs", "a second");
    let folder = std::env::temp_dir().join(format!("bulla-rate-{}", std::process::id()));
    let url = StoreUrl::sqlite(folder.join("rate.db"));
    measure("SQLite", Store::open(&url).await.unwrap(), count).await;
    std::fs::remove_dir_all(&folder).unwrap();
    let cluster = tokio::task::spawn_blocking(Cluster::shared).await.unwrap();
    measure("PostgreSQL", Store::open(&cluster.database()).await.unwrap(), count).await;
}

async fn measure(name: &str, store: Store, count: usize) {
    let clock = Clock::system();
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let options =
        AuthorityOptions { base_url: "http://pki.example".to_owned(), ..AuthorityOptions::default() };
    let authority = Authority::open(store, keystore, clock, options).unwrap();
    authority.create_root(&NewCa::root("root", "CN=Root"), "user:rate").await.unwrap();
    let ca = NewCa::intermediate("ca", "CN=CA");
    let ca = authority.create_intermediate("root", &ca, "user:rate").await.unwrap();
    let names: NameRules =
        serde_json::from_value(serde_json::json!({ "dns_allowed": [".example"] })).unwrap();
    for profile in ["web", "thousand"] {
        authority.put_profile(Profile::for_servers(profile, names.clone()), None, "user:rate").await.unwrap();
    }
    issue(&authority, "web", 500, false).await;

    let (wall, cpu) = timed(issue(&authority, "web", count, false)).await;
    row(&format!("{name}: issue, P-256, {IN_FLIGHT} in flight"), wall, count);
    row(&format!("{name}: issue, CPU of this process"), cpu, count);
    let (wall, _) = timed(issue(&authority, "web", count / 4, true)).await;
    row(&format!("{name}: issue with idempotency keys"), wall, count / 4);
    let (wall, _) = timed(issue_alone(&authority, 300)).await;
    row(&format!("{name}: issue, one after the other"), wall, 300);

    issue(&authority, "thousand", 1_000, false).await;
    authority.tick().await.unwrap();
    let filter = RevocationFilter { profile: Some("thousand".to_owned()), ..RevocationFilter::default() };
    let revoke = async {
        let done =
            authority.revoke(Selection::Filter(filter), Reason::Superseded, None, "user:rate").await.unwrap();
        assert_eq!(done.count, 1_000);
    };
    let (revoked, _) = timed(revoke).await;
    let (listed, _) = timed(async { assert!(authority.tick().await.unwrap().crls > 0) }).await;
    print_duration(&format!("{name}: revoke 1,000 by filter, with audit"), revoked);
    print_duration(&format!("{name}: … and the CRL after it"), listed);

    let mut revoked = 1_000;
    for target in [10_000, 50_000, 100_000] {
        issue(&authority, "web", target - revoked, false).await;
        let all = RevocationFilter { ca: Some(ca.id), ..RevocationFilter::default() };
        let revoke = authority.revoke(Selection::Filter(all), Reason::Superseded, None, "user:rate");
        let (wall, _) = timed(async { assert!(revoke.await.unwrap().count > 0) }).await;
        print_duration(&format!("{name}: revoke all, {target} in the end"), wall);
        let (wall, _) = timed(async { assert!(authority.tick().await.unwrap().crls > 0) }).await;
        let crl = authority.crl(ca.id, CrlPart::Full).await.unwrap().unwrap();
        let delta = authority.crl(ca.id, CrlPart::Delta).await.unwrap().unwrap();
        let title = format!(
            "{name}: CRL of {} and delta of {}, {} KiB",
            crl.entries,
            delta.entries,
            crl.der.len() >> 10
        );
        print_duration(&title, wall);
        revoked = usize::try_from(crl.entries).unwrap();
    }
    ocsp(name, &authority, &ca.certificate).await;
}

async fn ocsp(name: &str, authority: &Authority, ca: &x509::Certificate) {
    const COUNT: usize = 10_000;
    let issued = request("web", 0, &PrivateKey::generate(KeyType::P256).unwrap(), false);
    let serial = authority.issue(issued).await.unwrap().serial;
    let ocsp_request = |serial: SerialNumber, nonce: Option<Vec<u8>>| {
        Request { certificates: vec![CertificateId::of(ca, serial, OcspHash::Sha1)], nonce }.encode()
    };
    let (cached, fresh) = (ocsp_request(serial.clone(), None), ocsp_request(serial, Some(vec![7; 16])));
    authority.ocsp(&cached).await;
    for (what, request) in [("kept", cached), ("with a nonce", fresh)] {
        let all = stream::iter(0..COUNT).map(|_| authority.ocsp(&request)).buffer_unordered(IN_FLIGHT);
        let (wall, _) = timed(all.for_each(|_| async {})).await;
        row(&format!("{name}: OCSP answer, {what}"), wall, COUNT);
    }
}

fn request(profile: &str, number: usize, key: &PrivateKey, keyed: bool) -> IssueRequest {
    let names = vec![GeneralName::Dns(format!("n{number}.host.example"))];
    let mut request = IssueRequest::new(profile, key.spki().to_vec(), names, Source::Api, "user:rate");
    request.idempotency_key = keyed.then(|| format!("order {number}"));
    request
}

/// Issues certificates for one key on all threads of the runtime.
async fn issue(authority: &Authority, profile: &'static str, count: usize, keyed: bool) {
    let key = Arc::new(PrivateKey::generate(KeyType::P256).unwrap());
    let each = (0..IN_FLIGHT).map(|lane| {
        let (authority, key) = (authority.clone(), Arc::clone(&key));
        tokio::spawn(async move {
            for number in (lane..count).step_by(IN_FLIGHT) {
                authority.issue(request(profile, number, &key, keyed)).await.unwrap();
            }
        })
    });
    for lane in each.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
}

async fn issue_alone(authority: &Authority, count: usize) {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    for number in 0..count {
        authority.issue(request("web", number, &key, false)).await.unwrap();
    }
}

/// Returns the elapsed time and the processor time.
async fn timed(work: impl Future<Output = ()>) -> (Duration, Duration) {
    let (began, cpu) = (Instant::now(), cpu_time());
    work.await;
    (began.elapsed(), cpu_time().saturating_sub(cpu))
}

/// Returns the user and system time of this process. A clock tick is 10 ms on Linux.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn row(title: &str, took: Duration, count: usize) {
    let each = took.as_secs_f64() / count as f64;
    println!("{title:<58} {:>12.1} {:>14.0}", each * 1e6, 1.0 / each);
}

fn print_duration(title: &str, took: Duration) {
    println!("{title:<58} {:>12.0} {:>14}", took.as_secs_f64() * 1e6, "");
}
