//! Metrics over plain HTTP, for server roles without another HTTP endpoint.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use inbound::{Acceptor, OriginLimit, ServiceTasks, Slots, WhenFull};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::metrics::{MEDIA_TYPE, Metrics};

/// Media type of responses other than metrics and documents.
const PLAIN: &str = "text/plain; charset=utf-8";
/// Maximum concurrent connections, for a few scrapers. A further connection closes the oldest one.
const CONNECTIONS_MAX: usize = 64;
/// Maximum concurrent connections from one address.
const PER_ADDRESS: OriginLimit = OriginLimit::PerNetwork(32);
/// Timeout of a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection; scrapers reconnect.
const CONNECTION_LIFETIME_MAX: Duration = Duration::from_secs(300);

/// JSON documents by path, served in addition to the metrics.
pub type Documents = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Serves metrics at `/metrics`, 200 at `/healthz`, and other paths from `documents`, until `stop`.
pub async fn serve_metrics(
    listener: TcpListener,
    metrics: Metrics,
    documents: Option<Documents>,
    stop: CancellationToken,
) {
    let tasks = ServiceTasks::stopped_by(stop);
    let handler = move |stream: TcpStream, _: SocketAddr| {
        let (metrics, documents) = (metrics.clone(), documents.clone());
        async move {
            let service = service_fn(|request: Request<Incoming>| {
                std::future::ready(Ok::<_, Infallible>(answer(&request, &metrics, documents.as_ref())))
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            let serving = builder.serve_connection(TokioIo::new(stream), service);
            // An error means that the scraper disconnected, which is not worth logging.
            let _ = tokio::time::timeout(CONNECTION_LIFETIME_MAX, serving).await;
        }
    };
    Acceptor::new(&tasks, Slots::limited(CONNECTIONS_MAX, PER_ADDRESS), WhenFull::EvictSilent)
        .run(&listener, Arc::new(handler))
        .await;
    tasks.close(Duration::ZERO).await;
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, documents: Option<&Documents>) -> Response<String> {
    let path = request.uri().path();
    let document =
        || documents.filter(|_| request.method() == Method::GET).and_then(|documents| documents(path));
    let (status, kind, text) = match (request.method(), path) {
        _ if inbound::is_sent_by_web_page(request.headers()) => {
            (StatusCode::FORBIDDEN, PLAIN, "metrics are for programs, not for web pages\n".to_owned())
        }
        (&Method::GET, "/metrics") => (StatusCode::OK, MEDIA_TYPE, metrics.encode()),
        (&Method::GET, "/healthz") => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        _ => match document() {
            Some(document) => (StatusCode::OK, "application/json", document),
            None => (StatusCode::NOT_FOUND, PLAIN, "unknown path: use /metrics or /healthz\n".to_owned()),
        },
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
