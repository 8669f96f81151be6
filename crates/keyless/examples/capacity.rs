//! Benchmark: time and memory of the parts that depend on the number of sites and nodes, for a large network. Uses the real formulas,
//! wraps, seals and choice of connections. Of the population of keys only a sample is sealed.
//!
//! `cargo run --release -p keyless --example capacity -- [SITES] [NODES PER SITE] [POLICIES] [KEYS]`

use std::collections::HashMap;
use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyless::client::ClientTls;
use keyless::places::{AttributeClasses, Attributes, Formula};
use keyless::routing::{Member, NodeId, Router, RouterOptions, RoutingMetrics};
use keys::sealed::{NodeKey, PolicyKey, SealContext, WrapContext, seal_key};
use keys::{KeyType, PrivateKey, Signer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509::SpkiHash;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Regions with their share of the sites and their number of countries.
const REGIONS: [(&str, usize, usize); 6] =
    [("EU", 30, 14), ("NA", 25, 3), ("APAC", 25, 12), ("SA", 8, 6), ("ME", 6, 8), ("AF", 6, 10)];
/// One in this number of nodes has its own attributes.
const OWN_EVERY: usize = 20;
/// Bytes of a wrap's row without the wrap itself: policy, generation, node, change, time.
const WRAP_ROW: usize = 16 + 8 + 16 + 8 + 8;

/// Pause before a node connects again: longer than the run.
const LONG: Duration = Duration::from_secs(3_600);

/// Pseudorandom numbers, the same in each run (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % most as u64) as usize
    }
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |usual: usize| arguments.next().map_or(Ok(usual), |text| text.parse());
    let (sites, per_site, policies, keys) = (next(300)?, next(100)?, next(10_000)?, next(10_000_000)?);
    let mut chance = Chance(1);
    println!("{sites} sites of {per_site} nodes, {policies} policies, {keys} keys");
    let attributes = nodes(&mut chance, sites, per_site)?;
    let formulas = (0..policies).map(|_| formula(&mut chance)).collect::<Outcome<Vec<_>>>()?;
    let satisfying = resolve(&attributes, &formulas);
    let wraps: usize = satisfying.iter().map(Vec::len).sum();
    let sealed = wrap_and_seal(wraps, keys)?;
    on_nodes(&satisfying, attributes.len(), keys, sealed);
    drop(attributes);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(connections(&satisfying, sites, per_site))
}

/// Returns the attributes of all nodes, site by site.
fn nodes(chance: &mut Chance, sites: usize, per_site: usize) -> Outcome<Vec<Attributes>> {
    let mut all = Vec::with_capacity(sites * per_site);
    for _ in 0..sites {
        let (region, countries) = region(chance);
        let mut site = Attributes::of([("region", region.to_owned())])?;
        site.set("country", format!("{region}-{}", chance.below(countries)))?;
        site.set("tier", (1 + chance.below(3)).to_string())?;
        site.set("security", if chance.below(4) == 0 { "high" } else { "usual" })?;
        for node in 0..per_site {
            let mut attributes = site.clone();
            if node % OWN_EVERY == 0 {
                attributes.set("hsm", "fips-3")?;
            }
            all.push(attributes);
        }
    }
    Ok(all)
}

fn region(chance: &mut Chance) -> (&'static str, usize) {
    let mut at = chance.below(100);
    for (name, share, countries) in REGIONS {
        if at < share {
            return (name, countries);
        }
        at -= share;
    }
    (REGIONS[0].0, REGIONS[0].2)
}

fn formula(chance: &mut Chance) -> Outcome<Formula> {
    let mut country = || {
        let (region, countries) = region(chance);
        format!("{region}-{}", chance.below(countries))
    };
    let (a, b, c) = (country(), country(), country());
    let region = region(chance).0;
    let text = match chance.below(7) {
        0 => format!("region: {region}"),
        1 => format!("region: {region} and security: high"),
        2 => format!("country: {a} or country: {b} or country: {c}"),
        3 => format!("region: {region} and not country: {region}-0 and not tier: 3"),
        4 => format!("(country: {a} or country: {b}) and security: high"),
        5 => format!("region: {region} and hsm: fips-3"),
        _ => format!("not region: {region} and tier: 1 and security: high"),
    };
    Ok(Formula::parse(&text)?)
}

/// Returns the nodes that satisfy each policy. Measures the evaluation by classes of attributes and, for one in a hundred policies,
/// node by node.
fn resolve(attributes: &[Attributes], formulas: &[Formula]) -> Vec<Vec<u32>> {
    let began = Instant::now();
    let classes = AttributeClasses::of(attributes.iter().cloned());
    let satisfying: Vec<Vec<u32>> = formulas.iter().map(|formula| classes.satisfying(formula)).collect();
    let took = began.elapsed();
    let began = Instant::now();
    let some = formulas.iter().step_by(100);
    let singly: usize =
        some.map(|formula| attributes.iter().filter(|it| formula.satisfied_by(it)).count()).sum();
    let singly_took = began.elapsed() * 100;
    let by_class: usize = satisfying.iter().step_by(100).map(Vec::len).sum();
    assert_eq!(singly, by_class, "both ways say the same");
    let wraps: usize = satisfying.iter().map(Vec::len).sum();
    let none = satisfying.iter().filter(|nodes| nodes.is_empty()).count();
    println!(
        "policies held against nodes: {took:.2?} for {} classes of attributes (one by one {singly_took:.2?}); \
         a policy is satisfied by {:.1} % of the nodes, {none} by none",
        classes.count(),
        wraps as f64 / (formulas.len() * attributes.len()) as f64 * 100.0
    );
    satisfying
}

/// Measures wraps and sealed keys, and prints the stored bytes. Returns the average bytes of a sealed key.
fn wrap_and_seal(wraps: usize, keys: usize) -> Outcome<usize> {
    const ROUNDS: u32 = 200;
    let (node, policy) = (NodeKey::generate()?, PolicyKey::generate()?);
    let context = WrapContext { policy: [1; 16], generation: 1, node: [2; 16] };
    let (began, mut bytes) = (Instant::now(), 0);
    for _ in 0..ROUNDS {
        bytes = policy.wrap_for(node.public(), &context)?.len();
    }
    let each = began.elapsed() / ROUNDS;
    println!(
        "wraps: {wraps}, {bytes} octets and {WRAP_ROW} of columns each: {:.1} GB; {:.0} min of a processor at {each:.0?}",
        giga(wraps * (bytes + WRAP_ROW)),
        (each.as_secs_f64() * wraps as f64) / 60.0
    );
    // Seven in ten keys are P-256.
    let (mut all, mut opening) = (0, Duration::ZERO);
    for (kind, share) in [(KeyType::P256, 7), (KeyType::Rsa2048, 3)] {
        let key = PrivateKey::generate(kind)?;
        let context =
            SealContext { policy: [1; 16], generation: 1, spki_sha256: *key.spki_hash().as_bytes() };
        let sealed = seal_key(policy.public(), &key, &context)?;
        let began = Instant::now();
        for _ in 0..ROUNDS {
            drop(policy.open_key(&sealed, &context)?);
        }
        opening += began.elapsed() / ROUNDS * share as u32 / 10;
        all += (sealed.len() + key.spki().len()) * share;
    }
    let each = all / 10;
    println!("sealed keys: {each} octets each: {:.1} GB; opening one takes {opening:.0?}", giga(keys * each));
    Ok(each)
}

/// Prints the number of keys on single nodes. The number of keys per policy has a Zipf distribution.
fn on_nodes(satisfying: &[Vec<u32>], nodes: usize, keys: usize, sealed: usize) {
    let harmonic: f64 = (1..=satisfying.len()).map(|rank| 1.0 / rank as f64).sum();
    let (mut wraps, mut opened) = (vec![0_usize; nodes], vec![0.0_f64; nodes]);
    for (rank, policy) in satisfying.iter().enumerate() {
        let of_policy = keys as f64 / harmonic / (rank + 1) as f64;
        for node in policy {
            wraps[*node as usize] += 1;
            opened[*node as usize] += of_policy;
        }
    }
    wraps.sort_unstable();
    opened.sort_by(f64::total_cmp);
    let (half, last) = (nodes / 2, nodes - 1);
    println!(
        "a node has {} wraps (at most {}), opens {:.0} keys (at most {:.0}: {:.1} GB at 5 KB), and holds {:.1} GB sealed",
        wraps[half],
        wraps[last],
        opened[half],
        opened[last],
        giga(opened[last] as usize * 5_000),
        giga(keys * sealed)
    );
}

fn id(number: usize) -> NodeId {
    NodeId((number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

/// Measures the connections of a node of the first site, and the work when another node leaves and joins.
async fn connections(satisfying: &[Vec<u32>], sites: usize, per_site: usize) -> Outcome<()> {
    let key = PrivateKey::generate(KeyType::P256)?;
    let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()));
    let shown = rustls::crypto::aws_lc_rs::sign::any_supported_type(&pkcs8)?;
    // The addresses of other sites do not respond: only the nodes that it would connect to are counted. The nodes of its own site accept
    // connections but send nothing, so it assumes that they take their part.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let local_address = silent.local_addr()?.to_string();
    let chain = vec![CertificateDer::from(key.spki().to_vec())];
    let certificate = Arc::new(CertifiedKey::new(chain, shown));
    let tls = ClientTls { certificate, server_roots: Vec::new() };
    let own = 0;
    let options = RouterOptions { backoff: LONG, backoff_max: LONG, ..RouterOptions::default() };
    let router = Router::new(id(own), &tls, options, RoutingMetrics::default())?;
    let member = |number: usize| Member {
        id: id(number),
        name: format!("node-{number}"),
        site: format!("site-{}", number / per_site),
        address: if number < per_site { local_address.clone() } else { "127.0.0.1:1".to_owned() },
        tls_spki_sha256: SpkiHash::of(&id(number).0),
    };
    let all: Vec<Member> = (0..sites * per_site).map(member).collect();
    let own_number = own as u32;
    let mut by_nodes: HashMap<&[u32], _> = HashMap::new();
    let began = Instant::now();
    for nodes in satisfying.iter().filter(|nodes| nodes.binary_search(&own_number).is_err()) {
        let ids = || nodes.iter().map(|number| id(*number as usize)).collect();
        by_nodes.entry(nodes.as_slice()).or_insert_with(Vec::new).push(router.holders(ids()));
    }
    let policy_count: usize = by_nodes.values().map(Vec::len).sum();
    println!(
        "a node routes for {policy_count} policies ({} sets of nodes), told of in {:.2?}",
        by_nodes.len(),
        began.elapsed()
    );
    let measure_update = |what: &str, members: Vec<Member>| {
        let began = Instant::now();
        router.set_members(members);
        println!("{what}: {:.3?}", began.elapsed());
    };
    measure_update("  all nodes are told of at once", all.clone());
    // Each task counts itself when it starts.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sockets = telemetry::tasks::live()
        .iter()
        .find(|(kind, _)| *kind == "keyless-peer")
        .map_or(0, |(_, count)| *count);
    println!(
        "  it is connected to {sockets} nodes, those of its pod among them: {:.1} MB at 50 KB",
        sockets as f64 * 0.05
    );
    let removed = sites / 2 * per_site + 1;
    measure_update(
        "  one node goes",
        all.iter().filter(|member| member.id != id(removed)).cloned().collect(),
    );
    measure_update("  it comes back", all.clone());
    let site = format!("site-{}", sites / 2);
    measure_update("  a site goes", all.iter().filter(|member| member.site != site).cloned().collect());
    measure_update("  nothing changes", all.iter().filter(|member| member.site != site).cloned().collect());
    println!("memory at most: {:.2} GB", memory_max().unwrap_or(f64::NAN));
    router.stop().await;
    Ok(())
}

/// Returns the peak memory of this process as counted by the kernel.
fn memory_max() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok()? / 1e6)
}

fn giga(bytes: usize) -> f64 {
    bytes as f64 / 1e9
}
