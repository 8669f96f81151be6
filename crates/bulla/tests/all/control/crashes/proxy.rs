//! A proxy in front of PostgreSQL that kills the client at its n-th commit. It kills before the commit reaches the server, or after
//! the server has answered and before the client gets the answer.
//!
//! The proxy parses the protocol's messages (PostgreSQL manual, 54.7). A commit is `COMMIT` by itself, or a statement that writes
//! outside a transaction.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::{Points, Side};

/// The socket's name for the default port.
const SOCKET: &str = ".s.PGSQL.5432";
/// Maximum message length, in bytes. A batch of rows is well below.
const FRAME_MAX: usize = 64 << 20;

#[derive(Default)]
struct Aim {
    points: AtomicU64,
    at: AtomicU64,
    after: AtomicBool,
}

/// A proxy that runs until the test process ends.
#[derive(Clone)]
pub(super) struct Proxy(Arc<Aim>);

impl Proxy {
    /// Listens in `folder`, and connects to the server whose socket is in `server`.
    pub(super) fn start(folder: &Path, server: &Path) -> Self {
        let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
        let (aim, server) = (Arc::new(Aim::default()), server.join(SOCKET));
        let shared = Arc::clone(&aim);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (aim, server) = (Arc::clone(&shared), server.clone());
                std::thread::spawn(move || Connection::serve(client, &server, aim));
            }
        });
        Self(aim)
    }
}

impl Points for Proxy {
    fn arm(&self, at: u64, side: Side) {
        self.0.at.store(0, Ordering::SeqCst);
        self.0.after.store(side == Side::After, Ordering::SeqCst);
        self.0.points.store(0, Ordering::SeqCst);
        self.0.at.store(at, Ordering::SeqCst);
    }

    fn counted(&self) -> u64 {
        self.0.points.load(Ordering::SeqCst)
    }
}

/// State shared by the two directions of a connection.
struct Connection {
    client: Pid,
    aim: Arc<Aim>,
    /// The client is killed at the next `ReadyForQuery`.
    last: AtomicBool,
    /// Whether the server reports no open transaction (`I`).
    idle: AtomicBool,
}

impl Connection {
    fn serve(client: UnixStream, server: &PathBuf, aim: Arc<Aim>) {
        let Ok(server) = UnixStream::connect(server) else { return };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&client) else { return };
        let this = Arc::new(Self {
            client: peer.pid,
            aim,
            last: AtomicBool::new(false),
            idle: AtomicBool::new(true),
        });
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let answers = Arc::clone(&this);
        std::thread::spawn(move || {
            let _ = answers.answers(&from, &to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let _ = this.questions(&client, &server);
        let _ = server.shutdown(std::net::Shutdown::Both);
    }

    fn questions(&self, client: &UnixStream, server: &UnixStream) -> io::Result<()> {
        // The startup message has no type byte.
        pass(server, &frame(client, false)?)?;
        let mut statements = HashMap::new();
        let mut writes = false;
        loop {
            let frame = frame(client, true)?;
            match frame[0] {
                b'P' => {
                    let (name, text) = two_texts(&frame[5..]);
                    statements.insert(name, writing(&text));
                }
                b'B' => writes |= statements.get(&two_texts(&frame[5..]).1).copied().unwrap_or(false),
                b'S' => self.sync(std::mem::take(&mut writes)),
                b'Q' => {
                    let text = two_texts(&frame[5..]).0;
                    let alone = self.idle.load(Ordering::SeqCst) && writing(&text);
                    if text.trim() == "COMMIT" || alone {
                        self.commit();
                    }
                }
                _ => {}
            }
            pass(server, &frame)?;
        }
    }

    /// Handles Sync. Outside a transaction this commits the statements' writes.
    fn sync(&self, writes: bool) {
        if writes && self.idle.load(Ordering::SeqCst) {
            self.commit();
        }
    }

    /// Called before a commit is forwarded.
    fn commit(&self) {
        if self.aim.points.fetch_add(1, Ordering::SeqCst) + 1 != self.aim.at.load(Ordering::SeqCst) {
            return;
        }
        if self.aim.after.load(Ordering::SeqCst) {
            self.last.store(true, Ordering::SeqCst);
        } else {
            self.kill();
        }
    }

    /// Kills the client. Nothing it sent later is forwarded: its sockets are closed when this returns.
    fn kill(&self) {
        kill_process(self.client, Signal::KILL).unwrap();
    }

    fn answers(&self, server: &UnixStream, client: &UnixStream) -> io::Result<()> {
        loop {
            let frame = frame(server, true)?;
            if frame[0] == b'Z' {
                self.idle.store(frame.get(5) == Some(&b'I'), Ordering::SeqCst);
                if self.last.load(Ordering::SeqCst) {
                    self.kill();
                    return Ok(());
                }
            }
            pass(client, &frame)?;
        }
    }
}

/// Reads a message: a type byte (except in the first message), a length that includes itself, and the content.
fn frame(mut from: &UnixStream, typed: bool) -> io::Result<Vec<u8>> {
    let head = if typed { 5 } else { 4 };
    let mut frame = vec![0; head];
    from.read_exact(&mut frame)?;
    let length =
        u32::from_be_bytes([frame[head - 4], frame[head - 3], frame[head - 2], frame[head - 1]]) as usize;
    assert!((4..FRAME_MAX).contains(&length), "a frame of {length} octets");
    frame.resize(head - 4 + length, 0);
    from.read_exact(&mut frame[head..])?;
    Ok(frame)
}

fn pass(mut to: &UnixStream, frame: &[u8]) -> io::Result<()> {
    to.write_all(frame)
}

/// Reads two zero-terminated strings.
fn two_texts(content: &[u8]) -> (String, String) {
    let mut texts = content.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    (texts.next().unwrap_or_default(), texts.next().unwrap_or_default())
}

fn writing(statement: &str) -> bool {
    ["INSERT ", "UPDATE ", "DELETE "].iter().any(|word| statement.contains(word))
}
