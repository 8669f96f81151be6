//! Formulas from people: no panic, and what is read survives writing and its normal form.
#![no_main]

use keyless::places::{Attributes, Formula};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    let Ok(formula) = Formula::parse(text) else { return };
    assert_eq!(Formula::parse(&formula.to_string()).expect("what is written is read"), formula);
    let canonical = formula.canonical();
    assert_eq!(canonical.canonical(), canonical);
    assert_eq!(Formula::parse(&canonical.to_string()).expect("its normal form, too"), canonical);
    // A place for the first condition of each attribute, and one of which nothing is known.
    let mut place = Attributes::new();
    assert!(!formula.satisfied_by(&place));
    for (name, value) in formula.atoms() {
        if place.get(name).is_none() {
            let _ = place.set(name, value);
        }
        assert_eq!(formula.satisfied_by(&place), canonical.satisfied_by(&place));
    }
});
