//! Alerts and their channels: what people must know, told once, to those who asked, until somebody takes care.
//!
//! The outbox feeds it: every event that people care about commits with what it tells of, and is turned into alerts in
//! one transaction with this consumer's place. Certificates near their end are found by a schedule that renewals keep.
//! A message is never counted as sent unless its channel took it.

mod channel;
mod digest;
mod engine;
mod event;
mod message;
mod rule;
pub mod tables;
mod threshold;
mod work;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use channel::{ChannelConfig, ChannelError, Channels};
pub use engine::{AlertError, AlertOptions, AlertReport, Alerts, ChannelView, NewChannel};
pub use message::{Message, MessageReason};
pub use rule::{Attributes, Escalation, Matcher, Rule, Silence};
pub use threshold::{Settings, Threshold};
pub use x509::Severity;
