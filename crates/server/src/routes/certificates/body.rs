//! What callers send.

use std::collections::BTreeMap;

use keys::KeyType;
use lifecycle::managed::{
    CertificateChange, KeyLocation, ManagedCertificate, NewCertificate, Options, TargetRef,
};
use lifecycle::renewal::RenewalRule;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::problem::Problem;

/// A certificate to bring under management.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCertificateBody {
    /// Its name, unique; the first of `names` when absent.
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// What it is to speak for: DNS names, addresses, URIs, email addresses.
    #[schema(min_items = 1, max_items = 100, example = json!(["www.example.org"]))]
    names: Vec<String>,
    /// The profile it is issued by.
    #[schema(example = "web", min_length = 1, max_length = 200)]
    profile: String,
    /// The issuer; `internal`, our own authority, when absent.
    issuer: Option<String>,
    /// Who answers for it.
    owner: Option<String>,
    /// The team that does.
    team: Option<String>,
    /// Labels of your own.
    #[serde(default)]
    tags: BTreeMap<String, String>,
    /// Where it is used.
    #[schema(example = "prod")]
    environment: Option<String>,
    /// The policy that says when it is renewed.
    policy: Option<String>,
    /// Where its key is made and kept; in this server when absent.
    key_location: Option<KeyLocationBody>,
    /// The kind of its key; `p256` when absent.
    #[schema(example = "p256")]
    key_type: Option<String>,
    /// Where it goes.
    #[serde(default)]
    targets: Vec<TargetBody>,
    /// Whether the scheduler renews it; true when absent.
    auto_renew: Option<bool>,
    /// When it is renewed, in place of its policy's rule: `renew_before` (`{"days": 30}`, `{"hours": 6}` or
    /// `{"fraction": 0.33}`), `obey_issuer`, `windows`.
    #[schema(value_type = Option<Object>)]
    renewal: Option<Value>,
    /// How long a version is valid, seconds; the profile's default when absent.
    #[schema(minimum = 60)]
    lifetime_seconds: Option<i64>,
    /// The subject, `CN=…, O=…`; what the profile says when absent.
    subject: Option<String>,
    /// Whether servers must staple (RFC 7633).
    #[serde(default)]
    must_staple: bool,
    /// The external issuer's own profile or role.
    issuer_profile: Option<String>,
    /// For people.
    #[serde(default)]
    #[schema(max_length = 8192)]
    notes: String,
    /// Whether it is issued now; true when absent.
    issue: Option<bool>,
}

/// Where a private key is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "at", deny_unknown_fields)]
pub(crate) enum KeyLocationBody {
    /// In this server, sealed.
    Server,
    /// On an agent's host: it never leaves.
    Agent {
        /// Which agent.
        agent: Uuid,
    },
    /// With the key service; never given out.
    KeyService,
}

/// Where a certificate goes.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub(crate) enum TargetBody {
    /// An agent puts it in place.
    Deploy {
        /// The target.
        target: Uuid,
        /// Its agent.
        agent: Uuid,
    },
    /// An endpoint of the inventory that is to serve it.
    Endpoint {
        /// Name, address or path.
        host: String,
        /// Port; 0 for files.
        port: u16,
        /// `tls`, `smtp`, …
        protocol: String,
        /// The SNI sent.
        server_name: String,
    },
}

impl From<KeyLocationBody> for KeyLocation {
    fn from(body: KeyLocationBody) -> Self {
        match body {
            KeyLocationBody::Server => Self::Server,
            KeyLocationBody::Agent { agent } => Self::Agent { agent },
            KeyLocationBody::KeyService => Self::KeyService,
        }
    }
}

impl From<KeyLocation> for KeyLocationBody {
    fn from(location: KeyLocation) -> Self {
        match location {
            KeyLocation::Server => Self::Server,
            KeyLocation::Agent { agent } => Self::Agent { agent },
            KeyLocation::KeyService => Self::KeyService,
        }
    }
}

impl From<TargetBody> for TargetRef {
    fn from(body: TargetBody) -> Self {
        match body {
            TargetBody::Deploy { target, agent } => Self::Deploy { target, agent },
            TargetBody::Endpoint { host, port, protocol, server_name } => {
                Self::Endpoint { host, port, protocol, server_name }
            }
        }
    }
}

impl From<TargetRef> for TargetBody {
    fn from(target: TargetRef) -> Self {
        match target {
            TargetRef::Deploy { target, agent } => Self::Deploy { target, agent },
            TargetRef::Endpoint { host, port, protocol, server_name } => {
                Self::Endpoint { host, port, protocol, server_name }
            }
        }
    }
}

/// The options of a certificate from the members of a body.
pub(crate) fn options_of(
    auto_renew: Option<bool>,
    renewal: Option<&Value>,
    notes: String,
) -> Result<Options, Problem> {
    Ok(Options {
        auto_renew: auto_renew.unwrap_or(true),
        renewal: renewal.map(rule).transpose()?,
        notes,
        ..Options::default()
    })
}

fn rule(value: &Value) -> Result<RenewalRule, Problem> {
    RenewalRule::deserialize(value).map_err(|error| Problem::unprocessable(format_args!("renewal: {error}")))
}

fn key_type(name: Option<&str>) -> Result<KeyType, Problem> {
    let Some(name) = name else { return Ok(KeyType::P256) };
    name.parse().map_err(|error: keys::UnknownKeyType| Problem::unprocessable(error))
}

impl NewCertificateBody {
    pub(super) fn read(self) -> Result<NewCertificate, Problem> {
        let options = Options {
            lifetime_seconds: self.lifetime_seconds,
            subject: self.subject,
            must_staple: self.must_staple,
            issuer_profile: self.issuer_profile,
            ..options_of(self.auto_renew, self.renewal.as_ref(), self.notes)?
        };
        Ok(NewCertificate {
            name: self.name,
            names: self.names,
            profile: self.profile,
            issuer: self.issuer,
            owner: self.owner,
            team: self.team,
            tags: self.tags,
            environment: self.environment,
            policy: self.policy,
            key_location: self.key_location.map_or(KeyLocation::Server, Into::into),
            key_type: key_type(self.key_type.as_deref())?,
            targets: self.targets.into_iter().map(Into::into).collect(),
            options,
            issue: self.issue.unwrap_or(true),
        })
    }
}

/// What to change of a certificate. A member left out stays; one that is null is taken away.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CertificatePatch {
    /// Its name.
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// All its names.
    #[schema(min_items = 1, max_items = 100)]
    names: Option<Vec<String>>,
    /// Its profile.
    profile: Option<String>,
    /// Its issuer.
    issuer: Option<String>,
    /// Who answers for it.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    owner: Option<Option<String>>,
    /// The team that does.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    team: Option<Option<String>>,
    /// All its tags.
    tags: Option<BTreeMap<String, String>>,
    /// Where it is used.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    environment: Option<Option<String>>,
    /// The policy that says when it is renewed.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    policy: Option<Option<String>>,
    /// Where the next key is made and kept.
    key_location: Option<KeyLocationBody>,
    /// The kind of the next key.
    key_type: Option<String>,
    /// All its targets.
    targets: Option<Vec<TargetBody>>,
    /// Whether the scheduler renews it.
    auto_renew: Option<bool>,
    /// When it is renewed, in place of its policy's rule.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    renewal: Option<Option<Value>>,
    /// How long the next version is valid, seconds.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 60)]
    lifetime_seconds: Option<Option<i64>>,
    /// The subject.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    subject: Option<Option<String>>,
    /// Whether servers must staple.
    must_staple: Option<bool>,
    /// The external issuer's own profile or role.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    issuer_profile: Option<Option<String>>,
    /// For people.
    #[schema(max_length = 8192)]
    notes: Option<String>,
    /// Whether a version with all this is asked for now.
    renew: bool,
}

/// A member that is there, null or not.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

impl CertificatePatch {
    pub(super) fn read(self, before: &ManagedCertificate) -> Result<CertificateChange, Problem> {
        let mut options = before.options.clone();
        if let Some(auto_renew) = self.auto_renew {
            options.auto_renew = auto_renew;
        }
        if let Some(renewal) = &self.renewal {
            options.renewal = renewal.as_ref().map(rule).transpose()?;
        }
        if let Some(seconds) = self.lifetime_seconds {
            options.lifetime_seconds = seconds;
        }
        if let Some(subject) = self.subject {
            options.subject = subject;
        }
        if let Some(must_staple) = self.must_staple {
            options.must_staple = must_staple;
        }
        if let Some(profile) = self.issuer_profile {
            options.issuer_profile = profile;
        }
        if let Some(notes) = self.notes {
            options.notes = notes;
        }
        Ok(CertificateChange {
            name: self.name,
            names: self.names,
            profile: self.profile,
            issuer: self.issuer,
            owner: self.owner,
            team: self.team,
            tags: self.tags,
            environment: self.environment,
            policy: self.policy,
            key_location: self.key_location.map(Into::into),
            key_type: self.key_type.as_deref().map(|name| key_type(Some(name))).transpose()?,
            targets: self.targets.map(|targets| targets.into_iter().map(Into::into).collect()),
            options: Some(options),
            renew: self.renew,
        })
    }
}
