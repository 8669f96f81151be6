//! The routes, a module an area.

pub mod health;
pub mod tokens;
pub mod users;
pub mod oidc;
pub mod audit;
pub mod certificates;
pub mod issuers;
pub mod profiles;
pub mod authorities;
pub mod policies;
pub mod people;
pub mod approvals;
pub mod jobs;
pub mod agents;
pub mod targets;
pub mod alerts;
pub mod protocols;
pub mod inventory;
pub mod events;
