//! The plan to approve: every fact that determines which certificate is issued and where it is deployed.

use api::plan::{ISSUANCE_PLAN, encoded};
use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Plan of a certificate that is issued after the approval. Names and targets keep their order, because the first name may become
/// the common name.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct IssuancePlan {
    /// Object of the plan: `certificate/UUID` or `enrolment/UUID`.
    pub object: String,
    /// Requested names as text, in the order of the request.
    pub names: Vec<String>,
    /// Requested subject as text; `None` for the subject of the profile.
    pub subject: Option<String>,
    /// Key for which the certificate is issued.
    pub key: PlannedKey,
    /// Whether the must-staple extension (RFC 7633) is requested.
    pub must_staple: bool,
    /// Name of the profile with which the certificate is issued.
    pub profile: String,
    /// Stored version of the profile; `None` if no such profile is stored.
    pub profile_version: Option<DocumentVersion>,
    /// Name of the issuer, which is external or this server's own certification authority.
    pub issuer: String,
    /// Stored version of the issuer's configuration; `None` for a CA of this server.
    pub issuer_version: Option<DocumentVersion>,
    /// Name and identifier of the CA of this server that signs the certificate. `None` for an external issuer, for a plan stored by
    /// an earlier version, or if no CA can issue.
    #[serde(default)]
    pub ca: Option<String>,
    /// Profile at the external issuer.
    pub issuer_profile: Option<String>,
    /// Lifetime in seconds; `None` for the default of the profile.
    pub lifetime_seconds: Option<i64>,
    /// Deployment targets, each with its known properties.
    pub targets: Vec<String>,
}

/// Key for which the certificate is issued: a new key, or the key of a CSR.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum PlannedKey {
    /// A new key, generated when the run of the managed certificate begins.
    New {
        /// Type of the key to generate, such as `p256`.
        key_type: String,
        /// Location in which the key is generated and stored.
        location: String,
    },
    /// The key of an existing CSR.
    Request {
        /// SHA-256 of the SubjectPublicKeyInfo, hexadecimal.
        spki_sha256: String,
        /// SHA-256 of the whole CSR, hexadecimal.
        request_sha256: String,
    },
}

/// The version of a stored profile or issuer configuration: its revision and hash.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DocumentVersion {
    /// Revision number, which increases by one with each change.
    pub revision: i64,
    /// SHA-256 of the document, hexadecimal. It is needed because a document that is deleted and created again starts at the first
    /// revision.
    pub sha256: String,
}

/// One field of a plan, as shown to people and as encoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanField {
    /// Name of the field in the encoding, such as `names` or `profile_version`.
    pub name: &'static str,
    /// Values of the field; empty if the plan does not specify the field.
    pub values: Vec<String>,
}

/// A field that differs between two plans.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanDifference {
    /// Name of the field in the encoding, such as `names` or `profile_version`.
    pub name: &'static str,
    /// Values in the earlier plan.
    pub before: Vec<String>,
    /// Values in the later plan.
    pub after: Vec<String>,
}

impl DocumentVersion {
    /// Returns the version of a document, with the SHA-256 of its stored text `body`.
    #[must_use]
    pub fn of(revision: i64, body: &str) -> Self {
        Self { revision, sha256: hex(body.as_bytes()) }
    }

    fn shown(&self) -> String {
        format!("revision {} sha256:{}", self.revision, self.sha256)
    }
}

impl IssuancePlan {
    /// Returns all fields in the order of the encoding. The encoding, the display and the differences all use this list.
    #[must_use]
    pub fn fields(&self) -> Vec<PlanField> {
        let field = |name, values| PlanField { name, values };
        let optional_field =
            |name, value: &Option<String>| PlanField { name, values: value.iter().cloned().collect() };
        let version = |name, version: &Option<DocumentVersion>| PlanField {
            name,
            values: version.iter().map(DocumentVersion::shown).collect(),
        };
        let mut fields = vec![
            field("object", vec![self.object.clone()]),
            field("names", self.names.clone()),
            optional_field("subject", &self.subject),
            field("key", self.key.values()),
            field("must_staple", vec![self.must_staple.to_string()]),
            field("profile", vec![self.profile.clone()]),
            version("profile_version", &self.profile_version),
            field("issuer", vec![self.issuer.clone()]),
            version("issuer_version", &self.issuer_version),
            optional_field("issuer_profile", &self.issuer_profile),
            field("lifetime_seconds", self.lifetime_seconds.iter().map(ToString::to_string).collect()),
            field("targets", self.targets.clone()),
        ];
        // Plans of external issuers, and plans stored by earlier versions, have no field `ca`.
        fields.extend(self.ca.iter().map(|ca| field("ca", vec![ca.clone()])));
        fields
    }

    /// Returns the canonical encoding of [`IssuancePlan::fields`]: see [`encoded`].
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let fields = self.fields();
        encoded(ISSUANCE_PLAN, fields.iter().map(|field| (field.name, field.values.as_slice())))
    }

    /// Returns the SHA-256 of the plan's canonical encoding. Approvals refer to the plan by this hash.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        sha256(&self.encoded())
    }

    /// Returns the identifier of the CA of this server that signs the certificate; `None` if the plan has no CA, as for an external
    /// issuer.
    #[must_use]
    pub fn ca_id(&self) -> Option<Uuid> {
        self.ca.as_ref()?.rsplit(' ').next()?.parse().ok()
    }

    /// Returns the fields that differ from an earlier plan.
    #[must_use]
    pub fn differences(&self, before: &Self) -> Vec<PlanDifference> {
        let (before, after) = (before.fields(), self.fields());
        let missing = before.iter().filter(|one| !after.iter().any(|other| other.name == one.name));
        let names: Vec<&'static str> = after.iter().chain(missing).map(|field| field.name).collect();
        let values = |fields: &[PlanField], name| {
            fields
                .iter()
                .find(|field| field.name == name)
                .map(|field| field.values.clone())
                .unwrap_or_default()
        };
        names
            .into_iter()
            .map(|name| PlanDifference { name, before: values(&before, name), after: values(&after, name) })
            .filter(|change| change.before != change.after)
            .collect()
    }
}

impl PlannedKey {
    fn values(&self) -> Vec<String> {
        match self {
            Self::New { key_type, location } => vec!["new".to_owned(), key_type.clone(), location.clone()],
            Self::Request { spki_sha256, request_sha256 } => vec![
                "request".to_owned(),
                format!("spki sha256:{spki_sha256}"),
                format!("request sha256:{request_sha256}"),
            ],
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    x509::Fingerprint::from_bytes(sha256(bytes)).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn texts() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-c.]{0,3}", 0..4)
    }

    fn version() -> impl Strategy<Value = Option<DocumentVersion>> {
        prop::option::of(
            (1..4_i64, "[a-b]{0,2}").prop_map(|(revision, body)| DocumentVersion::of(revision, &body)),
        )
    }

    fn key() -> impl Strategy<Value = PlannedKey> {
        prop_oneof![
            ("[ab]{0,2}", "[ab]{0,2}")
                .prop_map(|(key_type, location)| PlannedKey::New { key_type, location }),
            ("[ab]{0,2}", "[ab]{0,2}").prop_map(|(spki_sha256, request_sha256)| PlannedKey::Request {
                spki_sha256,
                request_sha256
            }),
        ]
    }

    fn plan() -> impl Strategy<Value = IssuancePlan> {
        let what = ("[ab]{0,2}", texts(), prop::option::of("[ab]{0,2}"), key(), any::<bool>());
        let optional_field = || prop::option::of("[ab]{0,2}");
        let by = ("[ab]{0,2}", version(), "[ab]{0,2}", version(), optional_field(), optional_field());
        (what, by, prop::option::of(0..3_i64), texts()).prop_map(|(what, by, lifetime_seconds, targets)| {
            let (object, names, subject, key, must_staple) = what;
            let (profile, profile_version, issuer, issuer_version, ca, issuer_profile) = by;
            IssuancePlan {
                object,
                names,
                subject,
                key,
                must_staple,
                profile,
                profile_version,
                issuer,
                issuer_version,
                ca,
                issuer_profile,
                lifetime_seconds,
                targets,
            }
        })
    }

    /// Returns a plan with one field copied from another plan.
    fn with_field(plan: &IssuancePlan, other: &IssuancePlan, field: usize) -> IssuancePlan {
        let (mut out, other) = (plan.clone(), other.clone());
        match field {
            0 => out.object = other.object,
            1 => out.names = other.names,
            2 => out.subject = other.subject,
            3 => out.key = other.key,
            4 => out.must_staple = other.must_staple,
            5 => out.profile = other.profile,
            6 => out.profile_version = other.profile_version,
            7 => out.issuer = other.issuer,
            8 => out.issuer_version = other.issuer_version,
            9 => out.issuer_profile = other.issuer_profile,
            10 => out.lifetime_seconds = other.lifetime_seconds,
            11 => out.ca = other.ca,
            _ => out.targets = other.targets,
        }
        out
    }

    proptest! {
        #[test]
        fn changing_any_field_changes_the_plan_hash(plan in plan(), other in plan(), field in 0..13_usize) {
            let changed = with_field(&plan, &other, field);
            prop_assert_eq!(changed == plan, changed.sha256() == plan.sha256());
            prop_assert_eq!(changed.differences(&plan).len(), usize::from(changed != plan));
        }

        #[test]
        fn issuance_plans_with_the_same_encoding_are_equal(plan in plan(), other in plan()) {
            prop_assert_eq!(plan == other, plan.encoded() == other.encoded());
            let read: IssuancePlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
            prop_assert_eq!(read.sha256(), plan.sha256());
        }
    }

    #[test]
    fn adjacent_texts_are_encoded_unambiguously() {
        let base = IssuancePlan {
            object: "certificate/1".to_owned(),
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            subject: None,
            key: PlannedKey::New { key_type: "p256".to_owned(), location: "server".to_owned() },
            must_staple: false,
            profile: "web".to_owned(),
            profile_version: None,
            issuer: "internal".to_owned(),
            issuer_version: None,
            ca: None,
            issuer_profile: None,
            lifetime_seconds: None,
            targets: Vec::new(),
        };
        let joined = IssuancePlan { names: vec!["a.exampleb.example".to_owned()], ..base.clone() };
        let turned =
            IssuancePlan { names: vec!["b.example".to_owned(), "a.example".to_owned()], ..base.clone() };
        let empty = IssuancePlan { subject: Some(String::new()), ..base.clone() };
        let hashes: BTreeSet<[u8; 32]> =
            [&base, &joined, &turned, &empty].into_iter().map(IssuancePlan::sha256).collect();
        assert_eq!(hashes.len(), 4);
        assert!(base.encoded().starts_with(b"\0\0\0\0\0\0\0\x15bulla issuance plan 1"));
    }
}
