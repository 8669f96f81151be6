//! The handshake state machine: from bytes to records, messages and the next step.

use std::ops::Range;
use std::sync::Arc;

use aws_lc_rs::{digest, rand};

use super::hello::{ClientHello, SSL_3_0, ServerHello, TLS_1_2, TLS_1_3, message};
use super::limits::COOKIE_MAX;
use super::message::{Flow, Message, Messages};
use super::record::{self, Record, RecordReader};
use super::schedule::Tls13Suite;
use super::{
    ClientHelloContent, Evidence, Failure, KeyShares, NoRandomness, Profile, TicketOffer, tls12, tls13,
};

/// The next action of the caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Receive more bytes.
    More,
    /// Send these bytes, then receive more.
    Send(Vec<u8>),
    /// The handshake is done. Send these bytes (possibly none), then close the connection.
    Done(Vec<u8>),
    /// The handshake failed; close the connection.
    Failed(Failure),
}

/// A handshake with a server, without I/O: bytes in, bytes out.
///
/// It ends as soon as the server has proved possession of its certificate's key. [`super::limits`] limits the memory; the caller
/// sets the timeout.
pub struct Handshake {
    evidence: Evidence,
    records: RecordReader,
    messages: Messages,
    shares: Arc<KeyShares>,
    state: State,
    /// Whether TLS 1.3 was offered.
    modern: bool,
    finish: bool,
    random: [u8; 32],
}

enum State {
    /// Waiting for the ServerHello.
    Hello(HelloSent),
    Tls13(Box<tls13::Session>),
    Tls12(tls12::Session),
    Over(Result<(), Failure>),
}

struct HelloSent {
    hello: ClientHello,
    /// After a HelloRetryRequest: its suite, and the transcript up to the second ClientHello.
    retried: Option<(u16, digest::Context)>,
}

impl Handshake {
    /// Starts a handshake with new random values. Returns the handshake and the bytes to send.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn start(
        offer: &ClientHelloContent,
        shares: &Arc<KeyShares>,
    ) -> Result<(Self, Vec<u8>), NoRandomness> {
        let mut both = [[0; 32]; 2];
        rand::fill(both.as_flattened_mut())?;
        let [random, session_id] = both;
        Ok(Self::start_with(offer, shares, random, session_id))
    }

    /// Like [`Self::start`], with given random values.
    pub(super) fn start_with(
        offer: &ClientHelloContent,
        shares: &Arc<KeyShares>,
        random: [u8; 32],
        session_id: [u8; 32],
    ) -> (Self, Vec<u8>) {
        let hello = ClientHello::new(offer, shares, &random, &session_id);
        let first = hello.record();
        let handshake = Self {
            evidence: Evidence::default(),
            records: RecordReader::default(),
            messages: Messages::default(),
            shares: Arc::clone(shares),
            state: State::Hello(HelloSent { hello, retried: None }),
            modern: offer.profile != Profile::Legacy,
            finish: offer.finish,
            random,
        };
        (handshake, first)
    }

    /// Processes bytes from the server, split in any way. After the end of the handshake, further bytes have no effect.
    pub fn receive(&mut self, bytes: &[u8]) -> Step {
        match &self.state {
            State::Over(Ok(())) => return Step::Done(Vec::new()),
            State::Over(Err(failure)) => return Step::Failed(failure.clone()),
            _ => {}
        }
        self.evidence.bytes_in += bytes.len() as u64;
        self.records.push(bytes);
        let mut out = Vec::new();
        match self.advance(&mut out) {
            Ok(Flow::More) if out.is_empty() => Step::More,
            Ok(Flow::More) => Step::Send(out),
            Ok(Flow::Done) => {
                self.state = State::Over(Ok(()));
                Step::Done(out)
            }
            Err(failure) => {
                self.state = State::Over(Err(failure.clone()));
                Step::Failed(failure)
            }
        }
    }

    /// Returns whether closing the connection loses nothing: the evidence is complete, or only tickets may follow.
    #[must_use]
    pub fn can_close(&self) -> bool {
        match &self.state {
            State::Over(end) => end.is_ok(),
            State::Tls13(session) => session.is_over(),
            State::Hello(_) | State::Tls12(_) => false,
        }
    }

    /// Returns the evidence so far.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the evidence, whether or not the handshake has ended.
    #[must_use]
    pub fn into_evidence(self) -> Evidence {
        self.evidence
    }

    fn advance(&mut self, out: &mut Vec<u8>) -> Result<Flow, Failure> {
        while let Some(record) = self.records.next()? {
            if let Flow::Done = self.on_record(&record, out)? {
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::More)
    }

    fn on_record(&mut self, record: &Record, out: &mut Vec<u8>) -> Result<Flow, Failure> {
        match record.kind {
            record::HANDSHAKE => {
                self.messages.push(self.records.content(record))?;
                while let Some(range) = self.messages.next()? {
                    if let Flow::Done = self.on_message(range, out)? {
                        return Ok(Flow::Done);
                    }
                }
                Ok(Flow::More)
            }
            record::ALERT => self.on_alert(record),
            record::CHANGE_CIPHER_SPEC => self.on_change_cipher_spec(),
            record::HEARTBEAT => self.idle(),
            // Application data, which some servers send before the client.
            record::APPLICATION_DATA if self.can_close() => self.idle(),
            record::APPLICATION_DATA => {
                Err(Failure::Malformed("application data before the end of the handshake"))
            }
            _ => Err(Failure::Malformed("record: unknown content type")),
        }
    }

    fn idle(&mut self) -> Result<Flow, Failure> {
        self.records.count_idle_record()?;
        Ok(Flow::More)
    }

    fn on_change_cipher_spec(&mut self) -> Result<Flow, Failure> {
        if matches!(self.state, State::Tls12(_)) {
            return Err(match self.evidence.chain.is_empty() {
                true => Failure::NoCertificate("the server resumes a session that does not exist"),
                false => Failure::Malformed("ChangeCipherSpec before the key exchange"),
            });
        }
        self.idle()
    }

    fn on_alert(&mut self, record: &Record) -> Result<Flow, Failure> {
        const CLOSE_NOTIFY: u8 = 0;
        const WARNING: u8 = 1;
        let [level, description, ..] = *self.records.content(record) else {
            return Err(Failure::Malformed("alert"));
        };
        if self.can_close() {
            if description != CLOSE_NOTIFY {
                self.evidence.rejected = Some(description);
            }
            return Ok(Flow::Done);
        }
        let tls13 = matches!(self.state, State::Tls13(_));
        if level == WARNING && description != CLOSE_NOTIFY && !tls13 {
            // A warning, such as unrecognized_name, after which servers send their default certificate.
            self.evidence.warning = Some(description);
            return self.idle();
        }
        Err(Failure::Alert { level, description })
    }

    fn on_message(&mut self, range: Range<usize>, out: &mut Vec<u8>) -> Result<Flow, Failure> {
        let kind = self.messages.get(&range).kind;
        if kind == message::HELLO_REQUEST && !matches!(self.state, State::Tls13(_)) {
            return self.idle();
        }
        if matches!(self.state, State::Hello(_)) {
            return self.on_server_hello(range, out);
        }
        let message = self.messages.get(&range);
        match &mut self.state {
            State::Tls13(session) => {
                let was_over = session.is_over();
                let flow = session.on_message(message, &mut self.evidence, &mut self.records, out)?;
                if !was_over && session.is_over() {
                    self.messages.check_no_partial_message()?;
                }
                Ok(flow)
            }
            State::Tls12(session) => session.on_message(message, &mut self.evidence, out),
            State::Hello(_) | State::Over(_) => Ok(Flow::Done),
        }
    }

    fn on_server_hello(&mut self, range: Range<usize>, out: &mut Vec<u8>) -> Result<Flow, Failure> {
        let Self { messages, state, evidence, records, .. } = self;
        let State::Hello(hello_sent) = state else { return Ok(Flow::More) };
        let message = messages.get(&range);
        if message.kind != message::SERVER_HELLO {
            let found = message.kind;
            return Err(Failure::UnexpectedMessage { expected: "server_hello", found });
        }
        let hello = ServerHello::read(message.body()).ok_or(Failure::Malformed("ServerHello"))?;
        evidence.version = Some(hello.version);
        evidence.cipher = Some(hello.cipher);
        if let Some(alpn) = hello.alpn {
            evidence.alpn = Some(String::from_utf8_lossy(alpn).into_owned());
        }
        *state = match hello.version {
            TLS_1_3 if !self.modern => return Err(Failure::NotOffered("TLS 1.3")),
            TLS_1_3 => {
                messages.check_no_partial_message()?;
                if hello.is_retry_request() {
                    evidence.hello_retry = true;
                    retry(hello_sent, &hello, message, &self.shares, out)?;
                    return Ok(Flow::More);
                }
                evidence.group = hello.key_share.map(|(group, _)| group);
                let begun = begin_tls13(hello_sent, &hello, message, &self.shares, self.finish, records)?;
                State::Tls13(Box::new(begun))
            }
            SSL_3_0..=TLS_1_2 => {
                evidence.downgraded = self.modern && hello.downgraded();
                evidence.session_ticket =
                    if hello.ticket { TicketOffer::Offered } else { TicketOffer::NotOffered };
                evidence.scts = hello.scts.map(<[u8]>::to_vec);
                let (version, cipher) = (hello.version, hello.cipher);
                State::Tls12(tls12::Session::new(version, cipher, self.random, hello.random))
            }
            _ => return Err(Failure::NotOffered("a TLS version")),
        };
        Ok(Flow::More)
    }
}

/// Responds to a HelloRetryRequest (RFC 8446 section 4.1.4).
fn retry(
    hello_sent: &mut HelloSent,
    request: &ServerHello<'_>,
    message: Message<'_>,
    shares: &KeyShares,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if hello_sent.retried.is_some() {
        return Err(Failure::Malformed("HelloRetryRequest: sent twice"));
    }
    let suite = offered_suite(request.cipher)?;
    let key_share = match request.key_share {
        Some((group, _)) => {
            Some(shares.retry_key_share(group).ok_or(Failure::NotOffered("a key exchange group"))?)
        }
        None if request.cookie.is_some() => None,
        None => return Err(Failure::Malformed("HelloRetryRequest: requests no change")),
    };
    if request.cookie.is_some_and(|cookie| cookie.len() > COOKIE_MAX) {
        return Err(Failure::LimitExceeded { what: "bytes in a cookie", limit: COOKIE_MAX });
    }
    // In the transcript, the first ClientHello is replaced by its hash (RFC 8446 section 4.4.1).
    let mut first = suite.hash().context();
    first.update(&hello_sent.hello.message);
    let first = first.finish();
    let mut transcript = suite.hash().context();
    let length = u8::try_from(first.as_ref().len()).unwrap_or(u8::MAX);
    transcript.update(&[message::MESSAGE_HASH, 0, 0, length]);
    transcript.update(first.as_ref());
    transcript.update(message.whole);
    hello_sent.hello.retry(key_share.as_deref(), request.cookie);
    transcript.update(&hello_sent.hello.message);
    out.extend_from_slice(&tls13::change_cipher_spec());
    out.extend_from_slice(&record::plain(record::HANDSHAKE, TLS_1_2, &hello_sent.hello.message));
    hello_sent.retried = Some((request.cipher, transcript));
    Ok(())
}

fn begin_tls13(
    hello_sent: &mut HelloSent,
    hello: &ServerHello<'_>,
    message: Message<'_>,
    shares: &KeyShares,
    finish: bool,
    records: &mut RecordReader,
) -> Result<tls13::Session, Failure> {
    let suite = offered_suite(hello.cipher)?;
    if hello.pre_shared_key {
        return Err(Failure::NoCertificate("the server chose a pre-shared key"));
    }
    let (group, share) = hello.key_share.ok_or(Failure::Malformed("ServerHello: no key share"))?;
    let shared_secret = shares.agree(group, share).ok_or(Failure::Cryptography("the key exchange"))?;
    let retried = hello_sent.retried.is_some();
    let mut transcript = match hello_sent.retried.take() {
        Some((cipher, transcript)) if cipher == hello.cipher => transcript,
        Some(_) => {
            return Err(Failure::Malformed("ServerHello: cipher suite differs from the HelloRetryRequest"));
        }
        None => {
            let mut transcript = suite.hash().context();
            transcript.update(&hello_sent.hello.message);
            transcript
        }
    };
    transcript.update(message.whole);
    tls13::Session::begin(suite, shared_secret.as_slice(), transcript, finish, retried, records)
}

fn offered_suite(code: u16) -> Result<Tls13Suite, Failure> {
    Tls13Suite::new(code).ok_or(Failure::NotOffered("a TLS 1.3 cipher suite"))
}
