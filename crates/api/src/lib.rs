//! Request and response types of the HTTP API, a module a noun: a field is defined here and nowhere else.
//!
//! The server answers with these types, the command line and generated clients read them. Responses are `…View`, requests
//! are named after what they make or change; requests refuse unknown fields, responses are read with fields that this version
//! does not know. Times are RFC 3339 texts in UTC.
//!
//! The feature `schemas` derives the schemas of the OpenAPI description; only the server switches it on.

pub mod access;
pub mod acme;
pub mod agent_work;
pub mod agents;
pub mod alerts;
pub mod approvals;
pub mod audit;
pub mod authorities;
pub mod certificates;
pub mod changes;
pub mod credhub;
pub mod csv;
pub mod endpoints;
pub mod enrolments;
pub mod health;
pub mod history;
pub mod inventory;
pub mod issued;
pub mod issuers;
pub mod jobs;
pub mod key_nodes;
pub mod key_policies;
pub mod listing;
pub mod master_key;
pub mod ownership;
mod patch;
pub mod path;
pub mod people;
pub mod policies;
pub mod problem;
pub mod profiles;
pub mod revocations;
mod scope;
pub mod sealed_keys;
pub mod search;
pub mod series;
pub mod sites;
pub mod targets;
pub mod transparency;
pub mod watches;
