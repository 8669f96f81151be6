//! Requests and responses between a server and the signer, as serialized on the socket.

use authority::ca_keys::{CaKey, NewCaKey, SigningOrder, SigningPurpose};
use authority::issue::{ApprovalRef, IssueRequest};
use authority::keystore::NewKey;
use authority::teams::OwnershipRights;
use data_encoding::BASE64;
use keys::{KeyType, SignError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::KeyRow;
use uuid::Uuid;
use x509::build::Extension;
use x509::{DistinguishedName, GeneralName, SpkiHash, UnixTime};

use crate::custody::PublicOnlyKey;

/// Reason why a message is malformed.
#[derive(Debug, thiserror::Error)]
#[error("the message is malformed: {0}")]
pub(crate) struct Malformed(String);

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Request {
    /// Checks whether orders are accepted.
    Ready,
    /// Generates a new CA key.
    Make { kind: String, provider: Option<String>, label: String },
    /// Signs the document that follows the header of the message.
    Sign { key: Key, purpose: PurposeMessage, within_ms: u64 },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Response {
    Ready,
    Key(Row),
    Signature(Bytes),
    Failed(String),
    Unavailable(String),
    Late,
}

/// Bytes that are written as base64 in JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Bytes(String);

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Key {
    Ca(Uuid),
    New(Row),
}

/// A row of the table `keys` that is not stored yet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    id: Uuid,
    kind: String,
    spki: Bytes,
    provider: String,
    locator: String,
    label: String,
    created_at_us: i64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum PurposeMessage {
    Certificate { request: Box<RequestMessage>, planned_at: i64 },
    Crl { shard: i64 },
    OcspResponder,
    ScepRecipient,
    CaCertificate { subject_key: Option<Row> },
    CaRequest,
}

/// [`IssueRequest`], without the idempotency key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestMessage {
    profile: String,
    ca: Option<Uuid>,
    spki: Bytes,
    names: Vec<GeneralName>,
    subject: Option<Bytes>,
    not_before: Option<i64>,
    lifetime_seconds: Option<i64>,
    must_staple: bool,
    source: String,
    requester: String,
    extensions: Vec<(String, bool, Bytes)>,
    consent: Option<ApprovalMessage>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum ApprovalMessage {
    Run(String),
    Enrolment(Uuid),
}

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(BASE64.encode(bytes))
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>, Malformed> {
        BASE64.decode(self.0.as_bytes()).map_err(|error| Malformed(error.to_string()))
    }
}

impl Request {
    pub(crate) fn make(wanted: NewCaKey<'_>) -> Self {
        Self::Make {
            kind: wanted.kind.name().to_owned(),
            provider: wanted.provider.map(str::to_owned),
            label: wanted.label.to_owned(),
        }
    }

    pub(crate) fn sign(order: &SigningOrder<'_>, within_ms: u64) -> Self {
        let key = match order.key {
            CaKey::Of(ca) => Key::Ca(ca.id),
            CaKey::New(new) => Key::New(Row::of(&new.row)),
        };
        let purpose = match order.purpose {
            SigningPurpose::Certificate { request, planned_at } => PurposeMessage::Certificate {
                request: Box::new(RequestMessage::of(request)),
                planned_at: planned_at.0,
            },
            SigningPurpose::Crl { shard } => PurposeMessage::Crl { shard },
            SigningPurpose::OcspResponder => PurposeMessage::OcspResponder,
            SigningPurpose::ScepRecipient => PurposeMessage::ScepRecipient,
            SigningPurpose::CaCertificate { subject_key } => {
                PurposeMessage::CaCertificate { subject_key: subject_key.map(|new| Row::of(&new.row)) }
            }
            SigningPurpose::CaRequest => PurposeMessage::CaRequest,
        };
        Self::Sign { key, purpose, within_ms }
    }
}

impl Row {
    pub(crate) fn of(row: &KeyRow) -> Self {
        Self {
            id: row.id,
            kind: row.key_type.clone(),
            spki: Bytes::of(&row.spki),
            provider: row.provider.clone(),
            locator: row.locator.clone().unwrap_or_default(),
            label: row.label.clone(),
            created_at_us: row.created_at_us,
        }
    }

    /// Returns the key, without its private half.
    pub(crate) fn read(&self) -> Result<NewKey, Malformed> {
        let kind: KeyType = self.kind.parse().map_err(|_| Malformed(format!("kind {:?}", self.kind)))?;
        let spki = self.spki.read()?;
        let row = KeyRow {
            id: self.id,
            key_type: self.kind.clone(),
            spki_sha256: *SpkiHash::of(&spki).as_bytes(),
            spki: spki.clone(),
            provider: self.provider.clone(),
            sealed: None,
            locator: Some(self.locator.clone()),
            label: self.label.clone(),
            created_at_us: self.created_at_us,
            blocked_at_us: None,
            blocked_reason: None,
        };
        Ok(NewKey { row, signer: Arc::new(PublicOnlyKey { kind, spki }) })
    }
}

impl RequestMessage {
    fn of(request: &IssueRequest) -> Self {
        Self {
            profile: request.profile.clone(),
            ca: request.ca,
            spki: Bytes::of(&request.spki),
            names: request.names.clone(),
            subject: request.subject.as_ref().map(|subject| Bytes::of(&subject.der)),
            not_before: request.not_before.map(|time| time.0),
            lifetime_seconds: request.lifetime_seconds,
            must_staple: request.must_staple,
            source: request.source.name().to_owned(),
            requester: request.requester.clone(),
            extensions: request
                .extensions
                .iter()
                .map(|one| (one.oid.clone(), one.critical, Bytes::of(&one.value)))
                .collect(),
            consent: request.consent.as_ref().map(|consent| match consent {
                ApprovalRef::Run(run) => ApprovalMessage::Run(run.clone()),
                ApprovalRef::Enrolment(id) => ApprovalMessage::Enrolment(*id),
            }),
        }
    }

    pub(crate) fn read(self) -> Result<IssueRequest, Malformed> {
        let source = self.source.parse().map_err(|_| Malformed(format!("source {:?}", self.source)))?;
        let subject = match self.subject {
            Some(der) => {
                let name = DistinguishedName::parse(&der.read()?);
                Some(name.map_err(|error| Malformed(format!("subject: {error}")))?)
            }
            None => None,
        };
        let mut extensions = Vec::with_capacity(self.extensions.len());
        for (oid, critical, value) in self.extensions {
            extensions.push(Extension { oid, critical, value: value.read()? });
        }
        Ok(IssueRequest {
            idempotency_key: None,
            profile: self.profile,
            ca: self.ca,
            spki: self.spki.read()?,
            names: self.names,
            subject,
            not_before: self.not_before.map(UnixTime),
            lifetime_seconds: self.lifetime_seconds,
            must_staple: self.must_staple,
            source,
            requester: self.requester,
            extensions,
            consent: self.consent.map(|consent| match consent {
                ApprovalMessage::Run(run) => ApprovalRef::Run(run),
                ApprovalMessage::Enrolment(id) => ApprovalRef::Enrolment(id),
            }),
            // The server checks teams; the signer compares the document with the profile.
            rights: OwnershipRights::default(),
        })
    }
}

impl From<SignError> for Response {
    fn from(error: SignError) -> Self {
        match error {
            SignError::Late => Self::Late,
            SignError::Unavailable(reason) => Self::Unavailable(reason),
            SignError::Failed(reason) => Self::Failed(reason),
        }
    }
}

impl From<Malformed> for SignError {
    fn from(error: Malformed) -> Self {
        Self::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use authority::issue::Source;

    use super::*;

    #[test]
    fn request_round_trips() {
        let request = IssueRequest {
            ca: Some(Uuid::from_u128(7)),
            subject: Some(DistinguishedName::from_text("CN=a.example, O=A").unwrap()),
            not_before: Some(UnixTime(5)),
            lifetime_seconds: Some(6),
            must_staple: true,
            extensions: vec![Extension { oid: "1.2.3".to_owned(), critical: true, value: vec![5, 0] }],
            consent: Some(ApprovalRef::Run("r".to_owned())),
            ..IssueRequest::new(
                "web",
                vec![1, 2],
                vec![GeneralName::Dns("a.example".into()), GeneralName::Ip("::1".parse().unwrap())],
                Source::Acme,
                "acme:1",
            )
        };
        let text = serde_json::to_string(&RequestMessage::of(&request)).unwrap();
        let read: RequestMessage = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{:?}", read.read().unwrap()), format!("{request:?}"));
    }
}
