//! Runs of issuance, renewal and deployment.
