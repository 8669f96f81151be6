//! The policy of the agent gateway: which identity may send which request to which host.
//!
//! Performs no I/O: a policy is compiled once from its text ([`PolicyText`]). The first matching rule decides, in the order of the
//! configuration; if no rule matches, the default applies.
//!
//! - `text`: identities and rules as written, and their errors.
//! - `identity`: identities, and the identity of a client.
//! - `rule`: the conditions of one rule; `glob` and `path` for its paths.
//! - `session`: sessions with databases.
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
mod session;
mod text;

#[cfg(test)]
mod tests;

pub use compile::{IDENTITIES_MAX, POLICY_RULES_MAX, Policy};
pub use decision::{Decision, Phase, PolicyRequest, Reason, RequestFacts};
pub use grant::Grantee;
pub use identity::{Evidence, Identity, Presented};
pub use path::AmbiguousPath;
pub(crate) use path::normalised;
pub use session::{DatabaseSession, SessionProtocol};
pub use text::{
    Action, BadPolicy, BudgetText, Grants, HOLD_FOR_S, HOLD_FOR_S_MAX, IdentityText, JwtText, PolicyRuleText,
    PolicyText,
};
