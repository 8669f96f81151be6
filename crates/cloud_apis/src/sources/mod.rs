//! Certificate sources of the cloud providers, created from settings, with credentials and clients.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "azure")]
pub mod azure;
#[cfg(feature = "gcp")]
pub mod gcp;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;

use std::collections::BTreeSet;
use std::sync::Arc;

use clouds::{CloudSettings, CloudSource, Pools, Provider, SourceError, Unavailable};

/// Maximum sources of one configuration; each is listed in its own task.
const SOURCES_MAX: usize = 10_000;

type Sources = Result<Vec<Arc<dyn CloudSource>>, SourceError>;

/// Prepares the sources `names`. Also returns each source that cannot be prepared, as [`Unavailable`]; such a source does not
/// affect the others.
#[crate::boxed]
pub async fn prepare_named(
    settings: &CloudSettings,
    names: &BTreeSet<Arc<str>>,
    pools: &Pools,
) -> (Vec<Arc<dyn CloudSource>>, Vec<Unavailable>) {
    if let Ok(sources) = prepare(&settings.only(names), pools).await {
        return (sources, Vec::new());
    }
    let (mut available, mut unavailable) = (Vec::new(), Vec::new());
    for name in names {
        match prepare(&settings.only(&BTreeSet::from([Arc::clone(name)])), pools).await {
            Ok(sources) => available.extend(sources),
            Err(error) => {
                let provider = Provider::from_source_name(name);
                unavailable.extend(provider.map(|it| Unavailable::new(Arc::clone(name), it, &error)));
            }
        }
    }
    (available, unavailable)
}

/// Prepares all sources of `settings` with one shared HTTP client. Each provider's SDK finds the credentials.
///
/// # Errors
/// [`SourceError::Configuration`]: no source, more than 10,000 sources, an invalid source, or a provider that this build does not
/// include.
#[crate::boxed]
pub async fn prepare(settings: &CloudSettings, pools: &Pools) -> Sources {
    let count = settings.aws.len() + settings.azure.len() + settings.gcp.len() + settings.kubernetes.len();
    if count == 0 || count > SOURCES_MAX {
        let problem = format!("{count} sources are configured; 1 to {SOURCES_MAX} are allowed");
        return Err(SourceError::Configuration(problem));
    }
    let http = http()?;
    let mut sources = aws_sources(settings, &http, pools).await?;
    sources.extend(azure_sources(settings, &http, pools)?);
    sources.extend(gcp_sources(settings, pools).await?);
    sources.extend(kubernetes_sources(settings, pools).await?);
    Ok(sources)
}

#[cfg(feature = "aws")]
async fn aws_sources(settings: &CloudSettings, http: &Http, pools: &Pools) -> Sources {
    let options = aws::AwsOptions::default();
    let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
    for account in &settings.aws {
        let (http, pools) = (http.clone(), pools.clone());
        sources.push(Arc::new(aws::AwsSource::new(account.clone(), &options, http, pools).await?));
    }
    Ok(sources)
}

#[cfg(not(feature = "aws"))]
async fn aws_sources(settings: &CloudSettings, _: &Http, _: &Pools) -> Sources {
    check_feature_built("aws", settings.aws.len())
}

#[cfg(feature = "azure")]
fn azure_sources(settings: &CloudSettings, http: &Http, pools: &Pools) -> Sources {
    let options = azure::AzureOptions::default();
    let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
    for subscription in &settings.azure {
        let (http, pools) = (http.clone(), pools.clone());
        let source = azure::AzureSource::new(subscription.clone(), &options, http, pools)?;
        sources.push(Arc::new(source));
    }
    Ok(sources)
}

#[cfg(not(feature = "azure"))]
fn azure_sources(settings: &CloudSettings, _: &Http, _: &Pools) -> Sources {
    check_feature_built("azure", settings.azure.len())
}

#[cfg(feature = "gcp")]
async fn gcp_sources(settings: &CloudSettings, pools: &Pools) -> Sources {
    let options = gcp::GcpOptions::default();
    let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
    for project in &settings.gcp {
        sources.push(Arc::new(gcp::GcpSource::new(project.clone(), &options, pools).await?));
    }
    Ok(sources)
}

#[cfg(not(feature = "gcp"))]
async fn gcp_sources(settings: &CloudSettings, _: &Pools) -> Sources {
    check_feature_built("gcp", settings.gcp.len())
}

#[cfg(feature = "kubernetes")]
async fn kubernetes_sources(settings: &CloudSettings, pools: &Pools) -> Sources {
    let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
    for cluster in &settings.kubernetes {
        sources.push(Arc::new(kubernetes::KubernetesSource::new(cluster.clone(), pools).await?));
    }
    Ok(sources)
}

#[cfg(not(feature = "kubernetes"))]
async fn kubernetes_sources(settings: &CloudSettings, _: &Pools) -> Sources {
    check_feature_built("kubernetes", settings.kubernetes.len())
}

#[cfg(feature = "key-services")]
type Http = crate::auth::http::HttpClient;
/// Placeholder: this build needs no HTTP client.
#[cfg(not(feature = "key-services"))]
struct Http;

#[cfg(feature = "key-services")]
fn http() -> Result<Http, SourceError> {
    Http::new(&[]).map_err(|error| SourceError::Configuration(clouds::chain(&error)))
}

#[cfg(not(feature = "key-services"))]
fn http() -> Result<Http, SourceError> {
    Ok(Http)
}

/// Rejects sources that this build does not include.
#[cfg(not(all(feature = "aws", feature = "azure", feature = "gcp", feature = "kubernetes")))]
fn check_feature_built(feature: &str, configured: usize) -> Sources {
    if configured == 0 {
        return Ok(Vec::new());
    }
    let problem = format!("this build has no {feature} sources; build it with `--features {feature}`");
    Err(SourceError::Configuration(problem))
}

#[cfg(test)]
mod tests {
    use clouds::{GcpProject, Machine, PoolSettings};

    use super::*;

    fn pools() -> Pools {
        Pools::new(PoolSettings::default(), Machine { descriptors: 1_024, database: None }).unwrap()
    }

    #[tokio::test]
    async fn missing_sources_and_providers_not_compiled_in_are_rejected() {
        let none = prepare(&CloudSettings::default(), &pools()).await.map(|sources| sources.len());
        assert!(matches!(none, Err(SourceError::Configuration(_))));
        if cfg!(not(feature = "gcp")) {
            let gcp = vec![GcpProject { project: "p".to_owned() }];
            let error = prepare(&CloudSettings { gcp, ..CloudSettings::default() }, &pools()).await;
            let error = error.map(|sources| sources.len()).unwrap_err().to_string();
            assert!(error.contains("--features gcp"), "{error}");
        }
    }
}
