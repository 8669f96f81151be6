//! A remote key as a [`Signer`].

use futures_util::future::BoxFuture;
use keys::{Deadline, KeyType, Scheme, SignError, Signer};

use super::error::ClientError;
use super::failover::Client;
use crate::operation;
use crate::wire::{ErrorCode, MessageItems, Ski};

/// A remote key in key services, identified by its public key.
#[derive(Clone, Debug)]
pub struct RemoteKey {
    client: Client,
    ski: Ski,
    kind: KeyType,
    spki: Box<[u8]>,
}

impl Client {
    /// Returns the remote key with this public key (DER SubjectPublicKeyInfo). `None` if the protocol does not support the key
    /// type. Does not check whether the service has the key.
    #[must_use]
    pub fn key(&self, spki: &[u8]) -> Option<RemoteKey> {
        RemoteKey::new(self.clone(), spki)
    }
}

impl RemoteKey {
    fn new(client: Client, spki: &[u8]) -> Option<Self> {
        let kind = KeyType::of_spki(spki).filter(|kind| supports_signatures(*kind))?;
        Some(Self { client, ski: Ski::of_spki(spki), kind, spki: spki.into() })
    }

    /// Returns the key's identifier (SKI) at the service.
    #[must_use]
    pub fn ski(&self) -> Ski {
        self.ski
    }

    async fn request(&self, scheme: Scheme, input: &[u8], deadline: Deadline) -> Result<Vec<u8>, SignError> {
        scheme.check(self.kind, input.len()).map_err(|misfit| SignError::Failed(misfit.to_string()))?;
        let opcode = operation::opcode_of(scheme)
            .ok_or_else(|| SignError::Failed("the protocol has no opcode for this scheme".to_owned()))?;
        let trace = telemetry::spans::current().map(|span| span.to_string());
        let trace = trace.as_deref().map(str::as_bytes);
        let items =
            MessageItems { opcode, ski: Some(self.ski), payload: input, trace, ..MessageItems::default() };
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

/// Returns whether the protocol supports signatures with this key type.
fn supports_signatures(kind: KeyType) -> bool {
    keys::Scheme::of(kind).is_some()
}
