//! Signing with keys in this process. RSA signs on threads of its own; other keys sign on the calling thread.

use futures_util::future::BoxFuture;

use super::PrivateKey;
use super::threads::STAGE;
use crate::signer::{Deadline, Signer};
use crate::{KeyType, Scheme, SignError};

impl Signer for PrivateKey {
    fn key_type(&self) -> KeyType {
        self.inner.kind
    }

    fn spki(&self) -> &[u8] {
        &self.inner.spki
    }

    fn sign<'a>(
        &'a self,
        message: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            if self.signs_inline() {
                return self.sign_now(message);
            }
            let (key, message) = (self.clone(), message.to_vec());
            run_on_thread(deadline, move || key.sign_now(&message)).await
        })
    }

    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            if self.signs_inline() {
                return self.sign_digest_now(scheme, input);
            }
            let (key, input) = (self.clone(), input.to_vec());
            run_on_thread(deadline, move || key.sign_digest_now(scheme, &input)).await
        })
    }

    fn in_process_key(&self) -> Option<&PrivateKey> {
        Some(self)
    }
}

/// Makes a signature on a thread of its own, when the concurrency limit permits.
async fn run_on_thread(
    deadline: Deadline,
    sign: impl FnOnce() -> Result<Vec<u8>, SignError> + Send + 'static,
) -> Result<Vec<u8>, SignError> {
    let turn = tokio::time::timeout_at(deadline.into(), STAGE.acquire()).await;
    let turn = turn.map_err(|_| SignError::Late)?;
    let _turn = turn.map_err(|_| SignError::Unavailable("shutting down".to_owned()))?;
    let signed = tokio::task::spawn_blocking(sign).await;
    signed.unwrap_or_else(|_| Err(SignError::Unavailable("shutting down".to_owned())))
}
