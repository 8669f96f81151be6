//! Sources made ready by settings, with credentials and clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::SourceError;
use crate::pools::Pools;
use crate::provider::Provider;
use crate::settings::CloudSettings;
use crate::source::CloudSource;
use crate::unavailable::Unavailable;

/// Sources of one configuration: each lists with a task of its own.
const SOURCES_MAX: usize = 10_000;

impl CloudSettings {
    /// The sources of `names`. One that cannot be prepared does not keep the others from being listed: it is
    /// [`Unavailable`], to be tried again, and left out of those that may be kept for the next listing.
    #[crate::boxed]
    pub async fn available(
        &self,
        names: &BTreeSet<Arc<str>>,
        pools: &Pools,
    ) -> (Vec<Arc<dyn CloudSource>>, Vec<Unavailable>) {
        if let Ok(sources) = self.only(names).sources(pools).await {
            return (sources, Vec::new());
        }
        let (mut available, mut unavailable) = (Vec::new(), Vec::new());
        for name in names {
            match self.only(&BTreeSet::from([Arc::clone(name)])).sources(pools).await {
                Ok(sources) => available.extend(sources),
                Err(error) => {
                    let provider = Provider::of_source(name);
                    unavailable.extend(provider.map(|it| Unavailable::new(Arc::clone(name), it, &error)));
                }
            }
        }
        (available, unavailable)
    }

    /// The sources, reached as their providers' standard ways have it, all over one HTTP client.
    ///
    /// # Errors
    /// [`SourceError::Configuration`]: none at all, more than are allowed, one that is wrong, or one whose provider this
    /// build does not have.
    #[crate::boxed]
    pub async fn sources(&self, pools: &Pools) -> Result<Vec<Arc<dyn CloudSource>>, SourceError> {
        let count = self.aws.len() + self.azure.len() + self.gcp.len() + self.kubernetes.len();
        if count == 0 || count > SOURCES_MAX {
            let problem = format!("{count} sources are configured; there may be 1 to {SOURCES_MAX}");
            return Err(SourceError::Configuration(problem));
        }
        let http = http()?;
        let mut sources = self.aws_sources(&http, pools).await?;
        sources.extend(self.azure_sources(&http, pools)?);
        sources.extend(self.gcp_sources(pools).await?);
        sources.extend(self.kubernetes_sources(pools).await?);
        Ok(sources)
    }

    #[cfg(feature = "aws")]
    async fn aws_sources(&self, http: &Http, pools: &Pools) -> PreparedSources {
        let options = crate::aws::AwsOptions::default();
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for account in &self.aws {
            let (http, pools) = (http.clone(), pools.clone());
            sources.push(Arc::new(crate::aws::AwsSource::new(account.clone(), &options, http, pools).await?));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "aws"))]
    async fn aws_sources(&self, _: &Http, _: &Pools) -> PreparedSources {
        not_built("aws", self.aws.len())
    }

    #[cfg(feature = "azure")]
    fn azure_sources(&self, http: &Http, pools: &Pools) -> PreparedSources {
        let options = crate::azure::AzureOptions::default();
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for subscription in &self.azure {
            let (http, pools) = (http.clone(), pools.clone());
            let source = crate::azure::AzureSource::new(subscription.clone(), &options, http, pools)?;
            sources.push(Arc::new(source));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "azure"))]
    fn azure_sources(&self, _: &Http, _: &Pools) -> PreparedSources {
        not_built("azure", self.azure.len())
    }

    #[cfg(feature = "gcp")]
    async fn gcp_sources(&self, pools: &Pools) -> PreparedSources {
        let options = crate::gcp::GcpOptions::default();
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for project in &self.gcp {
            sources.push(Arc::new(crate::gcp::GcpSource::new(project.clone(), &options, pools).await?));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "gcp"))]
    async fn gcp_sources(&self, _: &Pools) -> PreparedSources {
        not_built("gcp", self.gcp.len())
    }

    #[cfg(feature = "kubernetes")]
    async fn kubernetes_sources(&self, pools: &Pools) -> PreparedSources {
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for cluster in &self.kubernetes {
            sources.push(Arc::new(crate::kubernetes::KubernetesSource::new(cluster.clone(), pools).await?));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "kubernetes"))]
    async fn kubernetes_sources(&self, _: &Pools) -> PreparedSources {
        not_built("kubernetes", self.kubernetes.len())
    }
}

type PreparedSources = Result<Vec<Arc<dyn CloudSource>>, SourceError>;

#[cfg(feature = "http-client")]
type Http = crate::http::HttpClient;
/// Nothing in this build needs one.
#[cfg(not(feature = "http-client"))]
struct Http;

#[cfg(feature = "http-client")]
fn http() -> Result<Http, SourceError> {
    crate::http::HttpClient::new(&[]).map_err(|error| SourceError::Configuration(crate::error::chain(&error)))
}

#[cfg(not(feature = "http-client"))]
fn http() -> Result<Http, SourceError> {
    Ok(Http)
}

/// What is configured and cannot be listed by this build is told, never passed over.
#[cfg(not(all(feature = "aws", feature = "azure", feature = "gcp", feature = "kubernetes")))]
fn not_built(feature: &str, configured: usize) -> PreparedSources {
    if configured == 0 {
        return Ok(Vec::new());
    }
    let problem = format!("this build has no {feature} sources; build it with `--features {feature}`");
    Err(SourceError::Configuration(problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::{Machine, PoolSettings};
    use crate::settings::GcpProject;

    fn pools() -> Pools {
        Pools::new(PoolSettings::default(), Machine { descriptors: 1_024, database: None }).unwrap()
    }

    #[tokio::test]
    async fn nothing_configured_and_what_the_build_has_not_are_told() {
        let none = CloudSettings::default().sources(&pools()).await.map(|sources| sources.len());
        assert!(matches!(none, Err(SourceError::Configuration(_))));
        if cfg!(not(feature = "gcp")) {
            let gcp = vec![GcpProject { project: "p".to_owned() }];
            let told = CloudSettings { gcp, ..CloudSettings::default() }.sources(&pools()).await;
            let told = told.map(|sources| sources.len()).unwrap_err().to_string();
            assert!(told.contains("--features gcp"), "{told}");
        }
    }
}
