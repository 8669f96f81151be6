//! Service bindings with references to credentials, resolved from the cache in the same way as in the store
//! (`credentials/src/interpolate.rs`).

use std::ops::Deref;

use api::credhub::{BindingReference, CredentialReference};
use serde::Deserialize;
use serde_json::Value;

use crate::credential::wipe;
use crate::{Client, Error};

/// Maximum references of one request, as in the store.
const REFERENCES_MAX: usize = 1_000;

/// Bindings with their values, wiped on drop.
pub(super) struct Services(Value);

impl Deref for Services {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Replaces each reference in the `credentials` of a binding by the credential that it names.
pub(super) async fn interpolate(client: &Client, services: Value) -> Result<Services, Error> {
    let mut services = Services(services);
    let lists: Vec<Vec<String>> =
        bindings(&mut services.0).filter_map(|binding| reference(binding)).map(|name| vec![name]).collect();
    if lists.len() > REFERENCES_MAX {
        return Err(bad(format!("A request has at most {REFERENCES_MAX} references.")));
    }
    let mut found = client.lookup_many(&lists).await.into_iter().zip(lists);
    for binding in bindings(&mut services.0).filter(|binding| reference(binding).is_some()) {
        let Some((found, names)) = found.next() else { break };
        let credential = found?.ok_or_else(|| Error::NotFound(names[0].clone()))?;
        if credential.kind() != "json" {
            return Err(bad(format!(
                "The credential '{}' is not the expected type. A credhub-ref credential must be of type 'JSON'.",
                names[0]
            )));
        }
        binding["credentials"] = credential.value().clone();
    }
    Ok(services)
}

fn bad(text: String) -> Error {
    Error::Refused { status: 400, text }
}

fn bindings(services: &mut Value) -> impl Iterator<Item = &mut Value> {
    let all = services.as_object_mut().into_iter().flat_map(|services| services.values_mut());
    all.filter_map(Value::as_array_mut).flatten().filter(|binding| binding.is_object())
}

/// Returns the name that a binding refers to, without double brackets.
fn reference(binding: &Value) -> Option<String> {
    let BindingReference { credentials: CredentialReference { name } } =
        BindingReference::deserialize(binding).ok()?;
    let inner = name.strip_prefix("((").and_then(|name| name.strip_suffix("))"));
    Some(inner.unwrap_or(&name).to_owned())
}
