//! Kinds of keys.
