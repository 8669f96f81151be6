//! Probes the certificate that an endpoint serves, with a full handshake and never a resumed one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use outbound::{Deadline, dial};
use scan::starttls::{Dialogue, Step as Word, TlsFraming};
use scan::target::Protocol;
use scan::tls::{ClientHelloContent, Handshake, KeyShares, Profile, Proof, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use x509::Fingerprint;

use super::policy::{Policy, Refusal};
use super::target::Verify;

/// Timeout of one probe: connecting, STARTTLS and handshake.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Initial pause between two probes, doubled up to one second. Old workers of a server continue for a moment.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause between two probes.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Number of consecutive probes that must see the certificate, [`CONFIRMATION_PAUSE`] apart. After a reload, old and new workers both
/// accept connections for a moment (100 ms with nginx).
const CONFIRMATIONS: u32 = 3;
/// Pause between the probes that [`CONFIRMATIONS`] counts.
const CONFIRMATION_PAUSE: Duration = Duration::from_millis(100);
/// Bytes per read: one TLS record.
const CHUNK: usize = 17 * 1_024;
/// Maximum number of a name's addresses that are probed. Each must serve the certificate.
const ADDRESSES_MAX: usize = 8;

/// Reason why a probe failed, or why the served certificate is wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum VerifyError {
    /// The policy of this host does not allow the connection.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The host name does not resolve on this host.
    #[error("{host} cannot be resolved on this host: {reason}")]
    Resolve {
        /// Host name that does not resolve.
        host: String,
        /// The error of the resolver.
        reason: String,
    },
    /// The handshake failed.
    #[error("{address}: {reason}")]
    NoAnswer {
        /// Address and port that were probed.
        address: SocketAddr,
        /// Phase that failed, and the error.
        reason: String,
    },
    /// The endpoint serves another certificate.
    #[error("{address} serves the certificate {served}, not {expected}")]
    Other {
        /// Address and port that were probed.
        address: SocketAddr,
        /// Fingerprint of the served certificate.
        served: Fingerprint,
        /// Fingerprint of the expected certificate.
        expected: Fingerprint,
    },
}

/// Probes until every address serves `expected`, for at most `verify.seconds`. Does not connect to addresses that the policy does
/// not allow.
///
/// # Errors
/// The result of the last probe.
pub(crate) async fn wait_until_served(
    verify: &Verify,
    expected: Fingerprint,
    policy: &Policy,
) -> Result<(), VerifyError> {
    let deadline = Deadline::within(Duration::from_secs(verify.seconds.into()));
    let (mut pause, mut seen) = (PAUSE, 0);
    loop {
        let last = match probe_all(verify, expected, deadline, policy).await {
            Ok(()) => {
                seen += 1;
                if seen == CONFIRMATIONS {
                    return Ok(());
                }
                tokio::time::sleep(CONFIRMATION_PAUSE).await;
                continue;
            }
            Err(error @ VerifyError::Refused(_)) => return Err(error),
            Err(error) => error,
        };
        seen = 0;
        if deadline.remaining() <= pause {
            return Err(last);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn probe_all(
    verify: &Verify,
    expected: Fingerprint,
    deadline: Deadline,
    policy: &Policy,
) -> Result<(), VerifyError> {
    let addresses = allowed(verify, policy).await?;
    // Every probe has its own timeout: one hanging probe must not use up a long deadline.
    let mut refused = None;
    let mut seen = 0;
    for address in addresses {
        match probe(verify, address, deadline.child(PROBE_TIMEOUT)).await {
            Ok(served) if served == expected => seen += 1,
            Ok(served) => return Err(VerifyError::Other { address, served, expected }),
            Err(error) => refused = Some(error),
        }
    }
    // A name such as localhost may have addresses without a listener.
    match refused {
        Some(error) if seen == 0 => Err(error),
        _ => Ok(()),
    }
}

/// Returns the certificate of the first address that responds.
///
/// # Errors
/// [`VerifyError`] of the last probed address.
pub(crate) async fn served(verify: &Verify, policy: &Policy) -> Result<Fingerprint, VerifyError> {
    let mut last = None;
    for address in allowed(verify, policy).await? {
        match probe(verify, address, Deadline::within(PROBE_TIMEOUT)).await {
            Ok(served) => return Ok(served),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| VerifyError::Resolve {
        host: verify.host.clone(),
        reason: "no address".to_owned(),
    }))
}

/// Resolves the endpoint and checks each address against the policy.
async fn allowed(verify: &Verify, policy: &Policy) -> Result<Vec<SocketAddr>, VerifyError> {
    let addresses = resolve(verify).await?;
    policy.addresses(verify, &addresses).map_err(|want| policy.refusal(vec![want]))?;
    Ok(addresses)
}

pub(crate) async fn resolve(verify: &Verify) -> Result<Vec<SocketAddr>, VerifyError> {
    let unknown = |reason: String| VerifyError::Resolve { host: verify.host.clone(), reason };
    // Use the system's resolver, so that the result is the same as for other programs of the host, including /etc/hosts.
    let found = tokio::net::lookup_host((verify.host.as_str(), verify.port)).await;
    let addresses: Vec<_> = found.map_err(|error| unknown(error.to_string()))?.take(ADDRESSES_MAX).collect();
    if addresses.is_empty() { Err(unknown("no address".to_owned())) } else { Ok(addresses) }
}

async fn probe(verify: &Verify, address: SocketAddr, deadline: Deadline) -> Result<Fingerprint, VerifyError> {
    let failed = |reason: String| VerifyError::NoAnswer { address, reason };
    let stream = dial::connect(address, deadline.remaining()).await.map_err(|e| failed(e.to_string()))?;
    match deadline.bound(handshake(verify, stream)).await {
        Ok(Ok(leaf)) => Ok(Fingerprint::of(&leaf)),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed("no certificate before the timeout".to_owned())),
    }
}

/// Returns the served leaf, after the server proved that it has the key.
async fn handshake(verify: &Verify, mut stream: TcpStream) -> Result<Vec<u8>, String> {
    let protocol = Protocol::named(&verify.protocol).unwrap_or(Protocol::Tls);
    let name = verify.server_name.as_deref().unwrap_or(&verify.host);
    if let Some(dialogue) = Dialogue::new(protocol, name) {
        start_tls(&mut stream, dialogue).await?;
    }
    let mut wrapping = TlsFraming::new(protocol);
    let offer = ClientHelloContent {
        server_name: name.parse::<std::net::IpAddr>().is_err().then(|| name.to_owned()),
        alpn: protocol.alpn(),
        profile: Profile::Modern,
        finish: false,
    };
    let shares = Arc::new(KeyShares::generate().map_err(|error| error.to_string())?);
    let (mut shaking, hello) = Handshake::start(&offer, &shares).map_err(|error| error.to_string())?;
    send(&mut stream, &wrapping.wrap(hello)).await?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = receive(&mut stream, &mut chunk).await?;
        let step = shaking.receive(wrapping.unwrap(&chunk[..read]).map_err(|error| error.to_string())?);
        match step {
            Step::More => {}
            Step::Send(bytes) => send(&mut stream, &wrapping.wrap(bytes)).await?,
            Step::Failed(failure) => return Err(failure.to_string()),
            Step::Done(farewell) => {
                // Best effort, because the certificate is already known.
                let _ = send(&mut stream, &wrapping.wrap(farewell)).await;
                break;
            }
        }
    }
    let evidence = shaking.into_evidence();
    match evidence.proof {
        // An unverifiable proof (static RSA, a key type unknown to the probe) is no reason to reject the certificate.
        Proof::Verified | Proof::Unverifiable(_) => {
            evidence.chain.into_iter().next().ok_or_else(|| "no certificate".to_owned())
        }
        Proof::None => Err("the server did not prove that it has its private key".to_owned()),
        Proof::Invalid(why) => {
            Err(format!("the server does not have the private key of its certificate: {why}"))
        }
    }
}

async fn start_tls(stream: &mut TcpStream, mut dialogue: Dialogue) -> Result<(), String> {
    if let Some(opening) = dialogue.opening() {
        send(stream, &opening).await?;
    }
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = receive(stream, &mut chunk).await?;
        match dialogue.receive(&chunk[..read]) {
            Word::More => {}
            Word::Send(bytes) => send(stream, &bytes).await?,
            Word::Ready { send: last, .. } => return send(stream, &last).await,
            Word::Failed(error) => return Err(error.to_string()),
        }
    }
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), String> {
    stream.write_all(bytes).await.map_err(|error| error.to_string())
}

async fn receive(stream: &mut TcpStream, chunk: &mut [u8]) -> Result<usize, String> {
    match stream.read(chunk).await {
        Ok(0) => Err("the peer closed the connection".to_owned()),
        Ok(read) => Ok(read),
        Err(error) => Err(error.to_string()),
    }
}
