//! AWS KMS, which encrypts the file of the master key.

use cli::exit::{Exit, Outcome, Problem, chain};
use cloud_apis::auth::aws::AwsOptions;
use cloud_apis::auth::http::HttpClient;
use cloud_apis::key_services::KmsKey;
use futures_util::future::{BoxFuture, FutureExt};
use keys::Wrapper;
use zeroize::Zeroizing;

use crate::config::AwsKmsSettings;

/// In the encryption context of each call, and so in CloudTrail.
const PURPOSE: &str = "bulla master key 1";

/// AWS KMS, which encrypts the master key's file.
pub(super) async fn wrapper(of: &AwsKmsSettings) -> Outcome<Box<dyn Wrapper>> {
    let http = HttpClient::new(&[]).map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
    let endpoint = Some(of.endpoint.clone()).filter(|url| !url.is_empty());
    let options = AwsOptions { endpoint, credentials: None };
    let key = KmsKey::new(&of.key_id, &of.region, PURPOSE, &options, http).await;
    Ok(Box::new(Kms(key)))
}

struct Kms(KmsKey);

impl Wrapper for Kms {
    fn name(&self) -> &'static str {
        "aws_kms"
    }

    fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        async { self.0.encrypt(key).await.map_err(|error| chain(&error)) }.boxed()
    }

    fn give_back<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>> {
        async { self.0.decrypt(wrapped).await.map_err(|error| chain(&error)) }.boxed()
    }
}
