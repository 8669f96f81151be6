//! What a name server's answer means. Pure.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::ResolveError;

/// Aliases followed from one name. Real chains have up to five or so.
pub const ALIASES_MAX: usize = 16;
/// No answer is kept longer, whatever it says (RFC 8767 section 4).
pub const TTL_MAX: Duration = Duration::from_secs(7 * 86_400);
/// No "there is nothing" is kept longer (RFC 2308 section 5 suggests one to three hours).
pub const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(3_600);
/// The largest datagram we ask for: passes every path unfragmented (DNS flag day 2020).
const DATAGRAM_MAX: u16 = 1_232;
/// Octets of a DNS header (RFC 1035 section 4.1.1).
pub(super) const HEADER: usize = 12;

/// Addresses, and how long they hold.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) aliases: Vec<String>,
    pub(super) valid_until: Instant,
}

/// A question as it goes out, its identifier zero.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) octets: Vec<u8>,
    /// Where the question section ends.
    pub(super) end: usize,
}

impl Question {
    pub(super) fn new(name: &Name, kind: RecordType) -> Option<Self> {
        let mut message = Message::query();
        message.metadata.id = 0;
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name.clone(), kind));
        let mut edns = Edns::new();
        edns.set_max_payload(DATAGRAM_MAX);
        message.set_edns(edns);
        let octets = message.to_vec().ok()?;
        // The only question: its name as labels, then type and class.
        let mut end = HEADER;
        while let length @ 1.. = usize::from(*octets.get(end)?) {
            end += 1 + length;
        }
        Some(Self { octets, end: end + 5 })
    }

    /// Whether `answer` is to this question: same name whatever its case, same type and class.
    pub(super) fn is_answered_by(&self, answer: &[u8]) -> bool {
        let ours = &self.octets[HEADER..self.end];
        let response = answer.get(2).is_some_and(|flags| flags & 0x80 != 0);
        let one_question = answer.get(4..6) == Some(&[0, 1]);
        response
            && one_question
            && answer.get(HEADER..self.end).is_some_and(|theirs| theirs.eq_ignore_ascii_case(ours))
    }
}

pub(super) fn read(octets: &[u8]) -> Result<Message, ResolveError> {
    Message::from_vec(octets).map_err(|_| ResolveError::Malformed("it does not parse"))
}

/// Lets pass what answers the question, if only with "there is nothing".
pub(super) fn accept(message: Message) -> Result<Message, ResolveError> {
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(message),
        ResponseCode::Refused => Err(ResolveError::Refused),
        _ => Err(ResolveError::ServFail),
    }
}

/// What one answer comes to.
#[derive(Debug, PartialEq)]
pub(super) enum Interpreted {
    Addresses { addresses: Vec<IpAddr>, ttl: Duration },
    /// The answer ends at an alias: ask for that name.
    Onward { to: Name, ttl: Duration },
    Nothing { error: ResolveError, ttl: Duration },
}

/// Follows the aliases in `message` from `asked`, adding them to `aliases`. The lifetime is the
/// smallest of `ttl` and of every record used.
pub(super) fn interpret(
    message: &Message,
    asked: &Name,
    kind: RecordType,
    aliases: &mut Vec<String>,
    mut ttl: Duration,
) -> Interpreted {
    let mut at = asked.clone();
    while let Some((to, alias_ttl)) = alias_of(&message.answers, &at) {
        ttl = ttl.min(alias_ttl);
        let text = to.to_ascii().trim_end_matches('.').to_ascii_lowercase();
        if aliases.len() >= ALIASES_MAX || aliases.contains(&text) || to == asked {
            let error = ResolveError::AliasLoop(asked.to_ascii());
            return Interpreted::Nothing { error, ttl };
        }
        aliases.push(text);
        at = to.clone();
    }
    let mut addresses = Vec::new();
    for record in message.answers.iter().filter(|r| r.name == at && r.record_type() == kind) {
        match &record.data {
            RData::A(a) => addresses.push(a.0.into()),
            RData::AAAA(aaaa) => addresses.push(aaaa.0.into()),
            _ => continue,
        }
        ttl = ttl.min(seconds(record.ttl));
    }
    if !addresses.is_empty() {
        return Interpreted::Addresses { addresses, ttl: ttl.min(TTL_MAX) };
    }
    if message.metadata.response_code == ResponseCode::NXDomain {
        let negative = ttl.min(negative_ttl(message));
        return Interpreted::Nothing { error: ResolveError::NxDomain, ttl: negative };
    }
    if at != *asked && soa(message).is_none() {
        return Interpreted::Onward { to: at, ttl };
    }
    let negative = ttl.min(negative_ttl(message));
    Interpreted::Nothing { error: ResolveError::NoAddress, ttl: negative }
}

fn alias_of<'a>(answers: &'a [Record], name: &Name) -> Option<(&'a Name, Duration)> {
    answers.iter().find_map(|record| match &record.data {
        RData::CNAME(to) if record.name == *name => Some((&to.0, seconds(record.ttl))),
        _ => None,
    })
}

/// How long "there is nothing" holds: the smaller of the SOA's own TTL and its minimum field (RFC
/// 2308 section 5). Without an SOA it must not be remembered at all.
fn negative_ttl(message: &Message) -> Duration {
    soa(message)
        .map_or(Duration::ZERO, |(ttl, minimum)| seconds(ttl.min(minimum)).min(NEGATIVE_TTL_MAX))
}

fn soa(message: &Message) -> Option<(u32, u32)> {
    message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some((record.ttl, soa.minimum)),
        _ => None,
    })
}

/// RFC 2181 section 8: a TTL with its top bit set counts as zero.
fn seconds(ttl: u32) -> Duration {
    Duration::from_secs(if ttl > i32::MAX as u32 { 0 } else { ttl.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::{MessageType, OpCode};
    use hickory_proto::rr::rdata::{A, CNAME, SOA};

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn answer(records: Vec<Record>) -> Message {
        let mut message = Message::new(0, MessageType::Response, OpCode::Query);
        message.add_answers(records);
        message
    }

    fn alias(from: &str, to: &str, ttl: u32) -> Record {
        Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
    }

    fn address(of: &str, ttl: u32) -> Record {
        Record::from_rdata(name(of), ttl, RData::A(A::new(192, 0, 2, 1)))
    }

    fn nothing(message: &mut Message, ttl: u32, minimum: u32) {
        let soa = SOA::new(name("ns.example."), name("host.example."), 1, 1, 1, 1, minimum);
        message.add_authority(Record::from_rdata(name("example."), ttl, RData::SOA(soa)));
    }

    fn interpreted(message: &Message) -> (Interpreted, Vec<String>) {
        let mut aliases = Vec::new();
        let asked = name("www.example.");
        let meaning = interpret(message, &asked, RecordType::A, &mut aliases, TTL_MAX);
        (meaning, aliases)
    }

    #[test]
    fn the_smallest_ttl_along_the_alias_chain_counts() {
        let message = answer(vec![
            alias("www.example.", "edge.example.", 30),
            alias("edge.example.", "node.example.", 300),
            address("node.example.", 3_600),
        ]);
        let (meaning, aliases) = interpreted(&message);
        assert_eq!(aliases, ["edge.example", "node.example"]);
        let Interpreted::Addresses { ttl, .. } = meaning else { panic!("{meaning:?}") };
        assert_eq!(ttl, Duration::from_secs(30));
    }

    #[test]
    fn records_of_other_names_are_nobody_s_answer() {
        let message = answer(vec![address("other.example.", 60)]);
        let (meaning, _) = interpreted(&message);
        assert!(matches!(meaning, Interpreted::Nothing { error: ResolveError::NoAddress, .. }));
    }

    #[test]
    fn an_alias_without_its_target_is_asked_on() {
        let (meaning, _) = interpreted(&answer(vec![alias("www.example.", "cdn.test.", 60)]));
        let ttl = Duration::from_secs(60);
        assert_eq!(meaning, Interpreted::Onward { to: name("cdn.test."), ttl });
    }

    #[test]
    fn aliases_that_go_round_are_found_out() {
        let message =
            answer(vec![alias("www.example.", "b.example.", 9), alias("b.example.", "www.example.", 9)]);
        let (meaning, _) = interpreted(&message);
        assert!(matches!(meaning, Interpreted::Nothing { error: ResolveError::AliasLoop(_), .. }));
    }

    #[test]
    fn nothing_lives_as_long_as_its_soa_says_and_not_at_all_without_one() {
        for (ttl, minimum, expected) in [(60, 900, 60), (900, 60, 60), (90_000, 90_000, 3_600)] {
            let mut message = answer(Vec::new());
            nothing(&mut message, ttl, minimum);
            message.metadata.response_code = ResponseCode::NXDomain;
            let expected = Duration::from_secs(expected);
            let error = ResolveError::NxDomain;
            assert_eq!(interpreted(&message).0, Interpreted::Nothing { error, ttl: expected });
        }
        let (meaning, _) = interpreted(&answer(Vec::new()));
        let error = ResolveError::NoAddress;
        assert_eq!(meaning, Interpreted::Nothing { error, ttl: Duration::ZERO });
    }

    #[test]
    fn an_answer_to_another_question_is_no_answer() {
        let question = Question::new(&name("www.example."), RecordType::A).unwrap();
        let mut response = question.octets.clone();
        assert!(!question.is_answered_by(&response), "a query is no response");
        response[2] |= 0x80;
        response[HEADER + 1] = b'W';
        assert!(question.is_answered_by(&response), "case does not matter");
        response[HEADER + 1] = b'x';
        assert!(!question.is_answered_by(&response));
        assert!(!question.is_answered_by(&response[..14]));
    }
}
