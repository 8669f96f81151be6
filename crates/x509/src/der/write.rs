//! Writing DER.

use super::tag;
use crate::UnixTime;

/// Appends DER elements. It checks nothing beyond lengths: whoever forges a certificate that breaks
/// a rule needs exactly that.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

/// The octets that `fill` writes.
///
/// ```
/// let name = x509::der::write(|w| {
///     w.sequence(|w| {
///         w.oid(&[2, 5, 4, 3]).utf8("a.example");
///     });
/// });
/// assert_eq!(name[..7], [0x30, 0x10, 0x06, 0x03, 0x55, 0x04, 0x03]);
/// ```
#[must_use]
pub fn write(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    fill(&mut writer);
    writer.out
}

impl Writer {
    /// Nothing written yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Octets that are DER already.
    pub fn raw(&mut self, der: &[u8]) -> &mut Self {
        self.out.extend_from_slice(der);
        self
    }

    /// A primitive element, or a constructed one whose content is at hand.
    pub fn element(&mut self, tag: u8, content: &[u8]) -> &mut Self {
        self.out.push(tag);
        push_length(&mut self.out, content.len());
        self.raw(content)
    }

    /// An element whose content `fill` writes.
    pub fn nest(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.out.push(tag);
        let start = self.out.len();
        fill(self);
        let mut length = Vec::with_capacity(5);
        push_length(&mut length, self.out.len() - start);
        self.out.splice(start..start, length);
        self
    }

    /// SEQUENCE or SEQUENCE OF.
    pub fn sequence(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::SEQUENCE, fill)
    }

    /// SET, its members in the order written. DER wants a SET OF sorted: see [`Self::set_of`].
    pub fn set(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::SET, fill)
    }

    /// SET OF, its members (each one whole element) sorted as X.690 section 11.6 wants.
    pub fn set_of(&mut self, mut members: Vec<Vec<u8>>) -> &mut Self {
        members.sort();
        self.element(tag::SET, &members.concat())
    }

    /// Constructed context tag: EXPLICIT, or an IMPLICIT SEQUENCE.
    pub fn context(&mut self, number: u8, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::context_constructed(number), fill)
    }

    /// Primitive context tag: an IMPLICIT primitive type, for example the dNSName of a SAN.
    pub fn context_primitive(&mut self, number: u8, content: &[u8]) -> &mut Self {
        self.element(tag::context(number), content)
    }

    /// BOOLEAN.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.element(tag::BOOLEAN, &[if value { 0xff } else { 0 }])
    }

    /// INTEGER of its shortest form.
    pub fn integer(&mut self, value: i64) -> &mut Self {
        self.element(tag::INTEGER, shortest(&value.to_be_bytes()))
    }

    /// INTEGER from an unsigned magnitude, most significant first (a modulus, a serial number).
    pub fn unsigned(&mut self, magnitude: &[u8]) -> &mut Self {
        let mut content = Vec::with_capacity(magnitude.len() + 1);
        content.push(0);
        content.extend_from_slice(magnitude);
        self.element(tag::INTEGER, shortest(&content))
    }

    /// INTEGER with the content octets given, shortest form or not.
    pub fn integer_content(&mut self, content: &[u8]) -> &mut Self {
        self.element(tag::INTEGER, content)
    }

    /// ENUMERATED.
    pub fn enumerated(&mut self, value: i64) -> &mut Self {
        self.element(tag::ENUMERATED, shortest(&value.to_be_bytes()))
    }

    /// NULL.
    pub fn null(&mut self) -> &mut Self {
        self.element(tag::NULL, &[])
    }

    /// OBJECT IDENTIFIER from its arcs; the first two share an octet as X.690 section 8.19.4 has
    /// it, so fewer than two write an identifier that no reader accepts.
    pub fn oid(&mut self, arcs: &[u64]) -> &mut Self {
        let mut content = Vec::with_capacity(arcs.len() * 2);
        if let [first, second, rest @ ..] = arcs {
            push_base128(&mut content, first.saturating_mul(40).saturating_add(*second));
            rest.iter().for_each(|arc| push_base128(&mut content, *arc));
        }
        self.element(tag::OID, &content)
    }

    /// OCTET STRING.
    pub fn octets(&mut self, content: &[u8]) -> &mut Self {
        self.element(tag::OCTET_STRING, content)
    }

    /// OCTET STRING around DER, as every extension value is.
    pub fn octets_of(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::OCTET_STRING, fill)
    }

    /// BIT STRING of whole octets.
    pub fn bits(&mut self, content: &[u8]) -> &mut Self {
        self.nest(tag::BIT_STRING, |w| {
            w.raw(&[0]).raw(content);
        })
    }

    /// BIT STRING of named bits (KeyUsage, ReasonFlags): bit n of `bits` is named bit n; trailing
    /// zero bits are left off (X.690 section 11.2.2).
    pub fn named_bits(&mut self, bits: u16) -> &mut Self {
        let octets = bits.reverse_bits().to_be_bytes();
        let used = 16 - bits.leading_zeros();
        let unused = (8 - used % 8) % 8;
        let length = used.div_ceil(8) as usize;
        self.nest(tag::BIT_STRING, |w| {
            w.raw(&[unused as u8]).raw(&octets[..length]);
        })
    }

    /// BIT STRING around DER, as the RSA key of a SubjectPublicKeyInfo is.
    pub fn bits_of(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::BIT_STRING, |w| {
            w.raw(&[0]);
            fill(w);
        })
    }

    /// UTF8String.
    pub fn utf8(&mut self, text: &str) -> &mut Self {
        self.element(tag::UTF8_STRING, text.as_bytes())
    }

    /// PrintableString; that `text` keeps to its alphabet is not checked.
    pub fn printable(&mut self, text: &str) -> &mut Self {
        self.element(tag::PRINTABLE_STRING, text.as_bytes())
    }

    /// IA5String; that `text` is ASCII is not checked.
    pub fn ia5(&mut self, text: &str) -> &mut Self {
        self.element(tag::IA5_STRING, text.as_bytes())
    }

    /// BMPString: UTF-16, big endian.
    pub fn bmp(&mut self, text: &str) -> &mut Self {
        let content: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        self.element(tag::BMP_STRING, &content)
    }

    /// UTCTime, whose two-digit year means 1950 to 2049 whatever `time` says.
    pub fn utc_time(&mut self, time: UnixTime) -> &mut Self {
        let (year, rest) = civil_text(time);
        self.element(tag::UTC_TIME, format!("{:02}{rest}", year.rem_euclid(100)).as_bytes())
    }

    /// GeneralizedTime with whole seconds.
    pub fn generalized_time(&mut self, time: UnixTime) -> &mut Self {
        let (year, rest) = civil_text(time);
        self.element(tag::GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes())
    }

    /// The Time of RFC 5280 section 4.1.2.5: UTCTime through 2049, GeneralizedTime after.
    pub fn time(&mut self, time: UnixTime) -> &mut Self {
        if (1950..2050).contains(&civil_text(time).0) {
            self.utc_time(time)
        } else {
            self.generalized_time(time)
        }
    }
}

/// The year, and the rest as `MMDDHHMMSSZ`.
fn civil_text(time: UnixTime) -> (i64, String) {
    let civil = time.civil();
    let rest =
        format!("{:02}{:02}{:02}{:02}{:02}Z", civil.month, civil.day, civil.hour, civil.minute, civil.second);
    (civil.year, rest)
}

/// Two's complement content without redundant leading octets (X.690 section 8.3.2).
fn shortest(mut content: &[u8]) -> &[u8] {
    while let [first, second, ..] = content {
        let redundant = (*first == 0 && second & 0x80 == 0) || (*first == 0xff && second & 0x80 != 0);
        if !redundant {
            break;
        }
        content = &content[1..];
    }
    content
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    if length < 0x80 {
        out.push(length as u8);
        return;
    }
    let octets = length.to_be_bytes();
    let skip = octets.iter().take_while(|&&b| b == 0).count();
    out.push(0x80 | (octets.len() - skip) as u8);
    out.extend_from_slice(&octets[skip..]);
}

fn push_base128(out: &mut Vec<u8>, value: u64) {
    let groups = (64 - value.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        out.push(((value >> (group * 7)) as u8 & 0x7f) | more);
    }
}
