//! The online certificate status protocol (RFC 6960): parsing and encoding of requests, encoding of responses, and parsing of
//! stapled responses.

mod basic;
mod build;
mod checked;
mod request;
mod response;
mod status;

pub use basic::{BasicResponse, OcspSingleResponse, ResponderError, ResponseError};
pub use build::{ResponseEntry, basic_response, error_response, tbs_response};
pub use checked::{NoAnswer, checked};
pub use request::{CertificateId, OcspHash, Request};
pub use response::{Outcome, RESPONSE_MAX, Responder, Response, parse_response};
pub use status::{ErrorStatus, Status};
