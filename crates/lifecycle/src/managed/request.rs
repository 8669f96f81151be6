//! Requests about managed certificates, validated before anything is stored.

use std::collections::{BTreeMap, BTreeSet};

use keys::KeyType;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::{BadName, DistinguishedName, GeneralName};

use super::{
    INTERNAL_ISSUER, KeyLocation, LABEL_BYTES_MAX, ManagedCertificate, NAMES_MAX, NOTES_BYTES_MAX, Options,
    TAGS_MAX, TARGETS_MAX, TargetRef,
};
use crate::renewal::BadRule;
use crate::state::State;

/// Request to create a managed certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCertificate {
    /// Unique name. Default: the first of `names`.
    pub name: Option<String>,
    /// Requested names as text, such as `www.example.org` or `10.0.0.1`.
    pub names: Vec<String>,
    /// Name of the profile.
    pub profile: String,
    /// Name of the issuer. Default: the internal CA.
    pub issuer: Option<String>,
    /// Person who owns the certificate.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// Tags set by users.
    pub tags: BTreeMap<String, String>,
    /// Environment, such as `production`.
    pub environment: Option<String>,
    /// Name of the policy.
    pub policy: Option<String>,
    /// Location of the private key.
    pub key_location: KeyLocation,
    /// Algorithm and size of the private key, such as P-256.
    pub key_type: KeyType,
    /// Deployment targets, and endpoints that serve the certificate.
    pub targets: Vec<TargetRef>,
    /// Further settings, such as automatic renewal and notes.
    pub options: Options,
    /// Whether to issue the first version immediately. Otherwise it is issued when a renewal is requested.
    pub issue: bool,
}

impl NewCertificate {
    /// Creates a request for these names with this profile: internal CA, a P-256 key in this server, issued immediately.
    #[must_use]
    pub fn new(names: &[&str], profile: &str) -> Self {
        Self {
            name: None,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            profile: profile.to_owned(),
            issuer: None,
            owner: None,
            team: None,
            tags: BTreeMap::new(),
            environment: None,
            policy: None,
            key_location: KeyLocation::Server,
            key_type: KeyType::P256,
            targets: Vec::new(),
            options: Options::default(),
            issue: true,
        }
    }
}

/// Request to change a managed certificate. `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateChange {
    /// New unique name.
    pub name: Option<String>,
    /// New names, used by the next version.
    pub names: Option<Vec<String>>,
    /// New profile.
    pub profile: Option<String>,
    /// New issuer.
    pub issuer: Option<String>,
    /// New owner, or `Some(None)` to remove the owner.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "api::patch::given")]
    pub owner: Option<Option<String>>,
    /// New team, or `Some(None)` to remove the team.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "api::patch::given")]
    pub team: Option<Option<String>>,
    /// New tags, which replace all existing tags.
    pub tags: Option<BTreeMap<String, String>>,
    /// New environment, or `Some(None)` to remove it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "api::patch::given")]
    pub environment: Option<Option<String>>,
    /// New policy, or `Some(None)` to remove it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "api::patch::given")]
    pub policy: Option<Option<String>>,
    /// New location of the next private key.
    pub key_location: Option<KeyLocation>,
    /// New algorithm and size of the next private key.
    pub key_type: Option<KeyType>,
    /// New targets, which replace all existing targets.
    pub targets: Option<Vec<TargetRef>>,
    /// New options, which replace all existing options.
    pub options: Option<Options>,
    /// Whether to issue a new version with these changes immediately.
    pub renew: bool,
}

/// Reason why a request about a managed certificate is invalid. All reasons are detected without a lookup.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadRequest {
    /// The request has no names.
    #[error("a certificate needs at least one name")]
    NoNames,
    /// The request has more than [`NAMES_MAX`] names.
    #[error("a certificate may have at most {NAMES_MAX} names")]
    TooManyNames,
    /// A requested name is invalid.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A text is empty, too long, or has control characters.
    #[error("{field} must have 1 to {LABEL_BYTES_MAX} bytes and no control characters")]
    Label {
        /// Name of the field.
        field: &'static str,
    },
    /// The request has more than [`TAGS_MAX`] tags.
    #[error("a certificate may have at most {TAGS_MAX} tags")]
    TooManyTags,
    /// The request has more than [`TARGETS_MAX`] targets.
    #[error("a certificate may have at most {TARGETS_MAX} targets")]
    TooManyTargets,
    /// The request has the same target twice.
    #[error("a target is listed twice")]
    TargetTwice,
    /// The notes are longer than [`NOTES_BYTES_MAX`], or have a null character.
    #[error("notes must have at most {NOTES_BYTES_MAX} bytes and no null character")]
    Notes,
    /// The end of the dismissal is in the past.
    #[error("the end of the dismissal is in the past")]
    DismissalOver,
    /// The subject is not a distinguished name.
    #[error("cannot parse the subject: {0}")]
    Subject(String),
    /// The lifetime is too short.
    #[error("the lifetime must be at least one minute")]
    Lifetime,
    /// The renewal rule is invalid.
    #[error(transparent)]
    Renewal(#[from] BadRule),
}

/// Shortest lifetime that can be requested, in seconds.
const LIFETIME_SECONDS_MIN: i64 = 60;

impl NewCertificate {
    /// Validates the request, and returns the certificate to create.
    ///
    /// # Errors
    /// [`BadRequest`]
    pub(crate) fn check(&self, id: Uuid, now_us: i64) -> Result<ManagedCertificate, BadRequest> {
        let names = parse_names(&self.names)?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => names.first().map(ToString::to_string).unwrap_or_default(),
        };
        let certificate = ManagedCertificate {
            id,
            name,
            names,
            profile: self.profile.clone(),
            issuer: self.issuer.clone().unwrap_or_else(|| INTERNAL_ISSUER.to_owned()),
            owner: self.owner.clone(),
            team: self.team.clone(),
            tags: self.tags.clone(),
            environment: self.environment.clone(),
            policy: self.policy.clone(),
            key_location: self.key_location,
            key_type: self.key_type,
            targets: self.targets.clone(),
            options: self.options.clone(),
            state: State::Pending,
            revision: 1,
            current: None,
            served: None,
            undeployed_since_us: None,
            run: None,
            failures: 0,
            last_error: None,
            created_at_us: now_us,
            updated_at_us: now_us,
        };
        certificate.check()?;
        Ok(certificate)
    }
}

impl CertificateChange {
    /// Returns whether another user changed a field that this change also sets, to another value than the requested one. `read` is
    /// the certificate that this change is based on; `now` is its current state. Ignores fields that the lifecycle writes, such as
    /// state and versions.
    #[must_use]
    pub fn conflicts(&self, read: &ManagedCertificate, now: &ManagedCertificate) -> bool {
        let names = self.names.as_ref().map(|texts| parse_names(texts).unwrap_or_default());
        differs(self.name.as_ref(), &read.name, &now.name)
            || differs(names.as_ref(), &read.names, &now.names)
            || differs(self.profile.as_ref(), &read.profile, &now.profile)
            || differs(self.issuer.as_ref(), &read.issuer, &now.issuer)
            || differs(self.owner.as_ref(), &read.owner, &now.owner)
            || differs(self.team.as_ref(), &read.team, &now.team)
            || differs(self.tags.as_ref(), &read.tags, &now.tags)
            || differs(self.environment.as_ref(), &read.environment, &now.environment)
            || differs(self.policy.as_ref(), &read.policy, &now.policy)
            || differs(self.key_location.as_ref(), &read.key_location, &now.key_location)
            || differs(self.key_type.as_ref(), &read.key_type, &now.key_type)
            || differs(self.targets.as_ref(), &read.targets, &now.targets)
            || self.options.as_ref().is_some_and(|to| options_differ(to, &read.options, &now.options))
    }

    /// Applies the change to a certificate, and returns the changed certificate.
    ///
    /// # Errors
    /// [`BadRequest`]
    pub(crate) fn apply(
        &self,
        to: &ManagedCertificate,
        now_us: i64,
    ) -> Result<ManagedCertificate, BadRequest> {
        let mut changed = to.clone();
        let put = |into: &mut String, from: &Option<String>| {
            if let Some(text) = from {
                into.clone_from(text);
            }
        };
        put(&mut changed.name, &self.name);
        put(&mut changed.profile, &self.profile);
        put(&mut changed.issuer, &self.issuer);
        for (into, from) in [
            (&mut changed.owner, &self.owner),
            (&mut changed.team, &self.team),
            (&mut changed.environment, &self.environment),
            (&mut changed.policy, &self.policy),
        ] {
            if let Some(text) = from {
                into.clone_from(text);
            }
        }
        if let Some(names) = &self.names {
            changed.names = parse_names(names)?;
        }
        if let Some(tags) = &self.tags {
            changed.tags.clone_from(tags);
        }
        if let Some(targets) = &self.targets {
            changed.targets.clone_from(targets);
        }
        if let Some(options) = &self.options {
            changed.options.clone_from(options);
        }
        changed.key_location = self.key_location.unwrap_or(changed.key_location);
        changed.key_type = self.key_type.unwrap_or(changed.key_type);
        changed.updated_at_us = now_us;
        changed.check()?;
        Ok(changed)
    }
}

/// Returns whether the current value of a field differs from both the read value and the requested value. Returns false if no value
/// is requested.
fn differs<T: PartialEq>(to: Option<&T>, read: &T, now: &T) -> bool {
    to.is_some_and(|to| read != now && to != now)
}

/// Returns the requested value of an option if it differs from the read value. A request always contains all options, including
/// unchanged options.
fn set<'a, T: PartialEq>(to: &'a T, read: &T) -> Option<&'a T> {
    (to != read).then_some(to)
}

fn options_differ(to: &Options, read: &Options, now: &Options) -> bool {
    let Options { auto_renew, renewal, lifetime_seconds, subject, must_staple, issuer_profile, notes } = to;
    differs(set(auto_renew, &read.auto_renew), &read.auto_renew, &now.auto_renew)
        || differs(set(renewal, &read.renewal), &read.renewal, &now.renewal)
        || differs(
            set(lifetime_seconds, &read.lifetime_seconds),
            &read.lifetime_seconds,
            &now.lifetime_seconds,
        )
        || differs(set(subject, &read.subject), &read.subject, &now.subject)
        || differs(set(must_staple, &read.must_staple), &read.must_staple, &now.must_staple)
        || differs(set(issuer_profile, &read.issuer_profile), &read.issuer_profile, &now.issuer_profile)
        || differs(set(notes, &read.notes), &read.notes, &now.notes)
}

fn parse_names(texts: &[String]) -> Result<Vec<GeneralName>, BadRequest> {
    if texts.is_empty() {
        return Err(BadRequest::NoNames);
    }
    if texts.len() > NAMES_MAX {
        return Err(BadRequest::TooManyNames);
    }
    let mut seen = BTreeSet::new();
    let mut names = Vec::with_capacity(texts.len());
    for text in texts {
        let name = GeneralName::parse(text)?;
        if seen.insert(name.to_string()) {
            names.push(name);
        }
    }
    Ok(names)
}

pub(crate) fn check_label(field: &'static str, text: &str) -> Result<(), BadRequest> {
    if inventory::ownership::is_label(text) { Ok(()) } else { Err(BadRequest::Label { field }) }
}

impl ManagedCertificate {
    /// Returns the settings that people change, as JSON. State, versions and times are not part of them.
    #[must_use]
    pub fn settings(&self) -> serde_json::Value {
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        serde_json::json!({
            "name": self.name,
            "names": names,
            "profile": self.profile,
            "issuer": self.issuer,
            "owner": self.owner,
            "team": self.team,
            "tags": self.tags,
            "environment": self.environment,
            "policy": self.policy,
            "key_location": self.key_location,
            "key_type": self.key_type,
            "targets": self.targets,
            "options": self.options,
        })
    }

    fn check(&self) -> Result<(), BadRequest> {
        check_label("the name", &self.name)?;
        check_label("the profile", &self.profile)?;
        check_label("the issuer", &self.issuer)?;
        for (field, text) in [
            ("the owner", &self.owner),
            ("the team", &self.team),
            ("the environment", &self.environment),
            ("the policy", &self.policy),
            ("the issuer's profile", &self.options.issuer_profile),
        ] {
            if let Some(text) = text {
                check_label(field, text)?;
            }
        }
        if self.tags.len() > TAGS_MAX {
            return Err(BadRequest::TooManyTags);
        }
        for (tag, value) in &self.tags {
            check_label("a tag", tag)?;
            check_label("a tag's value", value)?;
        }
        self.check_targets()?;
        let notes = &self.options.notes;
        if notes.len() > NOTES_BYTES_MAX || notes.contains('\0') {
            return Err(BadRequest::Notes);
        }
        if let Some(subject) = &self.options.subject {
            DistinguishedName::from_text(subject).map_err(|error| BadRequest::Subject(error.to_string()))?;
        }
        if self.options.lifetime_seconds.is_some_and(|seconds| seconds < LIFETIME_SECONDS_MIN) {
            return Err(BadRequest::Lifetime);
        }
        if let Some(rule) = &self.options.renewal {
            rule.check()?;
        }
        Ok(())
    }

    fn check_targets(&self) -> Result<(), BadRequest> {
        if self.targets.len() > TARGETS_MAX {
            return Err(BadRequest::TooManyTargets);
        }
        let mut seen = BTreeSet::new();
        for target in &self.targets {
            match target {
                TargetRef::Deploy { target, .. } => {
                    if !seen.insert(*target) {
                        return Err(BadRequest::TargetTwice);
                    }
                }
                TargetRef::Endpoint { host, protocol, server_name, .. } => {
                    check_label("an endpoint's host", host)?;
                    check_label("an endpoint's protocol", protocol)?;
                    if !server_name.is_empty() {
                        check_label("an endpoint's server name", server_name)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(names: &[&str]) -> NewCertificate {
        NewCertificate::new(names, "web")
    }

    fn check(request: &NewCertificate) -> Result<ManagedCertificate, BadRequest> {
        request.check(Uuid::nil(), 5)
    }

    #[test]
    fn duplicate_names_are_merged_and_the_first_names_the_certificate() {
        let certificate = check(&new(&["WWW.Example.org", "10.0.0.1", "www.example.org"])).unwrap();
        assert_eq!(certificate.name, "www.example.org");
        let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["www.example.org", "10.0.0.1"]);
        assert_eq!(certificate.issuer, INTERNAL_ISSUER);
    }

    #[test]
    fn change_conflicts_only_with_concurrent_changes_of_the_same_fields() {
        let read = check(&new(&["a.example"])).unwrap();
        let tags = |value: &str| BTreeMap::from([("tier".to_owned(), value.to_owned())]);
        let options = |notes: &str| {
            let mut options = read.options.clone();
            options.notes = notes.to_owned();
            options
        };
        let change = CertificateChange {
            tags: Some(tags("one")),
            owner: Some(Some("ann".to_owned())),
            options: Some(read.options.clone()),
            ..CertificateChange::default()
        };
        let now = |made: &dyn Fn(&mut ManagedCertificate)| {
            let mut now = read.clone();
            now.revision += 1;
            made(&mut now);
            now
        };
        // No conflict: changes by the lifecycle, changes of other fields, and the same new value.
        assert!(!change.conflicts(&read, &now(&|_| ())));
        assert!(!change.conflicts(&read, &now(&|now| now.environment = Some("prod".to_owned()))));
        assert!(!change.conflicts(&read, &now(&|now| now.options = options("by another"))));
        assert!(!change.conflicts(&read, &now(&|now| now.tags = tags("one"))));
        assert!(change.conflicts(&read, &now(&|now| now.tags = tags("two"))));
        let same = CertificateChange { tags: Some(read.tags.clone()), ..CertificateChange::default() };
        assert!(same.conflicts(&read, &now(&|now| now.tags = tags("two"))));
        assert!(change.conflicts(&read, &now(&|now| now.owner = Some("bob".to_owned()))));
        let noted = CertificateChange { options: Some(options("mine")), ..CertificateChange::default() };
        assert!(noted.conflicts(&read, &now(&|now| now.options = options("by another"))));
        assert!(!noted.conflicts(&read, &now(&|now| now.options.auto_renew = false)));
        let renamed =
            CertificateChange { names: Some(vec!["b.example".to_owned()]), ..CertificateChange::default() };
        let other = check(&new(&["c.example"])).unwrap();
        assert!(renamed.conflicts(&read, &now(&|now| now.names = other.names.clone())));
    }

    #[test]
    fn invalid_certificate_requests_are_rejected() {
        let with = |change: fn(&mut NewCertificate)| {
            let mut request = new(&["a.example"]);
            change(&mut request);
            check(&request).unwrap_err()
        };
        assert_eq!(check(&new(&[])).unwrap_err(), BadRequest::NoNames);
        assert!(matches!(check(&new(&["not a name"])).unwrap_err(), BadRequest::Name(_)));
        assert_eq!(with(|r| r.names = vec!["a.example".to_owned(); 101]), BadRequest::TooManyNames);
        assert_eq!(with(|r| r.owner = Some(" ".to_owned())), BadRequest::Label { field: "the owner" });
        assert_eq!(with(|r| r.name = Some("a\nb".to_owned())), BadRequest::Label { field: "the name" });
        assert_eq!(with(|r| r.options.notes = "x".repeat(8_193)), BadRequest::Notes);
        assert_eq!(with(|r| r.options.lifetime_seconds = Some(0)), BadRequest::Lifetime);
        assert!(matches!(with(|r| r.options.subject = Some("nonsense".to_owned())), BadRequest::Subject(_)));
        let twice = TargetRef::Deploy { target: Uuid::nil(), agent: Uuid::nil() };
        let mut request = new(&["a.example"]);
        request.targets = vec![twice.clone(), twice];
        assert_eq!(check(&request).unwrap_err(), BadRequest::TargetTwice);
    }

    #[test]
    fn change_updates_only_its_own_fields() {
        let before = check(&new(&["a.example"])).unwrap();
        let change = CertificateChange {
            owner: Some(Some("ann".to_owned())),
            names: Some(vec!["b.example".to_owned()]),
            ..CertificateChange::default()
        };
        let after = change.apply(&before, 9).unwrap();
        assert_eq!(after.owner.as_deref(), Some("ann"));
        assert_eq!(after.names, [GeneralName::parse("b.example").unwrap()]);
        assert_eq!((after.name.as_str(), after.updated_at_us), ("a.example", 9));
        let none = CertificateChange { owner: Some(None), ..CertificateChange::default() };
        assert_eq!(none.apply(&after, 9).unwrap().owner, None);
    }
}
