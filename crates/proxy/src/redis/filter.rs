//! The commands of a client on their way to the server.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::command::BadCommand;
use super::databases::{DATABASES_MAX, DatabaseGate, FIRST_DATABASE};
use super::handling::{Credentials, Handling, Hello, handling};
use super::opening::TokenDigest;
use super::reply::{command, last_refused, refused};
use super::stream::CommandStream;
use crate::sessions::Failure;

/// A decision about databases that a command names.
type Deciding<'a> = Pin<Box<dyn Future<Output = (Vec<String>, Result<(), Failure>)> + Send + 'a>>;

/// A client's connection, from which the server's bytes are read: the forwarded commands, and others in the place of refused ones.
pub(super) struct CommandFilter<'a, S> {
    commands: &'a mut CommandStream<S>,
    gate: &'a DatabaseGate<'a>,
    /// The token with which the client authenticated; `None` if it needed none.
    token: Option<TokenDigest>,
    replies_are_on: bool,
    /// Databases that the session may use.
    databases: BTreeSet<String>,
    /// Gets each database that is added.
    added: mpsc::Sender<String>,
    /// The decision about the current command.
    deciding: Option<(&'static str, Deciding<'a>)>,
    /// Bytes for the server, of which this many were read.
    output: Vec<u8>,
    sent: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Open,
    /// The client broke the protocol. The rest of its bytes is discarded.
    Refused,
    /// The client sends no more bytes.
    Ended,
}

/// What the server gets for a command.
enum Outcome {
    Forward,
    /// Another command.
    Replace(Vec<u8>),
    /// It depends on databases.
    Decide(&'static str, Vec<String>),
}

impl<'a, S> CommandFilter<'a, S> {
    /// `greeting`: commands that the server gets first. Also returns the receiver of the databases that the session uses besides the
    /// first.
    pub(super) fn new(
        commands: &'a mut CommandStream<S>,
        gate: &'a DatabaseGate<'a>,
        token: Option<TokenDigest>,
        greeting: Vec<u8>,
    ) -> (Self, mpsc::Receiver<String>) {
        let (added, receiver) = mpsc::channel(DATABASES_MAX);
        let filter = Self {
            commands,
            gate,
            token,
            replies_are_on: true,
            databases: BTreeSet::from([FIRST_DATABASE.to_owned()]),
            added,
            deciding: None,
            output: greeting,
            sent: 0,
            state: State::Open,
        };
        (filter, receiver)
    }

    /// Reads the buffered commands, up to one that needs a decision about databases.
    fn read_buffered(&mut self) -> io::Result<()> {
        while self.deciding.is_none() && self.state == State::Open {
            match self.commands.read_buffered(&mut self.output) {
                Ok(true) => {
                    let outcome = self.outcome();
                    self.act(outcome);
                }
                Ok(false) => return Ok(()),
                Err(error) => self.refuse_bytes(error)?,
            }
        }
        Ok(())
    }

    fn act(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Forward => self.commands.forward(&mut self.output),
            Outcome::Replace(other) => {
                self.commands.discard();
                self.output.extend_from_slice(&other);
            }
            Outcome::Decide(name, databases) => {
                let gate = self.gate;
                let deciding = async move {
                    let decided = gate.admit(&databases).await;
                    (databases, decided)
                };
                self.deciding = Some((name, Box::pin(deciding)));
            }
        }
    }

    /// Returns what the server gets for the current command.
    fn outcome(&mut self) -> Outcome {
        let refuse = |name: &str, why: &str| {
            let client = self.gate.client;
            tracing::info!(%client, command = name, why, "refused a command of a session");
            Outcome::Replace(refused(name, why))
        };
        match handling(&self.commands.head()) {
            Handling::Forward => Outcome::Forward,
            Handling::Refuse(name, why) => refuse(name, why),
            Handling::Replies { are_on } => {
                self.replies_are_on = are_on;
                Outcome::Forward
            }
            Handling::Authenticate(credentials) => match self.is_known(credentials) {
                // The server answers with +OK, and changes nothing.
                Ok(()) if self.replies_are_on => Outcome::Replace(command(&[b"CLIENT", b"REPLY", b"ON"])),
                Ok(()) => refuse("AUTH", "replies are switched off by CLIENT REPLY"),
                Err(why) => refuse("AUTH", why),
            },
            Handling::Greet(credentials, hello) => match self.is_known(credentials) {
                Ok(()) => Outcome::Replace(Hello::without_credentials(&hello)),
                Err(why) => refuse("HELLO with AUTH", why),
            },
            Handling::UseDatabases(name, databases) => {
                let new: BTreeSet<String> = databases
                    .into_iter()
                    .filter(|one| !self.databases.contains(*one))
                    .map(str::to_owned)
                    .collect();
                match self.databases.len() + new.len() {
                    _ if new.is_empty() => Outcome::Forward,
                    count if count > DATABASES_MAX => refuse(name, "the session uses too many databases"),
                    _ => Outcome::Decide(name, new.into_iter().collect()),
                }
            }
        }
    }

    /// Returns whether the client authenticated with these credentials.
    fn is_known(&self, credentials: Credentials<'_>) -> Result<(), &'static str> {
        match &self.token {
            Some(token) if *token == TokenDigest::of(credentials) => Ok(()),
            Some(_) => Err("the session is logged in with another token: open a new connection"),
            None => Err("the proxy needs no token from this client: leave user and password out"),
        }
    }

    fn decided(&mut self, name: &'static str, (databases, decided): (Vec<String>, Result<(), Failure>)) {
        match decided {
            Ok(()) => {
                for database in databases {
                    // The channel has a place for each database.
                    let _ = self.added.try_send(database.clone());
                    self.databases.insert(database);
                }
                self.act(Outcome::Forward);
            }
            Err(failure) => {
                let (client, reason) = (self.gate.client, failure.reason);
                tracing::info!(%client, command = name, reason, message = failure.message, "refused a command of a session");
                let what = format!("{name} {}", databases.join(" "));
                self.act(Outcome::Replace(refused(&what, &failure.message)));
            }
        }
    }

    /// Ends the session after bytes that are no command. The client gets the error after the replies to its commands.
    fn refuse_bytes(&mut self, error: BadCommand) -> io::Result<()> {
        let client = self.gate.client;
        tracing::info!(%client, %error, "a client of a session broke the protocol");
        if self.commands.is_forwarding() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        self.output.extend_from_slice(&last_refused("A command", &error.to_string()));
        self.state = State::Refused;
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> CommandFilter<'_, S> {
    /// Waits until there are bytes for the server, or the client sends no more.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some((name, deciding)) = &mut self.deciding {
                let (name, decided) = (*name, ready!(deciding.as_mut().poll(cx)));
                self.deciding = None;
                self.decided(name, decided);
            }
            self.read_buffered()?;
            if !self.output.is_empty() || self.state == State::Ended {
                return Poll::Ready(Ok(()));
            }
            if self.deciding.is_none() && !ready!(self.commands.poll_fill(cx))? {
                self.state = State::Ended;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CommandFilter<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.output.is_empty() {
            ready!(this.poll_output(cx))?;
        }
        let left = this.output.get(this.sent..).unwrap_or_default();
        let length = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..length]);
        this.sent += length;
        if this.sent == this.output.len() {
            this.output.clear();
            this.sent = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CommandFilter<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.commands.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.commands.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.commands.stream).poll_shutdown(cx)
    }
}
