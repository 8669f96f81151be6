//! Cloud keys of `bulla key serve`, opened at startup with one request each for the public key.

#[cfg(not(any(feature = "aws", feature = "azure", feature = "gcp")))]
pub(crate) use none::put;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
pub(crate) use some::put;

/// For a build without cloud keys: does nothing. The configuration check has already rejected them.
#[cfg(not(any(feature = "aws", feature = "azure", feature = "gcp")))]
mod none {
    use keyless::{KeySet, Metrics};

    use crate::config::KeyServiceSettings;
    use cli::exit::Outcome;

    pub(crate) async fn put(_: &KeyServiceSettings, _: &KeySet, _: &Metrics) -> Outcome<()> {
        Ok(())
    }
}

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
mod some {
    use std::sync::Arc;

    use cloud_apis::auth::http::HttpClient;
    use cloud_apis::key_services::{Calls, CloudKey, CloudKeyError};
    use futures_util::future::BoxFuture;
    use futures_util::{StreamExt, TryStreamExt, stream};
    use keyless::{KeySet, Metrics};
    use keys::KeyRef;

    use crate::config::KeyServiceSettings;
    use cli::exit::{Exit, Outcome, Problem, chain};

    /// Maximum number of cloud keys that are opened concurrently.
    const AT_ONCE: usize = 16;

    type Opening<'a> = BoxFuture<'a, Result<CloudKey, CloudKeyError>>;

    /// Adds cloud keys to the set, under their names in the configuration. Keys of one cloud (of AWS: of one region) share
    /// credentials, and all keys share connections.
    pub(crate) async fn put(settings: &KeyServiceSettings, set: &KeySet, metrics: &Metrics) -> Outcome<()> {
        let calls = Calls::of(metrics);
        let http = HttpClient::new(&[]).map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
        let mut all: Vec<Opening<'_>> = Vec::new();
        #[cfg(feature = "aws")]
        all.extend(aws(&settings.aws_kms, &http, &calls).await?);
        #[cfg(feature = "azure")]
        all.extend(azure(&settings.azure_keys, &http, &calls)?);
        #[cfg(feature = "gcp")]
        all.extend(gcp(&settings.gcp_kms, &http, &calls)?);
        let opened: Result<Vec<CloudKey>, _> = stream::iter(all).buffered(AT_ONCE).try_collect().await;
        let opened = opened.map_err(|error| problem(&error))?;
        let named = opened.into_iter().map(|key| (key.name().to_owned(), Arc::new(key) as KeyRef));
        set.put_named("clouds", named.collect());
        Ok(())
    }

    fn problem(error: &CloudKeyError) -> Problem {
        Problem::new(Exit::Machine, chain(error)).hint(error.hint())
    }

    #[cfg(feature = "aws")]
    async fn aws<'a>(
        all: &'a [crate::config::AwsKeySettings],
        http: &HttpClient,
        calls: &'a Calls,
    ) -> Outcome<Vec<Opening<'a>>> {
        use cloud_apis::auth::aws::AwsOptions;
        use cloud_apis::key_services::AwsKms;

        let mut regions: std::collections::HashMap<(&str, &str), AwsKms> = Default::default();
        let mut opening: Vec<Opening<'a>> = Vec::new();
        for of in all {
            let location = (of.region.as_str(), of.endpoint.as_str());
            let kms = match regions.get(&location) {
                Some(kms) => kms.clone(),
                None => {
                    let endpoint = Some(of.endpoint.clone()).filter(|url| !url.is_empty());
                    let options = AwsOptions { endpoint, credentials: None };
                    let kms = AwsKms::new(&of.region, &options, http.clone()).await;
                    kms.map_err(|error| problem(&error))?
                }
            };
            regions.insert(location, kms.clone());
            opening.push(Box::pin(async move { kms.open(&of.key, calls).await }));
        }
        Ok(opening)
    }

    #[cfg(feature = "azure")]
    fn azure<'a>(
        all: &'a [crate::config::AzureKeySettings],
        http: &HttpClient,
        calls: &'a Calls,
    ) -> Outcome<Vec<Opening<'a>>> {
        use cloud_apis::key_services::{AzureKey, AzureOptions, open_azure};

        if all.is_empty() {
            return Ok(Vec::new());
        }
        let credential = cloud_apis::auth::azure::standard(http).map_err(|error| {
            Problem::usage(chain(&error)).hint("correct the AZURE_… environment variables of this process")
        })?;
        let open = |of: &'a crate::config::AzureKeySettings| -> Opening<'a> {
            let options = AzureOptions { credential: Some(Arc::clone(&credential)), resource: None };
            let (key, http) = (AzureKey { key: of.key.clone() }, http.clone());
            Box::pin(async move { open_azure(key, &options, http, calls).await })
        };
        Ok(all.iter().map(open).collect())
    }

    #[cfg(feature = "gcp")]
    fn gcp<'a>(
        all: &'a [crate::config::GcpKeySettings],
        http: &HttpClient,
        calls: &'a Calls,
    ) -> Outcome<Vec<Opening<'a>>> {
        use cloud_apis::key_services::{GcpKey, GcpOptions, open_gcp};

        if all.is_empty() {
            return Ok(Vec::new());
        }
        let credentials = cloud_apis::auth::gcp::standard().map_err(|error| {
            Problem::usage(chain(&error))
                .hint("set GOOGLE_APPLICATION_CREDENTIALS to a credentials file, or log in with gcloud")
        })?;
        let open = |of: &'a crate::config::GcpKeySettings| -> Opening<'a> {
            let endpoint = Some(of.endpoint.clone()).filter(|url| !url.is_empty());
            let options = GcpOptions { endpoint, credentials: Some(credentials.clone()) };
            let (key, http) = (GcpKey { version: of.version.clone() }, http.clone());
            Box::pin(async move { open_gcp(key, &options, http, calls).await })
        };
        Ok(all.iter().map(open).collect())
    }
}
