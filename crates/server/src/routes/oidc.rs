//! Routes: oidc.
