//! Messages by the rules of the protocol: a table of rules, and properties over arbitrary bytes.

use std::net::IpAddr;

use keyless::wire::{
    BODY_MAX, HEADER, Header, MAJOR, Malformed, MessageItems, PADDED, Ski, TooLong, first, reply, tag,
};
use proptest::prelude::*;

fn item(tag: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [&[tag][..], &length.to_be_bytes(), data].concat()
}

fn body(items: &[(u8, &[u8])]) -> Vec<u8> {
    items.iter().flat_map(|(tag, data)| item(*tag, data)).collect()
}

#[test]
fn message_is_parsed_as_the_protocol_specifies() {
    // Written by hand: version 1.0, a body of 11 bytes, ID 0x01020304; opcode ping, payload "abcd".
    let bytes = [1, 0, 0, 11, 1, 2, 3, 4, 0x11, 0, 1, 0xf1, 0x12, 0, 4, b'a', b'b', b'c', b'd'];
    let (header, body) = first(&bytes).unwrap();
    assert_eq!(header, Header { major: 1, minor: 0, length: 11, id: 0x0102_0304 });
    let items = MessageItems::parse(body).unwrap();
    assert_eq!((items.opcode, items.payload), (0xf1, &b"abcd"[..]));
    for cut in 0..bytes.len() {
        assert!(first(&bytes[..cut]).is_none(), "{cut} octets");
    }
}

#[test]
fn overlong_repeated_or_missized_items_are_malformed() {
    let long = [0x12, 0, 5, 1, 2, 3, 4];
    let known = [1, 2, 3, 4, 5, 6, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x20];
    assert_eq!(MessageItems::parse(&long), Err(Malformed::PastEnd(0x12)));
    for tag in known {
        let data: &[u8] = match tag {
            0x03 | 0x05 => &[127, 0, 0, 1],
            0x11 | 0x17 => &[1],
            _ => b"",
        };
        assert!(MessageItems::parse(&item(tag, data)).is_ok(), "{tag:#x}");
        assert_eq!(MessageItems::parse(&body(&[(tag, data), (tag, data)])), Err(Malformed::Repeated(tag)));
        assert_eq!(MessageItems::parse(&[tag, 0xff, 0xff]), Err(Malformed::PastEnd(tag)));
    }
    for (tag, lengths) in
        [(0x11, &[0, 2][..]), (0x17, &[0, 2]), (0x03, &[0, 3, 5, 15, 17]), (0x05, &[0, 3, 5, 15, 17])]
    {
        for length in lengths {
            let wrong = MessageItems::parse(&item(tag, &vec![0; *length])).unwrap_err();
            assert_eq!(wrong, Malformed::Length { tag, length: *length });
        }
    }
}

#[test]
fn item_order_unknown_tags_padding_and_trailing_bytes_are_ignored() {
    let plain = body(&[(tag::OPCODE, &[0xf1]), (tag::PAYLOAD, b"x")]);
    let wanted = MessageItems::parse(&plain).unwrap();
    // Any order, unknown tags even twice, and one or two stray bytes at the end.
    let turned = body(&[(tag::PAYLOAD, b"x"), (tag::OPCODE, &[0xf1])]);
    let strange = body(&[
        (0x07, b"?"),
        (tag::OPCODE, &[0xf1]),
        (0x07, b"?"),
        (0xff, b""),
        (0xff, b""),
        (tag::PAYLOAD, b"x"),
    ]);
    let padded = body(&[(tag::OPCODE, &[0xf1]), (tag::PAYLOAD, b"x"), (tag::PADDING, &[0; 40])]);
    for same in [turned, strange, padded, [&plain[..], &[0x12]].concat(), [&plain[..], &[0x12, 0]].concat()] {
        assert_eq!(MessageItems::parse(&same), Ok(wanted));
    }
    assert_eq!(MessageItems::parse(b"").unwrap().opcode, 0, "no opcode");
    // Key identifiers and digests of other lengths are ignored.
    for length in [0, 19, 21, 32] {
        assert_eq!(MessageItems::parse(&item(tag::SKI, &vec![1; length])).unwrap().ski, None);
    }
    for length in [0, 20, 31, 33] {
        let items = item(tag::CERTIFICATE_DIGEST, &vec![1; length]);
        assert_eq!(MessageItems::parse(&items).unwrap().certificate_digest, None);
    }
    assert_eq!(MessageItems::parse(&item(tag::SKI, &[1; 20])).unwrap().ski, Some(Ski([1; 20])));
}

#[test]
fn messages_are_padded_to_a_common_length() {
    // Length without the payload: header, opcode item and the payload's item header.
    const OTHER: usize = HEADER + 4 + 3;
    for (payload, wanted) in [
        (0, PADDED),
        (64, PADDED),
        (512, PADDED),
        (PADDED - OTHER - 4, PADDED),
        (PADDED - OTHER - 3, PADDED),
        (PADDED - OTHER - 2, PADDED + 1),
        (PADDED - OTHER - 1, PADDED + 2),
        (PADDED - OTHER, PADDED),
        (PADDED - OTHER + 1, PADDED + 1),
        (5_000, OTHER + 5_000),
        (BODY_MAX - 7, HEADER + BODY_MAX),
    ] {
        let mut out = Vec::new();
        let payload = vec![7; payload];
        reply(9, 0xf0, &payload, &mut out).unwrap();
        assert_eq!(out.len(), wanted, "a payload of {} octets", payload.len());
        let (header, body) = first(&out).unwrap();
        let items = MessageItems::parse(body).unwrap();
        assert_eq!((header.id, items.opcode, items.payload), (9, 0xf0, &payload[..]));
        assert_eq!(HEADER + usize::from(header.length), out.len());
    }
}

#[test]
fn oversized_message_is_rejected_without_partial_output() {
    for length in [BODY_MAX - 6, BODY_MAX + 1, 2 * BODY_MAX] {
        let mut out = vec![1, 2, 3];
        assert_eq!(reply(1, 0xf0, &vec![0; length], &mut out), Err(TooLong));
        assert_eq!(out, [1, 2, 3]);
    }
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

proptest! {
    #[test]
    fn parser_never_panics_on_arbitrary_bytes(body in bytes(3_000)) {
        let _ = MessageItems::parse(&body);
        let _ = first(&body);
    }

    /// Most arbitrary bytes fail at the first item. Here the items are complete.
    #[test]
    fn arbitrary_items_are_parsed_or_rejected_with_the_right_error(
        items in proptest::collection::vec((0_u8..0x30, bytes(40)), 0..12), stray in bytes(3)
    ) {
        let mut body: Vec<u8> = items.iter().flat_map(|(tag, data)| item(*tag, data)).collect();
        body.extend_from_slice(&stray[..stray.len().min(2)]);
        match MessageItems::parse(&body) {
            Ok(read) => {
                let payload = items.iter().find(|(tag, _)| *tag == tag::PAYLOAD);
                prop_assert_eq!(read.payload, payload.map_or(&b""[..], |(_, data)| data));
            }
            Err(Malformed::Repeated(tag)) => {
                prop_assert!(items.iter().filter(|(found, _)| *found == tag).count() > 1);
            }
            Err(Malformed::Length { tag, length }) => {
                prop_assert!(items.iter().any(|(found, data)| *found == tag && data.len() == length));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn encoded_message_parses_back(
        id: u32, opcode: u8, payload in bytes(2_000), ski: Option<[u8; 20]>, digest: Option<[u8; 32]>,
        name in proptest::option::of(bytes(60)), client: Option<IpAddr>, server: Option<IpAddr>,
        trace in proptest::option::of(bytes(60)), context in proptest::option::of(bytes(60)), region: u8,
    ) {
        let items = MessageItems {
            certificate_digest: digest,
            server_name: name.as_deref(),
            client_ip: client,
            ski: ski.map(Ski),
            server_ip: server,
            opcode,
            payload: &payload,
            trace: trace.as_deref(),
            context: context.as_deref(),
            compliance_region: region,
            ..MessageItems::default()
        };
        let mut out = vec![9];
        items.encode(id, &mut out).unwrap();
        let (header, body) = first(&out[1..]).unwrap();
        prop_assert_eq!((header.major, header.id), (MAJOR, id));
        prop_assert_eq!(MessageItems::parse(body), Ok(items));
        prop_assert!(out.len() > PADDED);
    }
}
