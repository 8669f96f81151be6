//! Managed certificates: policy, renewal, issuers, deployment, verification, alerts.

pub mod lifecycle;
pub mod managed;
pub mod state;
pub mod renewal;
pub mod job;
pub mod scheduler;
pub mod policy;
pub mod approval;
pub mod people;
pub mod claim;
pub mod issuers;
pub mod dns01;
pub mod agents;
pub mod deploy;
pub mod alerts;
