//! The policy of the agent gateway: which identity may send which request to which host.
//!
//! Pure functions: a policy is compiled once from its text ([`PolicyText`]), and decides without I/O. The first rule that matches a request
//! decides, in the order of the configuration; a request that no rule matches gets the default.
//!
//! - `text`: identities and rules as they are written, and errors in them.
//! - `identity`: identities, and the identity of a client.
//! - `rule`: the conditions of one rule; `glob` and `path` for its paths.
//! - `index`: rules by host, identity and path, so that a decision does not try all rules.
//! - `decision`: the result, and its reason.

mod compile;
mod decision;
mod glob;
mod grant;
mod identity;
mod index;
mod path;
mod rule;
mod text;

#[cfg(test)]
mod tests;

pub use compile::{IDENTITIES_MAX, POLICY_RULES_MAX, Policy};
pub use decision::{Decision, Phase, PolicyRequest, Reason, RequestFacts};
pub use grant::Grantee;
pub use identity::{Evidence, Identity, Presented};
pub use path::AmbiguousPath;
pub use text::{Action, BadPolicy, BudgetText, Grants, IdentityText, JwtText, PolicyRuleText, PolicyText};
