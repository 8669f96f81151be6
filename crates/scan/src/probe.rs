//! Probes one endpoint: connects, runs the STARTTLS dialogue, reads the chain, and judges it.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbound::dial::{self, DialError};
use outbound::guard::Refused;
use outbound::resolve::{Resolution, ResolveError, Resolver};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::adaptive_timeouts::AdaptiveTimeouts;
use crate::clock::{micros, now_us};
use crate::ending;
use crate::job::{Job, Pass};
use crate::judge::Judge;
use crate::observation::{Observation, Timing};
use crate::options::{Limits, ScanOptions};
use crate::progress::Progress;
use crate::stacks::{TlsStackCache, TlsStackKey};
use crate::starttls;
use crate::target::Target;
use crate::tls::{self, Handshake, Profile};
use crate::trusted::Trusted;
use events::ProbeOutcome;

/// Bytes read from a socket at a time: slightly more than a record (RFC 8446 section 5.1).
const READ_CHUNK: usize = 17 * 1_024;
/// Maximum addresses tried in one probe. With `--all-addresses` each address has its own probe.
const ADDRESSES_TRIED_MAX: usize = 4;
/// Time in which the standard ClientHello (two packets) must get a response in the last probe. After it, the single-packet
/// ClientHello is sent.
const HEAD_START: Duration = Duration::from_secs(2);
/// Minimum and maximum timeout of a short handshake that tests which further versions and suites a server accepts.
const INQUIRY_LIMITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
/// Timeout of an operation whose caller sets a shorter timeout.
const UNBOUNDED: Duration = Duration::from_secs(3_600);

/// Prober of endpoints, with the state that all probes of a scanner share.
pub(crate) struct Prober {
    pub(crate) options: ScanOptions,
    pub(crate) budget: outbound::budget::AdaptiveLimit,
    resolver: Resolver,
    shares: Arc<tls::KeyShares>,
    pub(crate) judge: Judge,
    pub(crate) adaptive_timeouts: Arc<AdaptiveTimeouts>,
    stacks: TlsStackCache,
}

/// Result of one connection.
struct ConnectionResult {
    profile: Profile,
    evidence: tls::Evidence,
    starttls_us: Option<u32>,
    first_byte_us: Option<u32>,
    handshake_us: Option<u32>,
    plaintext_injected: bool,
    end: Result<(), (ProbeOutcome, String)>,
}

impl Prober {
    pub(crate) fn new(
        options: ScanOptions,
        resolver: Resolver,
        trust: Trusted,
    ) -> Result<Self, crate::ScanError> {
        Ok(Self {
            budget: outbound::budget::AdaptiveLimit::new(in_flight(&options)),
            judge: Judge::new(&options, trust),
            shares: Arc::new(tls::KeyShares::generate().map_err(|_| crate::ScanError::NoRandomness)?),
            resolver,
            adaptive_timeouts: Arc::default(),
            stacks: TlsStackCache::default(),
            options,
        })
    }

    /// Returns the current timeout of a phase.
    fn limit(&self, pass: Pass, phase: impl Fn(&Limits) -> Duration) -> Duration {
        let last = phase(&self.options.second);
        match pass {
            Pass::First if self.options.second_pass => {
                self.adaptive_timeouts.first_probe_timeout(phase(&self.options.first), last)
            }
            // There is no second probe.
            Pass::First => self.adaptive_timeouts.last_probe_timeout(phase(&self.options.first)),
            Pass::Second => self.adaptive_timeouts.last_probe_timeout(last),
        }
    }

    pub(crate) async fn resolve(&self, target: &Target, pass: Pass) -> Result<Resolution, ResolveError> {
        // The resolver divides its timeout among name servers.
        let limit = self.limit(pass, |limits| limits.dns);
        self.resolver.resolve(target.host_text(), self.options.families, limit).await
    }

    async fn probe(&self, job: &Job) -> Observation {
        let (at_us, began) = (now_us(), Instant::now());
        let mut observation = Observation::ended(job.target.clone(), at_us, ProbeOutcome::Unknown, None);
        observation.by_address = job.by_address;
        observation.timing = Timing { dns_us: Some(job.dns_us), ..Timing::default() };
        observation.attempts = job.attempts.saturating_add(1);
        self.connect_and_probe(job, &mut observation).await;
        observation.timing.total_us = micros(began).saturating_add(job.dns_us);
        observation
    }

    async fn connect_and_probe(&self, job: &Job, observation: &mut Observation) {
        let addresses = match self.addresses(job).await {
            Ok(addresses) => addresses,
            Err(error) => {
                (observation.outcome, observation.detail) = ending::lookup_outcome(&error);
                return;
            }
        };
        let addresses = match self.allowed(addresses) {
            Ok(addresses) => addresses,
            Err((address, refused)) => {
                observation.address = Some(address);
                (observation.outcome, observation.detail) =
                    (ProbeOutcome::Unknown, Some(refused.to_string()));
                return;
            }
        };
        let dialled = Instant::now();
        let connected = self.dial(&addresses, job).await;
        observation.timing.dial_us = Some(micros(dialled));
        let (stream, address) = match connected {
            Ok(connected) => connected,
            Err((address, error)) => {
                observation.address = Some(address);
                (observation.outcome, observation.detail) = ending::dial_outcome(error);
                self.update_budget(observation.outcome);
                return;
            }
        };
        observation.address = Some(address);
        let socket = SocketAddr::new(address, job.target.port);
        let mut exchange = match job.stalled {
            true => Box::pin(self.probe_two_client_hellos(stream, socket, job)).await,
            false => self.exchange(stream, job, Profile::Modern).await,
        };
        if may_be_intolerant(&exchange) {
            if let Some(older) = self.retry_with_legacy_hello(job, socket).await {
                exchange = older;
            }
            observation.attempts = observation.attempts.saturating_add(1);
        }
        self.update_budget(exchange.end.as_ref().err().map_or(ProbeOutcome::Answered, |(o, _)| *o));
        if exchange.end.is_ok() {
            self.adaptive_timeouts.answered(dialled.elapsed());
            observation.accepted = self.accepted(socket, &job.target, &exchange, dialled.elapsed()).await;
        }
        self.report(exchange, observation);
    }

    async fn dial(
        &self,
        addresses: &[IpAddr],
        job: &Job,
    ) -> Result<(TcpStream, IpAddr), (IpAddr, DialError)> {
        let limit = || self.limit(job.pass, |limits| limits.dial);
        let dialled = self.adaptive_timeouts.wait(limit, dial(addresses, job.target.port)).await;
        dialled.unwrap_or(Err((addresses[0], DialError::TimedOut)))
    }

    /// Opens two connections to an endpoint that did not respond to the first probe. The first connection sends the standard
    /// ClientHello, so that a slow server shows its usual certificate. The second one starts later and sends a ClientHello that
    /// fits into one packet, because some middleboxes drop larger ones.
    async fn probe_two_client_hellos(
        &self,
        stream: TcpStream,
        socket: SocketAddr,
        job: &Job,
    ) -> ConnectionResult {
        let mut usual = std::pin::pin!(self.exchange(stream, job, Profile::Modern));
        if let Ok(exchange) = tokio::time::timeout(HEAD_START, usual.as_mut()).await {
            return exchange;
        }
        let mut compact = std::pin::pin!(async {
            let stream = dial::connect(socket, UNBOUNDED).await.ok()?;
            let began = Instant::now();
            let exchange = self.exchange(stream, job, Profile::Compact).await;
            let answered = !exchange.evidence.chain.is_empty();
            if answered {
                // If the server responds to this ClientHello within a second, it would also respond to the standard one within a
                // second, if at all.
                tokio::time::sleep(began.elapsed().max(HEAD_START)).await;
            }
            answered.then_some(exchange)
        });
        tokio::select! {
            biased;
            exchange = usual.as_mut() => exchange,
            exchange = compact.as_mut() => match exchange {
                Some(exchange) => exchange,
                None => usual.await,
            },
        }
    }

    /// Returns the protocol versions and suites that the server accepts in addition to the negotiated ones. `took` is the time of the first
    /// response.
    async fn accepted(
        &self,
        socket: SocketAddr,
        target: &Target,
        exchange: &ConnectionResult,
        took: Duration,
    ) -> Option<tls::Accepted> {
        if !self.options.accepted || exchange.evidence.chain.is_empty() {
            return None;
        }
        let limit = (took * 4).clamp(INQUIRY_LIMITS.0, INQUIRY_LIMITS.1);
        let stack = TlsStackKey::new(socket, target.protocol, &exchange.evidence);
        let version = exchange.evidence.version;
        self.stacks.accepted(stack, Box::pin(self.query_accepted(socket, target, version, limit))).await
    }

    async fn query_accepted(
        &self,
        socket: SocketAddr,
        target: &Target,
        chosen: Option<u16>,
        limit: Duration,
    ) -> Option<tls::Accepted> {
        let inquire = |question| async move {
            let inquiry = inquire(socket, target, question);
            self.adaptive_timeouts.wait(|| limit, inquiry).await.ok().flatten()
        };
        let obsolete = async {
            match chosen {
                // The server supports no newer version.
                Some(..0x0303) => Some(tls::ServerReply::Refused),
                _ => inquire(tls::Question::ObsoleteVersion).await,
            }
        };
        let weak = async {
            let first = inquire(tls::Question::WeakSuite).await?;
            let tls::ServerReply::Accepted { suite, .. } = first else { return Some(Vec::new()) };
            let other = match tls::weaknesses(suite)[..] {
                [tls::Weakness::Broken] => tls::Question::StaticRsaSuite,
                [tls::Weakness::NoForwardSecrecy] => tls::Question::BrokenSuite,
                _ => return Some(vec![suite]),
            };
            Some(match inquire(other).await {
                Some(tls::ServerReply::Accepted { suite: another, .. }) => vec![suite, another],
                _ => vec![suite],
            })
        };
        let (obsolete, weak) = tokio::join!(obsolete, weak);
        let obsolete_version = match obsolete? {
            tls::ServerReply::Accepted { version, .. } => Some(version),
            tls::ServerReply::Refused => None,
        };
        Some(tls::Accepted { obsolete_version, weak_suites: weak? })
    }

    /// Returns the addresses to connect to. A job that waited longer than the TTL is resolved again, usually from the cache,
    /// because an old address may serve an old certificate. With TTL 0 this happens each time, and the new response is used, as in
    /// RFC 1035 section 3.2.1.
    async fn addresses<'j>(&self, job: &'j Job) -> Result<Cow<'j, [IpAddr]>, ResolveError> {
        if job.by_address || job.is_valid() {
            return Ok(Cow::Borrowed(&job.addresses));
        }
        let resolution = self.resolve(&job.target, job.pass).await?;
        Ok(Cow::Owned(resolution.addresses))
    }

    /// Returns the addresses that the guard allows. If there are none, returns an error with one of the rejected addresses.
    fn allowed<'a>(&self, addresses: Cow<'a, [IpAddr]>) -> Result<Cow<'a, [IpAddr]>, (IpAddr, Refused)> {
        let Some(guard) = self.options.guard else { return Ok(addresses) };
        let refused = addresses.iter().find_map(|address| Some((*address, guard.address(*address).err()?)));
        let Some(refused) = refused else { return Ok(addresses) };
        let allowed: Vec<_> =
            addresses.iter().copied().filter(|address| guard.address(*address).is_ok()).collect();
        if allowed.is_empty() { Err(refused) } else { Ok(Cow::Owned(allowed)) }
    }

    /// Opens a second connection with an older ClientHello; `None` when the connection fails or receives no certificate.
    async fn retry_with_legacy_hello(&self, job: &Job, socket: SocketAddr) -> Option<ConnectionResult> {
        let limit = self.limit(job.pass, |limits| limits.dial);
        let stream = dial::connect(socket, limit).await.ok()?;
        let exchange = self.exchange(stream, job, Profile::Legacy).await;
        (!exchange.evidence.chain.is_empty()).then_some(exchange)
    }

    async fn exchange(&self, mut stream: TcpStream, job: &Job, profile: Profile) -> ConnectionResult {
        let target = &*job.target;
        let mut exchange = ConnectionResult {
            profile,
            evidence: tls::Evidence::default(),
            starttls_us: None,
            first_byte_us: None,
            handshake_us: None,
            plaintext_injected: false,
            end: Ok(()),
        };
        let offer = tls::ClientHelloContent {
            server_name: target.sni().map(str::to_owned),
            alpn: target.protocol.alpn(),
            profile,
            finish: self.options.finish_handshake,
        };
        let mut received_any = false;
        let mut handshake = None;
        let limit = || self.limit(job.pass, |limits| limits.handshake);
        let conversation = self.run_conversation(
            &mut stream,
            target,
            &offer,
            &mut exchange,
            &mut handshake,
            &mut received_any,
        );
        let result = self.adaptive_timeouts.wait(limit, conversation).await;
        let waited_for_tickets = handshake.as_ref().is_some_and(Handshake::can_close);
        exchange.end = match result {
            Ok(end) => end,
            Err(_) if waited_for_tickets => Ok(()),
            Err(_) if received_any => Err((ProbeOutcome::Slow, format!("not complete after {:?}", limit()))),
            Err(_) => Err((ProbeOutcome::Stall, format!("no data received in {:?}", limit()))),
        };
        if let Some(handshake) = handshake {
            exchange.evidence = handshake.into_evidence();
        }
        exchange
    }

    async fn run_conversation(
        &self,
        stream: &mut TcpStream,
        target: &Target,
        offer: &tls::ClientHelloContent,
        exchange: &mut ConnectionResult,
        slot: &mut Option<Handshake>,
        received_any: &mut bool,
    ) -> Result<(), (ProbeOutcome, String)> {
        if let Some(dialogue) = starttls::Dialogue::new(target.protocol, target.expected_name()) {
            let began = Instant::now();
            let end = start_tls(stream, dialogue, received_any).await;
            exchange.starttls_us = Some(micros(began));
            exchange.plaintext_injected = end?;
        }
        let mut framing = starttls::TlsFraming::new(target.protocol);
        let (handshake, hello) = Handshake::start(offer, &self.shares)
            .map_err(|error| (ProbeOutcome::LocalLimit, error.to_string()))?;
        let handshake = slot.insert(handshake);
        let began = Instant::now();
        send(stream, &framing.wrap(hello)).await?;
        *received_any = false;
        loop {
            let received =
                receive(stream, |bytes| framing.unwrap(bytes).map(|bytes| handshake.receive(bytes)));
            let step = match received.await {
                Ok(step) => step.map_err(|error| ending::starttls_outcome(&error))?,
                // The handshake is complete, but the server closed the connection instead of sending tickets.
                Err(_) if handshake.can_close() => tls::Step::Done(Vec::new()),
                Err(end) => return Err(end),
            };
            if !*received_any {
                *received_any = true;
                exchange.first_byte_us = Some(micros(began));
            }
            match step {
                tls::Step::More => {}
                tls::Step::Send(bytes) => send(stream, &framing.wrap(bytes)).await?,
                tls::Step::Done(closing_alerts) => {
                    exchange.handshake_us = Some(micros(began));
                    // Closes cleanly if possible; the evidence is complete.
                    let _ = send(stream, &framing.wrap(closing_alerts)).await;
                    return Ok(());
                }
                tls::Step::Failed(failure) => return Err(ending::handshake_outcome(&failure)),
            }
        }
    }

    fn update_budget(&self, outcome: ProbeOutcome) {
        if outcome == ProbeOutcome::LocalLimit {
            self.budget.push_back();
        } else {
            self.budget.record_success();
        }
    }

    fn report(&self, exchange: ConnectionResult, observation: &mut Observation) {
        observation.profile = Some(exchange.profile.name());
        observation.timing.starttls_us = exchange.starttls_us;
        observation.timing.first_byte_us = exchange.first_byte_us;
        observation.timing.handshake_us = exchange.handshake_us;
        let certificate_seen = !exchange.evidence.chain.is_empty();
        match exchange.end {
            Ok(()) => observation.outcome = ProbeOutcome::Answered,
            // A certificate counts as served, whatever happened after the Certificate message.
            Err((outcome, detail)) if certificate_seen => {
                observation.outcome = ProbeOutcome::Answered;
                observation.detail = Some(format!("after the certificate: {}: {detail}", outcome.name()));
            }
            Err((outcome, detail)) => {
                observation.outcome = outcome;
                observation.detail = Some(detail);
            }
        }
        observation.session = Some(Box::new(exchange.evidence));
        if certificate_seen {
            self.judge.judge(observation, exchange.plaintext_injected);
        }
    }
}

/// Probes an endpoint and reports the observation. If a second probe is needed, returns the job and reports nothing.
pub(crate) async fn probe_and_report(
    prober: &Prober,
    mut job: Job,
    second_pass: bool,
    out: &mpsc::Sender<Observation>,
    progress: &Progress,
) -> Option<(Job, ProbeOutcome)> {
    let observation = prober.probe(&job).await;
    if observation.outcome.is_transient() && job.pass == Pass::First && second_pass {
        job.attempts = observation.attempts;
        return Some((job, observation.outcome));
    }
    progress.finished(observation.outcome);
    // The permit is released only after the observation is delivered. The receiver is dropped only when the scan is stopped.
    let _ = out.send(observation).await;
    None
}

async fn dial(addresses: &[IpAddr], port: u16) -> Result<(TcpStream, IpAddr), (IpAddr, DialError)> {
    if let [address] = *addresses {
        return match dial::connect(SocketAddr::new(address, port), UNBOUNDED).await {
            Ok(stream) => Ok((stream, address)),
            Err(error) => Err((address, error)),
        };
    }
    let tried = &addresses[..addresses.len().min(ADDRESSES_TRIED_MAX)];
    dial::happy_eyeballs(tried, port, UNBOUNDED).await
}

/// Runs a short handshake on a separate connection; `None` when there is no conclusive response.
async fn inquire(socket: SocketAddr, target: &Target, question: tls::Question) -> Option<tls::ServerReply> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).ok()?;
    let mut stream = dial::connect(socket, UNBOUNDED).await.ok()?;
    if let Some(dialogue) = starttls::Dialogue::new(target.protocol, target.expected_name()) {
        start_tls(&mut stream, dialogue, &mut false).await.ok()?;
    }
    let mut framing = starttls::TlsFraming::new(target.protocol);
    let (mut inquiry, hello) =
        tls::ProbeHandshake::start(question, target.sni(), target.protocol.alpn(), &random);
    send(&mut stream, &framing.wrap(hello)).await.ok()?;
    loop {
        let received =
            receive(&stream, |bytes| framing.unwrap(bytes).map(|bytes| inquiry.receive(bytes))).await;
        match received {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(answer))) => return Some(answer),
            // Closed or reset without a ServerHello.
            Err(_) => return Some(tls::ServerReply::Refused),
            Ok(Err(_)) => return None,
        }
    }
}

/// Returns the number of concurrent probes: as configured, or as many as the file descriptors allow.
fn in_flight(options: &ScanOptions) -> usize {
    /// Maximum number of concurrent probes if none is configured. A higher value gains little: 1,800 endpoints took 6.9 s with
    /// 256 and 6.2 s with 1,024.
    const DEFAULT_MAX: usize = 2_048;
    let allowed = outbound::limits::descriptor_budget();
    options.in_flight.unwrap_or(DEFAULT_MAX).clamp(1, allowed.max(1))
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), (ProbeOutcome, String)> {
    if bytes.is_empty() {
        return Ok(());
    }
    stream.write_all(bytes).await.map_err(|error| lost(&error))
}

/// Waits for bytes and passes them on, without a buffer while waiting.
async fn receive<T>(
    stream: &TcpStream,
    mut take: impl FnMut(&[u8]) -> T,
) -> Result<T, (ProbeOutcome, String)> {
    loop {
        stream.readable().await.map_err(|error| lost(&error))?;
        match read_once(stream, &mut take) {
            Ok(Some(taken)) => return Ok(taken),
            Ok(None) => return Err((ProbeOutcome::ClosedEarly, "the peer closed the connection".into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(lost(&error)),
        }
    }
}

fn read_once<T>(stream: &TcpStream, take: &mut impl FnMut(&[u8]) -> T) -> io::Result<Option<T>> {
    let mut chunk = [0; READ_CHUNK];
    let read = stream.try_read(&mut chunk)?;
    Ok((read > 0).then(|| take(&chunk[..read])))
}

/// Runs the STARTTLS dialogue; returns whether plaintext followed after its end.
async fn start_tls(
    stream: &mut TcpStream,
    mut dialogue: starttls::Dialogue,
    received_any: &mut bool,
) -> Result<bool, (ProbeOutcome, String)> {
    if let Some(opening) = dialogue.opening() {
        send(stream, &opening).await?;
    }
    loop {
        let step = receive(stream, |bytes| dialogue.receive(bytes)).await?;
        *received_any = true;
        match step {
            starttls::Step::More => {}
            starttls::Step::Send(bytes) => send(stream, &bytes).await?,
            starttls::Step::Ready { send: last, injected } => {
                send(stream, &last).await?;
                return Ok(injected);
            }
            starttls::Step::Failed(error) => return Err(ending::starttls_outcome(&error)),
        }
    }
}

/// Returns whether the failure is typical of servers and middleboxes that reject unknown extensions. Other servers would respond to
/// an older ClientHello in the same way.
fn may_be_intolerant(exchange: &ConnectionResult) -> bool {
    exchange.profile != Profile::Legacy
        && exchange.evidence.chain.is_empty()
        && exchange.end.as_ref().is_err_and(|(outcome, _)| {
            matches!(
                outcome,
                ProbeOutcome::Alert
                    | ProbeOutcome::ClosedEarly
                    | ProbeOutcome::Reset
                    | ProbeOutcome::Malformed
            )
        })
}

fn lost(error: &io::Error) -> (ProbeOutcome, String) {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            (ProbeOutcome::Reset, "the peer reset the connection".into())
        }
        _ => (ProbeOutcome::Unknown, error.to_string()),
    }
}
