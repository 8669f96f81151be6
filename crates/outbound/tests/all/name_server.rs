//! A name server that answers from a script and counts its queries.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A function that returns the server's replies to a query.
pub(crate) type Script = Box<dyn FnMut(&Question) -> Vec<Reply> + Send>;

/// A query as received by the server.
pub(crate) struct Question {
    pub(crate) message: Message,
    pub(crate) over_tcp: bool,
    /// The number of earlier queries.
    pub(crate) before: usize,
}

impl Question {
    pub(crate) fn name(&self) -> String {
        self.message.queries[0].name().to_ascii()
    }

    pub(crate) fn kind(&self) -> RecordType {
        self.message.queries[0].query_type()
    }

    pub(crate) fn reply(&self) -> Message {
        let mut reply = Message::response(self.message.metadata.id, OpCode::Query);
        reply.add_queries(self.message.queries.clone());
        reply.metadata.recursion_available = true;
        reply
    }

    pub(crate) fn with(&self, records: Vec<Record>) -> Vec<Reply> {
        let mut reply = self.reply();
        reply.add_answers(records);
        vec![Reply::now(reply)]
    }

    pub(crate) fn code(&self, code: ResponseCode, soa: Option<Record>) -> Vec<Reply> {
        let mut reply = self.reply();
        reply.metadata.response_code = code;
        reply.add_authorities(soa);
        vec![Reply::now(reply)]
    }
}

pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) after: Option<Arc<Notify>>,
}

impl Reply {
    pub(crate) fn now(message: Message) -> Self {
        assert_eq!(message.metadata.message_type, MessageType::Response);
        Self { bytes: message.to_vec().expect("an answer that can be written"), after: None }
    }

    /// Returns a reply that is sent only when the test opens `gate`.
    pub(crate) fn after(message: Message, gate: &Arc<Notify>) -> Self {
        Self { after: Some(gate.clone()), ..Self::now(message) }
    }
}

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
    arrived: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl NameServer {
    pub(crate) async fn start(script: impl FnMut(&Question) -> Vec<Reply> + Send + 'static) -> Self {
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
        // A port that is free for TCP may be in use for UDP.
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind(("127.0.0.1", 0)).await.expect("a TCP port");
            match UdpSocket::bind(tcp.local_addr().expect("an address")).await {
                Ok(udp) => break (tcp, Arc::new(udp)),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}"),
            }
        };
        let address = tcp.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let arrived = Arc::new(Notify::new());
        let tasks = vec![
            tokio::spawn(over_udp(udp, script.clone(), asked.clone(), arrived.clone())),
            tokio::spawn(over_tcp(tcp, script, asked.clone())),
        ];
        Self { address, asked, arrived, tasks }
    }

    /// Returns the number of queries so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until `count` queries have arrived.
    pub(crate) async fn until_queried(&self, count: usize) {
        while self.asked() < count {
            self.arrived.notified().await;
        }
    }
}

async fn over_udp(
    udp: Arc<UdpSocket>,
    script: Arc<Mutex<Script>>,
    asked: Arc<AtomicUsize>,
    arrived: Arc<Notify>,
) {
    let mut bytes = [0; 2_048];
    while let Ok((length, from)) = udp.recv_from(&mut bytes).await {
        let message = Message::from_vec(&bytes[..length]).expect("a question that can be read");
        let before = asked.fetch_add(1, Ordering::SeqCst);
        let replies = script.lock()(&Question { message, over_tcp: false, before });
        arrived.notify_one();
        for reply in replies {
            let udp = udp.clone();
            let Some(gate) = reply.after else {
                let _ = udp.send_to(&reply.bytes, from).await;
                continue;
            };
            tokio::spawn(async move {
                gate.notified().await;
                let _ = udp.send_to(&reply.bytes, from).await;
            });
        }
    }
}

async fn over_tcp(tcp: TcpListener, script: Arc<Mutex<Script>>, asked: Arc<AtomicUsize>) {
    while let Ok((mut stream, _)) = tcp.accept().await {
        let length = stream.read_u16().await.expect("a length");
        let mut bytes = vec![0; length.into()];
        stream.read_exact(&mut bytes).await.expect("a question");
        let message = Message::from_vec(&bytes).expect("a question that can be read");
        let before = asked.fetch_add(1, Ordering::SeqCst);
        let replies = script.lock()(&Question { message, over_tcp: true, before });
        for reply in replies {
            let length = u16::try_from(reply.bytes.len()).expect("fits");
            stream.write_all(&length.to_be_bytes()).await.expect("a reader");
            stream.write_all(&reply.bytes).await.expect("a reader");
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("a name")
}

pub(crate) fn a(owner: &str, ttl: u32, address: &str) -> Record {
    match address.parse().expect("an address") {
        IpAddr::V4(four) => Record::from_rdata(name(owner), ttl, RData::A(A(four))),
        IpAddr::V6(six) => Record::from_rdata(name(owner), ttl, RData::AAAA(AAAA(six))),
    }
}

pub(crate) fn cname(owner: &str, ttl: u32, alias: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(alias))))
}

/// Returns an SOA record of the zone, which limits how long negative answers are cached.
pub(crate) fn soa(zone: &str, ttl: u32, minimum: u32) -> Record {
    let day = 86_400;
    let soa = SOA::new(name("ns.example."), name("admin.example."), 1, day, day, day, minimum);
    Record::from_rdata(name(zone), ttl, RData::SOA(soa))
}

/// Long enough for any answer on a busy machine; reached only in tests of silence.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
