//! Search for an injected value in responses, in every encoding, while they are streamed.

use std::fmt;

use zeroize::Zeroizing;

use super::needles::{
    EXACT_BYTES, NEEDLE_BYTES_MIN, PLACES_MAX, REDACTED, add_base64_forms, character_of,
    for_each_escaped_byte, of_hex, spelled,
};

/// Maximum texts of one value. Each text has one bit in a 64-bit mask.
const TEXTS_MAX: usize = 64;
/// Maximum bytes of an escape sequence at the end of the known text.
const ESCAPE_BYTES_MAX: usize = 64;
/// Maximum bytes of an HTML reference: `&#x10ffff;`.
const REFERENCE_BYTES_MAX: usize = 10;
/// Number of comparisons that any search may make, even in a short text.
const STEPS_FREE: u64 = 1 << 20;
/// Number of additional comparisons permitted for each byte of the text. Usual texts need less than one per byte, fully escaped
/// texts about 10.
const STEPS_EACH: u64 = 64;

/// An injected value in all encodings. Not shown by `Debug`, and zeroed when dropped.
pub(super) struct ValueEncodings {
    all: Vec<Text>,
    /// For each byte value, a bit mask of the texts whose encodings may begin with this byte.
    first: [u64; 256],
    /// For each byte value, a bit mask of the texts whose encodings may have this byte as second byte.
    second: [u64; 256],
    /// For each byte value, a bit mask of the texts whose first character, unescaped, begins with this byte.
    plain: [u64; 256],
}

struct Text {
    bytes: Zeroizing<Vec<u8>>,
    /// Whether the text is base64, which may have line breaks.
    has_breaks: bool,
    /// Whether only texts in the same case match.
    is_exact: bool,
}

impl fmt::Debug for ValueEncodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueEncodings").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

/// Limit of a search: the maximum number of comparisons for a number of bytes.
#[derive(Debug)]
pub(super) struct SearchBudget {
    left: u64,
}

impl Default for SearchBudget {
    fn default() -> Self {
        Self { left: STEPS_FREE }
    }
}

impl SearchBudget {
    /// Permits the search in `bytes` more bytes.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(STEPS_EACH * bytes as u64);
    }

    fn take(&mut self, steps: u64) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(steps).ok_or(TooMuch)?;
        Ok(())
    }
}

/// The search exceeded its limit of work or memory. The rest of the text may contain the value, and must not be passed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the response was cut off: the search for the injected credential in it exceeded the limit of work or memory"
)]
pub struct TooMuch;

/// Result of a search at one position.
enum Match {
    No,
    /// The value matches; the number is the end of the match in the text.
    Until(usize),
    /// The known text ends before the comparison is decided. Contains the number of compared bytes of the value.
    Open(usize),
}

impl ValueEncodings {
    /// Encodes the `texts` of a value.
    pub(super) fn of<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut spellings = Self { all: Vec::new(), first: [0; 256], second: [0; 256], plain: [0; 256] };
        for text in texts {
            let is_exact = text.len() < EXACT_BYTES;
            let mut put = |text: &[u8], has_breaks| spellings.put(text, has_breaks, is_exact);
            put(text, false);
            let mut hex = of_hex(text);
            put(&hex, false);
            if is_exact {
                hex.make_ascii_uppercase();
                put(&hex, false);
            }
            add_base64_forms(text, &mut |coded| put(coded, true));
            // UTF-16: without the last zero byte, the text matches both byte orders.
            let mut wide = Zeroizing::new(text.iter().flat_map(|byte| [*byte, 0]).collect::<Vec<u8>>());
            wide.pop();
            put(&wide, false);
        }
        spellings
    }

    fn put(&mut self, text: &[u8], has_breaks: bool, is_exact: bool) {
        let is_known = self.all.iter().any(|one| *one.bytes == text);
        if text.len() < NEEDLE_BYTES_MIN || is_known || self.all.len() == TEXTS_MAX {
            return;
        }
        let bit = 1 << self.all.len();
        let (length, _) = character_of(text);
        begin(&mut self.first, text[0], bit);
        [text[0].to_ascii_lowercase(), text[0].to_ascii_uppercase()]
            .iter()
            .for_each(|byte| self.plain[usize::from(*byte)] |= bit);
        match length {
            1 => begin(&mut self.second, text[1], bit),
            _ => self.second[usize::from(text[1])] |= bit,
        }
        if has_breaks {
            b"\r\n".iter().for_each(|byte| self.second[usize::from(*byte)] |= bit);
        }
        self.all.push(Text { bytes: Zeroizing::new(text.to_vec()), has_breaks, is_exact });
    }

    /// Adds the ranges of the value in `text` to `found`. Returns the number of decided bytes: a value may begin after them and
    /// continue in later text. With `is_whole`, all bytes are decided.
    ///
    /// # Errors
    /// [`TooMuch`]
    pub(super) fn search(
        &self,
        text: &[u8],
        is_whole: bool,
        steps: &mut SearchBudget,
        found: &mut Vec<(usize, usize)>,
    ) -> Result<usize, TooMuch> {
        let mut positions = Positions::default();
        for at in 0..text.len() {
            let mut mask = self.first[usize::from(text[at])];
            if mask == 0 {
                continue;
            }
            if let Some(next) = text.get(at + 1) {
                mask &= match is_escape(text[at]) {
                    true => self.escaped(&text[at..]),
                    false => self.second[usize::from(*next)],
                };
            }
            let mut end = None;
            while mask != 0 {
                let one = &self.all[mask.trailing_zeros() as usize];
                mask &= mask - 1;
                let until = match one.met(text, at, steps, &mut positions)? {
                    Match::No => continue,
                    Match::Until(until) => until,
                    // A part of the value at the end, as in a truncated text.
                    Match::Open(bytes) if is_whole && bytes < NEEDLE_BYTES_MIN => continue,
                    Match::Open(_) if is_whole => text.len(),
                    Match::Open(_) => return Ok(at),
                };
                end = end.max(Some(until));
            }
            found.extend(end.map(|end| (at, end)));
        }
        Ok(text.len())
    }

    /// Returns the texts that the escape sequence at the start of `rest` may begin. Without this filter, a text of escape
    /// characters would be compared with every value at every byte.
    fn escaped(&self, rest: &[u8]) -> u64 {
        if rest.len() < ESCAPE_BYTES_MAX {
            // The escape sequence may be incomplete, so any value may begin here.
            return u64::MAX;
        }
        let mut mask = self.plain[usize::from(rest[0])];
        for_each_escaped_byte(rest, &mut |byte| mask |= self.plain[usize::from(byte)]);
        mask
    }

    /// Returns `text` without the value; `None` if `text` does not contain the value.
    ///
    /// # Errors
    /// [`TooMuch`]
    pub(super) fn redacted(&self, text: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, TooMuch> {
        let (mut steps, mut found) = (SearchBudget::default(), Vec::new());
        steps.earn(text.len());
        self.search(text, true, &mut steps, &mut found)?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut without = Zeroizing::new(Vec::with_capacity(text.len() + REDACTED.len()));
        let mut done = 0;
        for (start, end) in found {
            if start >= done {
                without.extend_from_slice(&text[done..start]);
                without.extend_from_slice(REDACTED.as_bytes());
            }
            done = done.max(end);
        }
        without.extend_from_slice(&text[done..]);
        Ok(Some(without))
    }
}

/// Marks each byte that may begin an encoding of `byte` in the table.
fn begin(table: &mut [u64; 256], byte: u8, bit: u64) {
    let plus = if byte == b' ' { b'+' } else { byte };
    for begins in [byte.to_ascii_lowercase(), byte.to_ascii_uppercase(), plus, b'%', b'\\', b'&'] {
        table[usize::from(begins)] |= bit;
    }
}

fn is_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&')
}

/// Positions of one search, one for each interpretation of the text.
#[derive(Default)]
struct Positions {
    now: Vec<usize>,
    next: Vec<usize>,
}

impl Text {
    /// Compares the value with the text from `start` on. Each character may be in any encoding.
    fn met(
        &self,
        text: &[u8],
        start: usize,
        steps: &mut SearchBudget,
        positions: &mut Positions,
    ) -> Result<Match, TooMuch> {
        positions.now.clear();
        positions.now.push(start);
        let (mut read, mut open) = (0, None);
        while read < self.bytes.len() {
            let (length, character) = character_of(&self.bytes[read..]);
            let bytes = &self.bytes[read..read + length];
            positions.next.clear();
            for from in &positions.now {
                let breaks = if self.has_breaks && read > 0 { line_break(&text[*from..]) } else { 0 };
                for from in [Some(*from), (breaks > 0).then_some(from + breaks)].into_iter().flatten() {
                    if may_continue_escape(&text[from..], bytes) {
                        open = Some(read);
                    }
                    let ends = &mut positions.next;
                    steps.take(spelled(text, from, (bytes, character), self.is_exact, ends))?;
                }
            }
            if positions.next.is_empty() {
                return Ok(open.map_or(Match::No, Match::Open));
            }
            positions.next.sort_unstable();
            positions.next.dedup();
            if positions.next.len() > PLACES_MAX {
                return Err(TooMuch);
            }
            std::mem::swap(&mut positions.now, &mut positions.next);
            read += length;
        }
        Ok(positions.now.last().map_or(Match::No, |end| Match::Until(*end)))
    }
}

/// Returns the length of a line break, either raw or escaped in JSON.
fn line_break(rest: &[u8]) -> usize {
    let all: [&[u8]; 4] = [b"\r\n", b"\n", b"\\r\\n", b"\\n"];
    all.iter().find(|one| rest.starts_with(one)).map_or(0, |one| one.len())
}

/// Returns whether `rest`, the end of the known text, may be the beginning of an encoding of `bytes`.
fn may_continue_escape(rest: &[u8], bytes: &[u8]) -> bool {
    let is_all = |of: fn(&u8) -> bool| rest.len() < ESCAPE_BYTES_MAX && rest.iter().all(of);
    match rest.first() {
        None => true,
        Some(b'%') => is_all(|byte| byte.is_ascii_hexdigit() || *byte == b'%'),
        Some(b'\\') => {
            is_all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'\\' | b'u' | b'U' | b'x' | b'X'))
        }
        Some(b'&') => {
            rest.len() < REFERENCE_BYTES_MAX
                && rest[1..].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#')
        }
        Some(b'\r') => rest.len() == 1,
        Some(_) => rest.len() < bytes.len() && bytes.starts_with(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spellings(text: &str) -> ValueEncodings {
        ValueEncodings::of([text.as_bytes()].into_iter())
    }

    /// Returns the decided part of `text`, and the found ranges.
    fn searched(spellings: &ValueEncodings, text: &[u8], is_whole: bool) -> (usize, Vec<(usize, usize)>) {
        let (mut steps, mut found) = (SearchBudget::default(), Vec::new());
        let decided = spellings.search(text, is_whole, &mut steps, &mut found).unwrap();
        (decided, found)
    }

    #[test]
    fn possible_prefix_of_a_value_is_held_back() {
        let spellings = spellings("hunter2-\u{e9}t\u{e9}");
        for (text, open) in [
            ("it is hunter2-", 6),
            ("it is h", 6),
            ("it is hunter2\\u00", 6),
            ("it is %6", 6),
            ("it is %68unter2-%C3%A", 6),
            ("it is hunter2-\\", 6),
            ("it is hunter2&#4", 6),
            ("data: hunting\n\n", 15),
            ("{\"a\": 1}\n", 9),
            ("100% sure, a\\b & c", 18),
        ] {
            assert_eq!(searched(&spellings, text.as_bytes(), false), (open, vec![]), "{text}");
        }
        let cut = &"hunter2-\u{e9}".as_bytes()[..9];
        assert_eq!(searched(&spellings, cut, false).0, 0, "within a character");
        assert_eq!(searched(&spellings, b"it is hunter2", true).1, [(6, 13)]);
        assert_eq!(searched(&spellings, b"it is hun", true).1, []);
    }

    #[test]
    fn base64_is_found_with_line_breaks_and_as_utf16() {
        let secret = "canary-of-line-breaks-and-more";
        let spellings = spellings(secret);
        for offset in 0..3 {
            let coded = base64::Engine::encode(
                &base64::engine::general_purpose::STANDARD,
                format!("{}{secret}...", "x".repeat(offset)),
            );
            for line_break in ["\n", "\r\n", "\\n", "\\r\\n"] {
                let lines: Vec<&str> =
                    coded.as_bytes().chunks(16).map(|line| std::str::from_utf8(line).unwrap()).collect();
                let text = lines.join(line_break);
                let (_, found) = searched(&spellings, text.as_bytes(), true);
                let (start, end) = *found.first().unwrap_or_else(|| panic!("{text}"));
                assert!(start <= 4 && end + 8 >= text.len(), "{text}: {start} {end}");
            }
        }
        let wide: Vec<u8> = secret.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(searched(&spellings, &wide, true).1, [(1, wide.len())]);
    }

    #[test]
    fn repetitive_text_exceeds_the_step_limit() {
        let spellings = spellings(&format!("{}Z", "a".repeat(4_000)));
        let (mut steps, mut found) = (SearchBudget::default(), Vec::new());
        let text = vec![b'a'; 1 << 20];
        steps.earn(text.len());
        let text = [text, b".".to_vec()].concat();
        assert_eq!(spellings.search(&text, false, &mut steps, &mut found), Err(TooMuch));
        assert!(found.is_empty() && !format!("{spellings:?}").contains("aaa"));
    }

    #[test]
    fn escapes_of_other_characters_are_hardly_compared() {
        let spellings = spellings("hunter2-\u{e9}t\u{e9}");
        for unit in
            ["&", "&#", "&#9", "&amp;", "&#90;", "%", "%2", "%25", "%59", "\\", "\\u", "\\u0059", "\\\""]
        {
            let text = unit.repeat(64 << 10);
            let mut steps = SearchBudget::default();
            steps.earn(text.len());
            let earned = steps.left;
            spellings.search(text.as_bytes(), false, &mut steps, &mut Vec::new()).unwrap();
            let taken = earned - steps.left;
            assert!(taken < text.len() as u64 / 8, "{unit}: {taken} for {} bytes", text.len());
        }
    }

    #[test]
    fn escapes_of_the_value_are_found_within_a_long_text() {
        let secret = "\u{1f511}<\\&k\u{e9}y";
        let spellings = spellings(secret);
        let json = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        let html = secret.chars().map(|one| format!("&#x{:x};", u32::from(one))).collect::<String>();
        let url = secret.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let (nested, double_encoded) = (json.replace('\\', "\\\\"), url.replace('%', "%25"));
        for spelled in [secret, &json, &nested, &html, &url, &double_encoded] {
            let text = format!("{spelled}{}", ".".repeat(2 * ESCAPE_BYTES_MAX));
            let found = searched(&spellings, text.as_bytes(), false).1;
            assert_eq!(found.first(), Some(&(0, spelled.len())), "{spelled}");
        }
        for (secret, spelled) in [("\\hunter", "\\\\hunter"), ("<hunter", "&lt;hunter"), ("\tabc", "\\tabc")]
        {
            let text = format!("{spelled}{}", ".".repeat(2 * ESCAPE_BYTES_MAX));
            let found = searched(&self::spellings(secret), text.as_bytes(), false).1;
            assert_eq!(found.first(), Some(&(0, spelled.len())), "{spelled}");
        }
    }

    #[test]
    fn a_short_value_is_found_in_its_exact_case_only() {
        let coded = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        let short = spellings("Pass12");
        let found = |text: &str| !searched(&short, text.as_bytes(), true).1.is_empty();
        let escaped = ["P%61ss12", "\\u0050ass12", "&#x50;ass12", "P\0a\0s\0s\x001\x002"].map(str::to_owned);
        let coded_texts = ["506173733132".to_owned(), coded("Pass12")];
        for text in escaped.into_iter().chain(coded_texts).chain(["Pass12".to_owned()]) {
            assert!(found(&text), "{text}");
        }
        for text in
            ["pass12", "PASS12", "%70ass12", "\\u0070ass12", "&#112;ass12", &coded("Pass12").to_lowercase()]
        {
            assert!(!found(text), "{text}");
        }
        let hex = spellings("kkkkkk");
        for text in ["6b6b6b6b6b6b", "6B6B6B6B6B6B"] {
            assert!(!searched(&hex, text.as_bytes(), true).1.is_empty(), "{text}");
        }
        assert!(!searched(&spellings("Pass1234"), b"pass1234", true).1.is_empty(), "long enough");
    }
}
