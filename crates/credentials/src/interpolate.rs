//! Interpolation of service bindings: replaces references to credentials with their values.

use serde_json::Value as Json;

use crate::tables::Requester;
use crate::{CredentialError, Credentials, Name, Value};

/// Maximum references in one request.
pub const REFERENCES_MAX: usize = 1_000;

const REFERENCE: [&str; 2] = ["credhub-ref", "credhub_ref"];

impl Credentials {
    /// Replaces the `credentials` of every binding by the credential that its `credhub-ref` names. Looks up all references in one
    /// statement.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when a credential does not exist; [`CredentialError::Bad`] when a credential is not of type
    /// `json`.
    #[crate::boxed]
    pub async fn interpolate(
        &self,
        requester: &Requester,
        mut services: Json,
    ) -> Result<Json, CredentialError> {
        let mut references = Vec::new();
        for binding in bindings(&mut services) {
            if let Some(name) = reference(binding) {
                references.push(Name::parse(&name)?);
            }
        }
        if references.len() > REFERENCES_MAX {
            return Err(CredentialError::bad(format!(
                "A request can have at most {REFERENCES_MAX} references."
            )));
        }
        let mut found = self.lookup(requester, &references).await?.into_iter().zip(references);
        for binding in bindings(&mut services) {
            if reference(binding).is_none() {
                continue;
            }
            let Some((found, name)) = found.next() else { break };
            let version = found.ok_or(CredentialError::NotFound)??;
            let Value::Json(value) = version.value else {
                return Err(CredentialError::bad(format!(
                    "The credential '{name}' is not the expected type. A credhub-ref credential must be of type 'JSON'."
                )));
            };
            binding["credentials"] = value;
        }
        Ok(services)
    }
}

fn bindings(services: &mut Json) -> impl Iterator<Item = &mut Json> {
    let all = services.as_object_mut().into_iter().flat_map(|services| services.values_mut());
    all.filter_map(Json::as_array_mut).flatten().filter(|binding| binding.is_object())
}

/// Returns the name that a binding refers to, without optional double parentheses around it.
fn reference(binding: &Json) -> Option<String> {
    let credentials = binding.get("credentials")?;
    let name = REFERENCE.iter().find_map(|key| credentials.get(key))?.as_str()?;
    let inner = name.strip_prefix("((").and_then(|name| name.strip_suffix("))"));
    Some(inner.unwrap_or(name).to_owned())
}
