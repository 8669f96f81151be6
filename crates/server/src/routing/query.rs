//! Validation of query parameters: a route accepts only the parameters in its OpenAPI description.
//!
//! Otherwise a misspelled parameter would silently return too much: a listing without its filter.

use coded::percent_decoded;
use http::Method;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::Schema;

use crate::problem::Problem;

/// Query parameter with the members of each item to return. Every read accepts it.
const FIELDS: &str = "fields";
/// Query parameters of pagination. Every listing accepts them; a listing without pagination returns everything in one page.
const PAGE: [&str; 2] = ["limit", "cursor"];
/// Prefix of the schema references of listings.
const LISTING_SCHEMA: &str = "#/components/schemas/Listing";
/// Minimum similarity (0 to 1) at which an unknown name counts as a misspelling of a known one.
const SIMILAR: f64 = 0.6;

/// The query parameters that a route accepts, by method.
#[derive(Debug, Default)]
pub(super) struct QueryParameters(Vec<(Method, Vec<String>)>);

impl QueryParameters {
    /// Adds the parameters of a method from its description.
    pub(super) fn add(&mut self, method: &Method, operation: &Operation) {
        let described = operation.parameters.iter().flatten();
        let mut names: Vec<String> = described
            .filter_map(|parameter| match parameter {
                RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
                    Some(parameter.name.clone())
                }
                _ => None,
            })
            .collect();
        let page = if lists(operation) { &PAGE[..] } else { &[] };
        for common in page.iter().chain([&FIELDS]) {
            if *method == Method::GET && !names.iter().any(|name| name == common) {
                names.push((*common).to_owned());
            }
        }
        self.0.push((method.clone(), names));
    }

    /// Rejects a query with a parameter that the method does not accept.
    ///
    /// # Errors
    /// 400, with the most similar known name.
    pub(super) fn check(&self, method: &Method, query: Option<&str>) -> Result<(), Problem> {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(()) };
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let known = self.0.iter().find(|(of, _)| of == method).map_or(&[][..], |(_, names)| names);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap_or_default();
            let name = percent_decoded(name).and_then(|name| String::from_utf8(name).ok());
            let name = name.ok_or_else(|| Problem::bad_request("the query is not percent-encoded UTF-8"))?;
            if !known.contains(&name) {
                return Err(unknown(&name, known));
            }
        }
        Ok(())
    }
}

fn lists(operation: &Operation) -> bool {
    let Some(RefOr::T(found)) = operation.responses.responses.get("200") else { return false };
    let is_listing = |schema: &Option<RefOr<Schema>>| matches!(schema, Some(RefOr::Ref(schema)) if schema.ref_location.starts_with(LISTING_SCHEMA));
    found.content.values().any(|content| match content {
        RefOr::T(content) => is_listing(&content.schema),
        RefOr::Ref(_) => false,
    })
}

fn unknown(name: &str, known: &[String]) -> Problem {
    let problem = Problem::bad_request(format_args!("unknown query parameter {name:?}"));
    let likeness = |known: &String| strsim::normalized_damerau_levenshtein(name, known);
    let nearest = known.iter().map(|known| (likeness(known), known));
    let nearest = nearest.filter(|(likeness, _)| *likeness >= SIMILAR);
    match nearest.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((_, nearest)) => problem.hint(format_args!("did you mean {nearest}?")),
        None if known.is_empty() => problem.hint("this request has no query parameters"),
        None => problem.hint(format_args!("this request takes {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn unknown_query_parameters_are_rejected_with_a_suggestion() {
        let names = ["limit", "cursor", "expires_before"].map(str::to_owned).to_vec();
        let parameters = QueryParameters(vec![(Method::GET, names), (Method::POST, Vec::new())]);
        let check = |method: &Method, query| parameters.check(method, query);
        for good in [None, Some(""), Some("limit=1&&cursor="), Some("%6Cimit=3"), Some("limit")] {
            check(&Method::GET, good).unwrap();
            check(&Method::HEAD, good).unwrap();
        }
        let refused = |query| {
            let problem = check(&Method::GET, Some(query)).unwrap_err();
            assert_eq!(problem.status(), StatusCode::BAD_REQUEST, "{query}");
            problem.document().hint.unwrap()
        };
        assert_eq!(refused("limit=1&expire_before=x"), "did you mean expires_before?");
        assert_eq!(refused("Limit=1"), "did you mean limit?");
        assert_eq!(refused("colour=red"), "this request takes limit, cursor, expires_before");
        assert!(check(&Method::GET, Some("%ff=1")).is_err());
        assert!(check(&Method::GET, Some("%f=1")).is_err());
        assert!(check(&Method::POST, Some("limit=1")).is_err());
    }
}
