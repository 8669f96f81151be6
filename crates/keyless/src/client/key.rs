//! A key that somebody else holds, as a [`Signer`].

use futures_util::future::BoxFuture;
use keys::{Deadline, KeyType, Scheme, SignError, Signer};

use super::error::ClientError;
use super::failover::Client;
use crate::operation;
use crate::wire::{ErrorCode, Items, Ski};

/// A key held by key services, known by its public half.
#[derive(Clone, Debug)]
pub struct RemoteKey {
    client: Client,
    ski: Ski,
    kind: KeyType,
    spki: Box<[u8]>,
}

impl Client {
    /// A key held there, by its public half (DER SubjectPublicKeyInfo). `None` for a kind the protocol does not sign with.
    /// Nobody is asked whether it is held.
    #[must_use]
    pub fn key(&self, spki: &[u8]) -> Option<RemoteKey> {
        RemoteKey::new(self.clone(), spki)
    }
}

impl RemoteKey {
    fn new(client: Client, spki: &[u8]) -> Option<Self> {
        let kind = KeyType::of_spki(spki).filter(|kind| has_scheme(*kind))?;
        Some(Self { client, ski: Ski::of_spki(spki), kind, spki: spki.into() })
    }

    /// The key's identifier (SKI) at the service.
    #[must_use]
    pub fn ski(&self) -> Ski {
        self.ski
    }

    async fn request(&self, scheme: Scheme, input: &[u8], deadline: Deadline) -> Result<Vec<u8>, SignError> {
        scheme.check(self.kind, input.len()).map_err(|misfit| SignError::Failed(misfit.to_string()))?;
        let opcode = operation::opcode_of(scheme)
            .ok_or_else(|| SignError::Failed("the protocol has no opcode for this scheme".to_owned()))?;
        let items = Items { opcode, ski: Some(self.ski), payload: input, ..Items::default() };
        self.client.call(&items, deadline).await.map_err(sign_error)
    }
}

fn sign_error(error: ClientError) -> SignError {
    match &error {
        ClientError::Late(_) => SignError::Late,
        ClientError::Overloaded(_) | ClientError::Lost(_) | ClientError::Unreachable => {
            SignError::Unavailable(error.to_string())
        }
        ClientError::Refused { code: ErrorCode::Internal | ErrorCode::Remote, .. } => {
            SignError::Unavailable(error.to_string())
        }
        ClientError::Refused { .. } | ClientError::TooLong => SignError::Failed(error.to_string()),
    }
}

impl Signer for RemoteKey {
    fn key_type(&self) -> KeyType {
        self.kind
    }

    fn spki(&self) -> &[u8] {
        &self.spki
    }

    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(self.request(scheme, input, deadline))
    }
}

/// Kinds of keys that the protocol signs with.
fn has_scheme(kind: KeyType) -> bool {
    keys::Scheme::of(kind).is_some()
}
