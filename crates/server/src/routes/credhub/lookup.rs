//! Many lookups in one request, each over an ordered list of names: not in CredHub, whose clients ask name by name.

use credentials::Name;
use serde_json::{Value as Json, json};

use super::answer::credential;
use super::asking::Asking;
use super::body::{self, Body};
use super::context::Context;
use crate::credhub::Refused;

/// Names of one request, all its lookups together.
const NAMES_MAX: usize = 1_000;

/// `{"lookups": [["/team/pipeline/x", "/team/x"], …]}`: of each the first name at which the caller may read something.
/// Answers `{"results": […]}` in the same order, `null` where there is none; all in one statement.
pub(super) async fn lookup(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["lookups"])?;
    let lookups = body.get("lookups").and_then(Json::as_array).ok_or_else(Refused::bad_request)?;
    let (mut names, mut asked) = (Vec::new(), 0);
    let mut lengths = Vec::with_capacity(lookups.len());
    for lookup in lookups {
        // One name may stand without its list.
        let list = lookup.as_array().map_or_else(|| std::slice::from_ref(lookup), Vec::as_slice);
        asked += list.len();
        let before = names.len();
        for name in list {
            // What cannot be a name is not there, as for whoever asks for it alone.
            names.extend(Name::parse(name.as_str().ok_or_else(Refused::bad_request)?).ok());
        }
        lengths.push(names.len() - before);
    }
    if asked > NAMES_MAX {
        return Err(Refused::bad(format!("A request has at most {NAMES_MAX} names.")));
    }
    let store = context.hub().credentials();
    let both = store.options().concatenate_cas;
    let mut found = store.lookup(&asker, &names).await?.into_iter();
    let mut results = Vec::with_capacity(lengths.len());
    for length in lengths {
        let first = found.by_ref().take(length).flatten().collect::<Vec<_>>().into_iter().next();
        results.push(match first {
            None => Json::Null,
            Some(Ok(version)) => credential(&version, both),
            // One value that does not open is one answer's trouble.
            Some(Err(error)) => json!({ "error": error.to_string() }),
        });
    }
    Ok(axum::Json(json!({ "results": results })))
}
