//! Benchmark: cost of a handshake for the client, of the probe and of rustls, against rustls servers in memory.
//!
//! `cargo run --release -p scan --example probe_cost`. Only the client's part is timed. The median is printed, because other load on the
//! machine affects it little. Both clients verify the signature of the handshake; neither verifies the chain.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
    SupportedProtocolVersion, version,
};
use scan::tls::{ClientHelloContent, Handshake, KeyShares, Profile, Proof, Step};

const ROUNDS: usize = 2_000;
type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    println!("{:<44} {:>9} {:>9}", "client µs per handshake, median", "probe", "rustls");
    for (key, arguments) in
        [("P-256", ["ec", "ec_paramgen_curve:P-256"]), ("RSA-2048", ["rsa", "rsa_keygen_bits:2048"])]
    {
        let (certificate, private) = certificate(arguments)?;
        for (label, version, profile) in [
            ("TLS 1.3, X25519MLKEM768", &version::TLS13, Profile::Modern),
            ("TLS 1.3, X25519", &version::TLS13, Profile::Compact),
            ("TLS 1.2", &version::TLS12, Profile::Modern),
        ] {
            let server = server(&certificate, private.clone_key(), version)?;
            let probe = measure(|| probe(&server, profile))?;
            let peer = measure(|| peer(&server, profile == Profile::Modern))?;
            println!("{:<44} {probe:>9.1} {peer:>9.1}", format!("{key}, {label}"));
        }
    }
    Ok(())
}

fn certificate(key: [&str; 2]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Failure> {
    let folder = std::env::temp_dir().join(format!("probe_cost.{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let run = |arguments: &[&str]| -> Result<(), Failure> {
        let output = Command::new("openssl").current_dir(&folder).args(arguments).output()?;
        output.status.success().then_some(()).ok_or("openssl failed: apt-get install -y openssl")?;
        Ok(())
    };
    let [kind, option] = key;
    run(&[
        "req",
        "-x509",
        "-newkey",
        kind,
        "-pkeyopt",
        option,
        "-nodes",
        "-subj",
        "/CN=a.example",
        "-addext",
        "subjectAltName=DNS:a.example",
        "-keyout",
        "key.pem",
        "-outform",
        "DER",
        "-out",
        "cert.der",
    ])?;
    run(&["pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-outform", "DER", "-out", "key.der"])?;
    let certificate = CertificateDer::from(std::fs::read(folder.join("cert.der"))?);
    let private = PrivatePkcs8KeyDer::from(std::fs::read(folder.join("key.der"))?);
    std::fs::remove_dir_all(&folder)?;
    Ok((certificate, private.into()))
}

fn server(
    certificate: &CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> Result<Arc<ServerConfig>, Failure> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    Ok(Arc::new(config))
}

/// Returns the median of many rounds in µs.
fn measure(mut round: impl FnMut() -> Result<Duration, Failure>) -> Result<f64, Failure> {
    let mut times = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
    times.sort_unstable();
    Ok(times[ROUNDS / 2].as_secs_f64() * 1e6)
}

thread_local! {
    static SHARES: Arc<KeyShares> =
        Arc::new(KeyShares::generate().unwrap_or_else(|error| panic!("{error}")));
}

fn probe(config: &Arc<ServerConfig>, profile: Profile) -> Result<Duration, Failure> {
    let shares = SHARES.with(Arc::clone);
    let mut server = ServerConnection::new(Arc::clone(config))?;
    let offer = ClientHelloContent {
        server_name: Some("a.example".to_owned()),
        alpn: &["h2", "http/1.1"],
        profile,
        finish: false,
    };
    let began = Instant::now();
    let (mut handshake, mut out) = Handshake::start(&offer, &shares)?;
    let mut spent = began.elapsed();
    loop {
        let flight = exchange(&mut server, &out)?;
        let began = Instant::now();
        let step = handshake.receive(&flight);
        spent += began.elapsed();
        match step {
            Step::More => out.clear(),
            Step::Send(bytes) => out = bytes,
            Step::Done(_) if handshake.evidence().proof == Proof::Verified => return Ok(spent),
            other => return Err(format!("{other:?} {:?}", handshake.evidence().proof).into()),
        }
    }
}

fn exchange(server: &mut ServerConnection, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut bytes = bytes;
    while !bytes.is_empty() {
        server.read_tls(&mut bytes)?;
        server.process_new_packets()?;
    }
    let mut flight = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut flight)?;
    }
    Ok(flight)
}

fn peer(config: &Arc<ServerConfig>, post_quantum: bool) -> Result<Duration, Failure> {
    let mut server = ServerConnection::new(Arc::clone(config))?;
    let client_config = client_config(post_quantum)?;
    let name = ServerName::try_from("a.example")?;
    let began = Instant::now();
    let mut client = ClientConnection::new(client_config, name)?;
    let mut spent = began.elapsed();
    while client.is_handshaking() {
        let began = Instant::now();
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out)?;
        }
        spent += began.elapsed();
        let flight = exchange(&mut server, &out)?;
        let began = Instant::now();
        let mut flight = flight.as_slice();
        while !flight.is_empty() {
            client.read_tls(&mut flight)?;
            client.process_new_packets()?;
        }
        spent += began.elapsed();
    }
    Ok(spent)
}

fn client_config(post_quantum: bool) -> Result<Arc<ClientConfig>, Failure> {
    let mut provider = aws_lc_rs::default_provider();
    if !post_quantum {
        provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    }
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyChainVerifier(algorithms)))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts any chain but verifies signatures, like the probe.
#[derive(Debug)]
struct AnyChainVerifier(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyChainVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
