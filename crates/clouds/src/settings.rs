//! Settings of the accounts, subscriptions, projects and clusters to list. The settings are the same in builds without some
//! providers.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use crate::error::SourceError;
use crate::pools::PoolSettings;
use crate::provider::Provider;

/// Maximum known names that an error about an unknown name lists.
const NAMES_SHOWN: usize = 10;

fn unknown(wanted: &str, names: &BTreeSet<Arc<str>>) -> String {
    if names.is_empty() {
        return format!("unknown source {wanted:?}: no clouds or clusters are configured");
    }
    let shown: Vec<&str> = names.iter().map(|name| &**name).take(NAMES_SHOWN).collect();
    let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
    format!("unknown source {wanted:?}; known sources: all, {}{more}", shown.join(", "))
}

/// All sources to list, and their pools.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct CloudSettings {
    /// AWS accounts to list.
    pub aws: Vec<AwsAccount>,
    /// Azure subscriptions to list.
    pub azure: Vec<AzureSubscription>,
    /// Google Cloud projects to list.
    pub gcp: Vec<GcpProject>,
    /// Kubernetes clusters to list.
    pub kubernetes: Vec<KubernetesCluster>,
    /// Sizes and rates of the call pools.
    pub pools: PoolSettings,
}

/// An AWS account whose certificates are listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AwsAccount {
    /// Account number, twelve digits.
    pub account: String,
    /// ARN of the role to assume in the account. Default: the credentials of the standard chain, without a role.
    #[serde(default)]
    pub role: Option<String>,
    /// The external id in the role's trust policy.
    #[serde(default)]
    pub external_id: Option<String>,
    /// Regions to list. Default: all enabled regions.
    #[serde(default)]
    pub regions: Vec<String>,
}

/// An Azure subscription whose certificates are listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AzureSubscription {
    /// Subscription id.
    pub subscription: String,
    /// URLs of the vaults to list. Default: all vaults that Resource Manager lists.
    #[serde(default)]
    pub vaults: Vec<String>,
}

/// A Google Cloud project whose certificates are listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GcpProject {
    /// Project id.
    pub project: String,
}

/// A Kubernetes cluster whose certificates are listed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct KubernetesCluster {
    /// Name of the cluster; the prefix of its resource names.
    pub name: String,
    /// Context of the kubeconfig. Default: the current context, or the service account inside a cluster.
    #[serde(default)]
    pub context: Option<String>,
}

impl AwsAccount {
    /// Returns the name of the source, `aws/ACCOUNT`.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Aws, self.account).into()
    }
}

impl AzureSubscription {
    /// Returns the name of the source, `azure/SUBSCRIPTION`.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Azure, self.subscription).into()
    }
}

impl GcpProject {
    /// Returns the name of the source, `gcp/PROJECT`.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Gcp, self.project).into()
    }
}

impl KubernetesCluster {
    /// Returns the name of the source, `kubernetes/NAME`.
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", Provider::Kubernetes, self.name).into()
    }
}

impl CloudSettings {
    /// Returns the names of all sources.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        let aws = self.aws.iter().map(AwsAccount::source);
        let azure = self.azure.iter().map(AzureSubscription::source);
        let gcp = self.gcp.iter().map(GcpProject::source);
        let kubernetes = self.kubernetes.iter().map(KubernetesCluster::source);
        aws.chain(azure).chain(gcp).chain(kubernetes).collect()
    }

    /// Resolves `wanted` to source names. Each value is a source name, a provider (`aws`, `azure`, `gcp` or `kubernetes`) for all
    /// of the provider's sources, or `all`.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when a value matches no source; the message lists the known names.
    pub fn named(&self, wanted: &[String]) -> Result<BTreeSet<Arc<str>>, SourceError> {
        let (names, mut named) = (self.names(), BTreeSet::new());
        for one in wanted {
            let is_named = |name: &&Arc<str>| {
                let provider = Provider::from_source_name(name).map(Provider::name);
                one == "all" || one.as_str() == &***name || provider == Some(one.as_str())
            };
            let mut found = names.iter().filter(is_named).peekable();
            if found.peek().is_none() {
                return Err(SourceError::Configuration(unknown(one, &names)));
            }
            named.extend(found.cloned());
        }
        Ok(named)
    }

    /// Returns a copy of the settings that contains only the sources in `names`.
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
    fn sources_are_selected_by_name_provider_or_all() {
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
        let message = named(&["aws/2", "azure"]).unwrap_err();
        assert!(message.contains("\"azure\"") && message.contains("kubernetes/prod"), "{message}");
        assert!(named(&["aws/"]).is_err());
        let only = settings.only(&settings.named(&["kubernetes".to_owned()]).unwrap());
        assert_eq!((only.aws.len(), only.kubernetes.len()), (0, 1));
        let message = CloudSettings::default().named(&["all".to_owned()]).unwrap_err().to_string();
        assert!(message.contains("no clouds or clusters are configured"), "{message}");
    }

    #[test]
    fn unknown_config_keys_are_rejected() {
        for text in [r#"{"aws": [{"account": "1", "secret": "x"}]}"#, r#"{"azur": []}"#] {
            assert!(serde_json::from_str::<CloudSettings>(text).is_err(), "{text}");
        }
    }
}
