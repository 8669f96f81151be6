//! A version of a credential, opened.

use keys::keyring::{Context, Keyring};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use store::SealedColumn;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::tables::{CredentialRow, CredentialVersionRow, SEALED_CREDENTIALS};
use crate::value::Value;
use crate::{CredentialError, Kind};

/// What is known of a certificate and no secret.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Facts {
    /// Whether it is an authority's.
    pub certificate_authority: bool,
    /// Whether it signed itself.
    pub self_signed: bool,
    /// Whether it was generated here.
    pub generated: bool,
    /// The days it was made for, where more than it was asked for: see
    /// [`CredentialsOptions::ca_minimum_days`](crate::CredentialsOptions::ca_minimum_days).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_days: Option<u32>,
}

/// What is known of a version without its value.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionView {
    /// The version's identity.
    pub id: Uuid,
    /// Versions of a name are counted from 1.
    pub number: u64,
    /// When it was stored, µs.
    pub created_at_us: i64,
    /// From when on it is read no more, µs: by its time to live, or because it was deleted.
    pub ends_at_us: Option<i64>,
    /// Of certificates.
    pub facts: Option<Facts>,
    /// When its certificate ends, µs.
    pub not_after_us: Option<i64>,
    /// Whether it is its authority's version in transition.
    pub transitional: bool,
}

impl From<CredentialVersionRow> for VersionView {
    fn from(row: CredentialVersionRow) -> Self {
        Self {
            id: row.version,
            number: row.number,
            created_at_us: row.created_at_us,
            ends_at_us: row.ends_at_us,
            facts: row.facts.and_then(|text| serde_json::from_str(&text).ok()),
            not_after_us: row.not_after_us,
            transitional: row.transitional,
        }
    }
}

impl From<&CredentialRow> for VersionView {
    fn from(row: &CredentialRow) -> Self {
        Self {
            id: row.version,
            number: row.number,
            created_at_us: row.created_at_us,
            ends_at_us: row.ends_at_us,
            facts: row.facts.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            not_after_us: row.not_after_us,
            transitional: row.transitional,
        }
    }
}

/// What is known of a name and its versions without their values.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// As it was first written.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// When the name was made, µs.
    pub created_at_us: i64,
    /// The number of the newest version there ever was; what is missing up to it was destroyed.
    pub last_number: u64,
    /// What the newest version that is left notes.
    pub metadata: Option<Json>,
    /// Newest first, deleted versions included.
    pub versions: Vec<VersionView>,
}

/// A version of a credential.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The credential's identity.
    pub credential: Uuid,
    /// The version's identity.
    pub id: Uuid,
    /// Versions of a name are counted from 1.
    pub number: u64,
    /// As it was first written.
    pub name: String,
    /// When it was stored, µs.
    pub created_at_us: i64,
    /// From when on it is read no more, µs.
    pub ends_at_us: Option<i64>,
    /// Metadata of its creators.
    pub metadata: Option<Json>,
    /// How it was generated; `None` when it was set.
    pub parameters: Option<Json>,
    /// Of certificates.
    pub facts: Option<Facts>,
    /// When its certificate ends, µs.
    pub not_after_us: Option<i64>,
    /// Whether it is its authority's version in transition.
    pub transitional: bool,
    /// What signed it: a name in lower case.
    pub signed_by: Option<String>,
    /// The value.
    pub value: Value,
}

impl Version {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.value.kind()
    }

    pub(crate) fn open(row: CredentialRow, keyring: &Keyring) -> Result<Self, CredentialError> {
        let sealed = |why: String| CredentialError::Sealed { name: row.name.clone(), why };
        let opened = open(keyring, &row.name.to_ascii_lowercase(), row.version, &row.sealed);
        let octets = opened.map_err(sealed)?;
        let value = Value::opened(row.kind, &octets).map_err(|_| sealed("it is no value".to_owned()))?;
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Self {
            credential: row.credential,
            id: row.version,
            number: row.number,
            name: row.name,
            created_at_us: row.created_at_us,
            ends_at_us: row.ends_at_us,
            metadata: json(row.metadata),
            parameters: json(row.parameters),
            facts: row.facts.and_then(|text| serde_json::from_str(&text).ok()),
            not_after_us: row.not_after_us,
            transitional: row.transitional,
            signed_by: row.signed_by,
            value,
        })
    }
}

/// Seals a value to its version and name: the seal is bound to the row of the version, and the name stands within.
pub(crate) fn seal(keyring: &Keyring, name_key: &str, version: Uuid, value: &[u8]) -> Vec<u8> {
    seal_in(&SEALED_CREDENTIALS, keyring, name_key, version, value)
}

/// As [`seal`], in a row of another table.
pub(crate) fn seal_in(
    column: &SealedColumn,
    keyring: &Keyring,
    name_key: &str,
    row: Uuid,
    value: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(name_key.len()).unwrap_or(u16::MAX);
    let mut inside = Zeroizing::new(Vec::with_capacity(2 + name_key.len() + value.len()));
    inside.extend_from_slice(&length.to_be_bytes());
    inside.extend_from_slice(name_key.as_bytes());
    inside.extend_from_slice(value);
    keyring.seal(&context(column, &row), &inside)
}

fn open(
    keyring: &Keyring,
    name_key: &str,
    version: Uuid,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, String> {
    open_in(&SEALED_CREDENTIALS, keyring, name_key, version, sealed)
}

/// What [`seal_in`] sealed; else why it does not open.
pub(crate) fn open_in(
    column: &SealedColumn,
    keyring: &Keyring,
    name_key: &str,
    row: Uuid,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, String> {
    let inside = keyring.open_sealed(&context(column, &row), sealed).map_err(|error| error.to_string())?;
    let (length, rest) = inside.split_at_checked(2).ok_or("it is cut off")?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    let (name, value) = rest.split_at_checked(length).ok_or("it is cut off")?;
    if name != name_key.as_bytes() {
        return Err("it belongs to another name".to_owned());
    }
    Ok(Zeroizing::new(value.to_vec()))
}

fn context<'a>(column: &SealedColumn, row: &'a Uuid) -> Context<'a> {
    Context { table: column.table, row: row.as_bytes(), column: column.column }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_opens_under_its_own_name_and_version_only(
            value: Vec<u8>,
            name in "/[a-z0-9/-]{1,40}",
            other in "/[a-z0-9/-]{1,40}",
        ) {
            let keyring = Keyring::ephemeral();
            let version = Uuid::now_v7();
            let sealed = seal(&keyring, &name, version, &value);
            let opened = open(&keyring, &name, version, &sealed);
            prop_assert_eq!(&**opened.as_ref().unwrap(), &value);
            prop_assert!(open(&keyring, &name, Uuid::now_v7(), &sealed).is_err());
            prop_assert_eq!(open(&keyring, &other, version, &sealed).is_ok(), name == other);
        }
    }
}
