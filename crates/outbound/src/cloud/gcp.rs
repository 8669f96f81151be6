//! Google Cloud: the application's default credentials, which keep their tokens themselves and fetch the next one before
//! the last has ended.

use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};

use super::ApiError;

/// All of Google Cloud, as far as the account may.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The application's default credentials: `GOOGLE_APPLICATION_CREDENTIALS`, those of gcloud, the metadata server's. Asks
/// nobody.
///
/// # Errors
/// [`ApiError`], denied: when there are none.
pub fn standard() -> Result<Credentials, ApiError> {
    Builder::default().with_scopes([SCOPE]).build().map_err(|error| ApiError::credentials(&error))
}

/// The headers of a request with `credentials`.
///
/// # Errors
/// [`ApiError`], when they give no token: denied, unless that passes.
pub async fn headers(credentials: &Credentials) -> Result<HeaderMap, ApiError> {
    let failed = |error: CredentialsError| {
        if error.is_transient() { ApiError::credentials_away(&error) } else { ApiError::credentials(&error) }
    };
    match credentials.headers(Extensions::new()).await.map_err(failed)? {
        CacheableResource::New { data, .. } => Ok(data),
        // Answered to whoever says what it has, which was not done.
        CacheableResource::NotModified => Err(ApiError::malformed("the credentials gave no headers")),
    }
}
