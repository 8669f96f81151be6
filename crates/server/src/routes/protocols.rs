//! Protocols for requesting and checking certificates: ACME, EST, SCEP, CRLs, OCSP. Their components process complete HTTP
//! requests, which these routes pass on.

use std::future::Future;

use authority::acme::Acme;
use authority::est::Est;
use authority::publish::Publications;
use authority::scep::Scep;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as With};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::{StatusCode, header};
use http_body_util::{BodyExt, Limited};
use issuers::Issuers;

use crate::access::check_site;
use crate::extract::Path;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::routing::endpoint;
use crate::state::State;

/// Maximum bytes of a protocol request. A SCEP message with an RSA-4096 request has about 10 KiB, an ACME request with a hundred
/// names has less. EST and ACME have lower limits of their own.
const BODY_MAX: usize = 256 << 10;

/// Returns the routes over TLS: ACME, EST, SCEP, and also CRLs and OCSP.
pub(crate) fn tls_routes() -> Router<State> {
    publications(Router::new())
        .route("/acme/{*path}", any(endpoint(acme)))
        .route("/.well-known/est/{*path}", any(endpoint(est)))
        .merge(scep_routes())
}

/// Returns the routes without TLS. CRLs, OCSP responses and issuer certificates are signed (RFC 5280 section 8, RFC 6960 appendix
/// A). SCEP messages are signed and encrypted (RFC 8894 section 2).
pub(crate) fn public() -> Router<State> {
    publications(Router::new())
        .merge(scep_routes())
        .route("/.well-known/acme-challenge/{token}", get(endpoint(http01)))
}

/// Responds to an http-01 validation of a certificate that this server requests from another CA (RFC 8555 section 8.3). Every error
/// is the same 404.
async fn http01(With(issuers): With<Option<Issuers>>, Path(token): Path<String>) -> Response {
    let Some(issuers) = issuers else { return absent() };
    match issuers.responders().http01(&token).await {
        Ok(Some(answer)) => ([(header::CONTENT_TYPE, "application/octet-stream")], answer).into_response(),
        Ok(None) => Problem::not_found("such challenge").into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

fn publications(router: Router<State>) -> Router<State> {
    authority::publish::OPERATIONS
        .iter()
        .fold(router, |router, operation| router.route(operation.path, any(endpoint(published))))
}

fn scep_routes() -> Router<State> {
    Router::new().route("/scep", any(endpoint(scep))).route("/scep/{*path}", any(endpoint(scep)))
}

async fn acme(With(acme): With<Option<Acme>>, request: Request) -> Response {
    match acme {
        Some(acme) => {
            handle_buffered(request, |request, peer| async move { acme.handle(request, &peer).await }).await
        }
        None => absent(),
    }
}

async fn est(With(est): With<Option<Est>>, request: Request) -> Response {
    // Browsers send client certificates automatically, for any page.
    if !request.headers().contains_key(header::AUTHORIZATION)
        && let Err(problem) = check_site(request.method(), request.uri(), request.headers())
    {
        return problem.into_response();
    }
    match est {
        Some(est) => {
            handle_buffered(request, |request, peer| async move { est.handle(request, &peer).await }).await
        }
        None => absent(),
    }
}

async fn scep(With(scep): With<Option<Scep>>, request: Request) -> Response {
    match scep {
        Some(scep) => {
            handle_buffered(request, |request, peer| async move { scep.handle(request, &peer).await }).await
        }
        None => absent(),
    }
}

async fn published(With(publications): With<Option<Publications>>, request: Request) -> Response {
    match publications {
        Some(publications) => {
            handle_buffered(request, |request, peer| async move { publications.handle(request, &peer).await })
                .await
        }
        None => absent(),
    }
}

fn absent() -> Response {
    Problem::not_found("such protocol on this server").into_response()
}

/// Reads the complete request body, within its limit, and passes the request to the component of the protocol.
async fn handle_buffered<F: Future<Output = http::Response<Bytes>>>(
    request: Request,
    handle: impl FnOnce(http::Request<Bytes>, Peer) -> F,
) -> Response {
    let (parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>().cloned() else {
        return Problem::internal("the request has no peer address").into_response();
    };
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => handle(http::Request::from_parts(parts, body.to_bytes()), peer).await.map(Body::from),
        Err(_) => Problem::of_status(
            StatusCode::PAYLOAD_TOO_LARGE,
            Some(format!("the body can have at most {BODY_MAX} bytes")),
        )
        .into_response(),
    }
}
