//! What is said in clear before TLS may begin.
//!
//! Sans-I/O: a [`Dialogue`] is given what the server said and tells what to answer, so that it is
//! tested without sockets, fuzzed, and bounded in one place. Time is the caller's to bound.

mod binary;
mod error;
mod input;
mod mail;
mod reply;
mod tds;
mod turn;
mod xmpp;

use crate::target::Protocol;
use input::Input;
use turn::{Move, Turn};

pub use error::StartTlsError;
pub use input::{DIALOGUE_MAX, LINE_MAX};
pub use tds::{TDS_PACKET_MAX, Wrapping};

/// The next step after a reply of the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Wait for more.
    More,
    /// Send this, then wait.
    Send(Vec<u8>),
    /// Send this (often nothing), then begin TLS.
    Ready {
        /// To be sent in clear before the ClientHello.
        send: Vec<u8>,
        /// The server sent clear text after its go-ahead. It was dropped, as a client must (RFC 3207
        /// section 6); a server that does this mixes up what was said before and inside TLS.
        injected: bool,
    },
    /// No TLS.
    Failed(StartTlsError),
}

/// The dialogue that leads to TLS, from the client's side.
#[derive(Debug)]
pub struct Dialogue {
    machine: Machine,
    input: Input,
    end: Option<Result<(), StartTlsError>>,
}

#[derive(Debug)]
enum Machine {
    Smtp(mail::Smtp),
    Imap(mail::Imap),
    Pop3(mail::Pop3),
    Sieve(mail::Sieve),
    Ftp(mail::Ftp),
    Nntp(mail::Nntp),
    Ldap,
    Postgres,
    Mysql,
    Mssql,
    Rdp,
    Xmpp(xmpp::Xmpp),
}

impl Dialogue {
    /// A dialogue with a server of `protocol`, which is asked for `host` where the protocol names
    /// one (XMPP). `None` for protocols that need none.
    #[must_use]
    pub fn new(protocol: Protocol, host: &str) -> Option<Self> {
        let machine = match protocol {
            Protocol::Tls | Protocol::File | Protocol::Cloud(_) => return None,
            Protocol::Smtp => Machine::Smtp(mail::Smtp::new(false)),
            Protocol::Lmtp => Machine::Smtp(mail::Smtp::new(true)),
            Protocol::Imap => Machine::Imap(mail::Imap::default()),
            Protocol::Pop3 => Machine::Pop3(mail::Pop3::default()),
            Protocol::Sieve => Machine::Sieve(mail::Sieve::default()),
            Protocol::Ftp => Machine::Ftp(mail::Ftp::default()),
            Protocol::Nntp => Machine::Nntp(mail::Nntp::default()),
            Protocol::Ldap => Machine::Ldap,
            Protocol::Postgres => Machine::Postgres,
            Protocol::Mysql => Machine::Mysql,
            Protocol::Mssql => Machine::Mssql,
            Protocol::Rdp => Machine::Rdp,
            Protocol::Xmpp => Machine::Xmpp(xmpp::Xmpp::new(host, false)),
            Protocol::XmppServer => Machine::Xmpp(xmpp::Xmpp::new(host, true)),
        };
        Some(Self { machine, input: Input::new(protocol), end: None })
    }

    /// What to send before the server has said anything; `None` where the server speaks first.
    #[must_use]
    pub fn opening(&self) -> Option<Vec<u8>> {
        match &self.machine {
            Machine::Ldap => Some(binary::ldap_request()),
            Machine::Postgres => Some(binary::postgres_request()),
            Machine::Mssql => Some(tds::prelogin()),
            Machine::Rdp => Some(binary::rdp_request()),
            Machine::Xmpp(xmpp) => Some(xmpp.opening()),
            _ => None,
        }
    }

    /// Takes what the server said, in pieces of any size. After [`Step::Ready`] everything further
    /// is clear text that does not belong there; after [`Step::Failed`] the answer stays the same.
    pub fn receive(&mut self, bytes: &[u8]) -> Step {
        match &self.end {
            Some(Ok(())) => return Step::Ready { send: Vec::new(), injected: !bytes.is_empty() },
            Some(Err(error)) => return Step::Failed(error.clone()),
            None => {}
        }
        self.input.push(bytes);
        match self.advance() {
            Ok(step) => step,
            Err(error) => {
                self.end = Some(Err(error.clone()));
                Step::Failed(error)
            }
        }
    }

    fn advance(&mut self) -> Result<Step, StartTlsError> {
        let mut out = Vec::new();
        loop {
            self.input.check_total()?;
            match self.turn()? {
                Move::On => {}
                Move::Send(bytes) => out.extend(bytes),
                Move::Ready(bytes) => {
                    out.extend(bytes);
                    self.end = Some(Ok(()));
                    return Ok(Step::Ready { send: out, injected: !self.input.is_empty() });
                }
                Move::Wait if out.is_empty() => return Ok(Step::More),
                Move::Wait => return Ok(Step::Send(out)),
            }
        }
    }

    fn turn(&mut self) -> Turn {
        let input = &mut self.input;
        match &mut self.machine {
            Machine::Smtp(smtp) => smtp.turn(input),
            Machine::Imap(imap) => imap.turn(input),
            Machine::Pop3(pop3) => pop3.turn(input),
            Machine::Sieve(sieve) => sieve.turn(input),
            Machine::Ftp(ftp) => ftp.turn(input),
            Machine::Nntp(nntp) => nntp.turn(input),
            Machine::Ldap => binary::ldap(input),
            Machine::Postgres => binary::postgres(input),
            Machine::Mysql => binary::mysql(input),
            Machine::Mssql => tds::prelogin_reply(input),
            Machine::Rdp => binary::rdp(input),
            Machine::Xmpp(xmpp) => xmpp.turn(input),
        }
    }
}

#[cfg(test)]
mod tests;
