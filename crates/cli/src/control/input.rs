//! Input of commands: documents in files, `key=value` pairs, names in paths.

use std::io::Read;
use std::path::Path;

pub use api::path::segment;
use serde_json::Value;

use crate::exit::{Outcome, Problem};

/// Maximum size of a document, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a document, TOML if the name ends in `.toml`, else JSON. `-` is JSON on standard input.
pub(super) fn document(path: &Path) -> Outcome<Value> {
    let refuse = |why: String| {
        Problem::usage(format_args!("cannot read {}: {why}", path.display()))
            .hint("give a JSON or TOML file, or - for JSON on standard input; `show --output json` prints an example")
    };
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .take(DOCUMENT_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|error| refuse(error.to_string()))?;
    } else {
        let file = std::fs::File::open(path).map_err(|error| refuse(error.to_string()))?;
        file.take(DOCUMENT_BYTES_MAX).read_to_string(&mut text).map_err(|error| refuse(error.to_string()))?;
    }
    if text.len() as u64 >= DOCUMENT_BYTES_MAX {
        return Err(refuse(format!(
            "it has {} MiB or more, too many for a document",
            DOCUMENT_BYTES_MAX >> 20
        )));
    }
    if path.extension().is_some_and(|end| end == "toml") {
        let table: toml::Table = toml::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        return serde_json::to_value(table).map_err(|error| refuse(error.to_string()));
    }
    serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))
}

/// Parses `key=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give a name, then = and its value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_without_a_key_is_rejected() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }
}
