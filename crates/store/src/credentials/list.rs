//! Lists and counts as parameters.

use db::Value;

/// Texts of a JSON list, as a list of SQL.
macro_rules! texts_postgres {
    ($parameter:literal) => {
        concat!("ANY(ARRAY(SELECT h FROM json_array_elements_text(", $parameter, "::text::json) AS h))")
    };
}
macro_rules! texts_sqlite {
    ($parameter:literal) => {
        concat!("(SELECT h.value FROM json_each(", $parameter, ") h)")
    };
}
pub(super) use {texts_postgres, texts_sqlite};

/// A parameter that holds texts.
pub(super) fn list(texts: &[String]) -> Value {
    serde_json::Value::from(texts).to_string().into()
}

/// A parameter that holds a count.
pub(super) fn count(most: usize) -> Value {
    i64::try_from(most).unwrap_or(i64::MAX).into()
}
