//! Who answers for what scans found: an ordered list of rules, of which the first that matches wins.
//!
//! [`Rules`] decides, as a function of values; [`Ownership`] keeps the rules. Watches ask for what they tell, the
//! inventory for what it shows, and a claim for what nobody said.

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
pub use conditions::{Conditions, When};
pub use error::BadRule;
pub use glob::{BadGlob, GLOB_OCTETS_MAX, Glob};
pub use keeping::{NAME_MAX, NewRule, Ownership, OwnershipError, POSITION_MAX, RuleRecord};
pub use limits::{ISSUER_OCTETS_MAX, LABEL_OCTETS_MAX, TAGS_MAX};
pub use rule::{Rule, Rules, Step};
pub use tagged::{FromTags, Tagged};
