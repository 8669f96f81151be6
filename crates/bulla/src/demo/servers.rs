//! A server of the demo's fictional organisation: a shop over TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::exit::{Exit, Outcome, Problem};
use rustls::ServerConfig;
use rustls::server::ServerConnection;
use rustls::sign::SingleCertAndKey;

use super::fixtures::{OK, accept, expiring_certificate, listen};
use crate::files;

/// A TLS server whose certificate and key are files, read for each connection.
#[derive(Clone, Debug)]
pub(super) struct DemoServer {
    pub(super) port: u16,
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
}

impl DemoServer {
    /// Starts the server with a self-signed certificate that expires in two days. Its certificate and key are files in `folder`.
    /// Bulla did not issue this certificate and does not renew it.
    pub(super) fn start(folder: &Path) -> Outcome<Self> {
        let (chain, key) = (folder.join("full.pem"), folder.join("key.pem"));
        let certificate_and_key = expiring_certificate();
        let (certificate_pem, key_pem) =
            certificate_and_key.map_err(|error| Problem::new(Exit::Machine, error))?;
        for (path, text) in [(&chain, certificate_pem.as_bytes()), (&key, key_pem.as_bytes())] {
            crate::data_folder::put_bytes(path, text)?;
        }
        let (listener, port) = listen().map_err(|error| loopback_bind_error(&error))?;
        let shop = Self { port, chain, key };
        let served = shop.clone();
        accept(listener, move |stream| served.serve(stream));
        Ok(shop)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let key = files::certified_key("", &self.chain, &self.key);
        let key = key.map_err(|problem| io::Error::other(problem.message))?;
        let key = Arc::unwrap_or_clone(key);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_no_client_auth();
        let config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        let mut connection = ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        let mut tls = rustls::Stream::new(&mut connection, &mut stream);
        let mut request = [0; 4096];
        if tls.read(&mut request)? > 0 {
            tls.write_all(OK)?;
        }
        connection.send_close_notify();
        connection.complete_io(&mut stream).map(drop)
    }
}

/// Describes why a server of the demo does not listen.
pub(super) fn loopback_bind_error(error: &io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot listen on 127.0.0.1: {error}"))
        .hint("the demo needs loopback addresses")
}
