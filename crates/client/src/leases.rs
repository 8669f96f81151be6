//! Leases of dynamic credentials. They are not cached: the caller keeps and renews its leases.

use api::credhub::{LeaseRequest, LeaseView, RenewRequest};
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use jiff::Timestamp;
use keys::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::transport::{StoreRequest, wiped};
use crate::{Client, Error};

const LEASES: &str = "/api/v1/leases";

/// A new lease, with the user that was created for it.
#[derive(Clone, Debug, Deserialize)]
pub struct NewLease {
    /// ID of the lease, for its renewal and revocation.
    pub id: Uuid,
    /// Name of the user that was created for the lease.
    pub username: String,
    /// Password of the user that was created for the lease.
    pub password: Secret,
    /// Creation time, by the clock of the store.
    pub created_at: Timestamp,
    /// Expiry, by the clock of the store.
    pub expires_at: Timestamp,
}

impl Client {
    /// Creates a user with the rights of a role, for the role's default lifetime. An agent has no leases. The request is sent only once:
    /// if the response is lost, the store revokes the lease at its expiry.
    ///
    /// # Errors
    /// [`Error::Refused`] if the role does not exist or may not be read.
    #[crate::boxed]
    pub async fn create_lease(&self, role: &str) -> Result<NewLease, Error> {
        let request = LeaseRequest { name: role.to_owned(), ttl_seconds: None };
        let answer = self.leases(Method::POST, LEASES, Some(&request), Sending::Once).await?;
        answered(&answer)
    }

    /// Renews a lease by the role's default lifetime, at most to its maximum. Returns the new expiry.
    ///
    /// # Errors
    /// [`Error::Refused`] if the lease has ended.
    #[crate::boxed]
    pub async fn renew_lease(&self, id: Uuid) -> Result<Timestamp, Error> {
        let request = RenewRequest { ttl_seconds: None };
        let answer = self
            .leases(Method::POST, &format!("{LEASES}/{id}/renew"), Some(&request), Sending::Retried)
            .await?;
        let lease: LeaseView = answered(&answer)?;
        lease.expires_at.parse().map_err(|_| unreadable())
    }

    /// Revokes a lease. If the database does not answer, the store retries until the user is dropped.
    ///
    /// # Errors
    /// [`Error::Refused`] if the lease has ended.
    #[crate::boxed]
    pub async fn revoke_lease(&self, id: Uuid) -> Result<(), Error> {
        self.leases(Method::DELETE, &format!("{LEASES}/{id}"), None::<&()>, Sending::Retried).await.map(drop)
    }

    async fn leases<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        sending: Sending,
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let body = body.map(|body| serde_json::to_vec(body).map_err(Error::invalid)).transpose()?;
        let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let single_attempt = sending == Sending::Once;
        let request = StoreRequest {
            method,
            path: path.to_owned(),
            headers: body.iter().map(|_| json.clone()).collect::<HeaderMap>(),
            body: body.map(|body| wiped(Zeroizing::new(body))),
            single_attempt,
            // A database that does not respond does not mean that the store is unavailable.
            forwarded: true,
        };
        Ok(self.transport().request(&request).await?.checked()?.body)
    }
}

/// The retry behaviour of a request.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Sending {
    Once,
    Retried,
}

fn answered<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|_| unreadable())
}

fn unreadable() -> Error {
    Error::Unavailable("the response about a lease is not readable".to_owned())
}
