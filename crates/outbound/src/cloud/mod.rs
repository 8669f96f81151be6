//! What calls to clouds need, whatever they ask for: one HTTP client, the credentials that there are, requests with them,
//! and what a bad answer says about the next call.
//!
//! - [`ApiError`]: a bad answer.
//! - `http` (with any of the features below): the client.
//! - `aws`, `azure`, `gcp` (features): their credentials, as their own libraries find them, kept until their end.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "azure")]
pub mod azure;
mod error;
#[cfg(feature = "gcp")]
pub mod gcp;
#[cfg(feature = "cloud")]
pub mod http;
#[cfg(any(feature = "aws", feature = "azure"))]
mod lasting;

pub use error::{ApiError, chain};
