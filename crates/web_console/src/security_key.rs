//! The form with which the browser requests a response of a security key. A script of the page requests the response, and submits
//! the form with it.

use askama::Template;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::form_data::FormData;
use crate::json;

/// A form for the response of a security key.
#[derive(Template)]
#[template(path = "security_key.html")]
pub(crate) struct KeyForm {
    action: String,
    csrf: String,
    /// The method of `navigator.credentials`: `create` or `get`.
    method: &'static str,
    ceremony: String,
    options: String,
    /// The text above the button.
    says: String,
    fields: Vec<(&'static str, String)>,
    cancel: String,
}

impl KeyForm {
    /// Creates the form of a ceremony that the API has begun. `None` if the API's response contains no ceremony.
    pub(crate) fn of(answer: &Value, action: impl Into<String>, cancel: impl Into<String>) -> Option<Self> {
        let options = answer.get("options").filter(|_| answer.get("ceremony").is_some())?;
        let method = if options.get("pubKeyCredParams").is_some() { "create" } else { "get" };
        Some(Self {
            action: action.into(),
            csrf: String::new(),
            method,
            ceremony: json::text(answer, "/ceremony").to_owned(),
            options: options.to_string(),
            says: "Insert or touch your security key, or follow your browser.".to_owned(),
            fields: Vec::new(),
            cancel: cancel.into(),
        })
    }

    /// Sets the CSRF token of the session.
    pub(crate) fn csrf(mut self, csrf: &str) -> Self {
        csrf.clone_into(&mut self.csrf);
        self
    }

    /// Sets the text above the button.
    pub(crate) fn says(mut self, text: impl Into<String>) -> Self {
        self.says = text.into();
        self
    }

    /// Adds a hidden field that is sent with the response.
    pub(crate) fn field(mut self, name: &'static str, value: &str) -> Self {
        if !value.is_empty() {
            self.fields.push((name, value.to_owned()));
        }
        self
    }
}

/// Returns the response of a security key from a submitted form, in the format of the API; `None` if the form has none.
///
/// # Errors
/// [`Failure`] for a response that is not a JSON object.
pub(crate) fn response(form: &FormData) -> Result<Option<Value>, Failure> {
    let (Some(ceremony), Some(response)) = (form.field("ceremony"), form.field("response")) else {
        return Ok(None);
    };
    let mut response: Map<String, Value> = serde_json::from_str(response).map_err(Failure::unreadable)?;
    response.insert("ceremony".to_owned(), ceremony.into());
    Ok(Some(Value::Object(response)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_of_a_ceremony() {
        let create = json!({ "ceremony": "s", "options": { "pubKeyCredParams": [], "challenge": "\"<b>" } });
        let form = KeyForm::of(&create, "/console/x", "/console").unwrap();
        assert_eq!(form.method, "create");
        let html = form.csrf("c").field("note", "<i>").render().unwrap();
        assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
        assert_eq!(KeyForm::of(&json!({ "ceremony": "s", "options": {} }), "", "").unwrap().method, "get");
        assert!(KeyForm::of(&json!({ "actor": "user:ann" }), "", "").is_none());
    }

    #[test]
    fn a_response_is_sent_with_its_ceremony() {
        let form = FormData::of(&[("ceremony", "s"), ("response", r#"{"signature":"x"}"#)]);
        assert_eq!(response(&form).unwrap(), Some(json!({ "signature": "x", "ceremony": "s" })));
        assert_eq!(response(&FormData::of(&[("code", "x")])).unwrap(), None);
        assert!(response(&FormData::of(&[("ceremony", "s"), ("response", "[]")])).is_err());
    }
}
