//! Any octets, read as a data tile and its certificates searched for names: no panic, and what is read stays inside.
#![no_main]

use ct::entry::Entries;
use ct::names::names;
use ct::{DomainSet, Issuance};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Ok(domains) = DomainSet::compile(["example.com"], 7) else { return };
    for entry in Entries::new(octets) {
        let Ok(entry) = entry else { break };
        let _ = (entry.leaf_hash(), entry.leaf_index);
        names(entry.logged.hashed(), |name| domains.matches(name, |id| assert_eq!(id, 0)));
        let issuance = Issuance::from_logged(entry.logged);
        assert!(issuance.names.len() <= ct::issuance::NAMES_MAX);
        let _ = issuance.matches(&domains);
    }
    // As a certificate of its own too: most octets are no tile.
    names(octets, |name| domains.matches(name, |_| {}));
    let _ = Issuance::from_der(octets);
});
