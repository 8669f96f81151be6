//! Keys in this process.
