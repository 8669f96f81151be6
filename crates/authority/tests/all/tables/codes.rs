//! Codes and names that databases hold: a change makes rows unreadable.

use authority::tables::Source;

#[test]
fn names_of_sources_are_those_of_databases() {
    assert_eq!(
        Source::ALL.map(Source::name),
        ["api", "acme", "est", "scep", "lifecycle", "system", "credential"]
    );
}
