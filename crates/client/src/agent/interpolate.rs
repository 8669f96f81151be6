//! Service bindings with references to credentials, resolved from the cache in the same way as in the store
//! (`credentials/src/interpolate.rs`).

use api::credhub::Bindings;
use zeroize::Zeroizing;

use crate::{Client, Error};

/// Maximum references of one request, as in the store.
const REFERENCES_MAX: usize = 1_000;

/// Replaces each reference in the `credentials` of a binding by the credential that it names.
pub(super) async fn interpolate(
    client: &Client,
    services: &Bindings<'_>,
) -> Result<Zeroizing<String>, Error> {
    if services.names().len() > REFERENCES_MAX {
        return Err(bad(format!("A request has at most {REFERENCES_MAX} references.")));
    }
    let lists: Vec<Vec<String>> = services.names().map(|name| vec![name.to_owned()]).collect();
    let mut found = Vec::with_capacity(lists.len());
    for (credential, names) in client.lookup_many(&lists).await.into_iter().zip(&lists) {
        let credential = credential?.ok_or_else(|| Error::NotFound(names[0].clone()))?;
        if credential.kind() != "json" {
            return Err(bad(format!(
                "The credential '{}' is not the expected type. A credhub-ref credential must be of type 'JSON'.",
                names[0]
            )));
        }
        found.push(credential);
    }
    let values: Vec<&str> = found.iter().map(|credential| credential.value().expose()).collect();
    Ok(Zeroizing::new(services.replaced(&values)))
}

fn bad(text: String) -> Error {
    Error::Refused { status: 400, text }
}
