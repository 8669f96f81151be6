//! The probe of one endpoint: connect, talk up to TLS, read the chain, judge it.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use outbound::dial::{self, DialError};
use outbound::guard::Refused;
use outbound::resolve::{Resolution, ResolveError, Resolver};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::clock::{micros, now_us};
use crate::ending;
use crate::job::{Job, Pass};
use crate::judge::Judge;
use crate::observation::{Observation, Outcome, Timing};
use crate::options::{Limits, ScanOptions};
use crate::progress::Progress;
use crate::starttls;
use crate::target::Target;
use crate::tls::{self, Handshake, Profile};
use crate::trusted::Trusted;

/// Octets read from a socket at once: a record (RFC 8446 section 5.1) and a little more.
const READ_CHUNK: usize = 17 * 1_024;
/// Addresses tried in one probe: past four, a name's further addresses are not asked for a
/// connection (with `--all-addresses` each has a probe of its own).
const ADDRESSES_TRIED_MAX: usize = 4;

/// Probes endpoints; what all probes of a scanner share.
pub(crate) struct Prober {
    pub(crate) options: ScanOptions,
    pub(crate) budget: outbound::budget::Adaptive,
    resolver: Resolver,
    shares: Arc<tls::KeyShares>,
    pub(crate) judge: Judge,
}

/// How one connection went.
struct Conversation {
    profile: Profile,
    evidence: tls::Evidence,
    starttls_us: Option<u32>,
    first_byte_us: Option<u32>,
    handshake_us: Option<u32>,
    plaintext_injected: bool,
    end: Result<(), (Outcome, String)>,
}

impl Prober {
    pub(crate) fn new(
        options: ScanOptions,
        resolver: Resolver,
        trust: Trusted,
    ) -> Result<Self, crate::ScanError> {
        Ok(Self {
            budget: outbound::budget::Adaptive::new(in_flight(&options)),
            judge: Judge::new(&options, trust),
            shares: Arc::new(tls::KeyShares::generate().map_err(|_| crate::ScanError::NoRandomness)?),
            resolver,
            options,
        })
    }

    fn limits(&self, pass: Pass) -> &Limits {
        match pass {
            Pass::First => &self.options.first,
            Pass::Second => &self.options.second,
        }
    }

    pub(crate) async fn resolve(&self, target: &Target, pass: Pass) -> Result<Resolution, ResolveError> {
        self.resolver.resolve(target.host_text(), self.options.families, self.limits(pass).dns).await
    }

    async fn probe(&self, job: &Job) -> Observation {
        let (at_us, began) = (now_us(), Instant::now());
        let mut observation = Observation::ended(job.target.clone(), at_us, Outcome::Unknown, None);
        observation.by_address = job.by_address;
        observation.timing = Timing { dns_us: Some(job.dns_us), ..Timing::default() };
        observation.attempts = job.attempts.saturating_add(1);
        self.connect_and_talk(job, &mut observation).await;
        observation.timing.total_us = micros(began).saturating_add(job.dns_us);
        observation
    }

    async fn connect_and_talk(&self, job: &Job, observation: &mut Observation) {
        let limits = self.limits(job.pass);
        let addresses = match self.addresses(job).await {
            Ok(addresses) => addresses,
            Err(error) => {
                (observation.outcome, observation.detail) = ending::of_lookup(&error);
                return;
            }
        };
        let addresses = match self.allowed(addresses) {
            Ok(addresses) => addresses,
            Err((address, refused)) => {
                observation.address = Some(address);
                (observation.outcome, observation.detail) = (Outcome::Unknown, Some(refused.to_string()));
                return;
            }
        };
        let dialled = Instant::now();
        let connected = dial(&addresses, job.target.port, limits).await;
        observation.timing.dial_us = Some(micros(dialled));
        let (stream, address) = match connected {
            Ok(connected) => connected,
            Err((address, error)) => {
                observation.address = Some(address);
                (observation.outcome, observation.detail) = ending::of_dial(error);
                self.note_pressure(observation.outcome);
                return;
            }
        };
        observation.address = Some(address);
        // What was silent when asked in two packets is asked in one.
        let profile = if job.pass == Pass::First { Profile::Modern } else { Profile::Compact };
        let mut talk = self.talk(stream, &job.target, profile, limits).await;
        if may_be_intolerant(&talk) {
            if let Some(older) = self.talk_legacy(job, address, limits).await {
                talk = older;
            }
            observation.attempts = observation.attempts.saturating_add(1);
        }
        self.note_pressure(talk.end.as_ref().err().map_or(Outcome::Answered, |(o, _)| *o));
        self.report(talk, observation);
    }

    /// Where to connect to. A job that waited longer than the name server's word holds asks again, usually
    /// from memory: an old address may well serve an old certificate. (TTL 0 ends up here each time; the
    /// answer just given is used, as RFC 1035 section 3.2.1 has it.)
    async fn addresses<'j>(&self, job: &'j Job) -> Result<Cow<'j, [IpAddr]>, ResolveError> {
        if job.by_address || job.is_valid() {
            return Ok(Cow::Borrowed(&job.addresses));
        }
        let resolution = self.resolve(&job.target, job.pass).await?;
        Ok(Cow::Owned(resolution.addresses))
    }

    /// The addresses that the guard allows; when there is none, one that it refuses.
    fn allowed<'a>(&self, addresses: Cow<'a, [IpAddr]>) -> Result<Cow<'a, [IpAddr]>, (IpAddr, Refused)> {
        let Some(guard) = self.options.guard else { return Ok(addresses) };
        let refused = addresses.iter().find_map(|address| Some((*address, guard.address(*address).err()?)));
        let Some(refused) = refused else { return Ok(addresses) };
        let allowed: Vec<_> =
            addresses.iter().copied().filter(|address| guard.address(*address).is_ok()).collect();
        if allowed.is_empty() { Err(refused) } else { Ok(Cow::Owned(allowed)) }
    }

    /// A second connection with an older hello; `None` when it learned no more than the first.
    async fn talk_legacy(&self, job: &Job, address: IpAddr, limits: &Limits) -> Option<Conversation> {
        let stream = dial::connect(SocketAddr::new(address, job.target.port), limits.dial).await.ok()?;
        let talk = self.talk(stream, &job.target, Profile::Legacy, limits).await;
        (!talk.evidence.chain.is_empty()).then_some(talk)
    }

    async fn talk(
        &self,
        mut stream: TcpStream,
        target: &Target,
        profile: Profile,
        limits: &Limits,
    ) -> Conversation {
        let mut talk = Conversation {
            profile,
            evidence: tls::Evidence::default(),
            starttls_us: None,
            first_byte_us: None,
            handshake_us: None,
            plaintext_injected: false,
            end: Ok(()),
        };
        let offer = tls::Offer {
            server_name: target.sni().map(str::to_owned),
            alpn: target.protocol.alpn(),
            profile,
            finish: self.options.finish_handshake,
        };
        let mut said_anything = false;
        let mut handshake = None;
        let result = tokio::time::timeout(
            limits.handshake,
            self.converse(&mut stream, target, &offer, &mut talk, &mut handshake, &mut said_anything),
        )
        .await;
        let waited_for_tickets = handshake.as_ref().is_some_and(Handshake::may_stop);
        talk.end = match result {
            Ok(end) => end,
            Err(_) if waited_for_tickets => Ok(()),
            Err(_) if said_anything => Err((Outcome::Slow, format!("not over after {:?}", limits.handshake))),
            Err(_) => Err((Outcome::Stall, format!("not one byte in {:?}", limits.handshake))),
        };
        if let Some(handshake) = handshake {
            talk.evidence = handshake.into_evidence();
        }
        talk
    }

    async fn converse(
        &self,
        stream: &mut TcpStream,
        target: &Target,
        offer: &tls::Offer,
        talk: &mut Conversation,
        slot: &mut Option<Handshake>,
        said_anything: &mut bool,
    ) -> Result<(), (Outcome, String)> {
        if let Some(dialogue) = starttls::Dialogue::new(target.protocol, target.asked_name()) {
            let began = Instant::now();
            let end = start_tls(stream, dialogue, said_anything).await;
            talk.starttls_us = Some(micros(began));
            talk.plaintext_injected = end?;
        }
        let mut wrapping = starttls::Wrapping::new(target.protocol);
        let (handshake, hello) = Handshake::start(offer, &self.shares)
            .map_err(|error| (Outcome::LocalLimit, error.to_string()))?;
        let handshake = slot.insert(handshake);
        let began = Instant::now();
        send(stream, &wrapping.wrap(hello)).await?;
        *said_anything = false;
        loop {
            let received =
                receive(stream, |bytes| wrapping.unwrap(bytes).map(|bytes| handshake.receive(bytes)));
            let step = match received.await {
                Ok(step) => step.map_err(|error| ending::of_starttls(&error))?,
                // A finished handshake whose server closed instead of sending tickets.
                Err(_) if handshake.may_stop() => tls::Step::Done(Vec::new()),
                Err(end) => return Err(end),
            };
            if !*said_anything {
                *said_anything = true;
                talk.first_byte_us = Some(micros(began));
            }
            match step {
                tls::Step::More => {}
                tls::Step::Send(bytes) => send(stream, &wrapping.wrap(bytes)).await?,
                tls::Step::Done(farewell) => {
                    talk.handshake_us = Some(micros(began));
                    // Good manners only: the evidence is in hand.
                    let _ = send(stream, &wrapping.wrap(farewell)).await;
                    return Ok(());
                }
                tls::Step::Failed(failure) => return Err(ending::of_handshake(&failure)),
            }
        }
    }

    fn note_pressure(&self, outcome: Outcome) {
        if outcome == Outcome::LocalLimit {
            self.budget.push_back();
        } else {
            self.budget.went_well();
        }
    }

    fn report(&self, talk: Conversation, observation: &mut Observation) {
        observation.profile = Some(talk.profile.name());
        observation.timing.starttls_us = talk.starttls_us;
        observation.timing.first_byte_us = talk.first_byte_us;
        observation.timing.handshake_us = talk.handshake_us;
        let certificate_seen = !talk.evidence.chain.is_empty();
        match talk.end {
            Ok(()) => observation.outcome = Outcome::Answered,
            // Whatever happened after a Certificate message, the certificate was served.
            Err((outcome, detail)) if certificate_seen => {
                observation.outcome = Outcome::Answered;
                observation.detail = Some(format!("after the certificate: {}: {detail}", outcome.name()));
            }
            Err((outcome, detail)) => {
                observation.outcome = outcome;
                observation.detail = Some(detail);
            }
        }
        observation.session = Some(Box::new(talk.evidence));
        if certificate_seen {
            self.judge.judge(observation, talk.plaintext_injected);
        }
    }
}

/// Probes an endpoint and reports the observation. Returns the job, and reports nothing, when a second probe is to decide.
pub(crate) async fn probe_and_report(
    prober: &Prober,
    mut job: Job,
    second_pass: bool,
    out: &mpsc::Sender<Observation>,
    progress: &Progress,
) -> Option<(Job, Outcome)> {
    let observation = prober.probe(&job).await;
    if observation.outcome.can_heal() && job.pass == Pass::First && second_pass {
        job.attempts = observation.attempts;
        return Some((job, observation.outcome));
    }
    progress.finished(observation.outcome);
    // The place in the budget is given back only once the observation is taken over. The reader is
    // gone only when the scan is being torn down.
    let _ = out.send(observation).await;
    None
}

async fn dial(
    addresses: &[IpAddr],
    port: u16,
    limits: &Limits,
) -> Result<(TcpStream, IpAddr), (IpAddr, DialError)> {
    if let [address] = *addresses {
        return match dial::connect(SocketAddr::new(address, port), limits.dial).await {
            Ok(stream) => Ok((stream, address)),
            Err(error) => Err((address, error)),
        };
    }
    let tried = &addresses[..addresses.len().min(ADDRESSES_TRIED_MAX)];
    dial::happy_eyeballs(tried, port, limits.dial).await
}

/// Concurrent probes: what was asked for, or what the descriptors allow.
fn in_flight(options: &ScanOptions) -> usize {
    /// More gains nothing measurable: 1,800 endpoints took 6.9 s at 256 and 6.2 s at 1,024.
    const DEFAULT_MAX: usize = 2_048;
    let allowed = outbound::limits::descriptor_budget();
    options.in_flight.unwrap_or(DEFAULT_MAX).clamp(1, allowed.max(1))
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), (Outcome, String)> {
    if bytes.is_empty() {
        return Ok(());
    }
    stream.write_all(bytes).await.map_err(|error| lost(&error))
}

/// Waits for bytes and hands them on, without keeping a buffer while waiting.
async fn receive<T>(stream: &TcpStream, mut take: impl FnMut(&[u8]) -> T) -> Result<T, (Outcome, String)> {
    loop {
        stream.readable().await.map_err(|error| lost(&error))?;
        match read_once(stream, &mut take) {
            Ok(Some(taken)) => return Ok(taken),
            Ok(None) => return Err((Outcome::ClosedEarly, "the peer closed the connection".into())),
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

/// Talks in clear until TLS may begin; says whether clear text came after that point.
async fn start_tls(
    stream: &mut TcpStream,
    mut dialogue: starttls::Dialogue,
    said_anything: &mut bool,
) -> Result<bool, (Outcome, String)> {
    if let Some(opening) = dialogue.opening() {
        send(stream, &opening).await?;
    }
    loop {
        let step = receive(stream, |bytes| dialogue.receive(bytes)).await?;
        *said_anything = true;
        match step {
            starttls::Step::More => {}
            starttls::Step::Send(bytes) => send(stream, &bytes).await?,
            starttls::Step::Ready { send: last, injected } => {
                send(stream, &last).await?;
                return Ok(injected);
            }
            starttls::Step::Failed(error) => return Err(ending::of_starttls(&error)),
        }
    }
}

/// Failures of servers and middleboxes that choke on what they do not know. Others would answer an
/// older hello the same way.
fn may_be_intolerant(talk: &Conversation) -> bool {
    talk.profile != Profile::Legacy
        && talk.evidence.chain.is_empty()
        && talk.end.as_ref().is_err_and(|(outcome, _)| {
            matches!(outcome, Outcome::Alert | Outcome::ClosedEarly | Outcome::Reset | Outcome::Malformed)
        })
}

fn lost(error: &io::Error) -> (Outcome, String) {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            (Outcome::Reset, "the peer reset the connection".into())
        }
        _ => (Outcome::Unknown, error.to_string()),
    }
}
