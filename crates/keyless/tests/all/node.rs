//! A node of the service, as seen by other nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use keyless::client::ClientTls;
use keyless::native::Client;
use keyless::routing::{Member, NodeId, Router, RouterOptions, RoutingMetrics};
use keyless::server::{NodesOptions, Options, Running, TlsOptions, start};
use keyless::{KeySet, Metrics, Source};
use keys::KeyRef;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use x509::GeneralName;

use crate::certificates::{Authority, CLIENT_AUTH, SERVER_AUTH};
use crate::peer::until;

pub(crate) struct Node {
    pub(crate) member: Member,
    pub(crate) running: Running,
    pub(crate) keys: KeySet,
    pub(crate) router: Router,
    pub(crate) metrics: Metrics,
    figures: RoutingMetrics,
    pub(crate) folder: tempfile::TempDir,
    /// Its certificate and trust anchors for connections to other nodes.
    pub(crate) shown: ClientTls,
}

impl Node {
    /// Starts node `number`, which other nodes reach at `address`.
    pub(crate) async fn new(
        ca: &Authority,
        number: u8,
        address: SocketAddr,
        router: RouterOptions,
        options: Options,
    ) -> Self {
        let id = NodeId([number; 16]);
        let names = [GeneralName::Uri(id.uri()), GeneralName::Dns(id.dns())];
        let leaf = ca.leaf_of("CN=node", &names, &[SERVER_AUTH, CLIENT_AUTH]);
        let (certificate, tls_spki_sha256) = (leaf.certified(), leaf.spki_sha256());
        let shown = ClientTls { certificate: certificate.clone(), server_roots: vec![ca.der.clone()] };
        let figures = RoutingMetrics::default();
        let router = Router::new(id, &shown, router, figures.clone()).unwrap();
        let tls = TlsOptions { certificate, client_roots: vec![ca.der.clone()], client_crls: Vec::new() };
        let folder = tempfile::tempdir().unwrap();
        let nodes = NodesOptions { address, tls, router: router.clone() };
        let options = Options {
            nodes: Some(nodes),
            socket: Some(folder.path().join("keys.sock")),
            native_socket: Some(folder.path().join("native.sock")),
            ..options
        };
        let (keys, metrics) = (KeySet::default(), Metrics::default());
        let running = start(options, keys.clone(), metrics.clone()).await.unwrap();
        let member = Member {
            id,
            name: format!("node-{number}"),
            site: format!("site-{number}"),
            address: running.nodes.unwrap().to_string(),
            tls_spki_sha256,
        };
        Self { member, running, keys, router, metrics, figures, folder, shown }
    }

    /// Returns the TLS configuration of this node as a client of other nodes.
    pub(crate) fn config(&self) -> ClientConfig {
        config(&self.shown)
    }

    pub(crate) fn client(&self) -> Client {
        Client::socket(self.folder.path().join("native.sock"))
    }

    /// Returns a metric of the node's own requests, or of its requests to other nodes.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.figures.register(&mut registry);
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.unwrap_or_default()
    }

    pub(crate) fn holds(&self, name: &str, keys: Vec<KeyRef>) {
        let sealed = |key| (name.to_owned(), Source::Sealed(key));
        self.keys.put_sources("sealed", keys.into_iter().map(sealed).collect());
    }

    /// Waits until this number of nodes is reachable.
    pub(crate) async fn reaches(&self, count: usize) {
        until(|| self.router.measured().len() == count).await;
    }

    pub(crate) async fn stop(self) {
        self.router.stop().await;
        assert!(self.running.stop().await, "nothing was cut off");
    }
}

/// Returns the TLS configuration of a client with this certificate.
pub(crate) fn config(shown: &ClientTls) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    shown.server_roots.iter().for_each(|root| roots.add(root.clone().into()).unwrap());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown.certificate.clone())))
}
