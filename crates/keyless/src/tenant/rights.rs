//! Permissions of a tenant for keys.

use std::collections::HashSet;

use data_encoding::HEXLOWER_PERMISSIVE;
use x509::{SpkiHash, star};

use crate::Key;
use crate::wire::Ski;

/// Permissions of a tenant for keys. The default permits no key.
#[derive(Debug, Default)]
pub(super) struct KeyPermissions {
    all: bool,
    skis: HashSet<Ski>,
    spkis: HashSet<SpkiHash>,
    names: HashSet<String>,
    globs: Vec<String>,
}

impl KeyPermissions {
    pub(super) fn new(keys: &[String]) -> Self {
        let mut rights = Self { all: keys.is_empty(), ..Self::default() };
        for text in keys {
            if let Some(ski) = parse_hex::<20>(text) {
                rights.skis.insert(Ski(ski));
            } else if let Some(spki) = parse_hex::<32>(text) {
                rights.spkis.insert(SpkiHash::from_bytes(spki));
            } else if text.contains('*') {
                rights.globs.push(text.clone());
            } else {
                rights.names.insert(text.clone());
            }
        }
        rights
    }

    pub(super) fn cover(&self, key: &Key) -> bool {
        self.all
            || self.skis.contains(&key.ski)
            || self.spkis.contains(&key.spki_sha256)
            || key.names.iter().any(|name| {
                self.names.contains(name) || self.globs.iter().any(|glob| star::matches(glob, name))
            })
    }
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}
