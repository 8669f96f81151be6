//! Benchmark: log entries per second that one core parses, verifies and matches with watched domains. The lower bound, SHA-256 of the
//! leaves only, is measured for comparison.
//!
//! `cargo run --release -p ct --example ct_match [DOMAINS]`

use std::hint::black_box;

use ct::DomainSet;
use ct::entry::{Entries, Entry};
use ct::merkle::root_of;
use ct::names::names;
use fleet::ct::{CtAuthority, IssuedPair};
use x509::der::{self, DerError, Reader, Writer, tag};

/// Number of different entries: 64 tiles.
const ENTRIES: usize = 64 * 256;
/// Seconds of processor time for each measurement.
const SECONDS: f64 = 3.0;
/// Typical bytes of a precertificate's tbsCertificate in public logs. An extension pads the benchmark's to this size.
const TBS_BYTES: usize = 1_300;
/// Names per certificate. The first one is also the common name.
const NAMES: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let watched: usize = std::env::args().nth(1).map_or(Ok(20), |count| count.parse())?;
    let authority = CtAuthority::new(1)?;
    let tiles: Vec<Vec<u8>> = (0..ENTRIES / 256)
        .map(|tile| (0..256).map(|n| entry(&authority, tile * 256 + n)).collect::<Result<Vec<_>, _>>())
        .map(|entries| entries.map(|entries| entries.concat()))
        .collect::<Result<_, _>>()?;
    let octets: usize = tiles.iter().map(Vec::len).sum();
    let domains: Vec<String> = (0..watched).map(|n| format!("watched-{n}.example")).collect();
    let set = DomainSet::compile(domains.iter().map(String::as_str), 0x9e37_79b9_7f4a_7c15)?;
    println!("{ENTRIES} entries of {} octets, {watched} watched domains, one core", octets / ENTRIES);

    let limit = rate("SHA-256 of the leaves alone", &tiles, |entries| {
        entries.iter().for_each(|entry| {
            black_box(entry.leaf_hash());
        });
    });
    let matched = rate("names found and matched", &tiles, |entries| {
        black_box(matches(entries, &set));
    });
    let whole = rate("all: proven and matched", &tiles, |entries| {
        let hashes: Vec<_> = entries.iter().map(Entry::leaf_hash).collect();
        black_box(root_of(&hashes));
        black_box(matches(entries, &set));
    });
    println!("matching costs {:.0} ns an entry; all is {:.2} of the limit", 1e9 / matched, whole / limit);
    let count: usize = tiles
        .iter()
        .map(|tile| Entries::new(tile).collect::<Result<Vec<_>, _>>().map(|all| matches(&all, &set)))
        .sum::<Result<usize, _>>()?;
    println!("{count} matches (one entry in a thousand is for a watched domain)");
    Ok(())
}

fn matches(entries: &[Entry<'_>], set: &DomainSet) -> usize {
    let mut found = 0;
    for entry in entries {
        let mut ours = false;
        names(entry.logged.hashed(), |name| set.matches(name, |_| ours = true));
        found += usize::from(ours);
    }
    found
}

/// Returns the entries per second of processor time. Each tile is decoded again.
fn rate(what: &str, tiles: &[Vec<u8>], mut work: impl FnMut(&[Entry<'_>])) -> f64 {
    let (began, mut read) = (processor_seconds(), 0_u64);
    while processor_seconds() - began < SECONDS {
        for tile in tiles {
            let entries: Vec<Entry<'_>> = Entries::new(tile).map_while(Result::ok).collect();
            assert_eq!(entries.len(), 256);
            work(&entries);
            read += entries.len() as u64;
        }
    }
    let rate = read as f64 / (processor_seconds() - began);
    println!("{what:32} {rate:>12.0} entries/s");
    rate
}

/// Returns the processor time of this thread as counted by the kernel. Other load on the machine does not affect it.
fn processor_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = schedstat.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.expect("this example needs Linux, with /proc") / 1e9
}

/// Returns a TileLeaf with a precertificate.
fn entry(authority: &CtAuthority, number: usize) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let domain = if number.is_multiple_of(1_000) { "watched-0.example" } else { "somebody-else.example" };
    let names: Vec<String> = (0..NAMES).map(|n| format!("name-{n}.host-{number}.{domain}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let IssuedPair { tbs, precertificate, issuer_key_hash, .. } =
        authority.issue(&names, 1_795_219_200, 90)?;
    let tbs = padded(&tbs)?;
    let mut out = 1_795_219_200_000_u64.to_be_bytes().to_vec();
    out.extend([0, 1]);
    out.extend(issuer_key_hash);
    for (at, octets) in [tbs, precertificate].iter().enumerate() {
        out.extend(&(octets.len() as u32).to_be_bytes()[1..]);
        out.extend(octets);
        if at == 0 {
            out.extend([0, 8, 0, 0, 5]);
            out.extend(&(number as u64).to_be_bytes()[3..]);
        }
    }
    out.extend([0, 32]);
    out.extend([7; 32]);
    Ok(out)
}

/// Returns the tbsCertificate with an additional extension before the others.
fn padded(tbs: &[u8]) -> Result<Vec<u8>, DerError> {
    const EXTENSIONS: u8 = tag::context_constructed(3);
    let padding = vec![0x5a; TBS_BYTES.saturating_sub(tbs.len())];
    let mut out = Writer::new();
    for field in Reader::new(tbs).sequence()? {
        let field = field?;
        if field.tag != EXTENSIONS {
            out.raw(field.whole);
            continue;
        }
        let list = field.inside().sequence()?.rest();
        out.context(3, |w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[2, 5, 29, 32]).octets(&padding);
                })
                .raw(list);
            });
        });
    }
    Ok(der::write(|w| {
        w.element(tag::SEQUENCE, &out.finish());
    }))
}
