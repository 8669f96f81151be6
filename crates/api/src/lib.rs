//! Request and response types of the HTTP API, with one module for each kind of resource. Each field is defined only here.
//!
//! The server responds with these types. The command line and generated clients parse them. Responses are named `…View`; requests
//! are named after the object that they create or change. Requests reject unknown fields. Responses are parsed leniently: fields
//! unknown to this version are ignored. Times are RFC 3339 strings in UTC.
//!
//! The feature `schemas` derives the schemas of the OpenAPI document. Only the server enables it.

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
mod host;
pub mod inventory;
pub mod issued;
pub mod issuers;
pub mod jobs;
pub mod key_nodes;
pub mod key_policies;
pub mod limits;
pub mod listing;
pub mod master_key;
pub mod ownership;
pub mod patch;
pub mod path;
pub mod people;
pub mod plan;
pub mod policies;
pub mod problem;
pub mod profiles;
pub mod proxy;
pub mod revocations;
mod scope;
pub mod sealed_keys;
pub mod search;
pub mod security_keys;
pub mod series;
pub mod sites;
pub mod targets;
pub mod transparency;
pub mod watches;
