//! Master keys, and sealing at rest under them.
