//! Keys in a security module (SoftHSM).
