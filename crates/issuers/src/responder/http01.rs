//! A listener that only serves the http-01 validation (RFC 8555 section 8.3).

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use inbound::{Acceptor, ServiceTasks, Slots, WhenFull};
use store::{Clock, Store, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::tables;

/// Maximum bytes of a request head. Validating servers send about 300.
const HEAD_MAX: usize = 8 * 1024;
/// Maximum number of concurrent requests. Validation requests come from a few servers.
const CONNECTIONS_MAX: usize = 64;
/// Timeout from the connection to the end of the response.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const PREFIX: &str = "/.well-known/acme-challenge/";

/// Maximum characters of a token. RFC 8555 section 8.1 requires 128 bits; servers send 32 to 43 characters.
const TOKEN_MAX: usize = 128;
/// Time in µs after which an answer expires if it is not removed.
const ANSWER_LIFE_US: i64 = 3_600 * 1_000_000;

/// Answers to pending http-01 challenges. Stored in the database, so that every server of a cluster has them.
pub(super) struct Http01Responses {
    store: Store,
    clock: Clock,
}

impl Http01Responses {
    pub(super) fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock }
    }

    /// Returns the answer to the challenge with this token, if it is pending.
    pub(super) async fn get(&self, token: &str) -> Result<Option<String>, StoreError> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if token.is_empty() || token.len() > TOKEN_MAX || !token.chars().all(is_token) {
            return Ok(None);
        }
        tables::ExternalIssuers::of(&self.store).challenge(token, self.clock.now_us()).await
    }

    pub(super) async fn put(&self, answers: Vec<(String, String)>) -> Result<(), StoreError> {
        let until = self.clock.now_us().saturating_add(ANSWER_LIFE_US);
        tables::ExternalIssuers::of(&self.store).put_challenges(answers, until).await
    }

    pub(super) async fn remove(&self, tokens: Vec<String>) -> Result<(), StoreError> {
        tables::ExternalIssuers::of(&self.store).delete_challenges(tokens).await
    }
}

pub(super) async fn serve(listener: TcpListener, answers: Weak<Http01Responses>, tasks: ServiceTasks) {
    let _guard = telemetry::tasks::guard("http-01-listener");
    let handler = move |stream: TcpStream, _: SocketAddr| {
        let answers = answers.upgrade();
        async move {
            let Some(answers) = answers else { return };
            // Ignore a peer that closes the connection early.
            let _ = tokio::time::timeout(REQUEST_LIMIT, answer(stream, answers)).await;
        }
    };
    let slots = Slots::new(CONNECTIONS_MAX);
    Acceptor::new(&tasks, slots, WhenFull::Wait).run(&listener, Arc::new(handler)).await;
}

async fn answer(mut stream: TcpStream, answers: Arc<Http01Responses>) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let read = stream.read(&mut chunk).await?;
        if read == 0 || head.len() + read > HEAD_MAX {
            return Ok(());
        }
        head.extend_from_slice(&chunk[..read]);
    }
    let found = match token_of(&head) {
        Some(token) => answers.get(token).await,
        None => Ok(None),
    };
    let (status, body) = match found {
        Ok(Some(answer)) => ("200 OK", answer),
        Ok(None) => ("404 Not Found", "no such challenge\n".to_owned()),
        Err(error) => {
            tracing::warn!(%error, "an http-01 validation request could not be answered");
            ("503 Service Unavailable", "try again\n".to_owned())
        }
    };
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/octet-stream\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns the token of a request line `GET /.well-known/acme-challenge/TOKEN HTTP/1.1`.
fn token_of(head: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(head.split(|&b| b == b'\r').next()?).ok()?;
    let mut parts = line.split(' ');
    let ("GET", target, Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (parts.next()?, parts.next()?, parts.next(), parts.next())
    else {
        return None;
    };
    target.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_acme_challenge_requests_are_parsed() {
        let table = [
            ("GET /.well-known/acme-challenge/abc_-1 HTTP/1.1\r\nHost: a\r\n\r\n", Some("abc_-1")),
            ("GET /.well-known/acme-challenge/abc HTTP/1.0\r\n\r\n", Some("abc")),
            ("POST /.well-known/acme-challenge/abc HTTP/1.1\r\n\r\n", None),
            ("GET /other HTTP/1.1\r\n\r\n", None),
            ("GET /.well-known/acme-challenge/a b HTTP/1.1\r\n\r\n", None),
            ("\u{1}\u{2}\r\n\r\n", None),
        ];
        for (head, token) in table {
            assert_eq!(token_of(head.as_bytes()), token, "{head}");
        }
    }
}
