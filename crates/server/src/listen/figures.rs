//! Figures alone, in plain HTTP: for roles that serve nothing else over it.

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

/// What is no figure and no document.
const PLAIN: &str = "text/plain; charset=utf-8";
/// Connections at once: a few scrapers, and anyone who looks. For one more the oldest is closed.
const CONNECTIONS_MAX: usize = 64;
/// Of these from one address.
const PER_ADDRESS: OriginLimit = OriginLimit::PerNetwork(32);
/// For a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// For a whole connection; scrapers come back.
const CONNECTION_WITHIN: Duration = Duration::from_secs(300);

/// JSON documents beside the metrics, by path.
pub type Documents = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Answers `/metrics` with the figures, `/healthz` with 200, and other paths with what there is in `documents`, until `stop`.
pub async fn serve_figures(
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
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            let serving = builder.serve_connection(TokioIo::new(stream), service);
            // A scraper that hung up needs no telling.
            let _ = tokio::time::timeout(CONNECTION_WITHIN, serving).await;
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
            (StatusCode::FORBIDDEN, PLAIN, "figures are for programs, not for web pages\n".to_owned())
        }
        (&Method::GET, "/metrics") => (StatusCode::OK, MEDIA_TYPE, metrics.encode()),
        (&Method::GET, "/healthz") => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        _ => match document() {
            Some(document) => (StatusCode::OK, "application/json", document),
            None => (StatusCode::NOT_FOUND, PLAIN, "there is /metrics and /healthz\n".to_owned()),
        },
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
