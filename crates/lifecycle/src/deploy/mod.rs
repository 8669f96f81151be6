//! Certificates into servers: write, validate, reload, verify, roll back.
