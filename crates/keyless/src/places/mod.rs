//! Policies that restrict where keys may be used: formulas over the attributes of nodes.
//!
//! - [`Attributes`]: attributes of a node, from the inventory and never from the node itself.
//! - [`Formula`]: a policy over attributes; [`AttributeClasses`] evaluates it for all nodes.
//! - [`Statement`]: signed identity of a node.
//!
//! Performs no I/O and uses no clock.

mod attributes;
mod classes;
mod formula;
mod statement;

pub use attributes::{ATTRIBUTES_MAX, Attributes, BadAttribute, NAME_MAX, VALUE_MAX};
pub use classes::AttributeClasses;
pub use formula::{ATOMS_MAX, DEPTH_MAX, Formula, FormulaError, FormulaErrorKind, TEXT_MAX, Token};
pub use statement::{PAYLOAD_MAX, SignedStatement, Statement, StatementError};
