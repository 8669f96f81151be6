//! Tests of the resolver with name servers that are correct, malicious, slow or silent.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{RData, Record, RecordType};
use outbound::Deadline;
use outbound::resolve::{
    CHAIN_MAX, ExchangeError, Families, LIFETIME_MAX, Options, Recursion, ResolveError, Resolver,
    read_response, send_query,
};
use proptest::prelude::*;
use telemetry::tasks;
use tokio::sync::Notify;

use crate::name_server::{NameServer, Question, Reply, TIMEOUT, a, cname, name, soa};

fn resolver(servers: &[&NameServer]) -> Resolver {
    let upstreams = servers.iter().map(|server| server.address).collect();
    Resolver::with_upstreams(upstreams)
}

async fn v4(resolver: &Resolver, name: &str) -> Result<Vec<String>, ResolveError> {
    let resolution = resolver.resolve(name, Families::V4, TIMEOUT).await?;
    Ok(resolution.addresses.iter().map(IpAddr::to_string).collect())
}

fn one(address: &str) -> Result<Vec<String>, ResolveError> {
    Ok(vec![address.to_owned()])
}

/// Advances the clock of tokio, the only clock that the resolver reads.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn cached_answer_expires_with_the_shortest_ttl_of_its_chain() {
    for (alias_ttl, address_ttl) in [(3_000, 30_000), (30_000, 3_000)] {
        let server = NameServer::start(move |asked: &Question| {
            let address = format!("192.0.2.{}", asked.before + 1);
            asked.with(vec![
                cname("www.example.", alias_ttl, "host.example."),
                a("host.example.", address_ttl, &address),
            ])
        })
        .await;
        let resolver = resolver(&[&server]);
        assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
        pass(seconds(2_600)).await;
        assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
        pass(seconds(500)).await;
        assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.2"), "the name has moved");
        assert_eq!(server.asked(), 2);
    }
}

#[tokio::test]
async fn aliases_are_reported_and_followed_across_messages() {
    let server = NameServer::start(|asked: &Question| match asked.name().as_str() {
        "www.example." => asked.with(vec![cname("www.example.", 60, "edge.cdn.example.")]),
        "edge.cdn.example." => asked.with(vec![a("edge.cdn.example.", 20, "192.0.2.7")]),
        other => panic!("nobody wants {other}"),
    })
    .await;
    let resolver = resolver(&[&server]);
    let found = resolver.resolve("WWW.Example.", Families::V4, TIMEOUT).await.unwrap();
    assert_eq!(found.aliases, ["edge.cdn.example"]);
    assert_eq!(found.addresses, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
    let left = found.valid_until - std::time::Instant::now();
    assert!(left <= seconds(20), "{left:?}");
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn alias_loops_are_detected_in_one_or_several_messages() {
    let in_one = NameServer::start(|asked: &Question| {
        asked.with(vec![cname("a.example.", 9, "b.example."), cname("b.example.", 9, "a.example.")])
    })
    .await;
    let circle = Err(ResolveError::AliasLoop("a.example".to_owned()));
    assert_eq!(v4(&resolver(&[&in_one]), "a.example").await, circle);
    let endless = NameServer::start(|asked: &Question| {
        asked.with(vec![cname(&asked.name(), 9, &format!("x{}.example.", asked.before))])
    })
    .await;
    let too_far = Err(ResolveError::AliasLoop(format!("x{CHAIN_MAX}.example")));
    assert_eq!(v4(&resolver(&[&endless]), "a.example").await, too_far);
    assert_eq!(endless.asked(), CHAIN_MAX + 1);
}

#[tokio::test]
async fn negative_answers_are_cached_for_the_lesser_of_ttl_and_minimum() {
    for (ttl, minimum) in [(400, 900), (900, 400)] {
        for (code, error) in [
            (ResponseCode::NXDomain, ResolveError::NxDomain),
            (ResponseCode::NoError, ResolveError::NoAddress),
        ] {
            let server = NameServer::start(move |asked: &Question| {
                asked.code(code, Some(soa("example.", ttl, minimum)))
            })
            .await;
            let resolver = resolver(&[&server]);
            for (after, questions) in [(0, 1), (300, 1), (101, 2)] {
                pass(seconds(after)).await;
                assert_eq!(v4(&resolver, "gone.example").await, Err(error.clone()));
                assert_eq!(server.asked(), questions, "{error} after {after} more seconds");
            }
        }
    }
}

#[tokio::test]
async fn negative_answers_without_matching_soa_are_not_cached() {
    let elsewhere = Some(soa("other.example.", 900, 900));
    for authority in [None, elsewhere] {
        let server =
            NameServer::start(move |asked: &Question| asked.code(ResponseCode::NXDomain, authority.clone()))
                .await;
        let resolver = resolver(&[&server]);
        assert_eq!(v4(&resolver, "gone.example").await, Err(ResolveError::NxDomain));
        assert_eq!(v4(&resolver, "gone.example").await, Err(ResolveError::NxDomain));
        assert_eq!(server.asked(), 2);
    }
}

#[tokio::test]
async fn concurrent_queries_are_coalesced_even_with_ttl_zero() {
    let gate = Arc::new(Notify::new());
    let server_gate = gate.clone();
    let server = NameServer::start(move |asked: &Question| {
        let mut reply = asked.reply();
        reply.add_answer(a("busy.example.", 0, "192.0.2.1"));
        vec![Reply::after(reply, &server_gate)]
    })
    .await;
    let resolver = resolver(&[&server]);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let resolver = resolver.clone();
        callers.spawn(async move { v4(&resolver, "busy.example").await });
    }
    server.until_queried(1).await;
    while resolver.counts().joined < 99 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    for result in callers.join_all().await {
        assert_eq!(result, one("192.0.2.1"));
    }
    assert_eq!(server.asked(), 1);
    gate.notify_one();
    assert_eq!(v4(&resolver, "busy.example").await, one("192.0.2.1"));
    assert_eq!(server.asked(), 2, "TTL zero is for the transaction in progress");
}

#[tokio::test]
async fn upstreams_are_queried_in_parallel_and_the_first_answer_wins() {
    let silent = NameServer::start(|_: &Question| Vec::new()).await;
    let good =
        NameServer::start(|asked: &Question| asked.with(vec![a("www.example.", 60, "192.0.2.1")])).await;
    let resolver = resolver(&[&silent, &good]);
    assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
    silent.until_queried(1).await;
}

#[tokio::test]
async fn failed_upstream_does_not_preempt_the_others() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
        let gate = Arc::new(Notify::new());
        let server_gate = gate.clone();
        let failing = NameServer::start(move |asked: &Question| {
            server_gate.notify_one();
            asked.code(code, None)
        })
        .await;
        let late = NameServer::start(move |asked: &Question| {
            let mut reply = asked.reply();
            reply.add_answer(a("www.example.", 60, "192.0.2.1"));
            vec![Reply::after(reply, &gate)]
        })
        .await;
        let resolver = resolver(&[&failing, &late]);
        assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
    }
}

#[tokio::test]
async fn dns_failures_are_classified() {
    let table = [
        (ResponseCode::ServFail, ResolveError::ServFail),
        (ResponseCode::Refused, ResolveError::Refused),
        (ResponseCode::NotImp, ResolveError::Malformed("the server does not support the query (NOTIMP)")),
        (ResponseCode::NXDomain, ResolveError::NxDomain),
    ];
    for (code, error) in table {
        let server = NameServer::start(move |asked: &Question| asked.code(code, None)).await;
        assert_eq!(v4(&resolver(&[&server]), "www.example").await, Err(error));
    }
    let nonsense = NameServer::start(|asked: &Question| {
        let mut bytes = asked.reply().to_vec().unwrap();
        bytes[7] = 9; // nine answers promised, none there
        vec![Reply { bytes, after: None }]
    })
    .await;
    let unreadable = Err(ResolveError::Malformed("the message cannot be parsed"));
    assert_eq!(v4(&resolver(&[&nonsense]), "www.example").await, unreadable);
    assert_eq!(v4(&resolver(&[]), "www.example").await, Err(ResolveError::NoServer));
    assert_eq!(v4(&resolver(&[&nonsense]), "no host").await, Err(ResolveError::BadName));
}

#[tokio::test]
async fn failure_is_cached_for_one_second() {
    let server = NameServer::start(|asked: &Question| match asked.before {
        0 => asked.code(ResponseCode::ServFail, None),
        _ => asked.with(vec![a("www.example.", 60, "192.0.2.1")]),
    })
    .await;
    let resolver = resolver(&[&server]);
    assert_eq!(v4(&resolver, "www.example").await, Err(ResolveError::ServFail));
    // The second begins only when the time is next read.
    tokio::time::pause();
    assert_eq!(v4(&resolver, "www.example").await, Err(ResolveError::ServFail));
    assert_eq!(server.asked(), 1);
    tokio::time::resume();
    pass(seconds(1)).await;
    assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
}

#[tokio::test]
async fn upstream_without_listener_is_reported_as_no_server() {
    // A port that the system never assigns.
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    let resolver = Resolver::with_upstreams(vec![closed]);
    assert_eq!(v4(&resolver, "www.example").await, Err(ResolveError::NoServer));
}

#[tokio::test]
async fn silent_upstream_gets_two_packets_before_the_timeout() {
    let server = NameServer::start(|_: &Question| Vec::new()).await;
    let resolver = resolver(&[&server]);
    // Packets are sent at the start and after a third of the limit. A third packet for other callers would follow a sixth of the
    // limit later.
    let limit = seconds(6);
    let result = resolver.resolve("www.example", Families::V4, limit).await;
    assert_eq!(result.unwrap_err(), ResolveError::TimedOut);
    server.until_queried(2).await;
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn lost_query_packet_is_retransmitted() {
    let server = NameServer::start(|asked: &Question| match asked.before {
        0 => Vec::new(),
        _ => asked.with(vec![a("www.example.", 60, "192.0.2.1")]),
    })
    .await;
    let resolver = resolver(&[&server]);
    let found = resolver.resolve("www.example", Families::V4, seconds(6)).await;
    assert_eq!(found.unwrap().addresses.len(), 1);
    assert_eq!(resolver.counts().queries_sent, 2);
}

#[tokio::test]
async fn truncated_answer_is_retried_over_tcp() {
    let server = NameServer::start(|asked: &Question| {
        if !asked.over_tcp {
            let mut reply = asked.reply();
            reply.metadata.truncation = true;
            return vec![Reply::now(reply)];
        }
        asked.with((0..200).map(|n| a("many.example.", 60, &format!("192.0.2.{n}"))).collect())
    })
    .await;
    let resolver = resolver(&[&server]);
    assert_eq!(v4(&resolver, "many.example").await.map(|found| found.len()), Ok(200));
    assert_eq!(resolver.counts().truncated, 1);
}

#[tokio::test]
async fn forged_answers_are_ignored() {
    let server = NameServer::start(|asked: &Question| {
        let truth = a("www.example.", 60, "192.0.2.1");
        let lie = || a("www.example.", 60, "203.0.113.66");
        let mut wrong_id = asked.reply();
        wrong_id.metadata.id ^= 1;
        wrong_id.add_answer(lie());
        let mut wrong_name = asked.reply();
        wrong_name.queries[0].set_name(crate::name_server::name("other.example."));
        wrong_name.add_answer(lie());
        let mut wrong_type = asked.reply();
        wrong_type.queries[0].set_query_type(RecordType::AAAA);
        wrong_type.add_answer(lie());
        let mut no_question = asked.reply();
        no_question.queries.clear();
        no_question.add_answer(lie());
        let mut right = asked.reply();
        right.add_answer(truth);
        let all = [wrong_id, wrong_name, wrong_type, no_question, right];
        let mut replies: Vec<_> = all.into_iter().map(Reply::now).collect();
        replies.insert(0, Reply { bytes: vec![0; 5], after: None });
        replies
    })
    .await;
    let resolver = resolver(&[&server]);
    assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
    assert_eq!(resolver.counts().strays, 5);
}

#[tokio::test]
async fn records_for_other_names_are_ignored() {
    let server = NameServer::start(|asked: &Question| {
        let mut reply = asked.reply();
        reply.add_answer(a("bank.example.", 60, "203.0.113.66"));
        reply.add_answer(a("www.example.", 60, "192.0.2.1"));
        vec![Reply::now(reply)]
    })
    .await;
    assert_eq!(v4(&resolver(&[&server]), "www.example").await, one("192.0.2.1"));
}

#[tokio::test]
async fn name_in_use_is_refreshed_before_its_answer_expires() {
    let server = NameServer::start(|asked: &Question| {
        asked.with(vec![a("www.example.", 1_000, &format!("192.0.2.{}", asked.before + 1))])
    })
    .await;
    let resolver = resolver(&[&server]);
    assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
    pass(seconds(840)).await;
    assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"));
    assert_eq!(server.asked(), 1, "more than a tenth is left");
    pass(seconds(80)).await;
    for _ in 0..10 {
        assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.1"), "nobody waits");
    }
    server.until_queried(2).await;
    while resolver.counts().prefetches < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(v4(&resolver, "www.example").await, one("192.0.2.2"));
    assert_eq!(server.asked(), 2, "once for all");
}

#[tokio::test]
async fn a_and_aaaa_are_queried_in_parallel() {
    let gate = Arc::new(Notify::new());
    let server_gate = gate.clone();
    // Each answer is held back until both queries have arrived.
    let server = NameServer::start(move |asked: &Question| {
        let mut reply = asked.reply();
        reply.add_answer(match asked.kind() {
            RecordType::A => a("www.example.", 60, "192.0.2.1"),
            _ => a("www.example.", 60, "2001:db8::1"),
        });
        if asked.before == 1 {
            server_gate.notify_one();
        }
        let first = asked.before == 0;
        vec![if first { Reply::after(reply, &server_gate) } else { Reply::now(reply) }]
    })
    .await;
    let found = resolver(&[&server]).resolve("www.example", Families::Both, TIMEOUT).await.unwrap();
    let expected = ["2001:db8::1", "192.0.2.1"].map(|a| a.parse::<IpAddr>().unwrap());
    assert_eq!(found.addresses, expected);
    assert_eq!(found.incomplete, None);
}

#[tokio::test]
async fn one_family_suffices_and_failure_of_the_other_is_reported() {
    for (code, incomplete) in
        [(ResponseCode::NoError, None), (ResponseCode::ServFail, Some(ResolveError::ServFail))]
    {
        let server = NameServer::start(move |asked: &Question| match asked.kind() {
            RecordType::A => asked.with(vec![a("www.example.", 60, "192.0.2.1")]),
            _ => asked.code(code, Some(soa("example.", 60, 60))),
        })
        .await;
        let resolver = resolver(&[&server]);
        let found = resolver.resolve("www.example", Families::Both, TIMEOUT).await.unwrap();
        assert_eq!(found.addresses.len(), 1);
        assert_eq!(found.incomplete, incomplete);
    }
}

#[tokio::test]
async fn edns_is_disabled_for_a_server_that_rejects_it() {
    let server = NameServer::start(|asked: &Question| match asked.message.edns {
        Some(_) => asked.code(ResponseCode::FormErr, None),
        None => asked.with(vec![a(&asked.name(), 60, "192.0.2.1")]),
    })
    .await;
    let resolver = resolver(&[&server]);
    assert_eq!(v4(&resolver, "a.example").await, one("192.0.2.1"));
    assert_eq!(v4(&resolver, "b.example").await, one("192.0.2.1"));
    assert_eq!(server.asked(), 3, "and it is remembered");
}

#[tokio::test]
async fn short_names_are_resolved_in_the_search_domains() {
    let server = NameServer::start(|asked: &Question| match asked.name().as_str() {
        "db.b.example." => asked.with(vec![a("db.b.example.", 60, "192.0.2.1")]),
        _ => asked.code(ResponseCode::NXDomain, None),
    })
    .await;
    let search = ["a.example", "b.example"].map(str::to_owned).to_vec();
    let options = Options { search, ..Options::default() };
    let resolver = Resolver::with_options(vec![server.address], &options).unwrap();
    assert_eq!(v4(&resolver, "db").await, one("192.0.2.1"));
    assert_eq!(v4(&resolver, "db.").await, Err(ResolveError::NxDomain), "is complete");
    let before = server.asked();
    assert_eq!(v4(&resolver, "no.such").await, Err(ResolveError::NxDomain));
    assert_eq!(server.asked(), before + 1, "a dot makes it complete");
}

#[tokio::test]
async fn ip_addresses_and_localhost_cause_no_query() {
    let server = NameServer::start(|_: &Question| panic!("asked")).await;
    let resolver = resolver(&[&server]);
    assert_eq!(v4(&resolver, "192.0.2.9").await, one("192.0.2.9"));
    assert_eq!(v4(&resolver, "db.localhost").await, one("127.0.0.1"));
    assert_eq!(v4(&resolver, "::1").await, Err(ResolveError::NoAddress), "not of that family");
}

#[tokio::test]
async fn cancelled_callers_leave_no_pending_queries() {
    let server = NameServer::start(|_: &Question| Vec::new()).await;
    let resolver = resolver(&[&server]);
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..50 {
        let resolver = resolver.clone();
        callers.spawn(async move { v4(&resolver, &format!("n{n}.example")).await });
    }
    server.until_queried(50).await;
    callers.shutdown().await;
    assert_eq!(resolver.under_way(), 0, "no question is left without its asker");
}

fn readers() -> i64 {
    tasks::live().iter().filter(|(kind, _)| *kind == "dns-reader").map(|(_, count)| count).sum()
}

#[test]
fn background_tasks_stop_when_the_resolver_is_dropped() {
    // Tests in the same process share one task count. This test therefore counts the tasks of its own runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server =
            NameServer::start(|asked: &Question| asked.with(vec![a(&asked.name(), 60, "192.0.2.1")])).await;
        let resolver = resolver(&[&server]);
        for n in 0..20 {
            assert_eq!(v4(&resolver, &format!("n{n}.example")).await, one("192.0.2.1"));
        }
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert!(alive() > 2 && readers() > 0, "readers and the server");
        drop(resolver);
        while alive() > 2 {
            tokio::task::yield_now().await;
        }
    });
}

fn txt(text: &str) -> Record {
    let data = RData::TXT(TXT::new(vec![text.to_owned()]));
    Record::from_rdata(name("txt.example."), 60, data)
}

/// Asks with the timeout `each` for every attempt.
async fn ask_for_text(
    server: &NameServer,
    recursion: Recursion,
    each: Duration,
) -> Result<Vec<String>, ExchangeError> {
    let (name, deadline) = (name("txt.example."), Deadline::within(TIMEOUT));
    let kind = RecordType::TXT;
    let answer = send_query(server.address, &name, kind, recursion, each, deadline).await?;
    Ok(answer.answers.iter().map(|record| record.data.to_string()).collect())
}

#[tokio::test]
async fn direct_query_sets_recursion_flag_and_ignores_mismatched_answers() {
    let server = NameServer::start(|asked: &Question| {
        assert_eq!(asked.kind(), RecordType::TXT);
        let mut foreign = asked.reply();
        foreign.metadata.id ^= 1;
        let mut other_name = asked.reply();
        other_name.queries[0].set_name(name("other.example."));
        let mut right = asked.reply();
        right.add_answer(txt(if asked.message.metadata.recursion_desired { "recursive" } else { "own" }));
        [foreign, other_name, right].into_iter().map(Reply::now).collect()
    })
    .await;
    assert_eq!(ask_for_text(&server, Recursion::Desired, TIMEOUT).await.unwrap(), ["recursive"]);
    assert_eq!(ask_for_text(&server, Recursion::NotDesired, TIMEOUT).await.unwrap(), ["own"]);
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn direct_query_falls_back_to_tcp_on_truncation_or_silence() {
    for truncated in [true, false] {
        let server = NameServer::start(move |asked: &Question| match (asked.over_tcp, truncated) {
            (true, _) => asked.with(vec![txt("whole")]),
            (false, false) => Vec::new(),
            (false, true) => {
                let mut reply = asked.reply();
                reply.metadata.truncation = true;
                vec![Reply::now(reply)]
            }
        })
        .await;
        // Silence ends by the timeout of an attempt. The attempt over TCP must not.
        let each = if truncated { TIMEOUT } else { seconds(3) };
        assert_eq!(ask_for_text(&server, Recursion::Desired, each).await.unwrap(), ["whole"]);
        // The server may read the last datagram later.
        let asked = if truncated { 2 } else { 3 };
        server.until_queried(asked).await;
        assert_eq!(server.asked(), asked);
    }
}

#[tokio::test]
async fn direct_query_is_retried_without_edns() {
    let server = NameServer::start(|asked: &Question| match asked.message.edns {
        Some(_) => asked.code(ResponseCode::FormErr, None),
        None => asked.with(vec![txt("plain")]),
    })
    .await;
    assert_eq!(ask_for_text(&server, Recursion::Desired, TIMEOUT).await.unwrap(), ["plain"]);
}

#[tokio::test]
async fn direct_query_times_out_at_its_deadline() {
    let server = NameServer::start(|_: &Question| Vec::new()).await;
    let each = seconds(1);
    let kind = RecordType::TXT;
    let result = send_query(
        server.address,
        &name("txt.example."),
        kind,
        Recursion::Desired,
        each,
        Deadline::within(each),
    )
    .await;
    assert!(matches!(result, Err(ExchangeError::TimedOut)), "{result:?}");
    // The server may read the query later.
    server.until_queried(1).await;
    assert_eq!(server.asked(), 1);
}

/// `www.example` is an alias of `a.example`, which has an address.
const ALIAS: &[u8] = b"\x00\x01\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00\x03www\x07example\x00\x00\x01\x00\x01\
    \xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01a\xc0\x10\xc0\x29\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01";

proptest! {
    #[test]
    fn modified_answer_bytes_yield_bounded_results(changes in proptest::collection::vec((0..ALIAS.len(), any::<u8>()), 0..6)) {
        let mut bytes = ALIAS.to_vec();
        for (at, byte) in &changes {
            bytes[*at] = *byte;
        }
        let read = read_response(&bytes, "www.example");
        if changes.is_empty() {
            let address: IpAddr = "192.0.2.1".parse().unwrap();
            prop_assert_eq!(&read, &Ok(vec![(address, seconds(60))]));
        }
        if let Ok(addresses) = read {
            prop_assert!(addresses.iter().all(|(_, lifetime)| *lifetime <= LIFETIME_MAX));
            prop_assert!(addresses.len() <= bytes.len() / 4);
        }
    }
}
