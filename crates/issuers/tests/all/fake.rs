//! An HTTP/1.1 server made of one closure, for services that misbehave on purpose.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A response to send.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) pause: Duration,
}

impl Response {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), pause: Duration::ZERO }
    }

    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, body.to_string())
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn after(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}

/// The server. Stops when dropped.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
    under_way: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    pub(crate) async fn start(answer: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let under_way = Arc::new(AtomicUsize::new(0));
        let (answer, log, open) = (Arc::new(answer), Arc::clone(&seen), Arc::clone(&under_way));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, log, open) = (Arc::clone(&answer), Arc::clone(&log), Arc::clone(&open));
                tokio::spawn(async move {
                    // Some tests disconnect the client on purpose.
                    let _ = serve(stream, &*answer, &log, &open).await;
                });
            }
        });
        Self { address, seen, under_way, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the number of requests that were read and not yet answered.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(dyn Fn(&RecordedRequest) -> Response + Send + Sync),
    log: &Mutex<Vec<RecordedRequest>>,
    open: &AtomicUsize,
) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, value)| value.parse::<usize>().unwrap());
        while read.len() < end + length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        let request = RecordedRequest { method, path, headers, body: read[end..end + length].to_vec() };
        read.drain(..end + length);
        log.lock().push(request.clone());
        open.fetch_add(1, Ordering::SeqCst);
        let Response { status, headers, body, pause } = answer(&request);
        tokio::time::sleep(pause).await;
        open.fetch_sub(1, Ordering::SeqCst);
        let mut out = format!("HTTP/1.1 {status} Fake\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        out.push_str("\r\n");
        stream.write_all(out.as_bytes()).await?;
        if request.method != "HEAD" {
            stream.write_all(&body).await?;
        }
        stream.flush().await?;
    }
}
