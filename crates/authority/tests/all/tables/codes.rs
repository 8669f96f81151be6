//! Tests of codes and names that databases store. Changing one makes existing rows unreadable.

use authority::tables::Source;
use authority::tables::acme::{AcmeLimit, Method};

#[test]
fn source_names_match_those_stored_in_databases() {
    assert_eq!(
        Source::ALL.map(Source::name),
        ["api", "acme", "est", "scep", "lifecycle", "system", "credential"]
    );
}

#[test]
fn acme_codes_and_names_match_those_stored_in_databases() {
    assert_eq!(
        Method::ALL.map(|method| (method.code(), method.name())),
        [(0, "http-01"), (1, "dns-01"), (2, "tls-alpn-01"), (3, "dns-account-01"), (4, "dns-persist-01"),]
    );
    assert_eq!(
        AcmeLimit::ALL.map(AcmeLimit::name),
        ["new_accounts", "orders", "failed_validations", "duplicate_certificates"]
    );
}
