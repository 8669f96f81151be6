//! Formulas: evaluation, formatting, parse errors.

use keyless::places::{ATOMS_MAX, Attributes, DEPTH_MAX, Formula, FormulaError, FormulaErrorKind, TEXT_MAX};
use proptest::prelude::*;

fn formula(text: &str) -> Formula {
    Formula::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn attributes(text: &str) -> Attributes {
    Attributes::of(text.split_whitespace().map(|pair| pair.split_once('=').unwrap())).unwrap()
}

#[test]
fn formulas_evaluate_as_expected() {
    for (text, node, wanted) in [
        ("country: JP or (not region: EU)", "country=JP region=EU", true),
        ("country: JP or (not region: EU)", "country=US region=ENAM", true),
        ("country: JP or (not region: EU)", "country=DE region=EU", false),
        ("country: US and security: high", "country=US security=high", true),
        ("country: US and security: high", "country=US", false),
        // A place without attributes satisfies no atom, negated or not.
        ("not region: EU", "", false),
        ("not region: EU", "country=US", false),
        ("not region: EU", "region=APAC", true),
        ("not not region: EU", "region=EU", true),
        ("not not region: EU", "", false),
        // `and` binds tighter than `or`, `not` tightest.
        ("a: 1 or b: 1 and c: 1", "a=1", true),
        ("(a: 1 or b: 1) and c: 1", "a=1", false),
        ("not a: 1 and b: 1", "a=1 b=2", false),
        ("not a: 1 or b: 1", "a=1 b=1", true),
        // De Morgan's laws, when the attributes are present.
        ("not (a: 1 and b: 2)", "a=1 b=2", false),
        ("not (a: 1 and b: 2)", "a=1 b=3", true),
        ("not (a: 1 and b: 2)", "a=2", true),
        ("not (a: 1 and b: 2)", "a=1", false),
        ("not (a: 1 or b: 2)", "a=2", false),
        ("not (a: 1 or b: 2)", "a=2 b=1", true),
        ("not (a: 1 or not b: 2)", "a=2 b=2", true),
        ("not (a: 1 or not b: 2)", "a=2 b=3", false),
        // Values are case-sensitive.
        ("country: de", "country=DE", false),
        ("country: not", "country=not", true),
        ("country: or or country: and", "country=and", true),
    ] {
        let (read, node) = (formula(text), attributes(node));
        assert_eq!(read.satisfied_by(&node), wanted, "{text} at {node}");
        assert_eq!(read.canonical().satisfied_by(&node), wanted, "{} at {node}", read.canonical());
    }
}

#[test]
fn formulas_are_formatted_and_normalized() {
    for (text, written, canonical) in [
        ("a:1", "a: 1", "a: 1"),
        (" ( ( a : 1 ) ) ", "a: 1", "a: 1"),
        ("b: 1 AND a: 1 And b: 1", "b: 1 and a: 1 and b: 1", "a: 1 and b: 1"),
        ("(b: 1 and a: 1) or c: 1", "b: 1 and a: 1 or c: 1", "c: 1 or a: 1 and b: 1"),
        ("a: 1 and (b: 1 and c: 1)", "a: 1 and (b: 1 and c: 1)", "a: 1 and b: 1 and c: 1"),
        ("NOT(a:1 or b:2)and c:3", "not (a: 1 or b: 2) and c: 3", "c: 3 and not a: 1 and not b: 2"),
        ("a: 1 or a: 1", "a: 1 or a: 1", "a: 1"),
        ("not not a: 1", "not not a: 1", "a: 1"),
        ("(a:1 or b:1)and(b:1 or a:1)", "(a: 1 or b: 1) and (b: 1 or a: 1)", "a: 1 or b: 1"),
    ] {
        let read = formula(text);
        assert_eq!((read.to_string().as_str(), read.canonical().to_string().as_str()), (written, canonical));
    }
    assert_eq!(formula("a: 1 and not b: 2").atoms(), [("a", "1"), ("b", "2")]);
}

#[test]
fn parse_errors_report_the_column() {
    for (text, column, says) in [
        ("", 1, "expected `name: value`, `not` or `(`, found the end"),
        ("   ", 4, "found the end"),
        ("country", 8, "expected `:` and a value after \"country\""),
        ("country DE", 9, "expected `:` and a value after \"country\""),
        ("country:", 9, "expected a value after `country:`, found the end"),
        ("country: )", 10, "expected a value after `country:`, found ')'"),
        ("country: DE FR", 13, "expected `and`, `or` or the end, found \"FR\""),
        ("country: DE)", 12, "found ')'"),
        ("(country: DE", 13, "the `)` of the `(` in column 1, found the end"),
        ("a: 1 and (b: 2 or (c: 3)", 25, "the `)` of the `(` in column 10, found the end"),
        ("a: 1 and", 9, "found the end"),
        ("a: 1 and or b: 1", 10, "found \"or\""),
        ("not", 4, "found the end"),
        ("a: 1 or ()", 10, "found ')'"),
        ("Country: DE", 1, "\"Country\" is not an attribute name"),
        ("a: 1 and größe: 2", 10, "\"größe\" is not an attribute name"),
        ("größe: 2 and a: 1", 1, "is not an attribute name: use a letter, then"),
        ("a: -1", 4, "\"-1\" is not a value of a"),
        ("a: \"x\"", 4, "is not a value of a"),
        ("a: 1 && b: 2", 6, "found \"&&\""),
        ("a: 1\u{a0}\u{1f30d}: 2", 6, "found \"\u{1f30d}\""),
    ] {
        let error = Formula::parse(text).unwrap_err();
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

#[test]
fn formula_length_depth_and_size_are_limited() {
    let nested = |depth: usize| format!("{}a: 1{}", "(".repeat(depth), ")".repeat(depth));
    let too_deep = FormulaError { column: DEPTH_MAX + 1, trouble: FormulaErrorKind::TooDeep };
    assert_eq!(formula(&nested(DEPTH_MAX)), formula("a: 1"));
    assert_eq!(Formula::parse(&nested(DEPTH_MAX + 1)), Err(too_deep));
    let nots = |count: usize| format!("{}a: 1", "not ".repeat(count));
    assert_eq!(formula(&nots(DEPTH_MAX)).canonical(), formula("a: 1"));
    assert_eq!(Formula::parse(&nots(DEPTH_MAX + 1)).unwrap_err().trouble, FormulaErrorKind::TooDeep);

    let many = |count: usize| vec!["a: 1"; count].join(" or ");
    assert_eq!(formula(&many(ATOMS_MAX)).canonical(), formula("a: 1"));
    assert_eq!(Formula::parse(&many(ATOMS_MAX + 1)).unwrap_err().trouble, FormulaErrorKind::TooMany);

    let long = |length: usize| format!("a: 1{}", " ".repeat(length - 4));
    assert_eq!(formula(&long(TEXT_MAX)), formula("a: 1"));
    assert_eq!(Formula::parse(&long(TEXT_MAX + 1)).unwrap_err().trouble, FormulaErrorKind::TooLong);
    // The input is short, but its normal form would be too long: 50 conditions of 80 characters, each with a `not`.
    let wide: Vec<_> = (0..50).map(|at| format!("a:{at:0>64}")).collect();
    let wide = format!("not({})", wide.join(" or "));
    assert!(wide.len() < TEXT_MAX);
    assert!(Formula::parse(&wide).is_ok());
    let wider: Vec<_> = (0..55).map(|at| format!("a:{at:0>64}")).collect();
    let wider = format!("not({})", wider.join(" or "));
    assert!(wider.len() < TEXT_MAX, "{}", wider.len());
    assert_eq!(Formula::parse(&wider).unwrap_err().trouble, FormulaErrorKind::TooLong);
}

#[test]
fn json_form_is_the_formula_text() {
    let read = formula("a: 1 and b: 2");
    assert_eq!(serde_json::to_string(&read).unwrap(), r#""a: 1 and b: 2""#);
    assert_eq!(serde_json::from_str::<Formula>(r#""(a:1)and(b:2)""#).unwrap(), read);
    let error = serde_json::from_str::<Formula>(r#""a: 1 and""#).unwrap_err();
    assert!(error.to_string().contains("column 9"), "{error}");
}

/// Generates formula texts over few names and values, so that places often satisfy them.
fn texts() -> impl Strategy<Value = String> {
    let atom = "[a-d] ?: ?[1-3]";
    atom.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| format!("not ({one})")),
            inner.clone().prop_map(|one| format!("({one})")),
            proptest::collection::vec(inner.clone(), 2..4).prop_map(|all| format!("({})", all.join(" and "))),
            proptest::collection::vec(inner, 2..4).prop_map(|all| all.join(" or ")),
        ]
    })
}

fn places() -> impl Strategy<Value = Attributes> {
    proptest::collection::btree_map("[a-d]", "[1-3]", 0..5).prop_map(|map| Attributes::of(map).unwrap())
}

/// Evaluates a formula from its negation normal form alone.
fn by_canonical(text: &str, node: &Attributes) -> bool {
    // The normal form has no `not` before parentheses, so splitting its text is enough to parse it.
    let atom = |part: &str| {
        let (negated, condition) = match part.strip_prefix("not ") {
            Some(rest) => (true, rest),
            None => (false, part),
        };
        let (name, value) = condition.split_once(": ").unwrap();
        node.get(name).is_some_and(|found| (found == value) != negated)
    };
    text.split(" or ").any(|all| all.split(" and ").all(atom))
}

proptest! {
    #[test]
    fn formatted_formula_parses_back(text in texts()) {
        let read = formula(&text);
        prop_assert_eq!(formula(&read.to_string()), read);
    }

    #[test]
    fn normal_form_is_equivalent_and_idempotent(text in texts(), places in proptest::collection::vec(places(), 12)) {
        let read = formula(&text);
        let canonical = read.canonical();
        prop_assert_eq!(canonical.canonical(), canonical.clone());
        let written = canonical.to_string();
        prop_assert_eq!(formula(&written), canonical.clone());
        prop_assert!(!written.contains("not ("), "{}", written);
        for node in &places {
            prop_assert_eq!(read.satisfied_by(node), canonical.satisfied_by(node), "{} / {} at {}", read, canonical, node);
            if !written.contains('(') {
                prop_assert_eq!(canonical.satisfied_by(node), by_canonical(&written, node), "{} at {}", written, node);
            }
        }
    }

    /// `x` and `not x` never both hold. Both fail only where an attribute is missing.
    #[test]
    fn formula_and_its_negation_exclude_each_other(text in texts(), node in places()) {
        let (read, negated) = (formula(&text), formula(&format!("not ({text})")));
        prop_assert!(!(read.satisfied_by(&node) && negated.satisfied_by(&node)));
        if read.atoms().iter().all(|(name, _)| node.get(name).is_some()) {
            prop_assert!(read.satisfied_by(&node) || negated.satisfied_by(&node));
        }
    }

    #[test]
    fn normal_form_ignores_operand_order(one in texts(), other in texts()) {
        for word in ["and", "or"] {
            let (a, b) = (formula(&format!("({one}) {word} ({other})")), formula(&format!("({other}) {word} ({one})")));
            prop_assert_eq!(a.canonical(), b.canonical());
        }
    }

    /// Counterpart of the fuzz target `key_policy_formula`.
    #[test]
    fn arbitrary_text_parses_or_fails_without_panic(text in "[a-c:() \u{fc}NOTandor1-]{0,60}") {
        if let Ok(read) = Formula::parse(&text) {
            prop_assert_eq!(formula(&read.to_string()), read);
        }
    }
}
