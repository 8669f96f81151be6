//! Infrastructure of all cloud API calls: the HTTP client, credentials and signed requests.
//!
//! - [`http`]: the client.
//! - `aws`, `azure`, `gcp` (features): credentials as each SDK finds them, cached until they expire.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "azure")]
pub mod azure;
#[cfg(feature = "gcp")]
pub mod gcp;
pub mod http;
#[cfg(any(feature = "aws", feature = "azure"))]
mod lasting;

pub(crate) use clouds::{ApiError, chain};
