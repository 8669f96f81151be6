//! Parts of the demo's fictional organisation that the demo and its test share: a receiver of requests, and a certificate that is
//! not renewed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keys::{KeyType, PrivateKey, Signer as _};
use serde_json::Value;
use x509::build::{Attribute, CertificateSpec, Extension, distinguished_name, signed, tbs_certificate};
use x509::{GeneralName, SerialNumber, UnixTime};

/// Subject names of the shop's certificate. Only the second name resolves on this machine.
pub(super) const NAMES: [&str; 2] = ["shop.example", "localhost"];
/// Response to every request.
pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Timeout for the next bytes of a client.
const IDLE: Duration = Duration::from_secs(10);

/// One request: its head and its body.
type Request = (String, String);

/// A plain HTTP server that stores each request and responds with 200.
#[derive(Clone)]
pub(super) struct Receiver {
    pub(super) port: u16,
    received: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    /// Starts the server on a free port of 127.0.0.1.
    pub(super) fn start() -> io::Result<Self> {
        let (listener, port) = listen()?;
        let received = Arc::<Mutex<Vec<Request>>>::default();
        let into = Arc::clone(&received);
        accept(listener, move |stream| receive(stream, &into));
        Ok(Self { port, received })
    }

    /// Returns the heads of the requests received so far.
    pub(super) fn heads(&self) -> Vec<String> {
        self.requests(|(head, _)| Some(head.clone()))
    }

    /// Returns the bodies received so far that are JSON.
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

/// Returns a self-signed certificate that expires in two days, and its key, in PEM.
pub(super) fn expiring_certificate() -> io::Result<(String, String)> {
    let key = PrivateKey::generate(KeyType::P256).map_err(io::Error::other)?;
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
    let signature = key.sign_now(&tbs).map_err(io::Error::other)?;
    let der = signed(&tbs, &key.algorithm(), &signature);
    Ok((x509::pem::encode("CERTIFICATE", &der), key.to_pkcs8_pem().to_string()))
}

/// Listens on a free port of 127.0.0.1.
pub(super) fn listen() -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Serves each connection on a thread until the process exits.
pub(super) fn accept(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) {
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
