//! Where keys may be used.

mod attributes;
mod formula;
mod statement;
