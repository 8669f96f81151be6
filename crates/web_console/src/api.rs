//! Requests to the API, in this process.

use api::problem::ProblemDocument;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use http::request::Parts;
use http::{Extensions, Method, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tower::ServiceExt;

use crate::failure::{Failure, if_allowed};

/// Maximum bytes of a response that is rendered as a page. A page of 500 rows has a tenth of this size.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The CSRF header, required for unsafe requests with a session.
pub(crate) const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");

/// Headers of the browser's request that identify the session and the site, passed on to the API.
const FORWARDED_HEADERS: &[&str] =
    &["cookie", "authorization", "host", "origin", "sec-fetch-site", "sec-fetch-mode", "last-event-id"];

/// The routes of the API, and of the credential store, which has its own paths.
#[derive(Clone)]
pub(crate) struct Api {
    routes: Router,
    credentials: Option<Router>,
}

/// An API client for one browser request. It has the session, address and client certificate of the request.
#[derive(Clone)]
pub(crate) struct Client {
    routes: Router,
    credentials: Option<Router>,
    headers: HeaderMap,
    extensions: Extensions,
    authority: Option<http::uri::Authority>,
}

impl Api {
    pub(crate) fn new(routes: Router, credentials: Option<Router>) -> Self {
        Self { routes, credentials }
    }

    pub(crate) fn client(&self, parts: &Parts) -> Client {
        let mut headers = HeaderMap::new();
        for name in FORWARDED_HEADERS {
            for value in parts.headers.get_all(*name) {
                headers.append(HeaderName::from_static(name), value.clone());
            }
        }
        // The extensions contain the listener's data about the connection, and the path arguments of the page. The server removes
        // the path arguments before it calls the API.
        let extensions = parts.extensions.clone();
        Client {
            routes: self.routes.clone(),
            credentials: self.credentials.clone(),
            headers,
            extensions,
            authority: parts.uri.authority().cloned(),
        }
    }
}

impl Client {
    /// Returns the server's URL, as the browser uses it.
    pub(crate) fn server(&self) -> String {
        let host = self.headers.get("host").and_then(|host| host.to_str().ok());
        let host = host.or_else(|| self.authority.as_ref().map(http::uri::Authority::as_str));
        format!("https://{}", host.unwrap_or("HOST"))
    }

    /// Returns a client of the credential store with the same session.
    ///
    /// # Errors
    /// [`Failure`] if this process has no credential store.
    pub(crate) fn credential_store(&self) -> Result<Self, Failure> {
        let Some(routes) = &self.credentials else {
            return Err(Failure::refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "This server does not run a credential store.",
                "set credentials.listen in the configuration, or open the console of a server that runs one",
            ));
        };
        Ok(Self { routes: routes.clone(), ..self.clone() })
    }

    /// Returns the same client with an additional header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sends a GET request for a path with its query.
    ///
    /// # Errors
    /// [`Failure`] for an error status, or an invalid response.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        json_of(self.send(Method::GET, path, None, None).await?).await
    }

    /// Sends a GET request like [`Self::get`]. Also returns the object's revision: its member `revision`, or else the `ETag`.
    /// `None` if the object has no revision.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub(crate) async fn get_with_revision(&self, path: &str) -> Result<(Value, Option<i64>), Failure> {
        let response = self.send(Method::GET, path, None, None).await?;
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.and_then(|etag| etag.trim_matches('"').parse().ok());
        let value = json_of(response).await?;
        let revision = value.get("revision").and_then(Value::as_i64).or(etag);
        Ok((value, revision))
    }

    /// Sends a GET request like [`Self::get`]; `None` if the user lacks access.
    ///
    /// # Errors
    /// See [`Self::get`], except for 403, 404 and 503 (a component that this process does not run).
    pub(crate) async fn get_if_allowed(&self, path: &str) -> Result<Option<Value>, Failure> {
        if_allowed(self.get(path).await)
    }

    /// Sends a GET request for a text, such as the metrics.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub(crate) async fn text(&self, path: &str) -> Result<String, Failure> {
        let bytes = bytes_of(self.send(Method::GET, path, None, None).await?).await?;
        String::from_utf8(bytes.to_vec()).map_err(Failure::unreadable)
    }

    /// Sends a change to the API. `csrf` is the form's token, which the API checks.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub(crate) async fn change(
        &self,
        method: Method,
        path: &str,
        csrf: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        json_of(self.send(method, path, Some(csrf), body).await?).await
    }

    /// Sends a change like [`Self::change`]. The API rejects the change with 412 if the object has changed since `revision`.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub(crate) async fn change_if_match(
        &self,
        method: Method,
        path: &str,
        csrf: &str,
        revision: i64,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let mut client = self.clone();
        let etag = HeaderValue::from_str(&format!("\"{revision}\"")).map_err(Failure::unreadable)?;
        client.headers.insert(IF_MATCH, etag);
        client.change(method, path, csrf, body).await
    }

    /// Sends a change like [`Self::change_if_match`] if there is a revision, or else like [`Self::change`].
    ///
    /// # Errors
    /// See [`Self::get`].
    pub(crate) async fn change_with_revision(
        &self,
        method: Method,
        path: &str,
        csrf: &str,
        revision: Option<i64>,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        match revision {
            Some(revision) => self.change_if_match(method, path, csrf, revision, body).await,
            None => self.change(method, path, csrf, body).await,
        }
    }

    /// Sends a request, without reading the response body.
    ///
    /// # Errors
    /// [`Failure`] for a response with an error status.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        csrf: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Response, Failure> {
        let response = self.routes.clone().oneshot(self.request(method, path, csrf, body)?).await;
        let response = match response {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status().is_client_error() || response.status().is_server_error() {
            return Err(refusal(response).await);
        }
        Ok(response)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        csrf: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Request, Failure> {
        let mut uri = path.parse::<Uri>().map_err(Failure::unreadable)?.into_parts();
        if let Some(authority) = &self.authority {
            uri.authority = Some(authority.clone());
            uri.scheme = Some(http::uri::Scheme::HTTPS);
        }
        let body = match body {
            Some(value) => Body::from(serde_json::to_vec(value).map_err(Failure::unreadable)?),
            None => Body::empty(),
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(uri).map_err(Failure::unreadable)?;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(csrf) = csrf {
            let value = HeaderValue::from_str(csrf).map_err(Failure::unreadable)?;
            request.headers_mut().insert(CSRF_HEADER, value);
        }
        Ok(request)
    }
}

async fn bytes_of(response: Response) -> Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    Ok(body.collect().await.map_err(|error| Failure::Unreadable(error.to_string()))?.to_bytes())
}

/// Returns the body of a response.
///
/// # Errors
/// [`Failure::Unreadable`].
pub(crate) async fn json_of(response: Response) -> Result<Value, Failure> {
    let bytes = bytes_of(response).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(Failure::unreadable)
}

async fn refusal(response: Response) -> Failure {
    let status = response.status();
    let body = bytes_of(response).await.unwrap_or_default();
    let document = serde_json::from_slice::<ProblemDocument>(&body);
    Failure::Refused(Box::new(document.unwrap_or_else(|_| ProblemDocument {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or("Refused").to_owned(),
        status: status.as_u16(),
        detail: credential_store_error(&body),
        hint: None,
        instance: None,
        members: serde_json::Map::new(),
    })))
}

/// Parses the error text of the credential store, whose errors are in CredHub's format and not problem documents.
fn credential_store_error(body: &[u8]) -> Option<String> {
    let refusal = serde_json::from_slice::<Value>(body).ok()?;
    let text = |name: &str| refusal.get(name).and_then(Value::as_str).map(str::to_owned);
    text("error_description").or_else(|| text("error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_of_the_credential_store_are_extracted() {
        let of = |body: &str| credential_store_error(body.as_bytes());
        assert_eq!(of(r#"{"error":"No such name."}"#).as_deref(), Some("No such name."));
        let oauth = r#"{"error":"access_denied","error_description":"A token is needed"}"#;
        assert_eq!(of(oauth).as_deref(), Some("A token is needed"));
        assert_eq!(of("<html>"), None);
    }
}
