//! Publishing dns-01 records (RFC 8555 section 8.4).

mod config;

pub use config::{Dns01Config, Propagation, PublisherConfig, TsigAlgorithm};
