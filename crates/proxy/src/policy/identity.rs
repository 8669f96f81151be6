//! Identities, and the identity of a client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::text::BudgetText;
use crate::destination::Networks;

/// How a client has authenticated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Evidence<'a> {
    /// The client has not authenticated.
    Nothing,
    /// A password or a token of this user.
    User(&'a str),
    /// A client certificate with this subject.
    Certificate {
        /// The subject, as text.
        subject: &'a str,
        /// Its URI names, such as a SPIFFE ID.
        uris: &'a [Arc<str>],
    },
}

/// What is known of a client: how it has authenticated, and its address.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The evidence of authentication.
    pub evidence: Evidence<'a>,
    /// Its address.
    pub address: IpAddr,
}

/// A compiled identity.
#[derive(Debug)]
pub struct Identity {
    /// The name.
    pub name: Arc<str>,
    /// Teams that it is a member of.
    pub teams: Vec<Arc<str>>,
    /// Its tags.
    pub tags: Vec<Arc<str>>,
    /// The second (Unix time) from which it is refused.
    pub expires: Option<i64>,
    /// Its limits.
    pub budget: BudgetText,
    /// The numbers of its name, teams and tags in the index of rules.
    pub(super) keys: Vec<u32>,
}

impl Identity {
    /// Whether it has expired at `now` (Unix time, seconds).
    #[must_use]
    pub fn has_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

/// Identities by what recognises them.
#[derive(Debug, Default)]
pub(super) struct Recognition {
    pub(super) users: HashMap<Arc<str>, u32>,
    pub(super) certificates: HashMap<Arc<str>, u32>,
    pub(super) networks: Networks<u32>,
}

impl Recognition {
    /// The identity of a client. A client that has authenticated is never recognised by its network alone.
    pub(super) fn identify(&self, presented: &Presented<'_>) -> Option<u32> {
        match presented.evidence {
            Evidence::User(name) => self.users.get(name).copied(),
            Evidence::Certificate { subject, uris } => {
                let by_uri = uris.iter().find_map(|uri| self.certificates.get(uri));
                by_uri.or_else(|| self.certificates.get(subject)).copied()
            }
            Evidence::Nothing => self.networks.get(presented.address.to_canonical(), 0).copied(),
        }
    }
}
