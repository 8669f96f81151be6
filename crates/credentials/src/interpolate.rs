//! Interpolation of service bindings: replaces references to credentials with their values.

use api::credhub::Bindings;
use keys::SecretJson;

use crate::tables::Requester;
use crate::{CredentialError, Credentials, Name, Value};

/// Maximum references in one request.
pub const REFERENCES_MAX: usize = 1_000;

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
        services: &Bindings<'_>,
    ) -> Result<SecretJson, CredentialError> {
        if services.names().len() > REFERENCES_MAX {
            return Err(CredentialError::bad(format!(
                "A request can have at most {REFERENCES_MAX} references."
            )));
        }
        let names = services.names().map(Name::parse).collect::<Result<Vec<_>, _>>()?;
        let mut values = Vec::with_capacity(names.len());
        for (found, name) in self.lookup(requester, &names).await?.into_iter().zip(names) {
            let version = found.ok_or(CredentialError::NotFound)??;
            let Value::Json(value) = version.value else {
                return Err(CredentialError::bad(format!(
                    "The credential '{name}' is not the expected type. A credhub-ref credential must be of type 'JSON'."
                )));
            };
            values.push(value);
        }
        let texts: Vec<&str> = values.iter().map(SecretJson::expose).collect();
        SecretJson::new(services.replaced(&texts))
            .map_err(|error| CredentialError::Internal(error.to_string()))
    }
}
