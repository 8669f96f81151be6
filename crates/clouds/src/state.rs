//! State of a source at its last listing. Pure: no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scan::observation::Use;
use scan::target::CloudStore;
use serde::{Deserialize, Serialize};
use x509::Fingerprint;

use crate::certificate::CloudResource;
use crate::tags::Tags;

/// Version of the stored format. A state with another version is ignored, which costs one full listing.
const FORMAT_VERSION: u32 = 1;

/// State of a source at its last listing: opaque to the code that stores it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    pub(super) known: BTreeMap<CloudResource, KnownCertificate>,
}

/// State of a certificate at the last listing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KnownCertificate {
    /// Part of the source that listed the certificate: a region, a vault.
    pub part: String,
    /// A marker that changes with the certificate.
    pub marker: String,
    /// Fingerprints of the chain, leaf first; empty if there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Fingerprint>,
    /// Resources that used the certificate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<Use>,
    /// Tags of the certificate; `None` if they have not been read, or could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

#[derive(Deserialize, Serialize)]
struct StoredState {
    form: u32,
    known: BTreeMap<String, BTreeMap<Arc<str>, KnownCertificate>>,
}

/// A stored state cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("the stored state of the source cannot be parsed")]
pub struct StateError(#[source] serde_json::Error);

impl State {
    /// Parses the output of [`State::to_text`]. A state with another format version is treated as empty: the source is then listed
    /// in full once.
    ///
    /// # Errors
    /// [`StateError`] for invalid text.
    pub fn from_text(text: &str) -> Result<Self, StateError> {
        let stored: StoredState = serde_json::from_str(text).map_err(StateError)?;
        if stored.form != FORMAT_VERSION {
            return Ok(Self::default());
        }
        let mut known = BTreeMap::new();
        for (store, resources) in stored.known {
            let Ok(store) = store.parse::<CloudStore>() else { continue };
            known.extend(
                resources.into_iter().map(|(name, certificate)| (CloudResource { store, name }, certificate)),
            );
        }
        Ok(Self { known })
    }

    /// Serializes the state, about 250 bytes per certificate plus its tags.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut known: BTreeMap<String, BTreeMap<Arc<str>, KnownCertificate>> = BTreeMap::new();
        for (resource, certificate) in &self.known {
            let store = known.entry(resource.store.name().to_owned()).or_default();
            store.insert(resource.name.clone(), certificate.clone());
        }
        serde_json::to_string(&StoredState { form: FORMAT_VERSION, known }).unwrap_or_default()
    }

    /// Returns the last known state of a resource.
    #[must_use]
    pub fn get(&self, resource: &CloudResource) -> Option<&KnownCertificate> {
        self.known.get(resource)
    }

    /// Returns the number of certificates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns whether the state has no certificates.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Removes a resource, so that its certificate is read again.
    pub fn forget(&mut self, resource: &CloudResource) {
        self.known.remove(resource);
    }

    /// Returns the state after a listing that found `seen`, and the resources that are gone.
    ///
    /// A resource is gone if its part was listed completely and did not contain the resource. A resource is also gone if the source
    /// was listed completely (`complete`) and the resource's part no longer exists. Resources that could not be listed keep their
    /// previous state.
    pub(super) fn after(
        &self,
        seen: BTreeMap<CloudResource, KnownCertificate>,
        listed: &BTreeSet<String>,
        failed: &BTreeSet<String>,
        complete: bool,
    ) -> (Self, Vec<CloudResource>) {
        let (mut known, mut removed) = (seen, Vec::new());
        for (resource, before) in &self.known {
            if known.contains_key(resource) {
                continue;
            }
            let part = &before.part;
            let no_more =
                listed.contains(part) && !failed.contains(part) || complete && !failed.contains(part);
            if no_more {
                removed.push(resource.clone());
            } else {
                known.insert(resource.clone(), before.clone());
            }
        }
        (Self { known }, removed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resource(name: &str) -> CloudResource {
        CloudResource { store: CloudStore::AwsAcm, name: name.into() }
    }

    fn known(part: &str, marker: &str) -> KnownCertificate {
        let used_by = vec![Use { by: "lb".into(), hosts: vec!["a.example".into()] }];
        let chain = vec![Fingerprint::of(marker.as_bytes())];
        let tags = (marker != "1").then(|| [("team".to_owned(), marker.to_owned())].into());
        KnownCertificate { part: part.into(), marker: marker.into(), chain, used_by, tags }
    }

    fn parts(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn certificates_are_removed_only_if_their_part_was_fully_listed() {
        let before = State {
            known: [(resource("a"), known("east", "1")), (resource("b"), known("west", "1"))].into(),
        };
        // Parts listed completely, parts failed, source listed completely → gone.
        for (listed, failed, complete, removed) in [
            (&["east", "west"][..], &[][..], true, &["a", "b"][..]),
            (&["east"], &["west"], true, &["a"]),
            (&["east"], &[], false, &["a"]),
            (&[], &[], false, &[]),
            (&[], &["east", "west"], true, &[]),
            // A disabled region, or a deleted vault.
            (&[], &[], true, &["a", "b"]),
            // A part reported both as listed and as failed counts as failed.
            (&["east"], &["east", "west"], true, &[]),
        ] {
            let (after, found) = before.after(BTreeMap::new(), &parts(listed), &parts(failed), complete);
            let expected: Vec<CloudResource> = removed.iter().map(|name| resource(name)).collect();
            assert_eq!(found, expected, "{listed:?} {failed:?} {complete}");
            assert_eq!(after.len() + found.len(), 2);
        }
    }

    #[test]
    fn seen_certificates_replace_known_ones() {
        let before = State { known: [(resource("a"), known("east", "1"))].into() };
        let seen = BTreeMap::from([(resource("a"), known("east", "2")), (resource("c"), known("east", "1"))]);
        let (after, removed) = before.after(seen, &parts(&["east"]), &parts(&[]), true);
        assert_eq!((after.len(), removed.len()), (2, 0));
        assert_eq!(after.get(&resource("a")).map(|known| known.marker.as_str()), Some("2"));
    }

    #[test]
    fn unknown_state_format_is_empty_and_invalid_text_is_an_error() {
        assert!(State::from_text(r#"{"form":2,"known":{}}"#).unwrap().is_empty());
        assert!(State::from_text(r#"{"form":1,"known":{"elsewhere":{}}}"#).unwrap().is_empty());
        assert!(State::from_text("nonsense").is_err());
        // Written before tags existed: they are read once.
        let old = r#"{"form":1,"known":{"aws-acm":{"a":{"part":"east","marker":"1"}}}}"#;
        assert_eq!(State::from_text(old).unwrap().get(&resource("a")).unwrap().tags, None);
    }

    proptest! {
        #[test]
        fn state_round_trips_through_text(names in proptest::collection::btree_map(".{1,40}", (".{0,20}", ".{0,20}"), 0..20)) {
            let known = names.iter().map(|(name, (part, marker))| (resource(name), known(part, marker))).collect();
            let state = State { known };
            prop_assert_eq!(State::from_text(&state.to_text()).unwrap(), state);
        }
    }
}
