//! Ownership of scan results: an ordered list of rules, of which the first match wins.
//!
//! [`Rules`] evaluates the rules as a pure function; [`Ownership`] stores them. The rules determine the owner in alerts of
//! watches, in views of the inventory, and of claimed certificates without an explicit owner.

mod assignment;
mod candidate;
mod conditions;
mod endpoints;
mod error;
mod glob;
mod keeping;
mod limits;
mod rule;
mod tagged;

pub use assignment::{Assignment, is_label};
pub use candidate::Candidate;
pub use conditions::{Conditions, RuleConditions};
pub use error::BadRule;
pub use glob::{BadGlob, GLOB_BYTES_MAX, Glob};
pub use keeping::{NAME_MAX, NewRule, Ownership, OwnershipError, POSITION_MAX, RuleRecord};
pub use limits::{ISSUER_BYTES_MAX, LABEL_BYTES_MAX, TAGS_MAX};
pub use rule::{Rule, Rules, Step};
pub use tagged::{TagKeys, Tagged};
