//! What a program that stands between clients and servers does with HTTP, whoever its clients are: which fields are of one
//! connection alone (`fields`), how clients are served (`client`, `serve`, `streams`, `asked`, `stall`), who answers them (`upstream`: the
//! pool, and by which way), what is said where nobody does (`page`, `unanswered`), and what becomes of changes of protocol (`websocket`, `upgrade`).

pub(crate) mod access_log;
pub(crate) mod address;
pub(crate) mod asked;
pub(crate) mod cipher_suites;
pub(crate) mod client;
pub(crate) mod fields;
pub(crate) mod host;
pub(crate) mod names;
pub(crate) mod opening;
pub(crate) mod page;
pub(crate) mod request_body;
pub(crate) mod serve;
pub(crate) mod stall;
pub(crate) mod streams;
pub(crate) mod target;
pub(crate) mod unanswered;
pub(crate) mod upgrade;
pub(crate) mod upstream;
pub(crate) mod websocket;
