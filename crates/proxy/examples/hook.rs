//! A hook for `bulla proxy`: refuses to send private keys. It speaks ext_authz.
//!
//! ```console
//! $ cargo run -p proxy --example hook -- 127.0.0.1:9001
//! ```
//!
//! The messages are generated from `crates/proxy/proto`. The body needs `request_body = true` of the hook.

use std::convert::Infallible;
use std::io;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::hooks::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use proxy::hooks::envoy::config::core::v3::{HeaderValue, HeaderValueOption, HttpStatus};
use proxy::hooks::envoy::service::auth::v3::authorization_server::{Authorization, AuthorizationServer};
use proxy::hooks::envoy::service::auth::v3::check_response::HttpResponse;
use proxy::hooks::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse, Status,
};
use tokio::net::TcpListener;
use tower::Service;

/// gRPC's status for a request that is not permitted.
const PERMISSION_DENIED: i32 = 7;

struct Hook;

#[tonic::async_trait]
impl Authorization for Hook {
    async fn check(
        &self,
        request: tonic::Request<CheckRequest>,
    ) -> Result<tonic::Response<CheckResponse>, tonic::Status> {
        let attributes = request.into_inner().attributes.unwrap_or_default();
        let http = attributes.request.and_then(|request| request.http).unwrap_or_default();
        let body =
            if http.body.is_empty() { String::from_utf8_lossy(&http.raw_body) } else { http.body.into() };
        let (code, response) = match body.contains("PRIVATE KEY-----") {
            true => (PERMISSION_DENIED, HttpResponse::DeniedResponse(refusal())),
            false => {
                let principal = attributes.source.unwrap_or_default().principal;
                (0, HttpResponse::OkResponse(checked_for(principal)))
            }
        };
        // A response without a status is not valid.
        let status = Some(Status { code, message: String::new() });
        Ok(tonic::Response::new(CheckResponse { status, http_response: Some(response) }))
    }
}

fn refusal() -> DeniedHttpResponse {
    let body = "This request contains a private key. It was not sent.\n".to_owned();
    DeniedHttpResponse { status: Some(HttpStatus { code: 403 }), headers: Vec::new(), body }
}

fn checked_for(principal: String) -> OkHttpResponse {
    let header = HeaderValue { key: "x-checked-for".to_owned(), value: principal, raw_value: Vec::new() };
    let append_action = HeaderAppendAction::OverwriteIfExistsOrAdd.into();
    let field = HeaderValueOption { header: Some(header), append_action, ..HeaderValueOption::default() };
    OkHttpResponse { headers: vec![field], ..OkHttpResponse::default() }
}

/// Serves the hook until the listener fails.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let answer = |request: hyper::Request<Incoming>| async move {
                let mut service = AuthorizationServer::new(Hook);
                Ok::<_, Infallible>(service.call(request).await.unwrap_or_else(|never| match never {}))
            };
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            if let Err(error) = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await {
                eprintln!("a connection failed: {error}");
            }
        });
    }
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("the hook listens on {}", listener.local_addr()?);
    serve(listener).await
}
