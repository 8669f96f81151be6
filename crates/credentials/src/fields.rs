//! Access to credentials by version number, with each value as a set of fields, for key-value clients.
//!
//! The members of a JSON object are its fields. A text or password has one field, named after its type. All other types have the
//! fields of their value. Derived fields, such as a password's hash or a key's fingerprint, are returned but not accepted.

use futures_util::FutureExt;
use indexmap::IndexMap;
use keys::SecretJson;
use serde_json::{Map, Value as Json, json};

use crate::tables;
use crate::tables::{Requester, lock_credential_metadata, set_credential_metadata};
use crate::value::readable;
use crate::writing::checked_metadata;
use crate::{
    CaVersions, CredentialError, Credentials, Kind, Name, Operation, SetRequest, Value, Version, VersionView,
};

/// Maximum attempts of a patch that conflicts with another writer.
const ATTEMPTS: usize = 3;

/// The result of a request for a version by its number.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbered {
    /// The version exists and was decrypted.
    Readable(Box<Version>),
    /// The version expired or was deleted, and can be restored.
    Ended(VersionView),
    /// The version was destroyed. Contains its number.
    Destroyed(u64),
}

impl Value {
    /// Returns the value as a JSON object of fields. `versions` selects the CA versions in a certificate's `ca` field.
    ///
    /// # Errors
    /// [`CredentialError::Internal`] if the value cannot be read as JSON.
    pub fn fields(&self, versions: CaVersions) -> Result<SecretJson, CredentialError> {
        let response = self.response(versions);
        if !response.is_object() {
            let name = if self.kind() == Kind::Password { "password" } else { "value" };
            return to_object(&Members::from_iter([(name.to_owned(), response)]));
        }
        if matches!(self, Self::Json(_)) {
            return Ok(response);
        }
        let mut fields = members(&response)?;
        fields.retain(|_, value| !value.is_null());
        to_object(&fields)
    }
}

/// The members of a JSON object in their order. Their values are kept byte for byte.
type Members = IndexMap<String, SecretJson>;

fn members(object: &SecretJson) -> Result<Members, CredentialError> {
    object.parse().map_err(internal)
}

fn to_object(members: &Members) -> Result<SecretJson, CredentialError> {
    SecretJson::of(members).map_err(internal)
}

fn internal(error: serde_json::Error) -> CredentialError {
    CredentialError::Internal(error.to_string())
}

/// Returns the fields of a type that can be written, and its derived fields.
fn fields_of(kind: Kind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        Kind::Json => (&[], &[]),
        Kind::Value => (&["value"], &[]),
        Kind::Password => (&["password"], &[]),
        Kind::User => (&["username", "password"], &["password_hash"]),
        Kind::Certificate => (&["ca", "ca_name", "certificate", "private_key"], &[]),
        Kind::Rsa => (&["public_key", "private_key"], &[]),
        Kind::Ssh => (&["public_key", "private_key"], &["public_key_fingerprint"]),
    }
}

/// Converts a JSON object of fields to the JSON value that sets this type.
fn value_of(kind: Kind, fields: SecretJson) -> Result<SecretJson, CredentialError> {
    let parsed = readable(&fields)?;
    if kind == Kind::Json {
        return Ok(fields);
    }
    let mut fields = match parsed {
        Json::Object(fields) => fields,
        _ => Map::new(),
    };
    let (known, made) = fields_of(kind);
    fields.retain(|name, value| !made.contains(&name.as_str()) && !value.is_null());
    let fits = |(name, value): (&String, &Json)| known.contains(&name.as_str()) && value.is_string();
    if fields.is_empty() || !fields.iter().all(fits) {
        return Err(CredentialError::bad(format!(
            "The existing credential has the type {kind}. hint: its fields are {}, each a string; to store other fields, \
             delete the credential first",
            known.join(", ")
        )));
    }
    let value: Json = match kind {
        Kind::Value | Kind::Password => fields.remove(known[0]).unwrap_or_default(),
        _ => fields.into(),
    };
    Ok(value.into())
}

/// Applies a merge patch (RFC 7396): `null` removes a field, an object is merged, any other value replaces the field.
///
/// A replaced member keeps its position. The caller has checked the depth of the patch.
fn merge(target: &mut Members, patch: Members) -> Result<(), CredentialError> {
    for (name, value) in patch {
        if value.is_null() {
            target.shift_remove(&name);
        } else if value.is_object() {
            let existing = target.get(&name).filter(|existing| existing.is_object());
            let mut merged = existing.map(members).transpose()?.unwrap_or_default();
            merge(&mut merged, members(&value)?)?;
            target.insert(name, to_object(&merged)?);
        } else {
            target.insert(name, value);
        }
    }
    Ok(())
}

impl Credentials {
    /// Returns a version by its number. Without a number: the newest version ever stored, or the active version of a CA that is
    /// being replaced. Uses one statement.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when the name or number never existed, or the caller is not permitted to read it;
    /// [`CredentialError::Sealed`].
    #[crate::boxed]
    pub async fn numbered(
        &self,
        requester: &Requester,
        name: &Name,
        number: Option<u64>,
    ) -> Result<Numbered, CredentialError> {
        let (found, _) = self.find_numbered(requester, name, number).await?;
        if let Numbered::Readable(version) = &found {
            self.log_reading(requester, std::slice::from_ref(version)).await?;
        }
        Ok(found)
    }

    /// Returns the result of [`Self::numbered`], and the number of the newest version. Writes no audit record.
    async fn find_numbered(
        &self,
        requester: &Requester,
        name: &Name,
        number: Option<u64>,
    ) -> Result<(Numbered, u64), CredentialError> {
        let found = tables::Credentials::of(self.store()).numbered(requester, name.key(), number).await?;
        let found = found.ok_or(CredentialError::NotFound)?;
        let last = found.last_number;
        let found = match found.version {
            None if number.is_some_and(|number| number > last) => return Err(CredentialError::NotFound),
            None => Numbered::Destroyed(number.unwrap_or(last)),
            Some(row) if row.ends_at_us.is_some_and(|at| at <= self.now_us()) => {
                Numbered::Ended(VersionView::from(&row))
            }
            Some(row) => Numbered::Readable(Box::new(self.open_row(row)?)),
        };
        Ok((found, last))
    }

    /// Stores a new version with these fields, and with the type and metadata of the newest version. A new name becomes a JSON
    /// credential.
    ///
    /// # Errors
    /// See [`Self::set`]; [`CredentialError::Bad`] when the fields do not fit the type.
    #[crate::boxed]
    pub async fn set_fields(
        &self,
        requester: &Requester,
        name: Name,
        fields: SecretJson,
        expected_number: Option<u64>,
    ) -> Result<Version, CredentialError> {
        let existing = tables::Credentials::of(self.store())
            .numbered(&requester.with_full_access(), name.key(), None)
            .await?;
        let kind = existing.as_ref().map_or(Kind::Json, |existing| existing.kind);
        let value = match value_of(kind, fields) {
            Ok(value) => value,
            // A caller without write permission must not learn the type.
            Err(_) if !self.may(requester, &name, Operation::Write).await? => {
                return Err(CredentialError::Forbidden);
            }
            Err(error) => return Err(error),
        };
        let old_metadata =
            existing.and_then(|existing| existing.version).and_then(|version| version.metadata);
        let metadata = old_metadata.and_then(|text| serde_json::from_str(&text).ok());
        let request = SetRequest { metadata, expected_number, ..SetRequest::new(name, kind, value) };
        self.set(requester, request).await
    }

    /// Stores a new version, made by applying a patch (RFC 7396) to the newest version. Does not overwrite concurrent changes.
    ///
    /// # Errors
    /// See [`Self::set_fields`]; [`CredentialError::NotFound`] when the credential does not exist, or the caller is not permitted
    /// to read it.
    #[crate::boxed]
    pub async fn patch_fields(
        &self,
        requester: &Requester,
        name: &Name,
        patch: &SecretJson,
        expected_number: Option<u64>,
    ) -> Result<Version, CredentialError> {
        readable(patch)?;
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let (Numbered::Readable(version), last) = self.find_numbered(requester, name, None).await? else {
                return Err(CredentialError::NotFound);
            };
            let mut fields = members(&version.value.fields(CaVersions::Signer)?)?;
            merge(&mut fields, members(patch)?)?;
            let expected = expected_number.unwrap_or(last);
            match self.set_fields(requester, name.clone(), to_object(&fields)?, Some(expected)).await {
                Err(CredentialError::Changed) if expected_number.is_none() && left > 0 => {}
                other => return other,
            }
        }
    }

    /// Replaces the metadata of a name's newest version.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when the name does not exist or the caller is not permitted to write there;
    /// [`CredentialError::Bad`] for metadata that [`Self::set`] would reject.
    #[crate::boxed]
    pub async fn set_metadata(
        &self,
        requester: &Requester,
        name: &Name,
        metadata: Option<Json>,
    ) -> Result<(), CredentialError> {
        let metadata = checked_metadata(metadata)?;
        self.change_metadata(requester, name, move |_| Ok(metadata)).await
    }

    /// Applies a merge patch (RFC 7396) to the metadata of a name's newest version. Does not overwrite concurrent changes.
    ///
    /// # Errors
    /// See [`Self::set_metadata`].
    #[crate::boxed]
    pub async fn patch_metadata(
        &self,
        requester: &Requester,
        name: &Name,
        patch: Map<String, Json>,
    ) -> Result<(), CredentialError> {
        let patched = move |old_metadata: Option<Json>| {
            let all = old_metadata.filter(Json::is_object).unwrap_or_else(|| Map::new().into());
            let mut all = members(&all.into())?;
            merge(&mut all, members(&Json::Object(patch).into())?)?;
            let merged = (!all.is_empty()).then(|| to_object(&all)?.parse().map_err(internal));
            checked_metadata(merged.transpose()?)
        };
        self.change_metadata(requester, name, patched).await
    }

    /// Applies `change` to the metadata, with the row locked.
    async fn change_metadata(
        &self,
        requester: &Requester,
        name: &Name,
        change: impl FnOnce(Option<Json>) -> Result<Option<Json>, CredentialError> + Send + 'static,
    ) -> Result<(), CredentialError> {
        let event = self.event(requester, "credential.metadata", name.as_str(), json!({}));
        let outbox_event = self.changed(requester, name, event.at_us);
        let (key, requester) = (name.key().to_owned(), requester.clone());
        let changed = self.store().write_indexed("credential_metadata", move |tx| {
            async move {
                let Some((version, old_metadata)) = lock_credential_metadata(tx, &requester, &key).await?
                else {
                    return Ok(Err(CredentialError::NotFound));
                };
                let old_metadata = old_metadata.and_then(|text| serde_json::from_str(&text).ok());
                let text = match change(old_metadata) {
                    Ok(metadata) => metadata.map(|metadata| metadata.to_string()),
                    Err(error) => return Ok(Err(error)),
                };
                set_credential_metadata(tx, version, text.as_deref()).await?;
                store::audit(tx, vec![event]).await?;
                store::emit(tx, vec![outbox_event]).await?;
                Ok(Ok(()))
            }
            .boxed()
        });
        changed.await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_patches_are_merged_per_rfc_7396() {
        // The examples of RFC 7396 appendix A in which both values are objects.
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = members(&target.into()).unwrap();
            merge(&mut merged, members(&patch.into()).unwrap()).unwrap();
            assert_eq!(to_object(&merged).unwrap().parse::<Json>().unwrap(), result);
        }
    }

    #[test]
    fn fields_not_matching_the_type_are_rejected_with_a_hint() {
        let user = json!({ "username": "u", "password": "p", "password_hash": "made" });
        assert_eq!(
            value_of(Kind::User, user.into()).unwrap(),
            json!({ "username": "u", "password": "p" }).into(),
            "as it is shown, so that an old version can be written again"
        );
        assert_eq!(value_of(Kind::Password, json!({ "password": "p" }).into()).unwrap(), json!("p").into());
        assert_eq!(value_of(Kind::Json, json!({ "a": 1 }).into()).unwrap(), json!({ "a": 1 }).into());
        for (kind, fields) in [
            (Kind::Password, json!({ "value": "p" })),
            (Kind::Password, json!({ "password": "p", "more": "x" })),
            (Kind::Value, json!({})),
            (Kind::User, json!({ "password": { "a": 1 } })),
            (Kind::Rsa, json!({ "public_key": 1 })),
        ] {
            let error = value_of(kind, fields.clone().into()).unwrap_err().to_string();
            assert!(error.contains(fields_of(kind).0[0]) && error.contains("hint:"), "{fields}: {error}");
        }
    }
}
