//! Answers of the DNS server to each kind of name, over UDP and TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use fleet::Fleet;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::{of_kind, one_of_each};

/// Reached only if an answer never arrives.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The content of an answer.
#[derive(Debug, PartialEq)]
struct DnsAnswer {
    code: ResponseCode,
    aliases: Vec<String>,
    addresses: Vec<Ipv4Addr>,
    ttl: Option<u32>,
    soa: bool,
}

fn question(id: u16, host: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(format!("{host}.")).unwrap(), kind));
    message.to_vec().unwrap()
}

fn understand(bytes: &[u8]) -> (u16, DnsAnswer) {
    let message = Message::from_vec(bytes).expect("a DNS message");
    let aliases = message.answers.iter().filter_map(|record| match &record.data {
        RData::CNAME(to) => Some(to.0.to_ascii().trim_end_matches('.').to_owned()),
        _ => None,
    });
    let addresses = message.answers.iter().filter_map(|record| match &record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    let answer = DnsAnswer {
        code: message.metadata.response_code,
        aliases: aliases.collect(),
        addresses: addresses.collect(),
        ttl: message.answers.last().map(|record| record.ttl),
        soa: message.authorities.iter().any(|record| matches!(record.data, RData::SOA(_))),
    };
    (message.metadata.id, answer)
}

fn udp(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.connect(server).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (u16, DnsAnswer) {
    let mut bytes = [0; 1_500];
    let length = socket.recv(&mut bytes).expect("an answer");
    understand(&bytes[..length])
}

fn over_udp(server: SocketAddr, host: &str, kind: RecordType) -> DnsAnswer {
    let socket = udp(server);
    socket.send(&question(7, host, kind)).unwrap();
    let (id, answer) = receive(&socket);
    assert_eq!(id, 7);
    answer
}

fn send_query(stream: &mut TcpStream, id: u16, host: &str, kind: RecordType) {
    let question = question(id, host, kind);
    let length = u16::try_from(question.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &question].concat()).unwrap();
}

fn over_tcp(stream: &mut TcpStream, host: &str, kind: RecordType) -> DnsAnswer {
    send_query(stream, 9, host, kind);
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes).unwrap();
    let (id, answer) = understand(&bytes);
    assert_eq!(id, 9);
    answer
}

/// Returns rows of endpoint kind, host, and expected answer.
fn expected(fleet: &Fleet) -> Vec<(&'static str, String, DnsAnswer)> {
    let row = |kind: &'static str, code, aliases: fn(&str) -> Vec<String>, ttl, soa| {
        let truth = of_kind(fleet, kind);
        let aliases = aliases(&truth.host);
        (kind, truth.host, DnsAnswer { code, aliases, addresses: truth.addresses, ttl, soa })
    };
    let none = |_: &str| Vec::new();
    let three = |host: &str| (1..=3).map(|i| format!("alias{i}.{host}")).collect();
    let round = |host: &str| vec![format!("alias1.{host}"), format!("alias2.{host}"), host.to_owned()];
    vec![
        row("p256", ResponseCode::NoError, none, Some(300), false),
        row("three-addresses", ResponseCode::NoError, none, Some(300), false),
        row("cname-chain", ResponseCode::NoError, three, Some(300), false),
        row("short-ttl", ResponseCode::NoError, none, Some(1), false),
        row("nxdomain", ResponseCode::NXDomain, none, None, true),
        row("no-address", ResponseCode::NoError, none, None, true),
        row("servfail", ResponseCode::ServFail, none, None, false),
        row("dns-refused", ResponseCode::Refused, none, None, false),
        row("cname-loop", ResponseCode::NoError, round, Some(60), false),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_answers_are_equal_over_udp_and_tcp() {
    let fleet = one_of_each().await;
    let mut stream = TcpStream::connect(fleet.dns()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    for (kind, host, answer) in expected(&fleet) {
        assert_eq!(over_udp(fleet.dns(), &host, RecordType::A), answer, "{kind} over UDP");
        assert_eq!(over_tcp(&mut stream, &host, RecordType::A), answer, "{kind} over TCP");
    }
    assert_eq!(of_kind(&fleet, "three-addresses").addresses.len(), 3);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_names_are_case_insensitive_and_have_no_ipv6_address() {
    let fleet = one_of_each().await;
    let truth = of_kind(&fleet, "p256");
    let shouted = over_udp(fleet.dns(), &truth.host.to_ascii_uppercase(), RecordType::A);
    assert_eq!(shouted.addresses, truth.addresses);
    let sixth = over_udp(fleet.dns(), &truth.host, RecordType::AAAA);
    let nothing =
        DnsAnswer { code: ResponseCode::NoError, aliases: vec![], addresses: vec![], ttl: None, soa: true };
    assert_eq!(sixth, nothing);
    assert_eq!(over_udp(fleet.dns(), "nobody.fleet.test", RecordType::A).code, ResponseCode::NXDomain);
    fleet.stop().await;
}

/// The query after the silent one is answered first, so the test needs no wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_name_gets_no_answer_over_udp_or_tcp() {
    let fleet = one_of_each().await;
    let (silent, other) = (of_kind(&fleet, "dns-timeout").host, of_kind(&fleet, "p256").host);
    let socket = udp(fleet.dns());
    socket.send(&question(1, &silent, RecordType::A)).unwrap();
    socket.send(&question(2, &other, RecordType::A)).unwrap();
    assert_eq!(receive(&socket).0, 2);
    let mut stream = TcpStream::connect(fleet.dns()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    send_query(&mut stream, 3, &silent, RecordType::A);
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "closed without an answer");
    assert_eq!(fleet.counters().dns_questions.get("address"), Some(&1));
    fleet.stop().await;
}
