//! A question for permission, and its requester.

use std::net::IpAddr;
use std::sync::Arc;

use x509::HostOrIp;

use crate::certificate_store::{RateLimitKey, TooManyNames};

/// For whom a leaf is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    /// The address.
    pub(crate) address: IpAddr,
    /// The authenticated user, if any.
    pub(crate) user: Option<&'a str>,
    /// A consumer of leaves and their keys, if it is one.
    pub(crate) consumer: Option<&'a Arc<Identity>>,
}

/// A consumer, by its certificate.
#[derive(Debug, Eq, Hash, PartialEq)]
pub(crate) struct Identity {
    /// All that tells it from others.
    pub(crate) whole: Arc<str>,
    /// The subject; empty where the certificate has none.
    pub(crate) subject: String,
    /// The subject alternative names, in the certificate's order.
    pub(crate) names: Vec<String>,
}

impl Asker<'_> {
    /// Who is charged for the question.
    pub(super) fn charged(&self) -> RateLimitKey {
        self.user.map_or_else(|| self.address.into(), |user| RateLimitKey::User(user.into()))
    }
}

/// All that is asked. An answer counts for the same question.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Question {
    pub(super) name: HostOrIp,
    pub(super) client: Option<IpAddr>,
    pub(super) user: Option<Arc<str>>,
    pub(super) consumer: Option<Arc<Identity>>,
}

impl Question {
    pub(super) fn new(name: &HostOrIp, asker: Asker<'_>, names_clients: bool) -> Self {
        Self {
            name: name.clone(),
            client: names_clients.then_some(asker.address),
            user: asker.user.filter(|_| names_clients).map(Arc::from),
            consumer: asker.consumer.map(Arc::clone),
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug)]
pub(super) enum Unanswered {
    NoAnswer(Arc<str>),
    /// The question could not be put; [`WhenAway`] does not apply.
    NotPut(Arc<str>),
    TooMany(TooManyNames),
    /// Of this client.
    Busy(RateLimitKey),
}
