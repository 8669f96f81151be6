//! hudsucker as its own example sets it up, with the benchmark's authority and upstream: every name is this machine.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use hudsucker::Proxy;
use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone)]
struct ThisMachine;

impl tower_service::Service<Name> for ThisMachine {
    type Response = std::iter::Once<SocketAddr>;
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0)))))
    }
}

fn file(variable: &str) -> String {
    std::fs::read_to_string(std::env::var(variable).expect(variable)).expect(variable)
}

#[tokio::main]
async fn main() {
    let key = KeyPair::from_pem(&file("CA_KEY")).expect("a key");
    let issuer = Issuer::from_ca_cert_pem(&file("CA_CERT"), key).expect("an authority");
    let mut roots = rustls::RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(file("UPSTREAM_ROOT").as_bytes()).expect("a root");
    roots.add(root).expect("a root");
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut tcp = HttpConnector::new_with_resolver(ThisMachine);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let connector =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    let address = std::env::var("ADDRESS").expect("ADDRESS").parse().expect("an address");
    Proxy::builder()
        .with_addr(address)
        .with_ca(RcgenAuthority::new(issuer, 20_000, aws_lc_rs::default_provider()))
        .with_http_connector(connector.wrap_connector(tcp))
        .build()
        .expect("a proxy")
        .start()
        .await
        .expect("it ends never");
}
