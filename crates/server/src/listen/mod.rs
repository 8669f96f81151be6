//! Listeners: TLS, plain HTTP, graceful stop.
