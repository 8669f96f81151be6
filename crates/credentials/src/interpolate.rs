//! Bindings of services, with references to credentials replaced by what they refer to.

use serde_json::Value as Json;

use crate::tables::CredentialAsker;
use crate::{CredentialError, Credentials, Name, Value};

/// References of one request, at most.
pub const REFERENCES_MAX: usize = 1_000;

const REFERENCE: [&str; 2] = ["credhub-ref", "credhub_ref"];

impl Credentials {
    /// Replaces the `credentials` of every binding that hold a `credhub-ref` by the credential it names. All references
    /// are one statement.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when one is not there; [`CredentialError::Bad`] when one is not of type `json`.
    #[crate::boxed]
    pub async fn interpolate(
        &self,
        asker: &CredentialAsker,
        mut services: Json,
    ) -> Result<Json, CredentialError> {
        let mut references = Vec::new();
        for binding in bindings(&mut services) {
            if let Some(name) = reference(binding) {
                references.push(Name::parse(&name)?);
            }
        }
        if references.len() > REFERENCES_MAX {
            return Err(CredentialError::bad(format!("A request has at most {REFERENCES_MAX} references.")));
        }
        let mut found = self.lookup(asker, &references).await?.into_iter().zip(references);
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

/// The name a binding refers to, without the double brackets it may stand in.
fn reference(binding: &Json) -> Option<String> {
    let credentials = binding.get("credentials")?;
    let name = REFERENCE.iter().find_map(|key| credentials.get(key))?.as_str()?;
    let inner = name.strip_prefix("((").and_then(|name| name.strip_suffix("))"));
    Some(inner.unwrap_or(name).to_owned())
}
