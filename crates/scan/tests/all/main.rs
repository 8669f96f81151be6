//! Everything that needs a peer: the fleet, openssl, real servers.

mod engine;
mod starttls_postgres;
mod tls_openssl;
mod tls_rustls;
mod truth;
mod world;
