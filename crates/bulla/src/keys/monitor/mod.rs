//! Current figures of key services, for people: `bulla key top` and `bulla key trace`. Both read the services' metrics addresses
//! (`keys.metrics_listen`).

mod exposition;
mod figures;
mod remote;
mod screen;
mod services;
mod top;
mod trace;
mod tree;

pub(crate) use remote::Monitor;
pub(crate) use top::{TopArgs, run as top};
pub(crate) use trace::{TraceArgs, run as trace};
