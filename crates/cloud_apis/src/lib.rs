//! Clients of AWS, Azure, Google Cloud and Kubernetes. Only this crate uses their SDKs, each behind a feature, and only the binary
//! depends on this crate. A build with features compiles the SDKs, this crate and the binary, and no crate in between.
//!
//! - `auth`: the HTTP client, credentials as each SDK finds them, signed requests.
//! - [`sources`]: [`CloudSource`](clouds::CloudSource)s, which list certificates.
//! - `object_lock`: objects in S3 that no account may change or delete for a time.
//! - `key_services`: keys that sign in AWS KMS, Azure Key Vault and Google Cloud KMS; the AWS KMS key that encrypts a master key.

#[cfg(feature = "key-services")]
pub mod auth;
#[cfg(feature = "key-services")]
pub mod key_services;
#[cfg(feature = "aws")]
pub mod object_lock;
pub mod sources;

/// Boxes the future of a public `async fn`. Without the box, every crate that awaits the future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;
