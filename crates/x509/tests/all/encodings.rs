//! Tests that encodings round-trip and that invalid DER is rejected without a panic.

use proptest::prelude::*;
use x509::der::{self, DerError, Reader, tag};
use x509::{Certificate, PublicKey, UnixTime, ocsp, pem, sct};

use crate::forge::{Key, leaf};

/// 1950-01-01 to 9999-12-31T23:59:59Z: the range of certificate times.
const TIMES: std::ops::RangeInclusive<i64> = -631_152_000..=253_402_300_799;

proptest! {
    #[test]
    fn integers_round_trip(value: i64) {
        let written = der::write(|w| { w.integer(value); });
        prop_assert_eq!(Reader::new(&written).expect(tag::INTEGER)?.integer(), Ok(value));
        prop_assert_eq!(der::first_sloppy_length(&written), None);
    }

    #[test]
    fn unsigned_integers_round_trip(magnitude: Vec<u8>) {
        let written = der::write(|w| { w.unsigned(&magnitude); });
        let content = Reader::new(&written).any()?.content;
        let significant = |octets: &[u8]| octets.iter().copied().skip_while(|&b| b == 0).collect::<Vec<_>>();
        prop_assert_eq!(significant(content), significant(&magnitude));
        prop_assert!(content[0] < 0x80);
    }

    #[test]
    fn contents_of_any_length_round_trip(content in prop::collection::vec(any::<u8>(), 0..70_000)) {
        let written = der::write(|w| { w.sequence(|w| { w.octets(&content).boolean(true); }); });
        let mut inside = Reader::new(&written).sequence()?;
        prop_assert_eq!(inside.expect(tag::OCTET_STRING)?.content, &content[..]);
        prop_assert_eq!(inside.any()?.boolean(), Ok(true));
        prop_assert_eq!(inside.end(), Ok(()));
    }

    #[test]
    fn object_identifiers_are_written_and_shown_dotted(first in 0u64..3, second in 0u64..40, rest: Vec<u64>) {
        let arcs: Vec<u64> = [first, second].into_iter().chain(rest).collect();
        let written = der::write(|w| { w.oid(&arcs); });
        let dotted = arcs.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
        prop_assert_eq!(der::oid_text(Reader::new(&written).any()?.content), dotted);
    }

    #[test]
    fn times_round_trip(seconds in TIMES) {
        let time = UnixTime(seconds);
        let written = der::write(|w| { w.time(time); });
        prop_assert_eq!(Reader::new(&written).any()?.time(), Ok(time));
    }

    #[test]
    fn named_bits_round_trip(bits: u16) {
        let written = der::write(|w| { w.named_bits(bits); });
        let (octets, unused) = Reader::new(&written).any()?.bits()?;
        let byte = |at: usize| u16::from(octets.get(at).copied().unwrap_or(0).reverse_bits());
        prop_assert_eq!(byte(0) | byte(1) << 8, bits);
        prop_assert!(octets.last().is_none_or(|last| last.trailing_zeros() == u32::from(unused)));
    }

    #[test]
    fn utf8_and_bmp_strings_round_trip(text: String) {
        let written = der::write(|w| { w.utf8(&text).bmp(&text); });
        let mut reader = Reader::new(&written);
        prop_assert_eq!(reader.any()?.text(), text.clone());
        prop_assert_eq!(reader.any()?.text(), text);
    }

    #[test]
    fn random_bytes_parse_without_panic(noise: Vec<u8>) {
        for element in Reader::new(&noise).flatten() {
            let _ = (element.text(), element.time(), element.integer(), element.bits());
        }
        let _ = der::first_sloppy_length(&noise);
        let _ = der::oid_text(&noise);
        let _ = Certificate::parse(&noise);
        let _ = PublicKey::parse(&noise);
        let _ = ocsp::parse_response(&noise);
        let _ = ocsp::BasicResponse::parse(&noise);
        let _ = sct::parse(&noise);
        let _ = pem::certificates(&noise).count();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The same check as the fuzz target `certificate`, on stable Rust.
    #[test]
    fn corrupted_certificates_are_judged_without_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut der = sample();
        for (at, byte) in edits {
            let at = at.index(der.len());
            der[at] = byte;
        }
        if let Some(cut) = cut {
            der.truncate(cut.index(der.len()));
        }
        crate::rules::judge_without_harm(&der);
    }
}

fn sample() -> Vec<u8> {
    static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    SAMPLE
        .get_or_init(|| {
            let key = Key::new();
            let mut spec = leaf(&key, "Root", &key);
            spec.constrain(&["a.example"], &["b.example"]);
            spec.names(&[(2, b"a.example"), (7, &[127, 0, 0, 1]), (1, b"a@b.example")]);
            spec.der(&key)
        })
        .clone()
}

#[test]
fn invalid_der_is_rejected() {
    let table: [(&[u8], DerError); 6] = [
        (&[], DerError::Truncated),
        (&[0x30], DerError::Truncated),
        (&[0x30, 0x80, 0, 0], DerError::Indefinite),
        (&[0x30, 0x85, 0, 0, 0, 0, 0], DerError::Truncated),
        (&[0x30, 2, 0], DerError::Truncated),
        (&[0x1f, 1, 0], DerError::HighTag),
    ];
    for (octets, want) in table {
        assert_eq!(Reader::new(octets).any(), Err(want), "{octets:02x?}");
    }
}

#[test]
fn non_minimal_lengths_are_accepted_and_reported() {
    let sloppy = [0x30, 4, 0x04, 0x81, 1, 7];
    assert_eq!(Reader::new(&sloppy).sequence().unwrap().any().unwrap().content, [7]);
    assert_eq!(der::first_sloppy_length(&sloppy), Some(2));
}

#[test]
fn time_formats_are_parsed_or_rejected() {
    let at = |y, mo, d, h, mi, s| UnixTime::from_civil(y, mo, d, h, mi, s);
    let table = [
        (tag::UTC_TIME, "260601120000Z", at(2026, 6, 1, 12, 0, 0)),
        (tag::UTC_TIME, "500101000000Z", at(1950, 1, 1, 0, 0, 0)),
        (tag::UTC_TIME, "2606011200Z", at(2026, 6, 1, 12, 0, 0)),
        (tag::UTC_TIME, "260601120000+0200", at(2026, 6, 1, 10, 0, 0)),
        (tag::UTC_TIME, "240229000000Z", at(2024, 2, 29, 0, 0, 0)),
        (tag::UTC_TIME, "230229000000Z", None),
        (tag::UTC_TIME, "261301000000Z", None),
        (tag::UTC_TIME, "2606011200", None),
        (tag::UTC_TIME, "", None),
        (tag::GENERALIZED_TIME, "99991231235959Z", at(9999, 12, 31, 23, 59, 59)),
        (tag::GENERALIZED_TIME, "20260601120000.5Z", at(2026, 6, 1, 12, 0, 0)),
        (tag::GENERALIZED_TIME, "20260601240000Z", None),
    ];
    for (tag, text, want) in table {
        let written = der::write(|w| {
            w.element(tag, text.as_bytes());
        });
        assert_eq!(Reader::new(&written).any().unwrap().time().ok(), want, "{text}");
    }
}

#[test]
fn scts_are_counted_and_parsed() {
    let entry = [&[0][..], &[7; 32], &1_780_272_000_123u64.to_be_bytes(), &[0, 0, 4, 3, 0, 0]].concat();
    let with_length = |body: &[u8]| [&(body.len() as u16).to_be_bytes()[..], body].concat();
    let list = with_length(&[with_length(&entry), with_length(&entry)].concat());
    assert_eq!(sct::count(&list), 2);
    assert_eq!(sct::parse(&list)[1].time, UnixTime(1_780_272_000));
    assert_eq!(sct::parse(&list)[0].log_id, [7; 32]);
    assert_eq!((sct::count(&[]), sct::count(&[0, 9, 0])), (0, 0));
}

#[test]
fn distinguished_names_are_escaped_and_compared_case_insensitively() {
    use x509::DistinguishedName;
    let name = |tag: u8, text: &str| {
        let der = der::write(|w| {
            w.sequence(|w| {
                w.set(|w| {
                    w.sequence(|w| {
                        w.oid(&[2, 5, 4, 10]).element(tag, text.as_bytes());
                    });
                });
                w.set(|w| {
                    w.sequence(|w| {
                        w.oid(&[2, 5, 4, 3]).utf8("x, \"y\"\x1b");
                    });
                });
            });
        });
        DistinguishedName::parse(&der).unwrap()
    };
    let plain = name(tag::UTF8_STRING, "Acme  Inc");
    assert_eq!(plain.text, "CN=x\\, \\\"y\\\"\\1B, O=Acme  Inc");
    assert_eq!(plain.common_names, ["x, \"y\"\x1b"]);
    assert_eq!(plain.organization.as_deref(), Some("Acme  Inc"));
    assert!(plain.matches(&name(tag::PRINTABLE_STRING, " acme INC ")));
    assert!(!plain.matches(&name(tag::UTF8_STRING, "AcmeInc")));
}
