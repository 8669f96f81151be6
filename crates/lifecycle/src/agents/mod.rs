//! Hosts that deploy.
