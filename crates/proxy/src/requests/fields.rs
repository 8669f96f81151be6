//! Redaction of values by field name: in queries, forms and JSON.

use percent_encoding::percent_decode_str;

use super::needles::REDACTED;

fn is_one_of(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Splits a query or form into pairs, and redacts the values of `names`.
pub(super) fn pairs<'a>(text: &'a str, names: &[String]) -> Vec<(&'a str, Option<&'a str>)> {
    let pair = |pair: &'a str| {
        let Some((name, value)) = pair.split_once('=') else { return (pair, None) };
        let plain = percent_decode_str(name).decode_utf8_lossy();
        (name, Some(if is_one_of(names, &plain) { REDACTED } else { value }))
    };
    text.split('&').map(pair).collect()
}

/// Joins the pairs from [`pairs`] to a query or form, without changing their encoding.
pub(super) fn joined(pairs: &[(&str, Option<&str>)]) -> String {
    let written = |(name, value): &(&str, Option<&str>)| match value {
        Some(value) => format!("{name}={value}"),
        None => (*name).to_owned(),
    };
    pairs.iter().map(written).collect::<Vec<_>>().join("&")
}

/// Redacts the values of members with these `names` in a text of one or several JSON values. The text may be truncated.
pub(super) fn json(text: &str, names: &[String]) -> String {
    let bytes = text.as_bytes();
    let mut without = String::with_capacity(text.len());
    let (mut done, mut at) = (0, 0);
    while let Some(quote) = bytes[at..].iter().position(|byte| *byte == b'"') {
        let start = at + quote;
        at = string_end(bytes, start);
        let colon = skip_whitespace(bytes, at);
        if bytes.get(colon) != Some(&b':') {
            continue;
        }
        let is_hidden =
            serde_json::from_str(&text[start..at]).is_ok_and(|name: String| is_one_of(names, &name));
        if is_hidden {
            let value = skip_whitespace(bytes, colon + 1);
            without.push_str(&text[done..value]);
            at = value_end(bytes, value);
            without.push_str(&format!("\"{REDACTED}\""));
            done = at;
        }
    }
    without.push_str(&text[done..]);
    without
}

fn skip_whitespace(bytes: &[u8], from: usize) -> usize {
    let space = bytes[from..].iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
    from + space
}

/// Returns the position after the closing quote, or the end of the text.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => (at, depth) = (at + 1, depth - 1),
            b',' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_members_are_redacted_by_name_for_any_value() {
        let names = ["token".to_owned(), "pass word".to_owned()];
        for (text, wanted) in [
            (r#"{"token":"a","b":"c"}"#, r#"{"token":"[redacted]","b":"c"}"#),
            (r#"{"a":{"TOKEN" : "x\"y\\","b":1}}"#, r#"{"a":{"TOKEN" : "[redacted]","b":1}}"#),
            (r#"{"t\u006fken":12.5e3,"b":1}"#, r#"{"t\u006fken":"[redacted]","b":1}"#),
            (r#"[{"token":{"a":["}",{"b":"]"}]}},2]"#, r#"[{"token":"[redacted]"},2]"#),
            (r#"{"token":null}"#, r#"{"token":"[redacted]"}"#),
            (r#"{"token":["a"#, r#"{"token":"[redacted]""#),
            (r#"{"token":"a"#, r#"{"token":"[redacted]""#),
            (r#"{"token""#, r#"{"token""#),
            (r#"{"tok"#, r#"{"tok"#),
            ("{\"token\":1}\n{\"token\":2}\n", "{\"token\":\"[redacted]\"}\n{\"token\":\"[redacted]\"}\n"),
            (r#"{"a":"token","b":["token",1]}"#, r#"{"a":"token","b":["token",1]}"#),
        ] {
            assert_eq!(json(text, &names), wanted);
        }
        let form = |text: &str| joined(&pairs(text, &names));
        assert_eq!(form("a=1&t%6Fken=2&b&pass%20word=3"), "a=1&t%6Fken=[redacted]&b&pass%20word=[redacted]");
    }
}
