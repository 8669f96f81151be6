//! Checks before anything is signed.
