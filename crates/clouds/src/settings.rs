//! Which accounts, subscriptions, projects and clusters to list: the same whatever the build can list.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::{CloudSource, PoolSettings, Pools, Provider, SourceError, Unavailable};

/// Sources of one configuration: each lists with a task of its own.
pub(crate) const SOURCES_MAX: usize = 10_000;
/// Names that a message about an unknown one gives.
const NAMES_SHOWN: usize = 10;

fn unknown(wanted: &str, names: &BTreeSet<Arc<str>>) -> String {
    if names.is_empty() {
        return format!("there is no source {wanted:?}: no clouds or clusters are configured");
    }
    let shown: Vec<&str> = names.iter().map(|name| &**name).take(NAMES_SHOWN).collect();
    let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
    format!("there is no source {wanted:?}; there are all, {}{more}", shown.join(", "))
}

/// Everything that is to be listed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct CloudSettings {
    /// AWS accounts.
    pub aws: Vec<AwsAccount>,
    /// Azure subscriptions.
    pub azure: Vec<AzureSubscription>,
    /// Google Cloud projects.
    pub gcp: Vec<GcpProject>,
    /// Kubernetes clusters.
    pub kubernetes: Vec<KubernetesCluster>,
    /// Sizes and rates of the pools they are listed through.
    pub pools: PoolSettings,
}

/// One account to be listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AwsAccount {
    /// Its number, twelve digits.
    pub account: String,
    /// The role to assume there, an ARN; left out: the credentials of the standard chain as they are.
    #[serde(default)]
    pub role: Option<String>,
    /// What the role's trust policy asks for.
    #[serde(default)]
    pub external_id: Option<String>,
    /// Its regions; left out: all that are enabled.
    #[serde(default)]
    pub regions: Vec<String>,
}

/// One subscription to be listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AzureSubscription {
    /// Its id.
    pub subscription: String,
    /// Its vaults' addresses; left out: all that Resource Manager lists.
    #[serde(default)]
    pub vaults: Vec<String>,
}

/// One project to be listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GcpProject {
    /// Its id.
    pub project: String,
}

/// One cluster to be listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct KubernetesCluster {
    /// What to call it: the beginning of its certificates' places.
    pub name: String,
    /// The context of the kubeconfig; left out: the current one, or the service account inside a cluster.
    #[serde(default)]
    pub context: Option<String>,
}

impl AwsAccount {
    /// Its source's name.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Aws, self.account).into()
    }
}

impl AzureSubscription {
    /// Its source's name.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Azure, self.subscription).into()
    }
}

impl GcpProject {
    /// Its source's name.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Gcp, self.project).into()
    }
}

impl KubernetesCluster {
    /// Its source's name.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Kubernetes, self.name).into()
    }
}

impl CloudSettings {
    /// The names of all sources.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        let aws = self.aws.iter().map(AwsAccount::source);
        let azure = self.azure.iter().map(AzureSubscription::source);
        let gcp = self.gcp.iter().map(GcpProject::source);
        let kubernetes = self.kubernetes.iter().map(KubernetesCluster::source);
        aws.chain(azure).chain(gcp).chain(kubernetes).collect()
    }

    /// The names that `wanted` stands for: a name as it is, `aws`, `azure`, `gcp` or `kubernetes` for all of a provider,
    /// `all` for all there are.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when one of them stands for nothing; says what there is.
    pub fn named(&self, wanted: &[String]) -> Result<BTreeSet<Arc<str>>, SourceError> {
        let (names, mut named) = (self.names(), BTreeSet::new());
        for one in wanted {
            let stands_for = |name: &&Arc<str>| {
                let provider = Provider::of_source(name).map(Provider::name);
                one == "all" || one.as_str() == &***name || provider == Some(one.as_str())
            };
            let mut found = names.iter().filter(stands_for).peekable();
            if found.peek().is_none() {
                return Err(SourceError::Configuration(unknown(one, &names)));
            }
            named.extend(found.cloned());
        }
        Ok(named)
    }

    /// These settings without the sources that are not in `names`.
    #[must_use]
    pub fn only(&self, names: &BTreeSet<Arc<str>>) -> Self {
        let mut only = self.clone();
        only.aws.retain(|account| names.contains(&account.source()));
        only.azure.retain(|subscription| names.contains(&subscription.source()));
        only.gcp.retain(|project| names.contains(&project.source()));
        only.kubernetes.retain(|cluster| names.contains(&cluster.source()));
        only
    }

    /// The sources of `names`. One that cannot be prepared does not keep the others from being listed: it is
    /// [`Unavailable`], to be tried again, and left out of those that may be kept for the next listing.
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
    async fn aws_sources(&self, http: &Http, pools: &Pools) -> Made {
        let options = super::aws::AwsOptions::default();
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for account in &self.aws {
            let (http, pools) = (http.clone(), pools.clone());
            sources.push(Arc::new(super::aws::AwsSource::new(account.clone(), &options, http, pools).await?));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "aws"))]
    async fn aws_sources(&self, _: &Http, _: &Pools) -> Made {
        not_built("aws", self.aws.len())
    }

    #[cfg(feature = "azure")]
    fn azure_sources(&self, http: &Http, pools: &Pools) -> Made {
        let options = super::azure::AzureOptions::default();
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for subscription in &self.azure {
            let (http, pools) = (http.clone(), pools.clone());
            let source = super::azure::AzureSource::new(subscription.clone(), &options, http, pools)?;
            sources.push(Arc::new(source));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "azure"))]
    fn azure_sources(&self, _: &Http, _: &Pools) -> Made {
        not_built("azure", self.azure.len())
    }

    #[cfg(feature = "gcp")]
    async fn gcp_sources(&self, pools: &Pools) -> Made {
        let options = super::gcp::GcpOptions::default();
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for project in &self.gcp {
            sources.push(Arc::new(super::gcp::GcpSource::new(project.clone(), &options, pools).await?));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "gcp"))]
    async fn gcp_sources(&self, _: &Pools) -> Made {
        not_built("gcp", self.gcp.len())
    }

    #[cfg(feature = "kubernetes")]
    async fn kubernetes_sources(&self, pools: &Pools) -> Made {
        let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
        for cluster in &self.kubernetes {
            sources.push(Arc::new(super::kubernetes::KubernetesSource::new(cluster.clone(), pools).await?));
        }
        Ok(sources)
    }

    #[cfg(not(feature = "kubernetes"))]
    async fn kubernetes_sources(&self, _: &Pools) -> Made {
        not_built("kubernetes", self.kubernetes.len())
    }
}

type Made = Result<Vec<Arc<dyn CloudSource>>, SourceError>;

#[cfg(feature = "http-client")]
type Http = super::http::HttpClient;
/// Nothing in this build needs one.
#[cfg(not(feature = "http-client"))]
struct Http;

#[cfg(feature = "http-client")]
fn http() -> Result<Http, SourceError> {
    super::http::HttpClient::new(&[]).map_err(|error| SourceError::Configuration(super::error::chain(&error)))
}

#[cfg(not(feature = "http-client"))]
fn http() -> Result<Http, SourceError> {
    Ok(Http)
}

/// What is configured and cannot be listed by this build is told, never passed over.
#[cfg(not(all(feature = "aws", feature = "azure", feature = "gcp", feature = "kubernetes")))]
fn not_built(feature: &str, configured: usize) -> Made {
    if configured == 0 {
        return Ok(Vec::new());
    }
    let problem = format!("this build has no {feature} sources; build it with `--features {feature}`");
    Err(SourceError::Configuration(problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

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

    #[test]
    fn sources_are_chosen_by_name_by_provider_or_all() {
        let text = r#"{"aws": [{"account": "1"}, {"account": "2"}], "kubernetes": [{"name": "prod"}]}"#;
        let settings: CloudSettings = serde_json::from_str(text).unwrap();
        let named = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|one| (*one).to_owned()).collect();
            let named = settings.named(&wanted).map_err(|error| error.to_string())?;
            Ok::<_, String>(named.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(named(&["aws/2"]).unwrap(), ["aws/2"]);
        assert_eq!(named(&["aws", "aws/2"]).unwrap(), ["aws/1", "aws/2"]);
        assert_eq!(named(&["all"]).unwrap(), ["aws/1", "aws/2", "kubernetes/prod"]);
        let told = named(&["aws/2", "azure"]).unwrap_err();
        assert!(told.contains("\"azure\"") && told.contains("kubernetes/prod"), "{told}");
        assert!(named(&["aws/"]).is_err());
        let only = settings.only(&settings.named(&["kubernetes".to_owned()]).unwrap());
        assert_eq!((only.aws.len(), only.kubernetes.len()), (0, 1));
        let told = CloudSettings::default().named(&["all".to_owned()]).unwrap_err().to_string();
        assert!(told.contains("no clouds or clusters are configured"), "{told}");
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in [r#"{"aws": [{"account": "1", "secret": "x"}]}"#, r#"{"azur": []}"#] {
            assert!(serde_json::from_str::<CloudSettings>(text).is_err(), "{text}");
        }
    }
}
