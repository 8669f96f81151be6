//! Managed certificates: policy, renewal, issuers, deployment, verification, alerts; who outside encrypts the master key.

pub mod agents;
pub mod alerts;
pub mod approval;
pub mod claim;
mod clients;
pub mod custody;
pub mod deploy;
pub mod dns01;
pub mod issuers;
pub mod job;
pub mod joining;
pub mod lifecycle;
pub mod managed;
pub mod people;
pub mod places;
pub mod policy;
pub mod posts;
pub mod renewal;
pub mod scheduler;
pub mod signing_keys;
pub mod state;
