//! Benchmark: cost of revocation checks: requests and time for an estate, time per lookup, bytes per CRL entry.
//!
//! `cargo run --release -p scan --example revocation [CERTIFICATES] [ISSUERS] [ENTRIES OF THE LARGE CRL]`

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fleet::revocation::{RevocationServer, RevokingAuthority, TestCrlSpec, TestLeafSpec};
use outbound::http::{Client, Options};
use outbound::resolve::Resolver;
use scan::revocation::{RevocationChecker, RevocationOptions, Subject, Verdict};
use x509::crl::{Reason, Revoked};
use x509::{Certificate, SerialNumber, UnixTime};

type Failure = Box<dyn std::error::Error>;

/// Entries of the CRL of a typical issuer.
const ENTRIES: u64 = 1_000;
/// Response time of the CRL server, about as from a CDN.
const LATENCY: Duration = Duration::from_millis(40);
/// Rounds of lookups.
const ROUNDS: usize = 50;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |usual| arguments.next().unwrap_or(Ok(usual));
    let (certificates, issuers, entries) = (next(1_800)?, next(20)?, next(1_000_000)?);
    estate(certificates, issuers).await?;
    large(entries).await
}

fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(since.as_secs() as i64)
}

fn checker() -> Result<RevocationChecker, Failure> {
    let http = Client::new(&Resolver::with_upstreams(Vec::new()), &Options::default())?;
    Ok(RevocationChecker::new(http, RevocationOptions::default()))
}

/// Returns a serial number of 16 pseudorandom bytes, like serial numbers of public CAs.
fn serial(number: u64) -> Vec<u8> {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [mixed.to_be_bytes(), mixed.rotate_left(17).to_be_bytes()].concat();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes
}

fn crl(authority: &RevokingAuthority, entries: u64) -> Result<Vec<u8>, Failure> {
    let entry = |number| Revoked {
        serial: SerialNumber::from_content(&serial(number)),
        at: now(),
        reason: (number % 4 == 0).then_some(Reason::KeyCompromise),
        invalidity_date: None,
    };
    Ok(authority
        .crl(&TestCrlSpec { revoked: (0..entries).map(entry).collect(), ..TestCrlSpec::default() })?)
}

fn leaf(authority: &RevokingAuthority, number: u64, url: String) -> Result<Arc<Certificate>, Failure> {
    let order = TestLeafSpec { serial: Some(serial(number)), crl_urls: vec![url], ..TestLeafSpec::default() };
    Ok(Arc::new(Certificate::parse(&authority.issue(&order)?)?))
}

async fn estate(certificates: u64, issuers: u64) -> Result<(), Failure> {
    let server = RevocationServer::start(LATENCY).await?;
    let mut subjects = Vec::new();
    for issuer in 0..issuers {
        let authority = RevokingAuthority::new(issuer as u32)?;
        let path = format!("/{issuer}.crl");
        server.put_bytes(&path, crl(&authority, ENTRIES)?);
        let signer = Arc::new(authority.certificate().clone());
        for number in (issuer..certificates).step_by(issuers.max(1) as usize) {
            let certificate = leaf(&authority, number * 20, server.url(&path))?;
            subjects.push(Subject { certificate, issuer: signer.clone(), staple: None });
        }
    }
    let checker = checker()?;
    let began = Instant::now();
    let verdicts = checker.check_all(&subjects, now()).await;
    let first = began.elapsed();
    let count = |code| verdicts.iter().filter(|verdict| verdict.code() == code).count();
    println!(
        "{} certificates of {issuers} issuers, {ENTRIES} entries a CRL, {} ms to answer: {} requests, {:.0} ms \
         ({} good, {} revoked, {} unknown)",
        subjects.len(),
        LATENCY.as_millis(),
        checker.counts().requests,
        first.as_secs_f64() * 1e3,
        count("good"),
        count("revoked"),
        count("unknown"),
    );
    let began = Instant::now();
    for _ in 0..ROUNDS {
        black_box(checker.check_all(&subjects, now()).await);
    }
    let each = began.elapsed().as_secs_f64() / (ROUNDS * subjects.len()) as f64;
    println!("a check from memory: {:.0} ns; still {} requests", each * 1e9, checker.counts().requests);
    server.stop().await;
    Ok(())
}

async fn large(entries: u64) -> Result<(), Failure> {
    let server = RevocationServer::start(Duration::ZERO).await?;
    let authority = RevokingAuthority::new(0)?;
    let der = crl(&authority, entries)?;
    let bytes = der.len();
    server.put_bytes("/large.crl", der);
    let issuer = Arc::new(authority.certificate().clone());
    let checker = checker()?;
    let present = leaf(&authority, entries / 2, server.url("/large.crl"))?;
    let absent = leaf(&authority, entries + 7, server.url("/large.crl"))?;
    let began = Instant::now();
    let verdict = checker.check(&present, &issuer, None, now()).await;
    let took = began.elapsed();
    let counts = checker.counts();
    println!(
        "a CRL of {entries} entries, {:.1} MB: {verdict}\n{:.0} ms to get, check and pack; {:.2} octets an entry, {:.1} MB",
        bytes as f64 / 1e6,
        took.as_secs_f64() * 1e3,
        counts.packed_bytes as f64 / entries.max(1) as f64,
        counts.packed_bytes as f64 / 1e6,
    );
    for (which, certificate) in [("there", &present), ("absent", &absent)] {
        let began = Instant::now();
        let mut revoked = 0;
        for _ in 0..100_000 {
            let verdict = checker.check(certificate, &issuer, None, now()).await;
            revoked += usize::from(matches!(verdict, Verdict::Revoked { .. }));
        }
        println!("{which}: {:.0} ns a check ({revoked} revoked)", began.elapsed().as_secs_f64() * 1e4);
    }
    server.stop().await;
    Ok(())
}
