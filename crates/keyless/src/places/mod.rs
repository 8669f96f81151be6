//! Where keys may be used: places by their attributes, policies by formulas over them, nodes by what is stated of them.
//!
//! - [`Attributes`]: what is known of a node, from the inventory and never from the node.
//! - [`Formula`]: which nodes satisfy a policy; [`Classes`]: all of them at once.
//! - [`Statement`]: who a node is, signed.
//!
//! Pure: no clock, no I/O.

mod attributes;
mod classes;
mod formula;
mod statement;

pub use attributes::{ATTRIBUTES_MAX, Attributes, BadAttribute, NAME_MAX, VALUE_MAX};
pub use classes::Classes;
pub use formula::{ATOMS_MAX, DEPTH_MAX, Formula, FormulaError, TEXT_MAX, Token, Trouble};
pub use statement::{PAYLOAD_MAX, SignedStatement, Statement, StatementError};
