//! Attributes, formulas and statements that restrict where keys may be used.

mod attributes;
mod formula;
mod statement;
