//! Managed certificates: policy, renewal, issuers, deployment, verification, alerts; who outside encrypts the master key.

pub mod approval;
pub mod claim;
pub mod job;
pub mod lifecycle;
pub mod managed;
pub mod people;
pub mod policy;
pub mod renewal;
pub mod scheduler;
pub mod signing_keys;
pub mod state;
