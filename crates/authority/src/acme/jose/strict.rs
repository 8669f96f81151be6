//! A strict JSON parser for signed requests: no duplicate members, limited depth.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum nesting depth of a JSON request. The deepest object of ACME (newAccount with an external binding) has four levels.
const DEPTH_MAX: usize = 16;

/// Parses one JSON value. Duplicate members are rejected at every depth (RFC 7515 section 4, RFC 8725 section 2.4): parsers differ
/// on which duplicate counts, so that one signature could have two meanings.
///
/// # Errors
/// Describes the fault and its position.
pub(crate) fn parse(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = StrictJson { depth_left: DEPTH_MAX }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct StrictJson {
    depth_left: usize,
}

impl StrictJson {
    fn nested<E: de::Error>(&self) -> Result<Self, E> {
        self.depth_left
            .checked_sub(1)
            .map(|depth_left| Self { depth_left })
            .ok_or_else(|| E::custom("nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = sequence.next_element_seed(self.nested()?)? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(de::Error::custom(format_args!("duplicate member {name:?}")));
            }
            let value = members.next_value_seed(self.nested()?)?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_parse_as_with_serde_json() {
        let text = r#"{"a":[1,-2,1.5,"x",true,null,{}],"b":{"c":"\u00e9"}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn duplicate_members_deep_nesting_and_trailing_bytes_are_rejected() {
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX + 2), "]".repeat(DEPTH_MAX + 2));
        for bad in [r#"{"a":1,"a":1}"#, r#"{"x":{"a":1,"\u0061":2}}"#, "{} {}", "", "{", &deep] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
