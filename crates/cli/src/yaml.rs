//! JSON values as YAML 1.2, in block style. Strings are quoted as in JSON, which is valid YAML 1.2, so that no parser takes a value
//! for another type.

use std::fmt::Write as _;

use serde_json::Value;

/// Writes `value` as a YAML document with `---` in front.
pub(crate) fn document(value: &Value) -> String {
    let mut out = "---".to_owned();
    node(&mut out, value, 0);
    out.push('\n');
    out
}

/// Writes `value` after a `key:`, a `-` or the document marker.
fn node(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                line(out, depth);
                // A name is written without quotes if every YAML version reads it as a string.
                let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && !RESERVED.contains(&name.to_ascii_lowercase().as_str());
                // Writing to a `String` cannot fail.
                let _ = if plain {
                    write!(out, "{name}:")
                } else {
                    write!(out, "{}:", Value::from(name.as_str()))
                };
                node(out, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                line(out, depth);
                out.push('-');
                node(out, item, depth + 1);
            }
        }
        scalar => {
            let _ = write!(out, " {scalar}");
        }
    }
}

/// Words that some parsers read as booleans or null.
const RESERVED: &[&str] = &["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_output_keeps_value_types() {
        let value = json!({ "name": "a: b\n", "on": true, "list": [1, ["x"], {}, { "k": null }], "a.b": "no", "none": [] });
        let wanted = "---\n\"a.b\": \"no\"\nlist:\n  - 1\n  -\n    - \"x\"\n  - {}\n  -\n    k: null\n\
                      name: \"a: b\\n\"\nnone: []\n\"on\": true\n";
        assert_eq!(document(&value), wanted);
        assert_eq!(document(&json!("x")), "--- \"x\"\n");
    }
}
