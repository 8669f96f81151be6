//! Bulla's ACME server over HTTPS.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use authority::acme::{Acme, AcmeOptions, DirectoryOptions, LimitOptions, ValidationOptions};
use authority::issue::{IssueRequest, Source};
use authority::keystore::KeyStore;
use authority::profile::Profile;
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions, Peer};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use keys::{KeyType, Keyring, PrivateKey, Signer as _};
use serde_json::json;
use store::{Clock, Store};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Failure, PROOF_PORT, Server};

/// Starts this program as a child process that runs the server.
pub(crate) fn start(url: &str, mode: &str) -> Result<Server, Failure> {
    let mut child =
        Command::new(std::env::current_exe()?).args(["serve", url, mode]).stdout(Stdio::piped()).spawn()?;
    let mut directory = String::new();
    let stdout = child.stdout.take().ok_or("no way to hear the server")?;
    BufReader::new(stdout).read_line(&mut directory)?;
    Ok(Server { name: "bulla", directory: directory.trim().to_owned(), child, _folder: None })
}

/// Serves until the process is killed. Prints its address.
pub(crate) async fn serve(url: &str, mode: &str) -> Result<(), Failure> {
    let (store, clock) = (Store::open(&url.parse()?).await?, Clock::system());
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let authority = Authority::open(store.clone(), keystore, clock.clone(), AuthorityOptions::default())?;
    let name = format!("root {}", clock.now_us());
    authority.create_root(&NewCa::root(&name, "CN=Load Root"), "user:load").await?;
    let names = json!({"dns_allowed": ["."], "ip_allowed": ["127.0.0.0/8"]});
    let mut profile = Profile::for_servers("default", serde_json::from_value(names)?);
    profile.ca = Some(name);
    authority.put_profile(profile, None, "user:load").await?;
    let tls = TlsAcceptor::from(Arc::new(own_certificate(&authority).await?));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let base_url = format!("https://{}", listener.local_addr()?);
    let acme = Acme::new(authority, store, clock, options(&base_url, mode)?)?;
    let running = acme.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    println!("{base_url}/acme/directory");
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(tls.clone(), stream, acme.clone()));
    }
}

async fn connection(tls: TlsAcceptor, stream: TcpStream, acme: Acme) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let stream = tls.accept(stream).await?;
    let service = service_fn(move |request: Request<Incoming>| {
        let acme = acme.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = Limited::new(body, authority::acme::jose::REQUEST_MAX).collect().await;
            let body = body.map_err(std::io::Error::other)?.to_bytes();
            let answer: Response<Bytes> = acme.handle(Request::from_parts(head, body), &Peer::local()).await;
            Ok::<_, std::io::Error>(answer.map(Full::new))
        }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?;
    Ok(())
}

async fn own_certificate(authority: &Authority) -> Result<ServerConfig, Failure> {
    let key = PrivateKey::generate(KeyType::P256)?;
    let names = vec![x509::GeneralName::parse("127.0.0.1")?];
    let request = IssueRequest::new("default", key.spki().to_vec(), names, Source::Api, "user:load");
    let issued = authority.issue(request).await?;
    let chain = vec![CertificateDer::from(issued.der.to_vec())];
    let key = PrivateKeyDer::from_pem_slice(key.to_pkcs8_pem().as_bytes())?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_no_client_auth().with_single_cert(chain, key)?)
}

fn options(base_url: &str, mode: &str) -> Result<AcmeOptions, Failure> {
    let directory = DirectoryOptions { trust_authenticated: mode == "trust", ..DirectoryOptions::default() };
    Ok(AcmeOptions {
        base_url: base_url.to_owned(),
        directories: [("default".to_owned(), directory)].into(),
        limits: LimitOptions::none(),
        validation: ValidationOptions {
            allow_networks: vec!["127.0.0.0/8".parse()?],
            http_port: PROOF_PORT,
            ..ValidationOptions::for_tests()
        },
        ..AcmeOptions::default()
    })
}
