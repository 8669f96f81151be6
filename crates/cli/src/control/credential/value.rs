//! Values of credentials: reads them from files, and prints them without additional text.

use std::io::{Read, Write};
use std::path::Path;

use keys::SecretJson;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::connection::{Output, document_of, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::format::Format;

/// Maximum bytes of a value, as on the server.
pub(super) const VALUE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file, or standard input for `-`, up to the maximum size of a value.
pub(super) fn read_value(path: &Path) -> Outcome<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(VALUE_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path);
        file.and_then(|file| file.take(VALUE_BYTES_MAX + 1).read_to_string(&mut text))
    };
    let length = read.map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("give --file, or the value on standard input")
    })?;
    if length as u64 > VALUE_BYTES_MAX {
        return Err(Problem::usage(format_args!("the value has more than {VALUE_BYTES_MAX} bytes"))
            .hint("store large data elsewhere, and only its key here"));
    }
    Ok(text)
}

/// Prints only a value, or only one field of it.
pub(super) fn print_value(value: &SecretJson, key: Option<&str>, name: &str) -> Outcome<Exit> {
    let text = value.text(key.as_slice()).ok_or_else(|| without_field(key, name))?;
    print_text(text.expose())
}

/// Returns the error for a field that a credential does not have.
pub(super) fn without_field(key: Option<&str>, name: &str) -> Problem {
    Problem::new(Exit::Refused, format_args!("{name} has no {}", key.unwrap_or("value")))
        .hint(format!("`bulla credential get {name}` shows its fields"))
}

/// Prints a document with the value of a credential. JSON of type `json` is printed byte for byte.
pub(super) fn show_value(kind: &str, document: &impl Serialize, show: &Output) -> Outcome<Exit> {
    let as_written = kind == "json" && show.query.is_none();
    let text = match show.output {
        Format::Json if as_written => serde_json::to_string_pretty(document),
        Format::Jsonl if as_written => serde_json::to_string(document),
        _ => {
            show_one(&document_of(document)?, show)?;
            return Ok(Exit::Ok);
        }
    };
    let text = Zeroizing::new(text.map_err(|error| Problem::new(Exit::Machine, error))?);
    print_text(&text)
}

/// Prints a text, with a line break at its end.
fn print_text(text: &str) -> Outcome<Exit> {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    written.map_err(|error| Problem::output(&error))?;
    Ok(Exit::Ok)
}
