//! A credential value, shown for half a minute at the user's request. The audit log records each read.

use askama::Template;
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::one::href;
use crate::api::Api;
use crate::failure::Failure;
use crate::form_data::FormData;
use crate::json;
use crate::session::Session;
use crate::shell::Page;

/// Seconds until a revealed value is hidden again.
const SECONDS: u32 = 30;

/// Maximum parts of a value on a page.
const PARTS_MAX: usize = 200;

/// Members that are public. All others are masked until the user reveals each one.
const PUBLIC: &[&str] =
    &["/username", "/certificate", "/ca", "/ca_name", "/public_key", "/public_key_fingerprint"];

const REFRESH: HeaderName = HeaderName::from_static("refresh");

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/console/credentials/value", post(reveal))
}

#[derive(Template)]
#[template(path = "credential_value.html")]
struct RevealedValue {
    name: String,
    kind: String,
    csrf: String,
    page: String,
    seconds: u32,
    parts: Vec<Part>,
}

/// A part of a value that has no parts itself, such as a string in an object.
#[derive(Debug, PartialEq)]
struct Part {
    /// JSON pointer of the part (RFC 6901); empty for a value that is a string.
    pointer: String,
    /// Member names on the path to the part.
    label: String,
    /// The text of the part; `None` while it is masked.
    shown: Option<String>,
    /// Whether the part is secret. A secret part is hidden again after [`SECONDS`].
    secret: bool,
}

/// Returns the parts of a value. Secret parts are masked, except the one at `revealed`. A value that is a string is always shown,
/// because it is the only part.
fn parts(value: &Value, revealed: Option<&str>) -> Vec<Part> {
    let mut all = Vec::new();
    collect(value, revealed, String::new(), String::new(), &mut all);
    all
}

fn collect(value: &Value, revealed: Option<&str>, pointer: String, label: String, all: &mut Vec<Part>) {
    let below = |name: &str| {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let sign = if label.is_empty() { "" } else { " › " };
        (format!("{pointer}/{escaped}"), format!("{label}{sign}{name}"))
    };
    match value {
        _ if all.len() >= PARTS_MAX => {}
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let (pointer, label) = below(name);
                collect(member, revealed, pointer, label, all);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let (pointer, label) = below(&index.to_string());
                collect(item, revealed, pointer, label, all);
            }
        }
        leaf => {
            let secret = !PUBLIC.contains(&pointer.as_str()) && !leaf.is_null();
            let open = !secret || pointer.is_empty() || revealed == Some(pointer.as_str());
            let text = leaf.as_str().map_or_else(|| leaf.to_string(), str::to_owned);
            all.push(Part { shown: open.then_some(text), pointer, label, secret });
        }
    }
}

async fn reveal(session: Session, form: FormData) -> Result<Response, Failure> {
    let name = form.text("name");
    let path = format!("/api/v1/data?current=true&name={}", api::path::segment(name));
    let answer = session.api.credential_store()?.get(&path).await?;
    let found = json::list(&answer, "/data").first().cloned().unwrap_or_default();
    let name = json::text(&found, "/name").to_owned();
    let body = RevealedValue {
        kind: json::text(&found, "/type").to_owned(),
        csrf: session.csrf().to_owned(),
        page: href(&name),
        seconds: SECONDS,
        parts: parts(found.get("value").unwrap_or(&Value::Null), form.field("part")),
        name: name.clone(),
    };
    let page =
        Page::new(&session, name.as_str()).command(format!("bulla credential get {name}")).show(&body)?;
    let back = HeaderValue::from_str(&format!("{SECONDS}; url={}", href(&name)));
    Ok(([(REFRESH, back.map_err(Failure::unreadable)?)], page).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(value: &Value, revealed: Option<&str>) -> Vec<(String, Option<String>)> {
        parts(value, revealed).into_iter().map(|part| (part.pointer, part.shown)).collect()
    }

    #[test]
    fn nested_values_are_masked_until_revealed_individually() {
        let value = json!({ "a/b": { "k~": ["one", 7] }, "z": true, "nothing": null, "empty": {} });
        let masked = shown(&value, None);
        assert!(masked.iter().all(|(pointer, shown)| shown.is_none() || pointer == "/nothing"), "{masked:?}");
        let open = |revealed: &str| -> Vec<String> {
            let secret = parts(&value, Some(revealed)).into_iter().filter(|part| part.secret);
            secret.filter_map(|part| part.shown).collect()
        };
        assert_eq!(open("/a~1b/k~0/0"), ["one"]);
        assert_eq!(open("/a~1b/k~0/1"), ["7"]);
        assert_eq!(open("/a~1b"), Vec::<String>::new(), "no more than one leaf at once");
        for part in parts(&value, None) {
            assert!(value.pointer(&part.pointer).is_some(), "{part:?}");
        }
    }

    #[test]
    fn public_fields_and_plain_text_values_are_not_masked() {
        let user = shown(&json!({ "username": "ada", "password": "p", "password_hash": "h" }), None);
        assert_eq!(user.iter().filter_map(|(_, shown)| shown.clone()).collect::<Vec<_>>(), ["ada"]);
        // A nested member with a public name may still be secret.
        assert_eq!(shown(&json!({ "x": { "username": "u" } }), None)[0].1, None);
        assert_eq!(shown(&json!("s3cret"), None), [(String::new(), Some("s3cret".to_owned()))]);
    }
}
