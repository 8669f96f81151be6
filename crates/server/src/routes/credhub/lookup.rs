//! Many lookups in one request, each over an ordered list of names: not in CredHub, whose clients ask name by name.

use api::credhub::{CredentialView, LookupOutcome, LookupRequest, LookupView};
use axum::Json;
use credentials::Name;

use super::answer::credential;
use super::body::{self, Body};
use super::context::Context;
use super::principal::Principal;
use crate::credhub::Refused;

/// Names of one request, all its lookups together.
const NAMES_MAX: usize = 1_000;

/// `{"lookups": [["/team/pipeline/x", "/team/x"], …]}`: of each the first name at which the caller may read something.
/// Answers `{"results": […]}` in the same order, `null` where there is none; all in one statement.
pub(super) async fn lookup(
    context: Context,
    Principal(asker): Principal,
    Body(body): Body,
) -> Result<Json<LookupView>, Refused> {
    let request: LookupRequest = body::read(body)?;
    let (mut names, mut asked) = (Vec::new(), 0);
    let mut lengths = Vec::with_capacity(request.lookups.len());
    for lookup in request.lookups {
        let list = lookup.names();
        asked += list.len();
        let before = names.len();
        // What cannot be a name is not there, as in a request for it alone.
        names.extend(list.iter().filter_map(|name| Name::parse(name).ok()));
        lengths.push(names.len() - before);
    }
    if asked > NAMES_MAX {
        return Err(Refused::bad(format!("A request has at most {NAMES_MAX} names.")));
    }
    let store = context.hub().credentials();
    let ca_versions = store.options().ca_versions;
    let mut found = store.lookup(&asker, &names).await?.into_iter();
    let mut results = Vec::with_capacity(lengths.len());
    for length in lengths {
        let first = found.by_ref().take(length).flatten().collect::<Vec<_>>().into_iter().next();
        results.push(match first {
            None => None,
            Some(Ok(version)) => {
                Some(LookupOutcome::<CredentialView>::Found(credential(&version, ca_versions)))
            }
            // A value that does not open fails its own lookup only.
            Some(Err(error)) => Some(LookupOutcome::Failed { error: error.to_string() }),
        });
    }
    Ok(Json(LookupView { results }))
}
