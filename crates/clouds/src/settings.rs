//! Which accounts, subscriptions, projects and clusters to list: the same whatever the build can list.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use crate::error::SourceError;
use crate::pools::PoolSettings;
use crate::provider::Provider;

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
    /// The external id in the role's trust policy.
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
    /// Name of the source.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
