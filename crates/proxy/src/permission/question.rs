//! Permission requests and their clients.

use std::net::IpAddr;
use std::sync::Arc;

use x509::HostOrIp;

use crate::certificate_store::{RateLimitKey, TooManyNames};

/// The client or consumer that a leaf is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafRequester<'a> {
    pub(crate) address: IpAddr,
    /// The authenticated user, if any.
    pub(crate) user: Option<&'a str>,
    /// Identity of the consumer, if the leaf and its key are for a consumer.
    pub(crate) consumer: Option<&'a Arc<Identity>>,
}

/// Identity of a consumer, from its certificate.
#[derive(Debug, Eq, Hash, PartialEq)]
pub(crate) struct Identity {
    /// The complete identity, for comparisons.
    pub(crate) whole: Arc<str>,
    /// Subject of the certificate; may be empty.
    pub(crate) subject: String,
    /// The subject alternative names, in the certificate's order.
    pub(crate) names: Vec<String>,
}

impl LeafRequester<'_> {
    /// Returns the client that is charged for the request.
    pub(super) fn charged(&self) -> RateLimitKey {
        self.user.map_or_else(|| self.address.into(), |user| RateLimitKey::User(user.into()))
    }
}

/// All parameters of a request, which are also the cache key.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Question {
    pub(super) name: HostOrIp,
    pub(super) client: Option<IpAddr>,
    pub(super) user: Option<Arc<str>>,
    pub(super) consumer: Option<Arc<Identity>>,
}

impl Question {
    pub(super) fn new(name: &HostOrIp, requester: LeafRequester<'_>, names_clients: bool) -> Self {
        Self {
            name: name.clone(),
            client: names_clients.then_some(requester.address),
            user: requester.user.filter(|_| names_clients).map(Arc::from),
            consumer: requester.consumer.map(Arc::clone),
        }
    }
}

/// Reason why the permission service sent no decision.
#[derive(Clone, Debug)]
pub(super) enum Unanswered {
    NoAnswer(Arc<str>),
    /// The request could not be sent; [`OutagePolicy`] does not apply.
    NotPut(Arc<str>),
    TooMany(TooManyNames),
    /// This client has too many requests in progress.
    Busy(RateLimitKey),
}
