//! Managed certificates: policy, renewal, issuers, deployment, verification, alerts.

pub mod agents;
pub mod alerts;
pub mod approval;
pub mod claim;
pub mod deploy;
pub mod dns01;
pub mod issuers;
pub mod job;
pub mod lifecycle;
pub mod managed;
pub mod people;
pub mod policy;
pub mod renewal;
pub mod scheduler;
pub mod state;
