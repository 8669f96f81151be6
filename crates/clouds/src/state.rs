//! What a source showed when it was last listed. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scan::observation::Use;
use scan::target::CloudStore;
use serde::{Deserialize, Serialize};
use x509::Fingerprint;

use crate::certificate::CloudResource;
use crate::tags::Tags;

/// The form of stored states; another one is not read, which costs one full listing.
const FORM: u32 = 1;

/// State of a source at its last listing: opaque to the code that stores it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    pub(super) known: BTreeMap<CloudResource, KnownCertificate>,
}

/// A certificate as it was when it was last listed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KnownCertificate {
    /// The part of the source that listed it: a region, a vault.
    pub part: String,
    /// A marker that changes with the certificate.
    pub marker: String,
    /// Its chain, leaf first; empty when there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Fingerprint>,
    /// Resources that used it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<Use>,
    /// Its tags; `None` when they could not be read, or were not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

#[derive(Deserialize, Serialize)]
struct StoredState {
    form: u32,
    known: BTreeMap<String, BTreeMap<Arc<str>, KnownCertificate>>,
}

/// A stored state that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the state of the source is not one of ours")]
pub struct StateError(#[source] serde_json::Error);

impl State {
    /// Reads what [`State::to_text`] wrote. A state of another form is empty: the source is listed in full once.
    ///
    /// # Errors
    /// [`StateError`] for text that is no state.
    pub fn from_text(text: &str) -> Result<Self, StateError> {
        let stored: StoredState = serde_json::from_str(text).map_err(StateError)?;
        if stored.form != FORM {
            return Ok(Self::default());
        }
        let mut known = BTreeMap::new();
        for (store, places) in stored.known {
            let Ok(store) = store.parse::<CloudStore>() else { continue };
            known.extend(
                places.into_iter().map(|(name, certificate)| (CloudResource { store, name }, certificate)),
            );
        }
        Ok(Self { known })
    }

    /// The state as text, some 250 bytes a certificate and its tags.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut known: BTreeMap<String, BTreeMap<Arc<str>, KnownCertificate>> = BTreeMap::new();
        for (place, certificate) in &self.known {
            let store = known.entry(place.store.name().to_owned()).or_default();
            store.insert(place.name.clone(), certificate.clone());
        }
        serde_json::to_string(&StoredState { form: FORM, known }).unwrap_or_default()
    }

    /// The last known state of a resource.
    #[must_use]
    pub fn get(&self, place: &CloudResource) -> Option<&KnownCertificate> {
        self.known.get(place)
    }

    /// How many certificates were listed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing was listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Forgets a place, so that its certificate is read again.
    pub fn forget(&mut self, place: &CloudResource) {
        self.known.remove(place);
    }

    /// The state after a listing that showed `seen`, and the places that are gone.
    ///
    /// A place is gone when the part that listed it before was listed whole and did not show it, or when the source
    /// was (`whole`) and that part is no more. What could not be listed is taken to be as it was.
    pub(super) fn after(
        &self,
        seen: BTreeMap<CloudResource, KnownCertificate>,
        listed: &BTreeSet<String>,
        failed: &BTreeSet<String>,
        whole: bool,
    ) -> (Self, Vec<CloudResource>) {
        let (mut known, mut gone) = (seen, Vec::new());
        for (place, before) in &self.known {
            if known.contains_key(place) {
                continue;
            }
            let part = &before.part;
            let no_more = listed.contains(part) && !failed.contains(part) || whole && !failed.contains(part);
            if no_more {
                gone.push(place.clone());
            } else {
                known.insert(place.clone(), before.clone());
            }
        }
        (Self { known }, gone)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(name: &str) -> CloudResource {
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
    fn only_what_was_really_listed_can_be_gone() {
        let before =
            State { known: [(place("a"), known("east", "1")), (place("b"), known("west", "1"))].into() };
        // Listed whole, failed, source whole → gone.
        for (listed, failed, whole, gone) in [
            (&["east", "west"][..], &[][..], true, &["a", "b"][..]),
            (&["east"], &["west"], true, &["a"]),
            (&["east"], &[], false, &["a"]),
            (&[], &[], false, &[]),
            (&[], &["east", "west"], true, &[]),
            // A region that was switched off, a vault that was deleted.
            (&[], &[], true, &["a", "b"]),
            // A part told as listed and as failed is not trusted.
            (&["east"], &["east", "west"], true, &[]),
        ] {
            let (after, found) = before.after(BTreeMap::new(), &parts(listed), &parts(failed), whole);
            let expected: Vec<CloudResource> = gone.iter().map(|name| place(name)).collect();
            assert_eq!(found, expected, "{listed:?} {failed:?} {whole}");
            assert_eq!(after.len() + found.len(), 2);
        }
    }

    #[test]
    fn what_is_seen_takes_the_place_of_what_was() {
        let before = State { known: [(place("a"), known("east", "1"))].into() };
        let seen = BTreeMap::from([(place("a"), known("east", "2")), (place("c"), known("east", "1"))]);
        let (after, gone) = before.after(seen, &parts(&["east"]), &parts(&[]), true);
        assert_eq!((after.len(), gone.len()), (2, 0));
        assert_eq!(after.get(&place("a")).map(|known| known.marker.as_str()), Some("2"));
    }

    #[test]
    fn a_state_of_another_form_is_empty_and_other_text_an_error() {
        assert!(State::from_text(r#"{"form":2,"known":{}}"#).unwrap().is_empty());
        assert!(State::from_text(r#"{"form":1,"known":{"elsewhere":{}}}"#).unwrap().is_empty());
        assert!(State::from_text("nonsense").is_err());
        // As written before there were tags: they are read once.
        let old = r#"{"form":1,"known":{"aws-acm":{"a":{"part":"east","marker":"1"}}}}"#;
        assert_eq!(State::from_text(old).unwrap().get(&place("a")).unwrap().tags, None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(names in proptest::collection::btree_map(".{1,40}", (".{0,20}", ".{0,20}"), 0..20)) {
            let known = names.iter().map(|(name, (part, marker))| (place(name), known(part, marker))).collect();
            let state = State { known };
            prop_assert_eq!(State::from_text(&state.to_text()).unwrap(), state);
        }
    }
}
