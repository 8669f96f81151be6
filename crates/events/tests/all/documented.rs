//! Compares the event kinds with `docs/api.md`.

use std::collections::BTreeSet;

use events::Event;

#[test]
fn documented_event_kinds_match_the_code() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
    let (_, section) = page.split_once("\n## Events\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let first_cells =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" |")).map(|row| row.0);
    let documented: BTreeSet<&str> =
        first_cells.flat_map(|cell| cell.split('`')).filter(|text| text.contains('.')).collect();
    assert_eq!(documented, Event::KINDS.iter().copied().collect());
}
