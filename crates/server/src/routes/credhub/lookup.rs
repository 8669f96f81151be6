//! Many lookups in one request, each with an ordered list of names. An extension to CredHub, whose clients request each name
//! separately.

use api::credhub::{CredentialView, LookupOutcome, LookupRequest, LookupView};
use axum::Json;
use credentials::Name;
use keys::SecretJson;

use super::answer::credential;
use super::body::{self, Body};
use super::context::Context;
use super::principal::Principal;
use crate::credhub::Refused;

/// Maximum names in one request, over all its lookups.
const NAMES_MAX: usize = 1_000;

/// Looks up `{"lookups": [["/team/pipeline/x", "/team/x"], …]}`: for each list the first name that the caller may read. Returns
/// `{"results": […]}` in the same order, with `null` where no name matches. Uses one SQL statement for all lookups.
pub(super) async fn lookup(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<LookupView<CredentialView<SecretJson>>>, Refused> {
    let request: LookupRequest = body::read(&body)?;
    let (mut names, mut requested) = (Vec::new(), 0);
    let mut lengths = Vec::with_capacity(request.lookups.len());
    for lookup in request.lookups {
        let list = lookup.names();
        requested += list.len();
        let before = names.len();
        // An invalid name counts as missing, as in a request for a single name.
        names.extend(list.iter().filter_map(|name| Name::parse(name).ok()));
        lengths.push(names.len() - before);
    }
    if requested > NAMES_MAX {
        return Err(Refused::bad(format!("A request can have at most {NAMES_MAX} names.")));
    }
    let store = context.hub().credentials();
    let ca_versions = store.options().ca_versions;
    let mut found = store.lookup(&requester, &names).await?.into_iter();
    let mut results = Vec::with_capacity(lengths.len());
    for length in lengths {
        let first = found.by_ref().take(length).flatten().collect::<Vec<_>>().into_iter().next();
        results.push(match first {
            None => None,
            Some(Ok(version)) => Some(LookupOutcome::Found(credential(&version, ca_versions))),
            // A value that cannot be decrypted fails only its own lookup.
            Some(Err(error)) => Some(LookupOutcome::Failed { error: error.to_string() }),
        });
    }
    Ok(Json(LookupView { results }))
}
