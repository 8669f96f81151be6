//! Everything that needs a peer: the fleet, openssl, real servers.

mod starttls_postgres;
mod truth;
mod world;
