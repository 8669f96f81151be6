//! The hosts of a fleet: creates names, addresses, certificates and the expected scan results from a plan.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use x509::{Certificate, Fingerprint, SpkiHash};

use crate::FleetError;
use crate::dns::{NEGATIVE_TTL, Reply, Zone};
use crate::kind::{
    Dns, EndpointBehavior, EndpointSharing, Family, Issuer, KINDS, Kind, Naming, StarttlsProtocol, least,
};
use crate::mint::{FleetAuthorities, Identity, Served};
use crate::plan::{Mix, Plan};
use crate::random::Random;
use crate::truth::Truth;

/// First address, far from 127.0.0.1, which other programs use.
const FIRST_ADDRESS: u32 = 0x7f01_0001;
/// Number of addresses up to 127.254.255.255.
const ADDRESSES_MAX: u32 = 0x7fff_0000 - FIRST_ADDRESS;
/// TTL of ordinary addresses, in seconds.
const TTL: u32 = 300;
/// Second label of the host names.
const ZONES: [&str; 5] = ["shop", "api", "mail", "corp", "lab"];
/// Lifetime in days of a healthy leaf of the demo, unless it is short-lived.
const DEMO_LIFE_DAYS: i64 = 90;
/// Number of different ages of the demo's healthy leaves, in whole days from one day. 31 to 88 days remain, so that the demo can
/// run for hours before a leaf is reported as expiring (within 30 days).
const DEMO_AGES: u64 = 58;
/// One in this number of healthy leaves is revoked. See [`Plan::revocation`].
const REVOKED_ONE_IN: usize = 10;
/// Number of threads that create certificates at startup.
const MINT_THREADS: usize = 2;

/// A host name and its servers.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    pub(crate) delays: Delays,
    /// All addresses that serve the name, including those that the DNS server no longer returns.
    pub(crate) host_addresses: RwLock<Vec<HostAddress>>,
}

/// An address of a host, and the certificate that its server presents.
#[derive(Clone)]
pub(crate) struct HostAddress {
    pub(crate) address: Ipv4Addr,
    /// Whether the DNS server returns the address.
    pub(crate) is_published: bool,
    pub(crate) served: Option<Arc<Served>>,
}

/// Delays of a host by phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) dns: Duration,
    pub(crate) dial: Duration,
    pub(crate) handshake: Duration,
}

/// All hosts, indexed by name and by address.
pub(crate) struct Estate {
    pub(crate) hosts: Vec<Arc<Host>>,
    by_name: HashMap<String, usize>,
    by_address: RwLock<HashMap<Ipv4Addr, usize>>,
    next_address: RwLock<u32>,
}

/// Ports by service.
pub(crate) struct Ports {
    pub(crate) tls: u16,
    pub(crate) upgrades: HashMap<StarttlsProtocol, u16>,
    /// A port without a listener.
    pub(crate) refused: u16,
    /// Addresses of black holes, shared by hosts.
    pub(crate) holes: Vec<(Ipv4Addr, u16)>,
}

/// Hosts that share certificates, keys or addresses.
struct Group {
    kind: &'static Kind,
    names: Vec<String>,
    /// Days from the start of the fleet to the start of the validity; negative in the past.
    from_days: i64,
}

impl Estate {
    pub(crate) fn build(plan: &Plan, mint: &FleetAuthorities, ports: &Ports) -> Result<Self, FleetError> {
        let mut random = Random::new(plan.seed);
        let groups = groups(plan);
        let mut addresses = FIRST_ADDRESS..FIRST_ADDRESS + ADDRESSES_MAX;
        let ranges = plan.latency.ranges();
        let mut laid_out = Vec::with_capacity(groups.len());
        let mut holes = ports.holes.iter().cycle();
        for group in groups {
            let at = lay_out(&group, &mut addresses, &mut holes)?;
            let delays: Vec<_> = group
                .names
                .iter()
                .map(|_| Delays {
                    dns: random.duration(&ranges.dns),
                    dial: random.duration(&ranges.dial),
                    handshake: random.duration(&ranges.handshake),
                })
                .collect();
            laid_out.push((group, at, delays));
        }
        let chunk = laid_out.len().div_ceil(MINT_THREADS).max(1);
        let minted = std::thread::scope(|scope| {
            let threads: Vec<_> = laid_out
                .chunks(chunk)
                .map(|part| scope.spawn(|| part.iter().map(|(g, at, _)| furnish(mint, g, at)).collect()))
                .collect();
            let parts = threads.into_iter().map(|thread| thread.join().map_err(|_| FleetError::Sign)?);
            parts.collect::<Result<Vec<Vec<Vec<Vec<HostAddress>>>>, FleetError>>()
        })?;
        let mut hosts: Vec<_> = laid_out
            .into_iter()
            .zip(minted.into_iter().flatten())
            .flat_map(|((group, _, delays), host_addresses)| {
                let kind = group.kind;
                group.names.into_iter().zip(delays).zip(host_addresses).map(
                    move |((name, delays), host_addresses)| {
                        Arc::new(Host { name, kind, delays, host_addresses: RwLock::new(host_addresses) })
                    },
                )
            })
            .collect();
        random.shuffle(&mut hosts);
        Ok(Self::of(hosts, addresses.start))
    }

    fn of(hosts: Vec<Arc<Host>>, next_address: u32) -> Self {
        let by_name = hosts.iter().enumerate().map(|(i, host)| (host.name.clone(), i)).collect();
        let mut by_address = HashMap::new();
        for (i, host) in hosts.iter().enumerate() {
            for host_address in &*host.host_addresses.read() {
                by_address.entry(host_address.address).or_insert(i);
            }
        }
        Self { hosts, by_name, by_address: RwLock::new(by_address), next_address: RwLock::new(next_address) }
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Host>> {
        self.by_name.get(name).map(|i| &self.hosts[*i])
    }

    /// Returns the host of an address; the first if several share it.
    pub(crate) fn at(&self, address: Ipv4Addr) -> Option<&Arc<Host>> {
        self.by_address.read().get(&address).map(|i| &self.hosts[*i])
    }

    /// Returns the certificate, chain, key and staple that a server at `address` presents to a client with the SNI `name`.
    pub(crate) fn served(&self, name: Option<&str>, address: Ipv4Addr) -> Option<Arc<Served>> {
        let named_host = name.and_then(|name| self.named(&name.to_ascii_lowercase()));
        let served_by = |host: &Arc<Host>| {
            host.host_addresses.read().iter().find(|p| p.address == address).and_then(|p| p.served.clone())
        };
        named_host.and_then(served_by).or_else(|| self.at(address).and_then(served_by))
    }

    /// Adds an address for `host`. From now on the DNS server returns only this address; the servers at the other addresses
    /// continue.
    pub(crate) fn move_host(&self, host: &Arc<Host>, served: Arc<Served>) -> Ipv4Addr {
        let mut next = self.next_address.write();
        let address = Ipv4Addr::from(*next);
        *next += 1;
        let mut host_addresses = host.host_addresses.write();
        host_addresses.iter_mut().for_each(|host_address| host_address.is_published = false);
        host_addresses.push(HostAddress { address, is_published: true, served: Some(served) });
        if let Some(index) = self.by_name.get(&host.name) {
            self.by_address.write().insert(address, *index);
        }
        address
    }

    /// Returns the expected scan results, in the order of the targets.
    pub(crate) fn truth(&self, ports: &Ports, revoked: &HashSet<Fingerprint>) -> Vec<Truth> {
        let together = SharedMaterial::of(&self.hosts);
        self.hosts.iter().map(|host| truth_of(host, ports, &together, revoked)).collect()
    }

    /// Returns the leaves to revoke with their issuers: one in [`REVOKED_ONE_IN`] of the leaves of healthy hosts.
    pub(crate) fn to_revoke(&self) -> Vec<(Issuer, Certificate)> {
        // Hosts with a stapled response are not revoked: a scanner prefers the staple, which says that the certificate is good.
        let healthy = self.hosts.iter().filter(|host| {
            host.kind.family == Family::Healthy && host.kind.serve != EndpointBehavior::Stapled
        });
        let leaf = |host: &Arc<Host>| {
            let leaf = Certificate::parse(&first_published(host)?.leaf).ok()?;
            Some((host.kind.leaf.issuer, leaf))
        };
        healthy.step_by(REVOKED_ONE_IN).filter_map(leaf).collect()
    }
}

impl Zone for Estate {
    fn reply(&self, name: &str) -> (Reply, Duration) {
        let Some(host) = self.named(name) else { return (Reply::NxDomain, Duration::ZERO) };
        let found = |aliases, ttl| {
            let host_addresses = host.host_addresses.read();
            let addresses = host_addresses.iter().filter(|p| p.is_published).map(|p| p.address).collect();
            Reply::Found { aliases, addresses, ttl }
        };
        let alias = |i: usize| format!("alias{i}.{name}");
        let reply = match host.kind.dns {
            Dns::Address => found(Vec::new(), TTL),
            Dns::Aliases(count) => found((1..=count).map(|i| (alias(i), TTL)).collect(), TTL),
            Dns::ShortLived(ttl) => found(Vec::new(), ttl),
            Dns::NxDomain => Reply::NxDomain,
            Dns::NoData => Reply::Found { aliases: Vec::new(), addresses: Vec::new(), ttl: NEGATIVE_TTL },
            Dns::ServFail => Reply::ServFail,
            Dns::Refused => Reply::Refused,
            Dns::Silent => Reply::Silence,
            Dns::Loop => Reply::Loop(vec![alias(1), alias(2)]),
        };
        (reply, host.delays.dns)
    }
}

/// Returns groups of hosts with names, after choosing the number of endpoints of each kind.
fn groups(plan: &Plan) -> Vec<Group> {
    let counts = match plan.mix {
        Mix::Balancer { names } => {
            KINDS.iter().filter(|k| k.name == "balancer").map(|kind| (kind, names)).collect()
        }
        Mix::Healthy => counts(plan, |kind| kind.family == Family::Healthy, false),
        Mix::AllKinds | Mix::Demo => counts(plan, |kind| kind.family != Family::Dead, true),
    };
    let mut groups = Vec::new();
    let mut dates = Random::new(plan.seed);
    let mut first = 0;
    for (kind, count) in counts {
        let size = match plan.mix {
            Mix::Balancer { names } => names,
            _ => kind.sharing.size(),
        };
        let mut left = count;
        while left > 0 {
            // Avoids a last group with a single host.
            let take = if left == size + 1 { left } else { left.min(size) };
            let names = (first..first + take).map(|i| name_of(kind, i, first)).collect();
            let from_days = match plan.mix {
                Mix::Demo if kind.family == Family::Healthy && kind.leaf.life_days == DEMO_LIFE_DAYS => {
                    -1 - dates.below(DEMO_AGES) as i64
                }
                _ => kind.leaf.from_days,
            };
            groups.push(Group { kind, names, from_days });
            (first, left) = (first + take, left - take);
        }
    }
    groups
}

/// Divides the plan's endpoints among the kinds by weight. The dead kinds get `dead_fraction` of the endpoints; the kinds that
/// `alive` accepts get the rest. With `every`, each kind has at least one.
fn counts(plan: &Plan, alive: impl Fn(&Kind) -> bool, every: bool) -> Vec<(&'static Kind, usize)> {
    let share = plan.dead_fraction.clamp(0.0, 1.0);
    let is_dead = |kind: &Kind| kind.family == Family::Dead;
    let mut dead = (plan.endpoints as f64 * share).round() as usize;
    if every && share > 0.0 {
        dead = dead.max(least(is_dead)).min(plan.endpoints);
    }
    let mut counts = divide(plan.endpoints - dead, &alive, every);
    counts.extend(divide(dead, is_dead, every));
    counts
}

fn divide(total: usize, wanted: impl Fn(&Kind) -> bool, every: bool) -> Vec<(&'static Kind, usize)> {
    let kinds: Vec<_> = KINDS.iter().filter(|kind| wanted(kind)).collect();
    let all: usize = kinds.iter().map(|kind| kind.weight as usize).sum();
    let base: usize = if every { kinds.iter().map(|kind| kind.sharing.least()).sum() } else { 0 };
    let rest = total.saturating_sub(base);
    let mut counts: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let least = if every { kind.sharing.least() } else { 0 };
            (*kind, least + rest * kind.weight as usize / all.max(1))
        })
        .collect();
    // The remainder of rounding goes to the most common kind.
    let given: usize = counts.iter().map(|(_, count)| count).sum();
    if let Some((_, count)) = counts.iter_mut().max_by_key(|(kind, _)| kind.weight) {
        *count += total.saturating_sub(given);
    }
    counts.retain(|(_, count)| *count > 0);
    counts
}

/// Returns the name of a host. Names are distinct; hosts with the same wildcard certificate share a parent domain.
fn name_of(kind: &Kind, index: usize, group: usize) -> String {
    let kind_name = kind.name.replace('.', "-");
    match kind.sharing {
        EndpointSharing::Balancer(_) => format!("n{index}.{kind_name}{group}.fleet.test"),
        _ => format!("{kind_name}-{index}.{}.fleet.test", ZONES[index % ZONES.len()]),
    }
}

/// Assigns addresses to each host of a group.
fn lay_out<'h>(
    group: &Group,
    free: &mut Range<u32>,
    holes: &mut impl Iterator<Item = &'h (Ipv4Addr, u16)>,
) -> Result<Vec<Vec<Ipv4Addr>>, FleetError> {
    let mut next = || free.next().map(Ipv4Addr::from).ok_or(FleetError::TooLarge);
    let count = group.names.len();
    if let EndpointBehavior::Fault(crate::kind::Fault::BlackHole) = group.kind.serve {
        return Ok((0..count).filter_map(|_| holes.next().map(|(address, _)| vec![*address])).collect());
    }
    if matches!(
        group.kind.dns,
        Dns::NxDomain | Dns::NoData | Dns::ServFail | Dns::Refused | Dns::Silent | Dns::Loop
    ) {
        return Ok(vec![Vec::new(); count]);
    }
    match group.kind.sharing {
        EndpointSharing::Balancer(_) | EndpointSharing::VirtualHosts(_) => Ok(vec![vec![next()?]; count]),
        EndpointSharing::Addresses(n) | EndpointSharing::Differing(n) => {
            (0..count).map(|_| (0..n).map(|_| next()).collect()).collect()
        }
        _ => (0..count).map(|_| Ok(vec![next()?])).collect(),
    }
}

/// Creates certificates and keys for all addresses of a group.
fn furnish(
    mint: &FleetAuthorities,
    group: &Group,
    at: &[Vec<Ipv4Addr>],
) -> Result<Vec<Vec<HostAddress>>, FleetError> {
    let kind = group.kind;
    let presents = !matches!(kind.serve, EndpointBehavior::Fault(_));
    let of = |host: &str, more: &[String], addresses: &[Ipv4Addr], key| {
        let address = addresses.first().map_or([127, 0, 0, 1], Ipv4Addr::octets);
        let identity = Identity { host, more, address, from_days: group.from_days };
        mint.serve(kind, &identity, key).map(Arc::new)
    };
    let together = match kind.sharing {
        EndpointSharing::SharedCertificate(_) | EndpointSharing::Balancer(_) if presents => {
            Some(of(&group.names[0], &group.names[1..], &at[0], None)?)
        }
        _ => None,
    };
    let key = match kind.sharing {
        EndpointSharing::SharedKey(_) => Some(mint.key(kind.leaf.key)?),
        _ => None,
    };
    let host_address = |address: &Ipv4Addr, served: Option<Arc<Served>>| HostAddress {
        address: *address,
        is_published: true,
        served,
    };
    let mut furnished = Vec::with_capacity(at.len());
    for (name, addresses) in group.names.iter().zip(at) {
        let mut host_addresses = Vec::with_capacity(addresses.len());
        let mut own = together.clone();
        for address in addresses {
            let anew = presents && (own.is_none() || matches!(kind.sharing, EndpointSharing::Differing(_)));
            if anew {
                own = Some(of(name, &[], std::slice::from_ref(address), key.clone())?);
            }
            host_addresses.push(host_address(address, own.clone()));
        }
        furnished.push(host_addresses);
    }
    Ok(furnished)
}

/// Keys and certificates that endpoints share.
struct SharedMaterial {
    certificates_by_key: HashMap<SpkiHash, HashSet<Fingerprint>>,
    hosts_by_certificate: HashMap<Fingerprint, usize>,
}

impl SharedMaterial {
    fn of(hosts: &[Arc<Host>]) -> Self {
        let mut together = Self { certificates_by_key: HashMap::new(), hosts_by_certificate: HashMap::new() };
        for host in hosts.iter().filter(|host| host.kind.outcome == "answered") {
            let Some(served) = first_published(host) else { continue };
            let (leaf, key) = (served.fingerprint(), SpkiHash::of(&served.key.spki()));
            together.certificates_by_key.entry(key).or_default().insert(leaf);
            *together.hosts_by_certificate.entry(leaf).or_default() += 1;
        }
        together
    }

    fn findings(&self, served: &Served) -> impl Iterator<Item = &'static str> {
        let key = SpkiHash::of(&served.key.spki());
        let shared_key = self.certificates_by_key.get(&key).is_some_and(|all| all.len() > 1);
        let hosts = self.hosts_by_certificate.get(&served.fingerprint());
        let shared_certificate = hosts.is_some_and(|hosts| *hosts > 1);
        shared_key
            .then_some("estate.shared-key")
            .into_iter()
            .chain(shared_certificate.then_some("estate.shared-certificate"))
    }
}

fn first_published(host: &Host) -> Option<Arc<Served>> {
    host.host_addresses.read().iter().find(|host_address| host_address.is_published)?.served.clone()
}

fn truth_of(host: &Host, ports: &Ports, together: &SharedMaterial, revoked: &HashSet<Fingerprint>) -> Truth {
    let kind = host.kind;
    let host_addresses = host.host_addresses.read();
    let addresses: Vec<_> = host_addresses.iter().filter(|p| p.is_published).map(|p| p.address).collect();
    let (scheme, port) = match kind.serve {
        EndpointBehavior::StartTls(upgrade) => {
            (Some(upgrade.scheme()), ports.upgrades.get(&upgrade).copied().unwrap_or(0))
        }
        EndpointBehavior::Fault(crate::kind::Fault::Refused) => (None, ports.refused),
        EndpointBehavior::Fault(crate::kind::Fault::BlackHole) => {
            let hole = ports.holes.iter().find(|(address, _)| Some(address) == addresses.first());
            (None, hole.map_or(ports.refused, |(_, port)| *port))
        }
        _ => (None, ports.tls),
    };
    let named = match kind.leaf.naming {
        Naming::Address => addresses.first().map_or_else(|| host.name.clone(), Ipv4Addr::to_string),
        _ => host.name.clone(),
    };
    let leaves: HashSet<_> = host_addresses
        .iter()
        .filter(|p| p.is_published)
        .filter_map(|p| p.served.as_ref().map(|s| s.fingerprint()))
        .collect();
    let mut findings = kind.findings.to_vec();
    if let Some(served) = host_addresses.iter().find(|p| p.is_published).and_then(|p| p.served.as_ref())
        && kind.outcome == "answered"
    {
        findings.extend(together.findings(served));
    }
    findings.sort_unstable();
    Truth {
        target: scheme
            .map_or_else(|| format!("{named}:{port}"), |scheme| format!("{scheme}://{named}:{port}")),
        kind: kind.name,
        host: named,
        port,
        addresses,
        outcome: kind.outcome,
        findings,
        revoked: leaves.iter().any(|leaf| revoked.contains(leaf)),
        leaf_sha256: if leaves.len() == 1 { leaves.iter().next().map(ToString::to_string) } else { None },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(mix: Mix) -> Plan {
        Plan { endpoints: 400, mix, ..Plan::default() }
    }

    #[test]
    fn healthy_demo_certificates_expire_on_many_dates_and_not_soon() {
        let groups = groups(&plan(Mix::Demo));
        let healthy: Vec<_> = groups.iter().filter(|group| group.kind.family == Family::Healthy).collect();
        let left: BTreeSet<_> = healthy
            .iter()
            .filter(|group| group.kind.leaf.life_days == DEMO_LIFE_DAYS)
            .map(|group| group.from_days + DEMO_LIFE_DAYS)
            .collect();
        assert!(left.len() > 40, "{left:?}");
        // The validity ends one second before a full day, so a leaf with 30 days left is reported as expiring.
        assert!(left.iter().all(|days| (32..=89).contains(days)), "{left:?}");
        let short = healthy.iter().filter(|group| group.kind.name == "six-days");
        assert!(short.clone().count() > 0);
        assert!(short.into_iter().all(|group| group.from_days == -1));
    }

    #[test]
    fn flawed_demo_certificates_and_other_mixes_keep_fixed_dates() {
        let fixed = |group: &Group| group.from_days == group.kind.leaf.from_days;
        assert!(groups(&plan(Mix::AllKinds)).iter().all(fixed));
        assert!(groups(&plan(Mix::Healthy)).iter().all(fixed));
        let demo = groups(&plan(Mix::Demo));
        assert!(demo.iter().filter(|group| group.kind.family != Family::Healthy).all(fixed));
    }
}
