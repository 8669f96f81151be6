//! Certificates that clouds and clusters keep: listed by their own interfaces, judged as files are.
//!
//! A [`CloudSource`] is one account, subscription, project or cluster. [`start`] lists many of them side by side and
//! gives [`Event`]s through one bounded channel. What a source showed is a [`State`] that the caller keeps: the next listing reads only what is
//! new or changed. Keep it **after** its observations are stored, and a crash costs a repetition, never a gap.
//!
//! Every call goes through a pool of its server ([`outbound::pool`]); [`Pools`] makes them and holds their sizes against
//! each other and against what the machine and the database have.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "azure")]
pub mod azure;
mod error;
#[cfg(feature = "gcp")]
pub mod gcp;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod listing;
mod pools;
mod settings;
mod sink;
mod state;
mod tags;
mod unavailable;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use outbound::Deadline;
use x509::{Fingerprint, UnixTime};

pub use error::SourceError;
pub use listing::{Event, LIST_LIMIT, Listed, Tagged, start};
pub use outbound::cloud::ApiError;
#[cfg(feature = "http-client")]
pub use outbound::cloud::http;
pub use pools::{
    Database, IN_FLIGHT_MIN, Machine, OperationPace, PoolSettings, Pools, PoolsError, ProviderSettings,
};
pub use scan::observation::Use;
pub use scan::target::CloudStore;
pub use settings::{AwsAccount, AzureSubscription, CloudSettings, GcpProject, KubernetesCluster};
pub use sink::{CERTIFICATES_PER_SOURCE_MAX, Sink, Stopped};
pub use state::{KnownCertificate, State, StateError};
pub use tags::{TAG_KEY_OCTETS_MAX, TAG_VALUE_OCTETS_MAX, TAGS_KEPT_MAX, Tags};
pub use unavailable::Unavailable;

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
    const ALL: [Self; 4] = [Self::Aws, Self::Azure, Self::Gcp, Self::Kubernetes];

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

/// Where a certificate is kept.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The kind of place.
    pub store: CloudStore,
    /// Its full name there: the same in every listing.
    pub name: Arc<str>,
}

/// What is known of a certificate's octets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Chain {
    /// As read now, DER, leaf first.
    Read(Vec<Vec<u8>>),
    /// Unchanged since it was read; these are in the inventory.
    Unchanged(Vec<Fingerprint>),
    /// There is none that could be read; for people, why.
    None(String),
}

/// A certificate as a cloud or cluster keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CloudCertificate {
    /// Where it is kept.
    pub place: Place,
    /// Its octets, or where they are.
    pub chain: Chain,
    /// End of validity as the listing says; the chain's own word counts where there is one.
    pub not_after: Option<UnixTime>,
    /// What uses it there, in order.
    pub used_by: Vec<Use>,
    /// Its tags there; `None` when they are not known, as where they may not be read.
    pub tags: Option<Tags>,
    /// Whatever changes whenever the certificate does: compared, never read.
    pub marker: String,
}

/// One account, subscription, project or cluster.
pub trait CloudSource: Send + Sync {
    /// Its name, the same in every run: `aws/123456789012`, `azure/SUBSCRIPTION`, `gcp/PROJECT`, `kubernetes/CLUSTER`.
    /// The key of its [`State`].
    fn name(&self) -> &Arc<str>;

    /// Who runs it.
    fn provider(&self) -> Provider;

    /// Lists everything into `sink`, which knows what was there before: what is unchanged is not read again.
    ///
    /// A part (a region, a vault) that cannot be listed is told to the sink and does not keep the others from being
    /// listed.
    ///
    /// # Errors
    /// [`SourceError`] when not even the parts could be found out: then nothing is taken to be gone.
    ///
    /// # Cancellation
    /// Dropping the future drops the calls under way; what the sink was told stays.
    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>>;
}
