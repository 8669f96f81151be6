//! Providers of clouds.

use std::fmt;

/// Who runs a cloud.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Provider {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Cloud.
    Gcp,
    /// A Kubernetes cluster, whoever runs it.
    Kubernetes,
}

impl Provider {
    pub(crate) const ALL: [Self; 4] = [Self::Aws, Self::Azure, Self::Gcp, Self::Kubernetes];

    /// Who runs the source of this name.
    #[must_use]
    pub fn of_source(name: &str) -> Option<Self> {
        let (word, _) = name.split_once('/')?;
        Self::ALL.into_iter().find(|provider| provider.name() == word)
    }

    /// The stable word for outputs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
