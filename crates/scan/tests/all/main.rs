//! Everything that needs a peer: the fleet, openssl, real servers.

mod starttls_postgres;
mod tls_openssl;
mod tls_rustls;
