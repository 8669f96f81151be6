//! Names and values of attributes: a table of rules.

use keyless::places::{ATTRIBUTES_MAX, Attributes, BadAttribute};

#[test]
fn attribute_names_and_values_are_validated() {
    let long = "a".repeat(32);
    for (name, value) in
        [("country", "DE"), ("a", "0"), ("fips-140_3", "Level.3-b_c"), (&long, &"9".repeat(64))]
    {
        let attributes = Attributes::of([(name, value)]).unwrap();
        assert_eq!(attributes.get(name), Some(value));
    }
    for name in ["", "Country", "1st", "-a", "_a", "a.b", "a b", "ä", "a:", &"a".repeat(33)] {
        assert_eq!(Attributes::of([(name, "x")]), Err(BadAttribute::Name(name.to_owned())), "{name:?}");
    }
    for name in ["and", "or", "not"] {
        assert_eq!(Attributes::of([(name, "x")]), Err(BadAttribute::Reserved(name.to_owned())));
    }
    for value in ["", "-a", ".a", "_a", "a b", "a:b", "(a", "ü", &"a".repeat(65)] {
        let wanted = BadAttribute::Value { name: "a".to_owned(), value: value.to_owned() };
        assert_eq!(Attributes::of([("a", value)]), Err(wanted), "{value:?}");
    }
}

#[test]
fn number_of_attributes_is_limited() {
    let mut all = Attributes::of((0..ATTRIBUTES_MAX).map(|at| (format!("a{at}"), "x"))).unwrap();
    assert_eq!(all.set("one-more", "x"), Err(BadAttribute::TooMany));
    all.set("a0", "y").unwrap();
    assert_eq!((all.len(), all.get("a0"), all.get("one-more")), (ATTRIBUTES_MAX, Some("y"), None));
}

#[test]
fn node_attributes_override_site_attributes() {
    let site = Attributes::of([("region", "EU"), ("country", "DE")]).unwrap();
    let own = Attributes::of([("security", "high"), ("country", "FR")]).unwrap();
    assert_eq!(site.with(&own).unwrap().to_string(), "country=FR region=EU security=high");
    assert_eq!(site.to_string(), "country=DE region=EU");
}

#[test]
fn json_attributes_are_validated_like_text() {
    let all = Attributes::of([("region", "EU"), ("country", "DE")]).unwrap();
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(text, r#"{"country":"DE","region":"EU"}"#);
    assert_eq!(serde_json::from_str::<Attributes>(&text).unwrap(), all);
    for wrong in [r#"{"Country":"DE"}"#, r#"{"country":"D E"}"#, r#"{"not":"x"}"#, r#"{"a":1}"#, "[]"] {
        assert!(serde_json::from_str::<Attributes>(wrong).is_err(), "{wrong}");
    }
    let many: Vec<_> = (0..=ATTRIBUTES_MAX).map(|at| format!(r#""a{at}":"x""#)).collect();
    let error = serde_json::from_str::<Attributes>(&format!("{{{}}}", many.join(","))).unwrap_err();
    assert!(error.to_string().contains("more than 32"), "{error}");
}
