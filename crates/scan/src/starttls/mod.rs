//! Plaintext dialogues before TLS (STARTTLS).
//!
//! Sans-I/O: a [`Dialogue`] receives the server's bytes and returns the client's. This makes it testable without sockets and easy
//! to fuzz, and all limits are in one place. The caller sets the timeout.

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
use turn::{Action, ActionResult};

pub use error::StartTlsError;
pub use input::{DIALOGUE_MAX, LINE_MAX};
pub use tds::{TDS_PACKET_MAX, TlsFraming};

/// The next step after input from the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Wait for more input.
    More,
    /// Send these bytes, then wait for input.
    Send(Vec<u8>),
    /// Send these bytes (often none), then start TLS.
    Ready {
        /// Bytes to send in plaintext before the ClientHello.
        send: Vec<u8>,
        /// Whether the server sent plaintext after its go-ahead, which was dropped as RFC 3207 section 6 requires. Such a server
        /// mixes data received before TLS with data inside TLS.
        injected: bool,
    },
    /// The dialogue failed, so there is no TLS.
    Failed(StartTlsError),
}

/// Client side of a dialogue that leads to TLS.
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
    /// Creates a dialogue with a server of `protocol`. XMPP sends `host` as the requested domain. `None` for protocols without a
    /// dialogue.
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

    /// Returns the bytes to send first; `None` for protocols in which the server starts.
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

    /// Processes input from the server, split in any way. After [`Step::Ready`], further input is injected plaintext; after
    /// [`Step::Failed`], the result stays the same.
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
                Action::Continue => {}
                Action::Send(bytes) => out.extend(bytes),
                Action::Ready(bytes) => {
                    out.extend(bytes);
                    self.end = Some(Ok(()));
                    return Ok(Step::Ready { send: out, injected: !self.input.is_empty() });
                }
                Action::Wait if out.is_empty() => return Ok(Step::More),
                Action::Wait => return Ok(Step::Send(out)),
            }
        }
    }

    fn turn(&mut self) -> ActionResult {
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
