//! Figures alone, in plain HTTP: for roles that serve nothing else over it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ACCEPT_PAUSE;
use crate::metrics::{MEDIA_TYPE, Metrics};

/// Connections at once: a few scrapers, and whoever looks.
const CONNECTIONS_MAX: usize = 32;
/// For a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// For a whole connection; scrapers come back.
const CONNECTION_WITHIN: Duration = Duration::from_secs(300);

/// Answers `/metrics` with the figures, and `/healthz` with 200, until `stop`.
pub async fn serve_figures(listener: TcpListener, metrics: Metrics, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tracker = TaskTracker::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { break };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (metrics, stop) = (metrics.clone(), stop.clone());
        tracker.spawn(async move {
            let _permit = permit;
            let service = service_fn(|request: Request<Incoming>| {
                std::future::ready(Ok::<_, Infallible>(answer(&request, &metrics)))
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            let serving = builder.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = stop.cancelled() => {}
                // A scraper that hung up needs no telling.
                _ = tokio::time::timeout(CONNECTION_WITHIN, serving) => {}
            }
        });
    }
    tracker.close();
    tracker.wait().await;
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<String> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics.encode()),
        (&Method::GET, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there is /metrics and /healthz\n".to_owned()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}
