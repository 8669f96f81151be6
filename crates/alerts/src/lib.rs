//! Alerts and their notification channels. Each recipient is notified once; unacknowledged alerts escalate.
//!
//! The outbox is the source: every relevant event is committed together with the change that it reports. The alerts of an event are
//! stored in one transaction with the outbox position of this consumer. Expiring certificates come from a schedule that renewals
//! update. A message counts as sent only when its channel accepted it.

mod channel;
mod digest;
mod engine;
mod event;
mod message;
mod rule;
pub mod tables;
mod threshold;
mod work;

/// Boxes the future of a public `async fn`, so that crates that await it do not compile its body again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use channel::{ChannelConfig, ChannelError, Channels};
pub use engine::{AlertError, AlertOptions, AlertReport, Alerts, ChannelView, NewChannel};
pub use message::{Message, MessageReason};
pub use rule::{Attributes, Escalation, Matcher, Rule, Silence};
pub use threshold::{Settings, Threshold};
pub use x509::Severity;
