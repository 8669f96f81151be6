//! Extractors for handlers, like axum's, but with problem documents as errors.

use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::problem::Problem;

/// Default maximum bytes of a body: a megabyte holds a CSR, a profile or a few thousand names.
pub const BODY_MAX: usize = 1 << 20;

/// A JSON request body (at most the route's limit), or a JSON response.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let axum::Json(value) = axum::Json::<T>::from_bytes(&json_body(request).await?)?;
        Ok(Self(value))
    }
}

/// Reads the body of a request whose content type is JSON. This is a separate function, because the code of [`Json`] is compiled
/// for each type of body.
async fn json_body(request: Request) -> Result<Bytes, Problem> {
    let kind = request.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "application/json") {
        // The framework checks parameters and suffixes (`application/problem+json`) of the content type.
        let mut probe = Request::default();
        probe.headers_mut().extend(kind.map(|kind| (CONTENT_TYPE, kind.clone())));
        let judged = axum::Json::<IgnoredAny>::from_request(probe, &()).await;
        if let Err(rejection @ JsonRejection::MissingJsonContentType(_)) = judged {
            return Err(rejection.into());
        }
    }
    Bytes::from_request(request, &()).await.map_err(|rejection| JsonRejection::from(rejection).into())
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// The query parameters of the URL.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(value) = axum::extract::Query::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The path parameters of the URL.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Path(value) = axum::extract::Path::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::StatusCode;

    #[tokio::test]
    async fn path_without_an_id_is_refused_in_plain_words() {
        let show = axum::routing::get(async |Path(id): Path<uuid::Uuid>| id.to_string());
        let router = axum::Router::<()>::new().route("/{id}", show);
        let request = http::Request::get("/web%20one").body(Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains(r#"\"web one\" is not an ID"#) && text.contains("hint"), "{text}");
    }

    #[tokio::test]
    async fn json_bodies_require_a_json_content_type() {
        let of = |kind: Option<&'static str>| {
            let mut request = http::Request::post("/");
            if let Some(kind) = kind {
                request = request.header(CONTENT_TYPE, kind);
            }
            Json::<u8>::from_request(request.body(Body::from("7")).unwrap(), &())
        };
        for good in ["application/json", "application/json; charset=utf-8", "application/merge-patch+json"] {
            assert_eq!(of(Some(good)).await.unwrap().0, 7, "{good}");
        }
        let mut request = http::Request::post("/").body(Body::from("\"7\"")).unwrap();
        request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        let wrong = Json::<u8>::from_request(request, &()).await.unwrap_err().text();
        assert!(wrong.contains("the JSON document: invalid type"), "{wrong}");
        for bad in [None, Some("text/plain"), Some("json"), Some("application/jsonx")] {
            let problem = of(bad).await.unwrap_err();
            assert_eq!(problem.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{bad:?}");
        }
    }
}
