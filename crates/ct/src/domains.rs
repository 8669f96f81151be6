//! Matches logged names against watched domains. The domains are stored as hashes, and one pass over a name from its end finds all
//! matches.

use std::collections::HashMap;

use x509::SuffixKind;

use super::names::Name;

/// Maximum number of watched domains; each takes about a hundred bytes.
pub const DOMAINS_MAX: usize = 1_000_000;
/// Filter bits per domain: out of a few dozen names without a match, one passes the filter and is compared.
const FILTER_BITS: usize = 32;

/// Returns the registered domain of a host name according to the Public Suffix List, in lower case and with A-labels:
/// `example.co.uk` for `a.b.example.co.uk`. `None` for a public suffix and for an invalid name.
#[must_use]
pub fn registered_domain(host: &str) -> Option<String> {
    let name = canonical(host)?;
    x509::registered_domain(&name).map(str::to_owned)
}

/// Returns a DNS name in its canonical form for comparison: A-labels (RFC 5890), lower case, without a trailing dot and without a
/// leading wildcard label.
fn canonical(name: &str) -> Option<String> {
    let name = name.trim().trim_end_matches('.');
    let name = name.strip_prefix("*.").unwrap_or(name);
    let ascii = if name.is_ascii() {
        name.to_ascii_lowercase()
    } else {
        idna::domain_to_ascii(name).ok().filter(|ascii| !ascii.is_empty())?
    };
    x509::HostName::parse(&ascii).ok().map(|host| host.as_str().to_owned())
}

/// Reason why a domain cannot be watched.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadDomain {
    /// The text is not a DNS name.
    #[error("{0:?} is not a domain name")]
    NotName(String),
    /// The domain is a public suffix: certificates of unrelated owners would match.
    #[error("{0:?} is a public suffix: name a domain below it")]
    PublicSuffix(String),
    /// The list has more than [`DOMAINS_MAX`] domains.
    #[error("more than {DOMAINS_MAX} domains")]
    TooMany,
}

/// A set of watched domains. Each includes all of its subdomains.
#[derive(Clone, Debug)]
pub struct DomainSet {
    domains: Vec<Box<str>>,
    /// Hash table with open addressing; its size is a power of two, and at most half of the slots are used.
    table: Vec<u32>,
    filter: Filter,
    /// Domains by their parent domain, for wildcards at the parent that cover a watched domain.
    below: HashMap<Box<str>, Vec<u32>>,
    below_filter: Filter,
    /// Length of the longest domain in bytes. Only this many bytes at the end of a name are compared.
    longest: usize,
    seed: u64,
}

/// Value of an empty slot of the table.
const EMPTY: u32 = u32::MAX;

impl DomainSet {
    /// Compiles a set of domains; repeated domains count once. Accepts any case, a trailing dot, and U-labels. A random `seed`
    /// prevents attackers from logging names with colliding hashes.
    ///
    /// # Errors
    /// [`BadDomain`].
    pub fn compile<'d>(domains: impl IntoIterator<Item = &'d str>, seed: u64) -> Result<Self, BadDomain> {
        let mut names: Vec<Box<str>> = Vec::new();
        for domain in domains {
            let name =
                canonical(domain).ok_or_else(|| BadDomain::NotName(domain.chars().take(260).collect()))?;
            let suffix = x509::public_suffix(&name);
            let is_suffix = suffix.is_some_and(|suffix| suffix.text == name);
            let private = suffix.is_some_and(|suffix| suffix.kind == SuffixKind::Private);
            // The operator of a private suffix, such as a hosting provider, may watch this suffix.
            if !name.contains('.') || (is_suffix && !private) {
                return Err(BadDomain::PublicSuffix(name));
            }
            names.push(name.into());
        }
        names.sort_unstable();
        names.dedup();
        if names.len() > DOMAINS_MAX {
            return Err(BadDomain::TooMany);
        }
        Ok(Self::of(names, seed))
    }

    /// Creates an empty set, which matches nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Vec::new(), 0)
    }

    fn of(domains: Vec<Box<str>>, seed: u64) -> Self {
        let slot_count = (domains.len() * 2).next_power_of_two().max(8);
        let mut set = Self {
            table: vec![EMPTY; slot_count],
            filter: Filter::new(domains.len()),
            below: HashMap::new(),
            below_filter: Filter::new(domains.len()),
            longest: domains.iter().map(|domain| domain.len()).max().unwrap_or(0),
            domains: Vec::new(),
            seed,
        };
        for (id, domain) in (0..).zip(&domains) {
            let hash = domain.bytes().rev().fold(seed, step);
            set.filter.add(hash);
            let mut slot = set.slot(hash);
            while set.table[slot] != EMPTY {
                slot = (slot + 1) % slot_count;
            }
            set.table[slot] = id;
            if let Some((_, parent)) = domain.split_once('.') {
                set.below_filter.add(parent.bytes().rev().fold(seed, step));
                set.below.entry(parent.into()).or_default().push(id);
            }
        }
        Self { domains, ..set }
    }

    /// Returns the number of domains.
    #[must_use]
    pub fn len(&self) -> usize {
        self.domains.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Returns the domain with this number, from 0.
    #[must_use]
    pub fn domain(&self, id: u32) -> Option<&str> {
        self.domains.get(id as usize).map(AsRef::as_ref)
    }

    /// Calls `found` with the number of every watched domain that a certificate for `name` covers: the domains that contain the
    /// name, and for a wildcard also the domains that the wildcard matches. IP addresses match nothing.
    pub fn matches(&self, name: Name<'_>, mut found: impl FnMut(u32)) {
        match name {
            Name::Dns(bytes) | Name::Common(bytes) => self.match_bytes(bytes, &mut found),
            Name::Ip(_) => {}
        }
    }

    fn match_bytes(&self, bytes: &[u8], found: &mut impl FnMut(u32)) {
        if bytes.is_ascii() {
            return self.match_ascii(bytes.trim_ascii(), found);
        }
        // Rare, and always invalid in a certificate: U-labels instead of A-labels, or bytes that are not UTF-8.
        let text = String::from_utf8_lossy(bytes);
        let (wildcard, rest) = match text.trim().strip_prefix("*.") {
            Some(rest) => ("*.", rest),
            None => ("", text.trim()),
        };
        match idna::domain_to_ascii(rest) {
            Ok(ascii) => self.match_ascii(format!("{wildcard}{ascii}").as_bytes(), found),
            // The last labels may still be valid.
            Err(_) => self.match_ascii(bytes.trim_ascii(), found),
        }
    }

    fn match_ascii(&self, bytes: &[u8], found: &mut impl FnMut(u32)) {
        let mut name = bytes;
        while let [rest @ .., b'.'] = name {
            name = rest;
        }
        let wildcard = name.starts_with(b"*.");
        if wildcard {
            name = &name[2..];
        }
        // The last relevant byte is the dot before a name as long as the longest domain.
        let start = name.len().saturating_sub(self.longest + 1);
        let mut hash = self.seed;
        for at in (start..name.len()).rev() {
            if name[at] == b'.' {
                self.lookup(hash, &name[at + 1..], found);
            }
            hash = step(hash, name[at]);
        }
        if start > 0 {
            return;
        }
        self.lookup(hash, name, found);
        if wildcard && self.below_filter.may_have(hash) {
            let parent = String::from_utf8_lossy(name).to_ascii_lowercase();
            self.below.get(parent.as_str()).into_iter().flatten().for_each(|id| found(*id));
        }
    }

    fn lookup(&self, hash: u64, suffix: &[u8], found: &mut impl FnMut(u32)) {
        if !self.filter.may_have(hash) {
            return;
        }
        let mut slot = self.slot(hash);
        while let Some(domain) = self.domains.get(self.table[slot] as usize) {
            if suffix.eq_ignore_ascii_case(domain.as_bytes()) {
                return found(self.table[slot]);
            }
            slot = (slot + 1) % self.table.len();
        }
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.table.len() - 1)
    }
}

/// Computes one step of FNV-1a. The hash runs byte by byte from the end of a name, so that the hash of each suffix is an
/// intermediate value.
fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
}

/// A filter with one bit per hash. Most names match nothing, and the filter shows that without a table lookup.
#[derive(Clone, Debug)]
struct Filter {
    /// The number of words is a power of two.
    words: Vec<u64>,
}

impl Filter {
    fn new(count: usize) -> Self {
        Self { words: vec![0; (count * FILTER_BITS / 64).next_power_of_two().max(16)] }
    }

    fn add(&mut self, hash: u64) {
        let (word, bit) = self.slot(hash);
        self.words[word] |= bit;
    }

    fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.slot(hash);
        self.words[word] & bit != 0
    }

    /// Returns the word and bit of a hash. Uses the upper half of the hash, which FNV mixes best.
    fn slot(&self, hash: u64) -> (usize, u64) {
        ((hash >> 38) as usize & (self.words.len() - 1), 1 << (hash >> 32 & 63))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(domains: &[&str]) -> DomainSet {
        DomainSet::compile(domains.iter().copied(), 0xcbf2_9ce4_8422_2325).unwrap()
    }

    fn found(set: &DomainSet, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        set.matches(Name::Dns(name.as_bytes()), |id| all.push(set.domain(id).unwrap().to_owned()));
        all
    }

    #[test]
    fn registered_domain_follows_the_public_suffix_list() {
        for (host, domain) in [
            ("a.b.example.com", Some("example.com")),
            ("Example.COM.", Some("example.com")),
            ("*.www.example.co.uk", Some("example.co.uk")),
            ("bücher.example.de", Some("example.de")),
            ("www.bücher.de", Some("xn--bcher-kva.de")),
            ("me.github.io", Some("me.github.io")),
            ("co.uk", None),
            ("com", None),
            ("", None),
            ("a b.example", None),
        ] {
            assert_eq!(registered_domain(host).as_deref(), domain, "{host}");
        }
    }

    #[test]
    fn domain_set_matches_the_domain_and_its_subdomains() {
        let set = set(&["example.com", "eu.example.com", "Bücher.example", "other.co.uk."]);
        let table: &[(&str, &[&str])] = &[
            ("example.com", &["example.com"]),
            ("EXAMPLE.com.", &["example.com"]),
            (" www.example.com ", &["example.com"]),
            ("*.example.com", &["example.com", "eu.example.com"]),
            ("a.eu.example.com", &["example.com", "eu.example.com"]),
            ("?.example.com", &["example.com"]),
            ("*.*.example.com", &["example.com"]),
            ("notexample.com", &[]),
            ("example.com.evil.example", &[]),
            ("com", &[]),
            ("*.com", &["example.com"]),
            ("*.co.uk", &["other.co.uk"]),
            ("xn--bcher-kva.example", &["xn--bcher-kva.example"]),
            ("www.BÜCHER.example", &["xn--bcher-kva.example"]),
            ("*.bücher.example", &["xn--bcher-kva.example"]),
            ("", &[]),
            (".", &[]),
            ("..example.com", &["example.com"]),
            ("\u{fffd}.example.com", &["example.com"]),
        ];
        for (name, domains) in table {
            assert_eq!(found(&set, name), *domains, "{name:?}");
        }
        let long = format!("{}.example.com", "a.".repeat(5_000));
        assert_eq!(found(&set, &long), ["example.com"]);
        let mut none = true;
        set.matches(Name::Ip([192, 0, 2, 1].into()), |_| none = false);
        assert!(none);
    }

    #[test]
    fn public_suffixes_and_invalid_names_cannot_be_watched() {
        let compile = |domain: &str| DomainSet::compile([domain], 1).map(|_| ());
        assert_eq!(compile("com"), Err(BadDomain::PublicSuffix("com".to_owned())));
        assert_eq!(compile("co.uk"), Err(BadDomain::PublicSuffix("co.uk".to_owned())));
        assert_eq!(compile("github.io"), Ok(()), "its owner may");
        assert_eq!(compile("a b"), Err(BadDomain::NotName("a b".to_owned())));
        assert_eq!(compile("127.0.0.1"), Err(BadDomain::NotName("127.0.0.1".to_owned())));
    }

    proptest! {
        #[test]
        fn domain_matching_equals_suffix_comparison(
            domains in prop::collection::vec("[a-c]{1,2}\\.[a-c]{1,2}(\\.[a-c]{1,2})?", 0..40),
            name in "(\\*\\.)?[a-cA-C]{1,2}(\\.[a-cA-C]{1,2}){0,4}\\.?",
            seed: u64,
        ) {
            let mut wanted: Vec<Box<str>> = domains.iter().map(|d| d.as_str().into()).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let set = DomainSet::of(wanted.clone(), seed);
            let plain = name.trim_end_matches('.').to_ascii_lowercase();
            let (wildcard, plain) = plain.strip_prefix("*.").map_or((false, plain.as_str()), |rest| (true, rest));
            let covers = |domain: &str| {
                plain == domain || plain.ends_with(&format!(".{domain}"))
                    || wildcard && domain.split_once('.').is_some_and(|(_, parent)| parent == plain)
            };
            let expected: Vec<String> = wanted.iter().filter(|d| covers(d)).map(|d| d.to_string()).collect();
            let mut matched = found(&set, &name);
            matched.sort_unstable();
            prop_assert_eq!(matched, expected);
        }

        #[test]
        fn domain_set_accepts_arbitrary_bytes(bytes: Vec<u8>) {
            set(&["example.com"]).matches(Name::Dns(&bytes), |_| {});
        }
    }
}
