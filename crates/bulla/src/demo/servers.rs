//! Servers of the demo's fictional organisation: a shop over TLS, its upstream, and a receiver of alerts.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cli::exit::{Exit, Outcome, Problem, chain};
use keys::{KeyType, PrivateKey, Signer as _};
use rustls::ServerConfig;
use rustls::server::ServerConnection;
use rustls::sign::SingleCertAndKey;
use serde_json::Value;
use x509::build::{Attribute, CertificateSpec, Extension, distinguished_name, signed, tbs_certificate};
use x509::{GeneralName, SerialNumber, UnixTime};

use crate::files;

/// The names of the shop. This machine resolves the second one.
pub(super) const NAMES: [&str; 2] = ["shop.example", "localhost"];
/// Timeout for the next bytes of a client.
const IDLE: Duration = Duration::from_secs(10);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One request: its head and its body.
type Request = (String, String);

/// A plain HTTP server that stores each request and responds with 200.
#[derive(Clone)]
pub(super) struct Receiver {
    pub(super) port: u16,
    received: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    pub(super) fn start() -> Outcome<Self> {
        let (listener, port) = listen()?;
        let received = Arc::<Mutex<Vec<Request>>>::default();
        let into = Arc::clone(&received);
        accept(listener, move |stream| receive(stream, &into));
        Ok(Self { port, received })
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.requests(|(head, _)| Some(head.clone()))
    }

    /// The bodies received so far that are JSON.
    pub(super) fn messages(&self) -> Vec<Value> {
        self.requests(|(_, body)| serde_json::from_str(body).ok())
    }

    fn requests<T>(&self, read: impl Fn(&Request) -> Option<T>) -> Vec<T> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(read).collect()
    }
}

/// Reads the requests of one connection.
fn receive(mut stream: TcpStream, received: &Mutex<Vec<Request>>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = vec![0; length.unwrap_or_default()];
        reader.read_exact(&mut body)?;
        let request = (head, String::from_utf8_lossy(&body).into_owned());
        received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        stream.write_all(OK)?;
    }
}

/// A TLS server whose certificate and key are files, read for each connection.
#[derive(Clone, Debug)]
pub(super) struct Shop {
    pub(super) port: u16,
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
}

impl Shop {
    /// Starts the server in this folder with a self-signed certificate that expires in two days. Bulla did not issue this
    /// certificate and does not renew it.
    pub(super) fn start(folder: &Path) -> Outcome<Self> {
        let (chain, key) = (folder.join("full.pem"), folder.join("key.pem"));
        let (certificate_pem, key_pem) = rogue()?;
        for (path, text) in [(&chain, certificate_pem.as_bytes()), (&key, key_pem.as_bytes())] {
            crate::data_folder::put_bytes(path, text)?;
        }
        let (listener, port) = listen()?;
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

/// Returns a self-signed certificate and its key, in PEM.
fn rogue() -> Outcome<(String, String)> {
    let failed = |error: &dyn std::error::Error| Problem::new(Exit::Machine, chain(error));
    let key = PrivateKey::generate(KeyType::P256).map_err(|error| failed(&error))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let name = distinguished_name(&[(Attribute::CommonName, NAMES[0].to_owned())]);
    let names: Vec<GeneralName> = NAMES.iter().filter_map(|name| GeneralName::parse(name).ok()).collect();
    let serial = SerialNumber::from_random(*uuid::Uuid::new_v4().as_bytes());
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &serial,
        signature: key.algorithm(),
        issuer: &name.der,
        subject: &name.der,
        not_before: UnixTime(now - 80 * x509::DAY),
        not_after: UnixTime(now + 2 * x509::DAY),
        spki: key.spki(),
        extensions: &[Extension::subject_alt_names(&names)],
    });
    let signature = key.sign_now(&tbs).map_err(|error| failed(&error))?;
    let der = signed(&tbs, &key.algorithm(), &signature);
    Ok((x509::pem::encode("CERTIFICATE", &der), key.to_pkcs8_pem().to_string()))
}

fn listen() -> Outcome<(TcpListener, u16)> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let bound = bound.and_then(|listener| listener.local_addr().map(|address| (listener, address.port())));
    bound.map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot listen on 127.0.0.1: {error}"))
            .hint("the demo needs loopback addresses")
    })
}

/// Serves each connection on a thread until the process exits.
fn accept(listener: TcpListener, serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) {
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                let served = stream.set_read_timeout(Some(IDLE)).and_then(|()| serve(stream));
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection to a server of the demo ended");
                }
            });
        }
    });
}
