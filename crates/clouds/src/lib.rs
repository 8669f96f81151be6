//! Certificates that clouds and clusters keep: listed by their own interfaces, judged as files are.
//!
//! A [`CloudSource`] is one account, subscription, project or cluster. [`start`] lists many of them side by side and
//! gives [`Event`]s through one bounded channel. What a source showed is a [`State`] that the caller keeps: the next listing reads only what is
//! new or changed. Keep it **after** its observations are stored, and a crash costs a repetition, never a gap.
//!
//! Every call goes through a pool of its server ([`outbound::pool`]); [`Pools`] makes them and holds their sizes against
//! each other and against what the machine and the database have.

mod api_error;
mod certificate;
mod error;
mod event;
mod listing;
mod pools;
mod provider;
mod settings;
mod sink;
mod source;
mod state;
mod tags;
mod unavailable;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use api_error::{ApiError, chain};
pub use certificate::{Chain, CloudCertificate, CloudResource};
pub use error::{SourceError, Stopped};
pub use event::{Event, Listed, Tagged};
pub use listing::{LIST_LIMIT, start};
pub use pools::{
    Database, IN_FLIGHT_MIN, Machine, OperationPace, PoolSettings, Pools, PoolsError, ProviderPool,
    ProviderSettings,
};
pub use provider::Provider;
pub use scan::observation::Use;
pub use scan::target::CloudStore;
pub use settings::{AwsAccount, AzureSubscription, CloudSettings, GcpProject, KubernetesCluster};
pub use sink::{CERTIFICATES_PER_SOURCE_MAX, CHAIN_MAX, Sink};
pub use source::CloudSource;
pub use state::{KnownCertificate, State, StateError};
pub use tags::{TAG_KEY_OCTETS_MAX, TAG_VALUE_OCTETS_MAX, TAGS_KEPT_MAX, Tags, bounded};
pub use unavailable::Unavailable;
