//! The OpenAPI 3.1 description of the API.

use std::collections::HashSet;

use api::problem::ProblemDocument;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, OpenApi};
use utoipa::{OpenApi as _, PartialSchema, ToSchema};

use crate::access::SESSION_COOKIE;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Bulla",
        description = "Discovers, issues, renews and stores TLS certificates.\n\nTimes are RFC 3339 in UTC. Lists are \
         paged: send `next` as `cursor` to get the next page. The response to a `GET` has an `ETag`. Send it as \
         `If-None-Match` to avoid a repeated body, or as `If-Match` with a change: the server rejects the change if the \
         object changed since. A `POST` with an `Idempotency-Key` can be repeated.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "/", description = "this server"))
)]
struct ApiDoc;

/// Returns the description without routes: title, version, security schemes, the problem document.
pub(crate) fn skeleton() -> OpenApi {
    let mut document = ApiDoc::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let components = document.components.get_or_insert_with(Components::new);
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API token, `bulla_…`"))
        .build();
    components.add_security_scheme("token", SecurityScheme::Http(token));
    let session = ApiKeyValue::with_description(
        SESSION_COOKIE,
        "A session started by logging in; unsafe methods also need the header `X-CSRF-Token`",
    );
    components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(session)));
    let certificate = "A client certificate that is mapped to an identity";
    components.add_security_scheme(
        "certificate",
        SecurityScheme::MutualTls {
            description: Some(certificate.to_owned()),
            deprecated: None,
            extensions: None,
        },
    );
    components.schemas.insert(ProblemDocument::name().into_owned(), ProblemDocument::schema());
    document
}

/// Returns the names of the schemas to which a description refers.
fn referenced_schemas(text: &str) -> HashSet<&str> {
    text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Serializes the description as JSON. Removes schemas without a reference, such as schemas of list items, which each list contains
/// inline.
pub(crate) fn to_json(mut document: OpenApi) -> Vec<u8> {
    loop {
        let text = serde_json::to_string(&document).unwrap_or_default();
        let Some(components) = &mut document.components else { return text.into_bytes() };
        let before = components.schemas.len();
        let referenced = referenced_schemas(&text);
        components.schemas.retain(|name, _| referenced.contains(name.as_str()));
        if components.schemas.len() == before {
            return text.into_bytes();
        }
    }
}
