//! HTTP: routes, authentication, problem documents, OpenAPI, listeners. No SQL, no cryptography.

pub mod state;
pub mod problem;
pub mod access;
pub mod listen;
pub mod openapi;
pub mod metrics;
pub mod conditional;
pub mod limit;
pub mod routes;
