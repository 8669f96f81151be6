//! The key of an endpoint, as stored.

use crate::inventory::model::EndpointKey;
use db::{Row, StoreError, hex, sha256, storable};

/// Maximum bytes of a stored host, path or server name. A longer text is replaced by its beginning and a hash. DNS names have at
/// most 253 bytes, so only file paths are affected. The limit exists because PostgreSQL limits index rows to 2,704 bytes for the
/// whole key.
pub const HOST_BYTES_MAX: usize = 1024;

/// Returns a key part that is storable and short enough for an index.
fn key_part(text: &str) -> String {
    let text = storable(text);
    if text.len() <= HOST_BYTES_MAX {
        return text.into_owned();
    }
    let mark = hex(&sha256(text.as_bytes())[..16]);
    let mut end = HOST_BYTES_MAX - mark.len() - 1;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{mark}", &text[..end])
}

/// Returns the key in its stored form: without NUL, and with texts longer than [`HOST_BYTES_MAX`] shortened.
#[must_use]
pub fn stored_key(key: &EndpointKey) -> EndpointKey {
    EndpointKey {
        host: key_part(&key.host),
        port: key.port,
        protocol: key_part(&key.protocol),
        server_name: key_part(&key.server_name),
        address: key_part(&key.address),
    }
}

/// Reads the five columns of a key.
///
/// # Errors
/// [`StoreError::Corrupt`] when the columns have other types.
pub fn endpoint_key(row: &mut Row) -> Result<EndpointKey, StoreError> {
    Ok(EndpointKey {
        host: row.text()?,
        port: row.number()?,
        protocol: row.text()?,
        server_name: row.text()?,
        address: row.text()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn key_parts_are_bounded_idempotent_and_distinct(a in ".{0,1500}", b in ".{0,1500}") {
            prop_assert!(key_part(&a).len() <= HOST_BYTES_MAX);
            prop_assert!(!key_part(&a).contains('\0'));
            prop_assert_eq!(key_part(&key_part(&a)), key_part(&a));
            if storable(&a) != storable(&b) {
                prop_assert_ne!(key_part(&a), key_part(&b));
            }
        }
    }
}
