//! Lists certificates that clouds and clusters store, through their own APIs.
//!
//! A [`CloudSource`] is one account, subscription, project or cluster. [`start`] lists many of them concurrently and sends
//! [`Event`]s through one bounded channel. The content of a source at its last listing is a [`State`] that the caller stores: the
//! next listing reads only new and changed certificates. Store the state **after** its observations; a crash then costs a
//! repetition but loses nothing.
//!
//! Every call goes through the pool of its server ([`outbound::pool`]). [`Pools`] creates the pools and checks their sizes against
//! each other and against the limits of the machine and the database.

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

/// Boxes the future of a public `async fn`. Without the box, every crate that awaits the future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use api_error::{ApiError, chain};
pub use certificate::{Chain, CloudCertificate, CloudResource};
pub use error::{SourceError, Stopped};
pub use event::{Event, Listed, Tagged};
pub use listing::{LIST_LIMIT, start};
pub use pools::{
    Database, IN_FLIGHT_MIN, Machine, OperationRateLimit, PoolSettings, Pools, PoolsError, ProviderPool,
    ProviderSettings,
};
pub use provider::Provider;
pub use scan::observation::Use;
pub use scan::target::CloudStore;
pub use settings::{AwsAccount, AzureSubscription, CloudSettings, GcpProject, KubernetesCluster};
pub use sink::{CERTIFICATES_PER_SOURCE_MAX, CHAIN_MAX, Sink};
pub use source::CloudSource;
pub use state::{KnownCertificate, State, StateError};
pub use tags::{TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_KEPT_MAX, Tags, bounded};
pub use unavailable::Unavailable;
