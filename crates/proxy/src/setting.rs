//! Settings that rules on requests and rules of the policy share, and how a wrong one is reported.

use hyper::Method;

/// A key, what is wrong with it, and how to correct it.
#[derive(Debug)]
pub(crate) struct InvalidSetting {
    pub(crate) key: &'static str,
    pub(crate) why: String,
    pub(crate) hint: &'static str,
}

/// Reports that setting `key` is wrong, and how to correct it.
pub(crate) fn invalid(key: &'static str, why: impl Into<String>, hint: &'static str) -> InvalidSetting {
    InvalidSetting { key, why: why.into(), hint }
}

/// Methods as HTTP has them: `get` would never match.
pub(crate) fn methods(texts: &[String]) -> Result<Vec<Method>, InvalidSetting> {
    let read = |text: &String| {
        let known = Method::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains(char::is_lowercase));
        known.ok_or_else(|| {
            invalid("method", format!("{text:?} is no method"), "for example GET, in upper case")
        })
    };
    texts.iter().map(read).collect()
}
