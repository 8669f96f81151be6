//! What key services are doing, for people: `bulla keys top` and `bulla keys trace`. Both read the services' addresses of figures
//! (`keys.metrics_listen`).

mod exposition;
mod figures;
mod screen;
mod services;
mod top;
mod trace;
mod tree;

pub(crate) use top::{TopArgs, run as top};
pub(crate) use trace::{TraceArgs, run as trace};
