//! Sending a request to an upstream.

use std::sync::Arc;

use hyper::{Request, Response, StatusCode, Version};

use super::super::target::Origin;
use super::body::UpstreamResponseBody;
use super::error::{NoAnswer, ParentProxyError, UpstreamConnectError};
use super::parent::Parent;
use super::upstreams::{Upstreams, marked};
use super::websocket::is_websocket;
use crate::request_body::RequestBody;

/// Maximum pooled connections that a request is tried on before a new connection is opened.
const KEPT_TRIES: usize = 3;

/// Reason why a request got no response from the upstream.
pub struct Unanswered {
    /// Error of the last attempt.
    pub error: NoAnswer,
    /// The request, if no part of it was sent.
    pub unsent: Option<Box<Request<RequestBody>>>,
}

impl Unanswered {
    fn unsent(error: Arc<UpstreamConnectError>, request: Request<RequestBody>) -> Self {
        Self { error: NoAnswer::Connection(error), unsent: Some(Box::new(request)) }
    }
}

impl From<NoAnswer> for Unanswered {
    fn from(error: NoAnswer) -> Self {
        Self { error, unsent: None }
    }
}

impl Upstreams {
    /// Sends a request to `origin`. If a pooled connection fails before any part of the request was sent, retries on another
    /// connection. On a pooled HTTP/2 connection, also retries a request that the upstream did not process (RFC 9113 section 8.7),
    /// if its body is empty or kept in memory.
    pub async fn send(
        &self,
        origin: &Arc<Origin>,
        request: Request<RequestBody>,
        prepare: impl Fn(&mut Request<RequestBody>, Version),
    ) -> Result<Response<UpstreamResponseBody>, NoAnswer> {
        self.try_send(origin, request, prepare).await.map_err(|unanswered| unanswered.error)
    }

    /// Like [`Self::send`], but returns the request if no part of it was sent, for a retry on another server.
    ///
    /// # Errors
    /// [`Unanswered`]
    pub async fn try_send(
        &self,
        origin: &Arc<Origin>,
        mut request: Request<RequestBody>,
        prepare: impl Fn(&mut Request<RequestBody>, Version),
    ) -> Result<Response<UpstreamResponseBody>, Unanswered> {
        let is_websocket = is_websocket(&request);
        if is_websocket && (origin.is_http2_prior_knowledge() || self.0.http2_alone.contains_key(origin)) {
            return Ok(Box::pin(self.send_by_extended_connect(origin, request, prepare)).await?);
        }
        for tries in 0.. {
            let pooled = if tries < KEPT_TRIES { self.0.pool.take(origin) } else { None };
            let ready = match pooled {
                Some(ready) => ready,
                // Boxed to keep the future of the usual case, a pooled connection, small.
                None if tries < KEPT_TRIES => match Box::pin(self.connection(origin)).await {
                    Err(error) if is_websocket && error.is_alpn_mismatch() => {
                        self.0.http2_alone.insert(Arc::clone(origin), ());
                        return Ok(Box::pin(self.send_by_extended_connect(origin, request, prepare)).await?);
                    }
                    Err(error) => return Err(Unanswered::unsent(error, request)),
                    Ok(made) => made,
                },
                None => match Box::pin(self.connect(origin)).await {
                    Err(error) => return Err(Unanswered::unsent(Arc::new(error), request)),
                    Ok(made) => made,
                },
            };
            let reused = ready.pooled;
            self.0.reuse.request(reused);
            prepare(&mut request, ready.sender.version());
            let parent = self.0.dialler.parent_for_requests(origin);
            if let Some(parent) = parent {
                parent.address(&mut request, &origin.target);
            }
            match self.send_on(origin, ready, request).await? {
                // The parent demands credentials from this proxy, not from its client.
                Ok(response) if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                    return match parent {
                        Some(parent) => Err(refused(parent, response.status()).into()),
                        None => Ok(marked(response, reused)),
                    };
                }
                Ok(response) => return Ok(marked(response, reused)),
                Err(unsent) if reused => request = *unsent,
                Err(unsent) => {
                    return Err(Unanswered::unsent(Arc::new(UpstreamConnectError::ClosedAtOnce), *unsent));
                }
            }
        }
        Err(NoAnswer::Connection(Arc::new(UpstreamConnectError::ClosedAtOnce)).into())
    }
}

fn refused(parent: &Parent, status: StatusCode) -> NoAnswer {
    NoAnswer::Connection(Arc::new(UpstreamConnectError::by(parent, ParentProxyError::Refused(status))))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::TcpListener;
    use x509::HostOrIp;

    use std::time::Duration;

    use super::super::address_rule::AddressRule;
    use super::super::policy::UpstreamPolicies;
    use super::super::sender::{Http1, Sender};
    use super::super::upstreams::{PoolOptions, Reuse};
    use super::*;
    use crate::access_log::ConnectionReuse;
    use crate::client_body::ClientBody;
    use crate::fields::{address, clean_trailers};
    use crate::stall::UploadTimer;
    use crate::target::Target;
    use crate::unanswered::reason_of;
    use hyper::client::conn::http1;
    use hyper::header::HeaderValue;
    use inbound::ServiceTasks;
    use outbound::resolve::Resolver;
    use rustls::RootCertStore;

    const LONG: Duration = Duration::from_secs(60);

    fn pool(reuse: &Reuse) -> Upstreams {
        let options = PoolOptions {
            policies: UpstreamPolicies::default(),
            guard: outbound::guard::Guard::default(),
            address_rule: AddressRule::default(),
            connections_max: 4,
            per_host_max: 4,
            idle_max: 4,
            idle_life: LONG,
            connect_timeout: LONG,
            response_timeout: LONG,
            idle: LONG,
        };
        let (resolver, roots) = (Resolver::system().unwrap(), RootCertStore::empty());
        Upstreams::new(&options, Vec::new(), resolver, roots, ServiceTasks::default(), reuse.clone()).unwrap()
    }

    fn origin(listener: &TcpListener, http2: bool) -> Arc<Origin> {
        let port = listener.local_addr().unwrap().port();
        let target = Target { name: HostOrIp::parse("127.0.0.1").unwrap(), port, redirected: false };
        Arc::new(Origin { target, server: None, tls: None, http2, absolute_form: false, may_be_local: true })
    }

    async fn exchange(pool: &Upstreams, origin: &Arc<Origin>) -> Result<(bool, String), NoAnswer> {
        let (upload, _) = UploadTimer::within(LONG);
        let body = RequestBody::new(ClientBody::empty(), None, upload, clean_trailers);
        let path = format!("/{}", "long".repeat(64));
        let request = Request::get(path).body(body).unwrap();
        let host = HeaderValue::from_static("a.example");
        let prepare = |request: &mut Request<RequestBody>, version| address(request, origin, &host, version);
        let response = pool.send(origin, request, prepare).await?;
        let pooled = response.extensions().get::<ConnectionReuse>() == Some(&ConnectionReuse::Pooled);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Ok((pooled, String::from_utf8(body.to_vec()).unwrap()))
    }

    /// Puts a connection into the pool and returns its far end.
    async fn keep_one(pool: &Upstreams, origin: &Arc<Origin>) -> DuplexStream {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        sender.ready().await.unwrap();
        pool.0.pool.keep(origin, Sender::Http1(Http1 { sender, server_key: None }));
        far
    }

    /// Sends `answer` to the first client after `bytes` bytes were received.
    fn answers(listener: TcpListener, bytes: usize, answer: &'static [u8]) {
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut vec![0; bytes]).await.unwrap();
            stream.write_all(answer).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
    }

    #[tokio::test]
    async fn unsent_request_is_retried_on_a_new_connection() {
        let (listener, reuse) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Reuse::default());
        let (pool, origin) = (pool(&reuse), origin(&listener, false));
        answers(listener, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let far = keep_one(&pool, &origin).await;
        // The connection's task has not run yet, so the pool has not detected the close.
        drop(far);
        let (pooled, reply) = exchange(&pool, &origin).await.unwrap();
        assert_eq!((pooled, reply.as_str()), (false, "ok"));
        assert_eq!(
            (reuse.pooled.get(), reuse.made.get()),
            (1, 1),
            "it had been tried on the one that was kept"
        );
    }

    /// Returns type and stream of the next HTTP/2 frame.
    async fn frame(stream: &mut tokio::net::TcpStream) -> (u8, u32) {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
    }

    /// Reads up to the header of stream `number`, and sends `answer`.
    async fn answer_request(stream: &mut tokio::net::TcpStream, number: u32, answer: &[u8]) {
        const HEADERS: u8 = 1;
        while frame(stream).await != (HEADERS, number) {}
        stream.write_all(answer).await.unwrap();
    }

    #[tokio::test]
    async fn http2_request_that_was_not_processed_is_retried() {
        // RFC 9113 sections 6.8 and 6.4; `:status: 200` is 0x88 (RFC 7541 appendix A).
        const PREFACE: usize = 24;
        const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        const FIRST_OK: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];
        const ENDED_AFTER_FIRST: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        const THIRD_REFUSED: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 7];
        const FIFTH_OK: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 5, 0x88];
        for (answer, connections) in [(ENDED_AFTER_FIRST, 2), (THIRD_REFUSED, 1)] {
            let (listener, reuse) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Reuse::default());
            let (pool, origin) = (pool(&reuse), origin(&listener, true));
            tokio::spawn(async move {
                let mut streams = Vec::new();
                for accepted in 1..=connections {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
                    stream.write_all(SETTINGS).await.unwrap();
                    answer_request(&mut stream, 1, FIRST_OK).await;
                    if accepted == 1 {
                        answer_request(&mut stream, 3, answer).await;
                    }
                    if connections == 1 {
                        answer_request(&mut stream, 5, FIFTH_OK).await;
                    }
                    streams.push(stream);
                }
                std::future::pending::<()>().await;
            });
            exchange(&pool, &origin).await.unwrap();
            exchange(&pool, &origin).await.unwrap();
            assert_eq!(reuse.made.get(), connections);
        }
    }

    #[tokio::test]
    async fn request_is_not_retried_when_it_may_have_been_received() {
        let (listener, reuse) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Reuse::default());
        let (pool, origin) = (pool(&reuse), origin(&listener, false));
        answers(listener, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let mut far = keep_one(&pool, &origin).await;
        tokio::spawn(async move { far.read_u8().await.unwrap() });
        let error = exchange(&pool, &origin).await.unwrap_err();
        assert!(matches!(error, NoAnswer::Broken(_)), "{error}");
        assert_eq!((reuse.pooled.get(), reuse.made.get()), (1, 0));
        assert_eq!(reason_of(&error), (StatusCode::BAD_GATEWAY, "http_response_incomplete"));
    }

    #[tokio::test]
    async fn protocol_mismatch_is_reported_as_http_protocol_error() {
        const ALERT: &[u8] = &[21, 3, 1, 0, 2, 2, 10];
        for (http2, answer) in [
            (true, &b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..]),
            (false, ALERT),
            (true, ALERT),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (pool, origin) = (pool(&Reuse::default()), origin(&listener, http2));
            // The server reads 200 bytes only after the request's header has begun: fewer bytes precede it, also with HTTP/2.
            answers(listener, 200, answer);
            let error = exchange(&pool, &origin).await.unwrap_err();
            let wanted = (StatusCode::BAD_GATEWAY, "http_protocol_error");
            assert_eq!(reason_of(&error), wanted, "{http2}: {error:?}");
        }
    }
}
