//! Conversion between database rows and the types for managed certificates and their runs.

use keys::KeyType;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::states::KeyHolder;
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Fingerprint, GeneralName};

use super::{
    CurrentVersion, KeyLocation, ManagedCertificate, Options, Run, ServedVersion, TargetRef, Version,
};
use crate::job::JobId;
use crate::tables::managed::{ManagedRow, ManagedVersion, ManagedView, NEVER_ISSUED_US, OpenRun};

/// Error for a row that another version of this program wrote and that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the database has a certificate that this version of Bulla cannot read: {id}: {what}")]
pub struct Unreadable {
    /// Id of the certificate.
    pub id: Uuid,
    /// Description of the fault in the row.
    pub what: String,
}

impl KeyLocation {
    pub(crate) fn holder(self) -> KeyHolder {
        match self {
            Self::Server => KeyHolder::Server,
            Self::Agent { .. } => KeyHolder::Agent,
            Self::KeyService => KeyHolder::KeyService,
        }
    }

    pub(crate) fn agent(self) -> Option<Uuid> {
        match self {
            Self::Agent { agent } => Some(agent),
            Self::Server | Self::KeyService => None,
        }
    }

    fn of(row: &ManagedRow) -> Option<Self> {
        match (row.key_location, row.agent) {
            (KeyHolder::Server, _) => Some(Self::Server),
            (KeyHolder::Agent, agent) => agent.map(|agent| Self::Agent { agent }),
            (KeyHolder::KeyService, _) => Some(Self::KeyService),
        }
    }
}

/// Serializes a value as JSON. Serialization cannot fail, because all map keys are strings.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(row: &ManagedRow, column: &str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text)
        .map_err(|error| Unreadable { id: row.uuid, what: format!("{column}: {error}") })
}

pub(crate) fn targets_of(row: &ManagedRow) -> Result<Vec<TargetRef>, Unreadable> {
    read(row, "targets", &row.targets)
}

pub(crate) fn options_of(row: &ManagedRow) -> Result<Options, Unreadable> {
    read(row, "options", &row.options)
}

fn names_of(row: &ManagedRow) -> Result<Vec<GeneralName>, Unreadable> {
    let texts: Vec<String> = read(row, "names", &row.names)?;
    texts
        .iter()
        .map(|text| GeneralName::parse(text))
        .collect::<Result<_, _>>()
        .map_err(|error| Unreadable { id: row.uuid, what: format!("names: {error}") })
}

/// Converts the open run of a certificate for the field [`ManagedCertificate::run`].
fn display_run(run: &OpenRun) -> Run {
    Run {
        job: JobId::of(run.id, run.created_at_us),
        state: run.state,
        next_attempt_at_us: run.next_attempt_at_us,
        attempts: u32::try_from(run.attempts).unwrap_or(u32::MAX),
    }
}

impl ManagedCertificate {
    /// Creates a certificate from its row and open run.
    ///
    /// # Errors
    /// [`Unreadable`] if another version of this program wrote the row, or the row was tampered with.
    pub fn from_view(view: &ManagedView) -> Result<Self, Unreadable> {
        let mut certificate = Self::from_row(&view.row)?;
        certificate.run = view.run.as_ref().map(display_run);
        Ok(certificate)
    }

    pub(crate) fn from_row(row: &ManagedRow) -> Result<Self, Unreadable> {
        let unreadable = |what: &str| Unreadable { id: row.uuid, what: what.to_owned() };
        Ok(Self {
            id: row.uuid,
            name: row.name.clone(),
            names: names_of(row)?,
            profile: row.profile.clone(),
            issuer: row.issuer.clone(),
            owner: row.owner.clone(),
            team: row.team.clone(),
            tags: read(row, "tags", &row.tags)?,
            environment: row.environment.clone(),
            policy: row.policy.clone(),
            key_location: KeyLocation::of(row).ok_or_else(|| unreadable("key_location"))?,
            key_type: row.key_type.parse::<KeyType>().map_err(|error| unreadable(&error.to_string()))?,
            targets: targets_of(row)?,
            options: options_of(row)?,
            state: row.state,
            revision: row.revision,
            current: row.fingerprint.map(|hash| CurrentVersion {
                fingerprint: Fingerprint::from_bytes(hash),
                not_before_us: row.not_before_us,
                not_after_us: row.not_after_us,
                revoked: row.revoked,
            }),
            served: row.served.map(|served| ServedVersion {
                fingerprint: Fingerprint::from_bytes(served.fingerprint),
                not_before_us: served.not_before_us,
                not_after_us: served.not_after_us,
            }),
            undeployed_since_us: row.undeployed_since_us,
            run: None,
            failures: u32::try_from(row.failures).unwrap_or(u32::MAX),
            last_error: row.last_error.clone(),
            created_at_us: row.created_at_us,
            updated_at_us: row.updated_at_us,
        })
    }
}

/// Creates the row of a certificate that has no version yet. The database sets `id`.
pub(crate) fn row_of(certificate: &ManagedCertificate) -> ManagedRow {
    let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
    ManagedRow {
        id: 0,
        uuid: certificate.id,
        name: certificate.name.clone(),
        state: certificate.state,
        revision: certificate.revision,
        profile: certificate.profile.clone(),
        issuer: certificate.issuer.clone(),
        owner: certificate.owner.clone(),
        team: certificate.team.clone(),
        environment: certificate.environment.clone(),
        policy: certificate.policy.clone(),
        key_location: certificate.key_location.holder(),
        agent: certificate.key_location.agent(),
        key_type: certificate.key_type.name().to_owned(),
        names: json(&names),
        tags: json(&certificate.tags),
        targets: json(&certificate.targets),
        options: json(&certificate.options),
        version: None,
        fingerprint: certificate.current.map(|version| *version.fingerprint.as_bytes()),
        not_before_us: certificate.current.map_or(0, |version| version.not_before_us),
        not_after_us: certificate.current.map_or(NEVER_ISSUED_US, |version| version.not_after_us),
        served: None,
        undeployed_since_us: None,
        undeployed_late_at_us: None,
        revoked: certificate.current.is_some_and(|version| version.revoked),
        failures: certificate.failures.into(),
        last_error: certificate.last_error.clone(),
        created_at_us: certificate.created_at_us,
        updated_at_us: certificate.updated_at_us,
    }
}

impl Version {
    pub(crate) fn from_row(row: &ManagedVersion) -> Self {
        Self {
            fingerprint: Fingerprint::from_bytes(row.fingerprint),
            serial: row.serial.clone(),
            not_before_us: row.not_before_us,
            not_after_us: row.not_after_us,
            issuer: row.issuer.clone(),
            key_here: row.key.is_some(),
            chain: split(&row.chain),
            issued_at_us: row.issued_at_us,
            revoked: row.revoked_at_us.map(|at| (at, row.revoked_reason.unwrap_or(Reason::Unspecified))),
        }
    }
}

/// Splits concatenated DER values. Ignores a truncated value at the end.
pub(crate) fn split(mut all: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    while let Some(length) = der_value_length(all).filter(|length| *length <= all.len()) {
        let (one, rest) = all.split_at(length);
        parts.push(one.to_vec());
        all = rest;
    }
    parts
}

/// Returns the first of several concatenated DER values.
pub(crate) fn first_der(all: &[u8]) -> Option<Vec<u8>> {
    der_value_length(all).and_then(|length| all.get(..length)).map(<[u8]>::to_vec)
}

/// Returns the length of the first DER value in bytes, header included.
fn der_value_length(bytes: &[u8]) -> Option<usize> {
    let first = usize::from(*bytes.get(1)?);
    if first < 0x80 {
        return Some(2 + first);
    }
    let digits = first & 0x7f;
    if digits == 0 || digits > 4 {
        return None;
    }
    let length =
        bytes.get(2..2 + digits)?.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    length.checked_add(2 + digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concatenated_der_values_are_split() {
        let short = vec![0x30, 2, 1, 2];
        let mut long = vec![0x30, 0x82, 1, 0];
        long.extend(std::iter::repeat_n(7, 256));
        let all: Vec<u8> = [short.clone(), long.clone(), short.clone()].concat();
        assert_eq!(split(&all), [short.clone(), long, short]);
        assert_eq!(split(&all[..all.len() - 1]).len(), 2);
        assert!(split(&[0x30, 0x85, 1, 1, 1, 1, 1]).is_empty());
        assert!(split(&[]).is_empty());
    }
}
