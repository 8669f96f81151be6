//! Runs the web console for a server in another process, for development of pages: only this crate must be rebuilt. Pages are rendered
//! here and read the API over the network, with a token in place of a session.
//!
//! ```console
//! $ cargo run -p web_console --example beside -- https://127.0.0.1:8443 ca.pem TOKEN 8000 https://127.0.0.1:8844
//! ```

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http_body_util::BodyExt;

struct Remote {
    client: reqwest::Client,
    server: String,
    token: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, ca, token, port, credentials @ ..] = arguments.as_slice() else {
        return Err("usage: beside SERVER CA_FILE TOKEN PORT [CREDENTIAL_SERVER]".into());
    };
    let ca = reqwest::Certificate::from_pem(&std::fs::read(ca)?)?;
    let client = reqwest::Client::builder().tls_certs_only([ca]).build()?;
    let routes = |server: &String| {
        let remote = Remote { client: client.clone(), server: server.clone(), token: token.clone() };
        Router::new().fallback(forward).with_state(Arc::new(remote))
    };
    let credentials = credentials.first().map(routes);
    let routes = routes(server);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    println!("http://{}/console", listener.local_addr()?);
    axum::serve(listener, routes.clone().merge(web_console::pages(routes, credentials))).await?;
    Ok(())
}

async fn forward(State(remote): State<Arc<Remote>>, request: Request) -> Response {
    match passed_on(&remote, request).await {
        Ok(response) => response,
        Err(error) => (http::StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn passed_on(
    remote: &Remote,
    request: Request,
) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
    let (mut parts, body) = request.into_parts();
    for name in [AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    for name in ["origin", "sec-fetch-site", "sec-fetch-mode", "x-csrf-token"] {
        parts.headers.remove(name);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let body = body.collect().await?.to_bytes();
    let outgoing = remote.client.request(parts.method, format!("{}{path}", remote.server));
    let answer = outgoing.headers(parts.headers).bearer_auth(&remote.token).body(body).send().await?;
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if name != TRANSFER_ENCODING && name != CONTENT_LENGTH {
            response = response.header(name, value);
        }
    }
    let chunks = futures_util::stream::try_unfold(answer, async |mut answer| {
        Ok::<_, reqwest::Error>(answer.chunk().await?.map(|chunk| (chunk, answer)))
    });
    Ok(response.body(Body::from_stream(chunks))?)
}
