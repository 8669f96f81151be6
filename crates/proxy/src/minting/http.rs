//! Requests of consumers: Caddy's HTTP format, and gRPC.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use proto::secret_discovery_service_server::SecretDiscoveryServiceServer;
use tonic::body::Body;
use tower::Service;

use super::consumer::Consumer;
use super::leaf_issuer::NoLeaf;
use super::metrics::MintingProtocol;
use super::sds::{SecretDiscovery, message_max, proto};
use super::service::MintingService;
use crate::certificate_store::FetchError;
use crate::mint::LeafKeyKind;

/// Path for Caddy (`get_certificate http`).
const CERTIFICATE: &str = "/certificate";
/// Path prefix of the gRPC methods.
const SDS: &str = "/envoy.service.secret.v3.SecretDiscoveryService/";
/// Number of ecdsa_secp256r1_sha256 (RFC 8446 section 4.2.3) in Caddy's notation.
const P256: &str = "403";
/// Numbers of the signature schemes for an RSA certificate in Caddy's notation: rsa_pkcs1_sha256 to sha512, rsa_pss_rsae_sha256 to
/// sha512.
const RSA: [&str; 6] = ["401", "501", "601", "804", "805", "806"];

/// HTTP and gRPC service for one connection of a consumer.
pub(super) struct ConsumerService {
    shared: Arc<MintingService>,
    consumer: Consumer,
    sds: SecretDiscoveryServiceServer<SecretDiscovery>,
}

impl ConsumerService {
    pub(super) fn new(shared: Arc<MintingService>, consumer: Consumer) -> Self {
        let discovery = SecretDiscovery::new(Arc::clone(&shared), consumer.clone());
        let bytes_max = message_max(shared.names_per_stream_max);
        let sds = SecretDiscoveryServiceServer::new(discovery).max_decoding_message_size(bytes_max);
        Self { shared, consumer, sds }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if inbound::is_sent_by_web_page(request.headers()) {
            return text(
                StatusCode::FORBIDDEN,
                "requests from web pages are not allowed; certificates are for programs\n",
            );
        }
        if request.uri().path().starts_with(SDS) {
            let answered = self.sds.clone().call(request).await;
            return answered.unwrap_or_else(|never| match never {});
        }
        if request.uri().path() != CERTIFICATE {
            return text(
                StatusCode::NOT_FOUND,
                "not found; use /certificate?server_name=NAME or Envoy's SDS\n",
            );
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        }
        // A consumer identified only by a loopback address may be a browser that another site misuses by DNS rebinding.
        if self.consumer.is_local() && !is_host_loopback(&request) {
            return text(StatusCode::MISDIRECTED_REQUEST, "use 127.0.0.1, [::1] or localhost as the host\n");
        }
        self.certificate(request.uri().query().unwrap_or_default()).await
    }

    /// Returns the chain and its key, or 204 to let Caddy use another source.
    async fn certificate(&self, query: &str) -> Response<Body> {
        let Some(name) = parameter(query, "server_name").filter(|name| !name.is_empty()) else {
            return empty(StatusCode::NO_CONTENT);
        };
        let own = self.shared.leaf_issuer.kind_of(&self.consumer);
        let schemes = parameter(query, "signature_schemes").unwrap_or_default();
        // A client that supports no available signature scheme gets no leaf.
        let Some(kind) = kind_for(&schemes, own) else { return empty(StatusCode::NO_CONTENT) };
        match self.shared.leaf_issuer.leaf(&self.consumer, &name, kind, MintingProtocol::Http).await {
            Ok(leaf) => match leaf.to_pem() {
                Some(pem) => {
                    let mut response = text(StatusCode::OK, Bytes::from_owner(pem));
                    let kind = HeaderValue::from_static("application/x-pem-file");
                    response.headers_mut().insert(CONTENT_TYPE, kind);
                    response
                }
                None => text(StatusCode::SERVICE_UNAVAILABLE, "this leaf certificate cannot be handed out\n"),
            },
            Err(NoLeaf::NotAllowed | NoLeaf::NotPermitted) => empty(StatusCode::NO_CONTENT),
            Err(error @ NoLeaf::NotFetched(FetchError::TooManyNames(_))) => {
                let mut response = text(StatusCode::TOO_MANY_REQUESTS, format!("{error}\n"));
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                response
            }
            Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        }
    }
}

/// Returns the key type for a client that supports `schemes`: P-256 or, for a consumer with RSA leaves, RSA. If `schemes` is empty,
/// returns the consumer's own type.
fn kind_for(schemes: &str, own: LeafKeyKind) -> Option<LeafKeyKind> {
    let verifies = |known: &[&str]| {
        let mut schemes = schemes.split(',').map(|scheme| scheme.trim_start_matches('0'));
        schemes.any(|scheme| known.contains(&scheme))
    };
    match own {
        own if schemes.is_empty() => Some(own),
        _ if verifies(&[P256]) => Some(LeafKeyKind::P256),
        LeafKeyKind::Rsa2048 if verifies(&RSA) => Some(LeafKeyKind::Rsa2048),
        _ => None,
    }
}

fn is_host_loopback<B>(request: &Request<B>) -> bool {
    let header = || request.headers().get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let Some(named) = request.uri().authority().cloned().or_else(header) else { return false };
    let host = named.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns the first parameter with this name in a query.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    percent_decode_str(value).decode_utf8().ok().map(Into::into)
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn text(status: StatusCode, content: impl Into<Bytes>) -> Response<Body> {
    let mut response = empty(status);
    *response.body_mut() = Body::new(Full::new(content.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::{LeafKeyKind, Request, is_host_loopback, kind_for, parameter};

    #[test]
    fn leaf_key_type_matches_the_client_signature_schemes() {
        use LeafKeyKind::{P256, Rsa2048};
        for (schemes, own, wanted) in [
            ("", P256, Some(P256)),
            ("", Rsa2048, Some(Rsa2048)),
            ("804,0403", Rsa2048, Some(P256)),
            ("0804,401", Rsa2048, Some(Rsa2048)),
            ("804", P256, None),
            ("807", Rsa2048, None),
        ] {
            assert_eq!(kind_for(schemes, own), wanted, "{schemes} {own:?}");
        }
    }

    #[test]
    fn requests_for_other_hosts_are_not_local() {
        for (host, is) in [
            ("127.0.0.1:2410", true),
            ("[::1]:2410", true),
            ("localhost", true),
            ("evil.example:2410", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let request = Request::builder().uri("/certificate").header("host", host).body(()).unwrap();
            assert_eq!(is_host_loopback(&request), is, "{host}");
        }
        assert!(!is_host_loopback(&Request::new(())));
    }

    #[test]
    fn percent_encoded_query_parameters_are_decoded() {
        let query = "cipher_suites=1301%2C1302&server_name=a.example&signature_schemes=804%2C403";
        assert_eq!(parameter(query, "server_name").as_deref(), Some("a.example"));
        assert_eq!(parameter(query, "signature_schemes").as_deref(), Some("804,403"));
        assert_eq!(parameter(query, "name"), None);
        assert_eq!(parameter("server_name=%ff", "server_name"), None);
    }
}
