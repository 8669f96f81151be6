//! Values of credentials: read from files, printed without decoration.

use std::io::{Read, Write};
use std::path::Path;

use serde_json::Value;
use zeroize::Zeroizing;

use crate::exit::{Exit, Outcome, Problem};

/// Maximum bytes of a value, as on the server.
pub(super) const VALUE_OCTETS_MAX: u64 = 1 << 20;

/// Reads a file, or standard input for `-`, up to the maximum size of a value.
pub(super) fn read_value(path: &Path) -> Outcome<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(VALUE_OCTETS_MAX + 1).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path);
        file.and_then(|file| file.take(VALUE_OCTETS_MAX + 1).read_to_string(&mut text))
    };
    let length = read.map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("give --file, or the value on standard input")
    })?;
    if length as u64 > VALUE_OCTETS_MAX {
        return Err(Problem::usage(format_args!("the value has more than {VALUE_OCTETS_MAX} bytes"))
            .hint("store large data elsewhere, and only its key here"));
    }
    Ok(text)
}

/// Prints only a value, or only one field of it.
pub(super) fn print_value(value: Option<&Value>, key: Option<&str>, name: &str) -> Outcome<Exit> {
    let text = field(value, key, name)?;
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    written.map_err(|error| Problem::output(&error))?;
    Ok(Exit::Ok)
}

/// Returns a value, or one field of it, as text.
fn field(value: Option<&Value>, key: Option<&str>, name: &str) -> Outcome<Zeroizing<String>> {
    let found = match (value, key) {
        (value, None) => value,
        (Some(value), Some(key)) => value.get(key),
        (None, Some(_)) => None,
    };
    match found {
        Some(Value::String(text)) => Ok(Zeroizing::new(text.clone())),
        Some(other) if !other.is_null() => Ok(Zeroizing::new(other.to_string())),
        _ => Err(Problem::new(Exit::Refused, format_args!("{name} has no {}", key.unwrap_or("value")))
            .hint(format!("`bulla credential get {name}` shows its fields"))),
    }
}
