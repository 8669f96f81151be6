//! DNS queries in wire format.

use std::io;

use super::name::WireName;

/// Length of a message header in bytes (RFC 1035 section 4.1.1).
pub(crate) const HEADER: usize = 12;
/// Announced maximum size of UDP responses: fits an IPv6 packet of 1,280 bytes, so responses are never fragmented (the value of DNS
/// Flag Day 2020).
const UDP_ANSWER_MAX: u16 = 1_232;
/// Recursion desired, RFC 1035 section 4.1.1.
const RECURSION_DESIRED: u8 = 0x01;
const CLASS_IN: u16 = 1;
const TYPE_OPT: u16 = 41;

/// An encoded query; its id is set when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    message: Vec<u8>,
    question_end: usize,
}

impl Query {
    /// Creates a query. `extended` adds the EDNS record (RFC 6891), which allows responses longer than 512 bytes. Servers without
    /// EDNS respond FORMERR and are retried without it.
    pub(crate) fn new(name: &WireName, kind: impl Into<u16>, extended: bool) -> Self {
        let mut message = Vec::with_capacity(HEADER + name.wire().len() + 4 + 11);
        message.extend([0, 0, RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(extended)]);
        message.extend_from_slice(name.wire());
        message.extend(kind.into().to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        let question_end = message.len();
        if extended {
            message.push(0); // the root
            message.extend(TYPE_OPT.to_be_bytes());
            message.extend(UDP_ANSWER_MAX.to_be_bytes());
            message.extend([0; 6]); // extended code, version, flags, no options
        }
        Self { message, question_end }
    }

    pub(crate) fn with_id(mut self, id: u16) -> Self {
        self.message[..2].copy_from_slice(&id.to_be_bytes());
        self
    }

    pub(crate) fn without_recursion(mut self) -> Self {
        self.message[2] &= !RECURSION_DESIRED;
        self
    }

    pub(crate) fn message_bytes(&self) -> &[u8] {
        &self.message
    }

    pub(crate) fn question(&self) -> &[u8] {
        &self.message[HEADER..self.question_end]
    }
}

/// Returns a random id that an off-path attacker has to guess.
pub(crate) fn random_id() -> io::Result<u16> {
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).map_err(io::Error::other)?;
    Ok(u16::from_be_bytes(id))
}

/// Returns the id of a message if it is long enough to be a response.
pub(crate) fn response_id(message: &[u8]) -> Option<u16> {
    let header = message.get(..HEADER)?;
    let is_answer = header[2] & 0x80 != 0;
    is_answer.then(|| u16::from_be_bytes([header[0], header[1]]))
}

/// Returns whether `message` repeats `question`, ignoring case. Lengths and types are not affected by case folding: lengths are
/// below 64, and no queried type contains the code of a letter.
pub(crate) fn repeats(message: &[u8], question: &[u8]) -> bool {
    message.get(4..6) == Some(&[0, 1][..])
        && message
            .get(HEADER..HEADER + question.len())
            .is_some_and(|echoed| echoed.eq_ignore_ascii_case(question))
}

/// Returns whether the truncation bit is set: the full response is available over TCP.
pub(crate) fn is_truncated(message: &[u8]) -> bool {
    message.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Message;
    use hickory_proto::rr::RecordType;

    use super::*;
    use crate::resolve::kind::Kind;

    #[test]
    fn encoded_queries_are_parsed_by_an_independent_library() {
        let name = WireName::parse("www.example").unwrap();
        for (kind, expected) in [(Kind::A, RecordType::A), (Kind::Aaaa, RecordType::AAAA)] {
            let query = Query::new(&name, kind, true).with_id(0x1234);
            let read = Message::from_vec(query.message_bytes()).unwrap();
            assert_eq!(read.metadata.id, 0x1234);
            assert!(read.metadata.recursion_desired);
            assert_eq!(read.queries[0].query_type(), expected);
            assert_eq!(read.queries[0].name().to_ascii(), "www.example.");
            assert_eq!(read.max_payload(), UDP_ANSWER_MAX);
        }
        assert!(Message::from_vec(Query::new(&name, Kind::A, false).message_bytes()).unwrap().edns.is_none());
    }
}
