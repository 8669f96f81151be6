//! The server's side: a client that sends requests to the socket of a signer process.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use authority::ca_keys::{CaKeyLocation, CaKeys, NewCaKey, SigningOrder};
use authority::keystore::{KeyStoreError, NewKey};
use authority::signer_checks::SIGNER_PROVIDER;
use futures_util::future::{BoxFuture, FutureExt};
use keys::{Deadline, SignError};
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::frame;
use crate::message::{Request, Response};

/// Maximum number of concurrent requests; further ones wait. The signer accepts more connections.
const CONCURRENCY_MAX: usize = 32;
/// Timeout for generating a key. An RSA key of 4,096 bits takes seconds.
const GENERATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// CA keys in the signer process that listens on a socket. Connections are reused, and reopened after a restart of the signer.
pub struct SignerClient {
    path: PathBuf,
    idle: Mutex<Vec<UnixStream>>,
    permits: Semaphore,
}

impl SignerClient {
    /// Creates a client. It connects with the first request.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::default(), permits: Semaphore::new(CONCURRENCY_MAX) }
    }

    async fn call(&self, request: Request, body: &[u8], deadline: Instant) -> Result<Response, SignError> {
        let answer = tokio::time::timeout_at(deadline.into(), self.exchange(&request, body)).await;
        let answer = answer.map_err(|_| SignError::Late)?;
        answer.map_err(|error| {
            SignError::Unavailable(format!(
                "the signer at {} cannot be reached: {error}; check that `bulla serve --roles signer` runs there",
                self.path.display()
            ))
        })
    }

    /// Sends a request over an idle connection, or over a new one if the signer has closed it. An order that is sent twice is
    /// signed twice; one of the signatures is used.
    async fn exchange(&self, request: &Request, body: &[u8]) -> io::Result<Response> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        loop {
            let connection = self.idle.lock().pop();
            let Some(mut stream) = connection else { break };
            if let Ok(answer) = exchange_on(&mut stream, request, body).await {
                self.idle.lock().push(stream);
                return Ok(answer);
            }
        }
        let mut stream = UnixStream::connect(&self.path).await?;
        let answer = exchange_on(&mut stream, request, body).await?;
        self.idle.lock().push(stream);
        Ok(answer)
    }

    async fn make_key(&self, wanted: NewCaKey<'_>) -> Result<NewKey, KeyStoreError> {
        let provider = |error| KeyStoreError::Provider {
            name: wanted.provider.unwrap_or(SIGNER_PROVIDER).to_owned(),
            error,
        };
        let answer = self.call(Request::make(wanted), &[], Instant::now() + GENERATE_TIMEOUT).await;
        match answer.map_err(provider)? {
            Response::Key(row) => row.read().map_err(|error| provider(error.into())),
            other => Err(provider(sign_error(other))),
        }
    }
}

async fn exchange_on(stream: &mut UnixStream, request: &Request, body: &[u8]) -> io::Result<Response> {
    frame::write(stream, request, body).await?;
    let lengths = frame::lengths(stream).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(frame::read(stream, lengths).await?.0)
}

fn sign_error(answer: Response) -> SignError {
    match answer {
        Response::Failed(reason) => SignError::Failed(reason),
        Response::Unavailable(reason) => SignError::Unavailable(reason),
        Response::Late => SignError::Late,
        Response::Ready | Response::Key(_) | Response::Signature(_) => {
            SignError::Failed("the signer returned a response to another request".to_owned())
        }
    }
}

impl CaKeys for SignerClient {
    fn make<'a>(&'a self, wanted: NewCaKey<'a>) -> BoxFuture<'a, Result<NewKey, KeyStoreError>> {
        self.make_key(wanted).boxed()
    }

    fn sign<'a>(
        &'a self,
        order: SigningOrder<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        async move {
            let left = deadline.saturating_duration_since(Instant::now()).as_millis();
            let request = Request::sign(&order, u64::try_from(left).unwrap_or(u64::MAX));
            match self.call(request, order.tbs, deadline).await? {
                Response::Signature(signature) => Ok(signature.read()?),
                other => Err(sign_error(other)),
            }
        }
        .boxed()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SignError>> {
        async {
            match self.call(Request::Ready, &[], Instant::now() + READY_TIMEOUT).await? {
                Response::Ready => Ok(()),
                other => Err(sign_error(other)),
            }
        }
        .boxed()
    }

    fn custody(&self) -> CaKeyLocation {
        CaKeyLocation::Apart
    }
}

impl fmt::Debug for SignerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignerClient").field("path", &self.path).finish_non_exhaustive()
    }
}
