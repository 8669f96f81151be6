//! Who answers for what scans found: an ordered list of rules, of which the first that matches wins.
//!
//! [`Rules`] decides, as a function of values; [`Ownership`] keeps the rules. Watches ask for what they tell, the
//! inventory for what it shows, and a claim for what nobody said.

mod glob;
mod keeping;
mod place;
mod rule;
mod tagged;

pub use glob::{BadGlob, GLOB_OCTETS_MAX, Glob};
pub use keeping::{NAME_MAX, NewRule, Ownership, OwnershipError, POSITION_MAX, RuleRecord};
pub use place::Place;
pub(crate) use rule::write_into;
pub use rule::{
    Assignment, BadRule, Conditions, ISSUER_OCTETS_MAX, LABEL_OCTETS_MAX, Rule, Rules, Step, TAGS_MAX, When,
    is_label,
};
pub use tagged::{FromTags, Tagged};
