//! Cloud providers and Kubernetes, whose APIs list certificates.

use coded::named;

named! {
    /// A cloud provider, or Kubernetes at any provider.
    pub enum Provider: "cloud provider" {
        /// Amazon Web Services.
        Aws => "aws",
        /// Microsoft Azure.
        Azure => "azure",
        /// Google Cloud.
        Gcp => "gcp",
        /// A Kubernetes cluster, at any provider.
        Kubernetes => "kubernetes",
    }
}

impl Provider {
    /// Returns the provider of a source named `PROVIDER/...`.
    #[must_use]
    pub fn from_source_name(name: &str) -> Option<Self> {
        let (word, _) = name.split_once('/')?;
        word.parse().ok()
    }
}
