//! Encoding of DER.

use data_encoding::HEXLOWER_PERMISSIVE;

use super::tag;
use crate::UnixTime;

/// A writer that appends DER elements. Does not validate content: tests need certificates that break rules.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

/// Returns the bytes that `fill` writes.
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
    /// Creates an empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty writer with a capacity of `octets` bytes.
    #[must_use]
    pub fn with_capacity(octets: usize) -> Self {
        Self { out: Vec::with_capacity(octets) }
    }

    /// Returns the number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns the written bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Appends bytes that are already DER.
    pub fn raw(&mut self, der: &[u8]) -> &mut Self {
        self.out.extend_from_slice(der);
        self
    }

    /// Appends a primitive element, or a constructed one with the given content.
    pub fn element(&mut self, tag: u8, content: &[u8]) -> &mut Self {
        self.out.push(tag);
        push_length(&mut self.out, content.len());
        self.raw(content)
    }

    /// Appends the identifier and length of an element. The caller writes the content of `length` bytes next.
    pub fn element_header(&mut self, tag: u8, length: usize) -> &mut Self {
        self.out.push(tag);
        push_length(&mut self.out, length);
        self
    }

    /// Returns the length of a complete element whose content has `content` bytes.
    #[must_use]
    pub fn element_len(content: usize) -> usize {
        let length_bytes = match content {
            0..0x80 => 1,
            _ => 1 + (usize::BITS - content.leading_zeros()).div_ceil(8) as usize,
        };
        1 + length_bytes + content
    }

    /// Returns the length of the complete BIT STRING that [`Self::bits`] writes for `octets` bytes.
    #[must_use]
    pub fn bits_len(octets: usize) -> usize {
        Self::element_len(octets + 1)
    }

    /// Appends an element whose content `fill` writes.
    pub fn nest(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.out.extend([tag, 0]);
        let start = self.out.len();
        fill(self);
        let length = self.out.len() - start;
        if length < 0x80 {
            self.out[start - 1] = length as u8;
            return self;
        }
        let mut octets = Vec::with_capacity(5);
        push_length(&mut octets, length);
        self.out.splice(start - 1..start, octets);
        self
    }

    /// Appends a SEQUENCE or SEQUENCE OF.
    pub fn sequence(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::SEQUENCE, fill)
    }

    /// Appends a SET with its members in the given order. DER requires a sorted SET OF: see [`Self::set_of`].
    pub fn set(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::SET, fill)
    }

    /// Appends a SET OF. Sorts its members (each one complete element) as X.690 section 11.6 requires.
    pub fn set_of(&mut self, mut members: Vec<Vec<u8>>) -> &mut Self {
        members.sort();
        self.element(tag::SET, &members.concat())
    }

    /// Appends a constructed context tag: EXPLICIT, or an IMPLICIT SEQUENCE.
    pub fn context(&mut self, number: u8, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::context_constructed(number), fill)
    }

    /// Appends a primitive context tag: an IMPLICIT primitive type, such as the dNSName of a SAN.
    pub fn context_primitive(&mut self, number: u8, content: &[u8]) -> &mut Self {
        self.element(tag::context(number), content)
    }

    /// Appends a BOOLEAN.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.element(tag::BOOLEAN, &[if value { 0xff } else { 0 }])
    }

    /// Appends an INTEGER in its shortest form.
    pub fn integer(&mut self, value: i64) -> &mut Self {
        self.element(tag::INTEGER, shortest(&value.to_be_bytes()))
    }

    /// Appends an INTEGER from an unsigned magnitude, most significant byte first (a modulus, a serial number).
    pub fn unsigned(&mut self, magnitude: &[u8]) -> &mut Self {
        let mut content = Vec::with_capacity(magnitude.len() + 1);
        content.push(0);
        content.extend_from_slice(magnitude);
        self.element(tag::INTEGER, shortest(&content))
    }

    /// Appends an INTEGER with the given content bytes, even if they are not the shortest form.
    pub fn integer_content(&mut self, content: &[u8]) -> &mut Self {
        self.element(tag::INTEGER, content)
    }

    /// Appends an ENUMERATED.
    pub fn enumerated(&mut self, value: i64) -> &mut Self {
        self.element(tag::ENUMERATED, shortest(&value.to_be_bytes()))
    }

    /// Appends a NULL.
    pub fn null(&mut self) -> &mut Self {
        self.element(tag::NULL, &[])
    }

    /// Appends an OBJECT IDENTIFIER from its arcs. The first two arcs share a byte (X.690 section 8.19.4). With fewer than two
    /// arcs, the result is invalid and readers reject it.
    pub fn oid(&mut self, arcs: &[u64]) -> &mut Self {
        let mut content = Vec::with_capacity(arcs.len() * 2);
        if let [first, second, rest @ ..] = arcs {
            push_base128(&mut content, first.saturating_mul(40).saturating_add(*second));
            rest.iter().for_each(|arc| push_base128(&mut content, *arc));
        }
        self.element(tag::OID, &content)
    }

    /// Appends an OBJECT IDENTIFIER from its dotted text, or from the text that [`super::oid_text`] returns for invalid content.
    /// Other text results in an empty identifier, which readers reject: see [`super::oid_content`].
    pub fn oid_text(&mut self, dotted: &str) -> &mut Self {
        self.element(tag::OID, &super::oid_content(dotted).unwrap_or_default())
    }

    /// Appends an OCTET STRING.
    pub fn octets(&mut self, content: &[u8]) -> &mut Self {
        self.element(tag::OCTET_STRING, content)
    }

    /// Appends an OCTET STRING with DER content, as in every extension value.
    pub fn octets_of(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::OCTET_STRING, fill)
    }

    /// Appends a BIT STRING of whole bytes.
    pub fn bits(&mut self, content: &[u8]) -> &mut Self {
        self.element_header(tag::BIT_STRING, content.len() + 1).raw(&[0]).raw(content)
    }

    /// Appends a BIT STRING of named bits (KeyUsage, ReasonFlags): bit n of `bits` is named bit n. Trailing zero bits are left
    /// out (X.690 section 11.2.2).
    pub fn named_bits(&mut self, bits: u16) -> &mut Self {
        let octets = bits.reverse_bits().to_be_bytes();
        let used = 16 - bits.leading_zeros();
        let unused = (8 - used % 8) % 8;
        let length = used.div_ceil(8) as usize;
        self.nest(tag::BIT_STRING, |w| {
            w.raw(&[unused as u8]).raw(&octets[..length]);
        })
    }

    /// Appends a BIT STRING with DER content, such as the RSA key of a SubjectPublicKeyInfo.
    pub fn bits_containing(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(tag::BIT_STRING, |w| {
            w.raw(&[0]);
            fill(w);
        })
    }

    /// Appends a UTF8String.
    pub fn utf8(&mut self, text: &str) -> &mut Self {
        self.element(tag::UTF8_STRING, text.as_bytes())
    }

    /// Appends a PrintableString. Does not check that `text` is in its alphabet.
    pub fn printable(&mut self, text: &str) -> &mut Self {
        self.element(tag::PRINTABLE_STRING, text.as_bytes())
    }

    /// Appends a DirectoryString of RFC 5280: a PrintableString if its alphabet permits, otherwise a UTF8String.
    pub fn directory_string(&mut self, text: &str) {
        let printable = |b: u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&b);
        let kind = if text.bytes().all(printable) { tag::PRINTABLE_STRING } else { tag::UTF8_STRING };
        self.element(kind, text.as_bytes());
    }

    /// Appends an IA5String. Does not check that `text` is ASCII.
    pub fn ia5(&mut self, text: &str) -> &mut Self {
        self.element(tag::IA5_STRING, text.as_bytes())
    }

    /// Appends a BMPString: UTF-16, big endian.
    pub fn bmp(&mut self, text: &str) -> &mut Self {
        let content: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        self.element(tag::BMP_STRING, &content)
    }

    /// Appends a UTCTime. Its two-digit year always means 1950 to 2049, whatever the year of `time`.
    pub fn utc_time(&mut self, time: UnixTime) -> &mut Self {
        self.element_header(tag::UTC_TIME, UTC_TIME_LEN);
        self.civil(time, 2)
    }

    /// Appends a GeneralizedTime with whole seconds. Writes only the last four digits of years before 0 and after 9999.
    pub fn generalized_time(&mut self, time: UnixTime) -> &mut Self {
        self.element_header(tag::GENERALIZED_TIME, GENERALIZED_TIME_LEN);
        self.civil(time, 4)
    }

    /// Writes the time as digits and `Z`, with this number of digits for the year.
    fn civil(&mut self, time: UnixTime, year_digits: u32) -> &mut Self {
        let civil = time.civil();
        self.digits(civil.year.rem_euclid(10i64.pow(year_digits)), year_digits);
        for part in [civil.month, civil.day, civil.hour, civil.minute, civil.second] {
            self.digits(part, 2);
        }
        self.raw(b"Z")
    }

    fn digits(&mut self, value: i64, count: u32) {
        for digit in (0..count).rev() {
            self.out.push(b'0' + (value / 10i64.pow(digit) % 10) as u8);
        }
    }

    /// Writes the time of RFC 5280 section 4.1.2.5: UTCTime through 2049, GeneralizedTime after.
    pub fn time(&mut self, time: UnixTime) -> &mut Self {
        if is_utc_time(time) { self.utc_time(time) } else { self.generalized_time(time) }
    }

    /// Returns the length of the complete element that [`Self::time`] writes.
    #[must_use]
    pub fn time_len(time: UnixTime) -> usize {
        2 + if is_utc_time(time) { UTC_TIME_LEN } else { GENERALIZED_TIME_LEN }
    }
}

/// Content bytes of `YYMMDDHHMMSSZ`.
const UTC_TIME_LEN: usize = 13;
/// Content bytes of `YYYYMMDDHHMMSSZ`.
const GENERALIZED_TIME_LEN: usize = 15;

/// Returns whether RFC 5280 section 4.1.2.5 requires a UTCTime.
fn is_utc_time(time: UnixTime) -> bool {
    /// First second of the range: 1950-01-01T00:00:00Z.
    const FROM: i64 = -631_152_000;
    /// End of the range, exclusive: 2050-01-01T00:00:00Z.
    const TO: i64 = 2_524_608_000;
    (FROM..TO).contains(&time.0)
}

/// Returns two's complement content without redundant leading bytes (X.690 section 8.3.2).
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

/// Returns the content bytes of an OBJECT IDENTIFIER. The text is dotted, or has the form `bad:` and hexadecimal digits, which
/// [`super::oid_text`] returns for invalid content. `None` for other text: fewer than two arcs, a first arc above 2, a second arc
/// above 39 if the first arc is 0 or 1, or an arc over 64 bits.
#[must_use]
pub fn oid_content(dotted: &str) -> Option<Vec<u8>> {
    if let Some(digits) = dotted.strip_prefix("bad:") {
        return HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok();
    }
    let mut arcs = dotted.split('.').map(|arc| {
        let digits = !arc.is_empty() && arc.bytes().all(|b| b.is_ascii_digit());
        if digits { arc.parse::<u64>().ok() } else { None }
    });
    let (first, second) = (arcs.next()??, arcs.next()??);
    if first > 2 || (first < 2 && second > 39) {
        return None;
    }
    let mut content = Vec::with_capacity(dotted.len());
    push_base128(&mut content, (first * 40).checked_add(second)?);
    for arc in arcs {
        push_base128(&mut content, arc?);
    }
    Some(content)
}

fn push_base128(out: &mut Vec<u8>, value: u64) {
    let groups = (64 - value.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        out.push(((value >> (group * 7)) as u8 & 0x7f) | more);
    }
}
