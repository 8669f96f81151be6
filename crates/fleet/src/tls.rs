//! The server's side of TLS, one connection at a time and as cheap as can be.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::FleetError;
use crate::counters::Counting;
use crate::kind::{Serve, Versions};
use crate::mint::Served;
use crate::site::Site;

/// Octets read at once; a ClientHello with a post-quantum share fits.
const READ_SIZE: usize = 2_048;

/// What servers of the fleet have in common, made once.
#[derive(Debug)]
pub(crate) struct Tls {
    /// Configurations without a certificate; each connection takes a copy (pointers) and adds one.
    templates: HashMap<Template, ServerConfig>,
    counting: Arc<Counting>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Template {
    versions: Versions,
    h2: bool,
    client_certificate: bool,
}

impl Template {
    fn of(serve: Serve) -> Self {
        let (versions, client_certificate) = match serve {
            Serve::Tls(versions) => (versions, false),
            Serve::ClientCertificate(versions) => (versions, true),
            _ => (Versions::Both, false),
        };
        Self { versions, h2: serve == Serve::H2, client_certificate }
    }
}

/// Presents one certificate, whoever asks.
#[derive(Debug)]
struct Present(Arc<CertifiedKey>);

impl ResolvesServerCert for Present {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Presents nothing; stands in the templates.
#[derive(Debug)]
struct Nothing;

impl ResolvesServerCert for Nothing {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

impl Tls {
    /// `roots` are those that client certificates would have to come from.
    pub(crate) fn new(roots: &[&CertificateDer<'static>], counting: Arc<Counting>) -> Result<Self, FleetError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut templates = HashMap::new();
        for versions in [Versions::Both, Versions::Only12, Versions::Only13] {
            for h2 in [false, true] {
                for client_certificate in [false, true] {
                    let template = Template { versions, h2, client_certificate };
                    templates.insert(template, configure(template, &provider, roots)?);
                }
            }
        }
        Ok(Self { templates, counting })
    }

    /// Shakes hands and listens until the client goes. Whatever the client does is no error here.
    pub(crate) async fn serve(&self, stream: &mut TcpStream, site: &Site) -> io::Result<()> {
        let mut acceptor = Acceptor::default();
        let mut buffer = vec![0; READ_SIZE];
        let accepted = loop {
            let length = read(stream, &mut buffer).await?;
            acceptor.read_tls(&mut &buffer[..length])?;
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((_, mut alert)) => {
                    let mut out = Vec::new();
                    alert.write(&mut out)?;
                    return stream.write_all(&out).await;
                }
            }
        };
        pause(site.handshake).await;
        let Some(served) = site.served(accepted.client_hello().server_name()) else { return Ok(()) };
        let config = self.config(site.serve(), &served);
        match accepted.into_connection(config) {
            Ok(connection) => self.converse(stream, connection, buffer).await,
            Err((_, mut alert)) => {
                let mut out = Vec::new();
                alert.write(&mut out)?;
                stream.write_all(&out).await
            }
        }
    }

    fn config(&self, serve: Serve, served: &Served) -> Arc<ServerConfig> {
        // Every template there can be was made.
        let mut config = self.templates[&Template::of(serve)].clone();
        config.cert_resolver = Arc::new(Present(Arc::new(served.certified())));
        Arc::new(config)
    }

    async fn converse(
        &self,
        stream: &mut TcpStream,
        mut connection: ServerConnection,
        mut buffer: Vec<u8>,
    ) -> io::Result<()> {
        let mut seen = Seen::default();
        let end = loop {
            let mut out = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut out)?;
            }
            self.count(&connection, &mut seen);
            if !out.is_empty() && stream.write_all(&out).await.is_err() {
                break Ok(());
            }
            let Ok(length) = read(stream, &mut buffer).await else { break Ok(()) };
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                connection.read_tls(&mut rest)?;
                if connection.process_new_packets().is_err() {
                    break;
                }
            }
            // What a client says after the handshake is of no interest.
            let _ = io::copy(&mut connection.reader(), &mut io::sink());
            if !rest.is_empty() {
                let mut alert = Vec::new();
                connection.write_tls(&mut alert)?;
                break stream.write_all(&alert).await;
            }
        };
        if seen.flight && !seen.done {
            self.counting.aborted.add();
        }
        end
    }

    fn count(&self, connection: &ServerConnection, seen: &mut Seen) {
        let kind = connection.handshake_kind();
        if !seen.flight && matches!(kind, Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)) {
            // With a HelloRetryRequest the kind is known a round trip before the flight.
            if kind == Some(HandshakeKind::FullWithHelloRetryRequest) {
                self.counting.retried.add();
            }
            seen.flight = true;
            self.counting.flights.add();
        }
        if !seen.done && !connection.is_handshaking() {
            seen.done = true;
            match kind {
                Some(HandshakeKind::Resumed) => self.counting.resumed.add(),
                _ => self.counting.full.add(),
            }
        }
    }
}

/// What was counted of one connection.
#[derive(Default)]
struct Seen {
    flight: bool,
    done: bool,
}

fn configure(
    template: Template,
    provider: &Arc<CryptoProvider>,
    roots: &[&CertificateDer<'static>],
) -> Result<ServerConfig, FleetError> {
    let versions: &[&rustls::SupportedProtocolVersion] = match template.versions {
        Versions::Both => &[&rustls::version::TLS12, &rustls::version::TLS13],
        Versions::Only12 => &[&rustls::version::TLS12],
        Versions::Only13 => &[&rustls::version::TLS13],
    };
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions)?;
    let builder = if template.client_certificate {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().map(|&root| root.clone()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone()).build()?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_cert_resolver(Arc::new(Nothing));
    // Tickets, so that a client that wants to resume can; nothing is kept here for it.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    if template.h2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(config)
}

/// Reads some; the end is an error.
pub(crate) async fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => Ok(length),
    }
}

/// Sleeps, without a timer for nothing.
pub(crate) async fn pause(duration: std::time::Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}
