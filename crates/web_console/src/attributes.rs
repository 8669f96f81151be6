//! Attributes of sites and nodes in text form: `country=DE region=EU`.

use http::StatusCode;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Formats attributes in one line.
pub(crate) fn shown(value: &Value, pointer: &str) -> String {
    let attributes = value.pointer(pointer).and_then(Value::as_object);
    let pairs = attributes.into_iter().flatten();
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", text(value))).collect();
    pairs.join(" ")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses `NAME=VALUE` pairs that are separated by spaces, commas or line breaks.
///
/// # Errors
/// [`Failure`] for a word that is not a pair, or a duplicate name.
pub(crate) fn read(text: &str) -> Result<Value, Failure> {
    let mut all = Map::new();
    for pair in text.split(|letter: char| letter.is_whitespace() || letter == ',') {
        if pair.is_empty() {
            continue;
        }
        let refused = |what: &str| {
            let hint = "write attributes as country=DE region=EU, each name once";
            Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, format!("{pair:?} {what}"), hint)
        };
        let (name, value) = pair.split_once('=').ok_or_else(|| refused("the equals sign is missing"))?;
        if all.insert(name.to_owned(), Value::String(value.to_owned())).is_some() {
            return Err(refused("repeats a name"));
        }
    }
    Ok(Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn attributes_roundtrip_and_invalid_ones_are_rejected() {
        let both = json!({ "attributes": { "country": "DE", "region": "EU" } });
        assert_eq!(shown(&both, "/attributes"), "country=DE region=EU");
        assert_eq!(read(" region=EU,country=DE\r\n").unwrap(), both["attributes"]);
        assert_eq!(read("").unwrap(), json!({}));
        assert_eq!(shown(&json!({}), "/attributes"), "");
        for bad in ["country", "a=1 a=2"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
