//! Sessions with database servers: the parts that their protocols have in common.
//!
//! - `options`: listeners, each with its server.
//! - `handler`: connections of clients, and their TLS and authentication.
//! - `protocol`: the login of a protocol at its servers; `server`: connections to the server of a listener.
//! - `admitted`: a session from the decision of the policy to its end, with its audit events and its line in the access log.
//! - `login`: the login at the server with a credential that the client never sees.
//! - `failure`: errors of sessions; `dial_error`: of connections to servers.

mod admitted;
mod dial_error;
mod failure;
mod handler;
mod login;
mod options;
mod protocol;
mod server;

pub(crate) use admitted::AdmittedSession;
pub(crate) use dial_error::DialError;
pub(crate) use failure::{ASK_OPERATOR, Failure, FailureKind, RETRY};
pub(crate) use handler::{SessionHandler, SessionServer, in_tls, may_send_token};
pub(crate) use login::log_in;
pub(crate) use options::{DatabaseListener, listen};
pub use options::{DatabaseListenerOptions, UpstreamTlsMode};
pub(crate) use protocol::{LoginFailure, ServerLogin, ServerStream};
pub(crate) use server::{DatabaseServer, ServerConnection};
