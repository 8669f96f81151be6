//! Redaction of texts in recordings, in every encoding.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use data_encoding::HEXLOWER;
use percent_encoding::percent_decode;
use zeroize::Zeroizing;

/// Text that replaces redacted values.
pub(super) const REDACTED: &str = "[redacted]";
/// Minimum length of texts that are redacted in responses: shorter texts also occur in unrelated data.
pub(super) const NEEDLE_BYTES_MIN: usize = 4;
/// Values shorter than this are searched in responses in their exact case only, so that they match fewer unrelated texts.
pub(super) const EXACT_BYTES: usize = 8;
/// Maximum texts of one exchange, because each costs a search, and the client chooses its number of cookies.
const NEEDLES_MAX: usize = 128;
/// Minimum bytes of redacted values from client or server: shorter texts also occur in unrelated data.
const OWN_BYTES_MIN: usize = 8;
/// Maximum bytes of an encoded character at the end of a truncated text.
const SPELLING_BYTES_MAX: usize = 24;
/// Maximum backslashes before a character: for nested texts, four levels deep.
const BACKSLASHES_MAX: usize = 16;
/// Maximum concurrent positions of a match. Several positions are possible, because backslashes have several interpretations.
/// Beyond the maximum, the text counts as found.
pub(super) const PLACES_MAX: usize = 64;
/// Maximum comparisons of characters for one exchange: enough for [`NEEDLES_MAX`] texts in two fully escaped bodies of 64 KiB.
/// Without a limit, repetitive texts could take hours.
const STEPS_MAX: u64 = 1 << 23;

/// Texts to redact. They are zeroed when dropped, and not shown by `Debug`.
#[derive(Clone, Default)]
pub(super) struct RedactionTexts {
    all: Vec<Zeroizing<Vec<u8>>>,
    /// Whether an injected credential is among the texts.
    pub(super) has_injected: bool,
    /// Whether there were more texts than the maximum.
    pub(super) too_many: bool,
    /// Comparisons so far, limited by [`STEPS_MAX`].
    steps: u64,
}

/// The search exceeded its limit of comparisons, so the text may contain secrets and must not be written.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct TooLong;

impl fmt::Debug for RedactionTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactionTexts").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

impl RedactionTexts {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && !self.too_many
    }

    /// Adds an injected credential: unchanged, in base64 at any offset, and in hexadecimal.
    pub(super) fn inject(&mut self, text: &[u8]) {
        self.has_injected = true;
        add_base64_forms(text, &mut |coded| self.put(coded));
        self.put(&of_hex(text));
        self.put(text);
    }

    /// Adds a value from client or server, to redact it wherever it appears: as written, and percent-decoded.
    pub(super) fn add_value(&mut self, text: &[u8]) {
        self.add_plain(text);
        if text.contains(&b'%') {
            self.add_plain(&Zeroizing::new(percent_decode(text).collect::<Vec<u8>>()));
        }
    }

    fn add_plain(&mut self, text: &[u8]) {
        if text.len() >= OWN_BYTES_MIN && text != REDACTED.as_bytes() {
            self.put(text);
        }
    }

    fn put(&mut self, text: &[u8]) {
        if text.len() < NEEDLE_BYTES_MIN || self.all.iter().any(|one| one.as_slice() == text) {
            return;
        }
        match self.all.len() < NEEDLES_MAX {
            true => self.all.push(Zeroizing::new(text.to_vec())),
            false => self.too_many = true,
        }
    }

    /// Returns whether the search has exceeded its limit.
    pub(super) fn has_exceeded_limit(&self) -> bool {
        self.steps > STEPS_MAX
    }

    /// Returns `text` without the secrets. If the text `is_cut`, a secret that continues beyond its end is redacted up to the end
    /// of the text.
    ///
    /// # Errors
    /// [`TooLong`], from then on for all texts.
    pub(super) fn redacted(&mut self, text: &[u8], is_cut: bool) -> Result<Vec<u8>, TooLong> {
        let mut met = Vec::new();
        let mut search = Search { text, is_cut, steps: &mut self.steps, at: Vec::new(), next: Vec::new() };
        for needle in &self.all {
            let mut from = 0;
            while let Some((start, end)) = search.find(from, needle)? {
                met.push((start, end));
                from = end;
            }
        }
        met.sort_unstable();
        let mut without = Vec::with_capacity(text.len());
        let mut done = 0;
        for (start, end) in met {
            if start >= done {
                without.extend_from_slice(&text[done..start]);
                without.extend_from_slice(REDACTED.as_bytes());
            }
            done = done.max(end);
        }
        without.extend_from_slice(&text[done..]);
        Ok(without)
    }
}

/// Calls `put` with the base64 forms of `text` at any offset in a longer text, in both alphabets.
pub(super) fn add_base64_forms(text: &[u8], put: &mut dyn FnMut(&[u8])) {
    for offset in 0..3 {
        let mut shifted = Zeroizing::new(vec![0; offset]);
        shifted.extend_from_slice(text);
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let coded = Zeroizing::new(engine.encode(&*shifted));
            // The first and the last character also encode bits of neighbouring bytes.
            let inner = (8 * offset).div_ceil(6)..8 * shifted.len() / 6;
            put(coded.as_bytes().get(inner).unwrap_or_default());
        }
    }
}

/// Returns `text` in hexadecimal, in lower case.
pub(super) fn of_hex(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut hex = Zeroizing::new(vec![0; 2 * text.len()]);
    HEXLOWER.encode_mut(text, &mut hex);
    hex
}

/// State of the search for secrets in one text.
struct Search<'a> {
    text: &'a [u8],
    is_cut: bool,
    steps: &'a mut u64,
    /// End positions of the characters matched so far, one position for each interpretation.
    at: Vec<usize>,
    next: Vec<usize>,
}

impl Search<'_> {
    fn find(&mut self, mut from: usize, needle: &[u8]) -> Result<Option<(usize, usize)>, TooLong> {
        let Some(first) = needle.first() else { return Ok(None) };
        let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
        // All encodings of a character start with one of these bytes.
        let begins =
            |byte: &u8| *byte == lower || *byte == upper || matches!(byte, b'%' | b'\\' | b'&' | b'+');
        loop {
            // Beyond the limit, no text counts as free of secrets.
            if *self.steps > STEPS_MAX {
                return Err(TooLong);
            }
            let rest = self.text.get(from..).unwrap_or_default();
            let Some(skipped) = rest.iter().position(begins) else { return Ok(None) };
            let start = from + skipped;
            if let Some(end) = self.met(start, needle)? {
                return Ok(Some((start, end)));
            }
            from = start + 1;
        }
    }

    /// Returns the end of a match of `needle` that begins at `start`. Each character of the needle may be in any encoding.
    fn met(&mut self, start: usize, needle: &[u8]) -> Result<Option<usize>, TooLong> {
        let (text, is_cut) = (self.text, self.is_cut);
        self.at.clear();
        self.at.push(start);
        let mut read = 0;
        while read < needle.len() {
            let (length, character) = character_of(&needle[read..]);
            self.next.clear();
            for from in &self.at {
                let bytes = &needle[read..read + length];
                *self.steps += spelled(text, *from, (bytes, character), false, &mut self.next);
            }
            if *self.steps > STEPS_MAX {
                return Err(TooLong);
            }
            if self.next.is_empty() {
                let least = if is_cut { 1 } else { NEEDLE_BYTES_MIN };
                // The text ends before the needle does.
                let is_end =
                    |from: &&usize| **from == text.len() || is_cut && may_begin_escape(&text[**from..]);
                return Ok(self.at.iter().find(is_end).filter(|_| read >= least).map(|_| text.len()));
            }
            self.next.sort_unstable();
            self.next.dedup();
            if self.next.len() > PLACES_MAX {
                // The end is unknown, so everything is redacted.
                return Ok(Some(text.len()));
            }
            std::mem::swap(&mut self.at, &mut self.next);
            read += length;
        }
        Ok(self.at.last().copied())
    }
}

/// Returns the first character and its length in bytes. A byte that is not part of a character is returned as itself.
pub(super) fn character_of(bytes: &[u8]) -> (usize, Option<char>) {
    for length in 1..=bytes.len().min(4) {
        if let Ok(text) = std::str::from_utf8(&bytes[..length]) {
            return (length, text.chars().next());
        }
    }
    (1, None)
}

fn may_begin_escape(rest: &[u8]) -> bool {
    rest.len() < SPELLING_BYTES_MAX && matches!(rest.first(), Some(b'%' | b'\\' | b'&'))
}

/// Collects all ends of the character at `from`: literal, in upper or lower case unless `is_exact`, or escaped as in URLs, forms,
/// JSON or HTML. Returns the number of comparisons.
pub(super) fn spelled(
    text: &[u8],
    from: usize,
    (bytes, character): (&[u8], Option<char>),
    is_exact: bool,
    ends: &mut Vec<usize>,
) -> u64 {
    let Some(rest) = text.get(from..) else { return 1 };
    let mut steps = 1;
    let is_literal = |some: &[u8]| some.eq_ignore_ascii_case(bytes) && (!is_exact || some == bytes);
    if rest.get(..bytes.len()).is_some_and(is_literal) {
        ends.push(from + bytes.len());
    }
    let length = match rest.first() {
        Some(b'+') => (bytes == b" ").then_some(1),
        Some(b'%') => match_url_escape(rest, bytes, is_exact, &mut steps),
        Some(b'\\') => match_json_escape(rest, character, is_exact, &mut |length| ends.push(from + length)),
        Some(b'&') => match_html_escape(rest, character, is_exact),
        _ => None,
    };
    ends.extend(length.map(|length| from + length));
    steps
}

/// Matches `%2F`, or `%252F` after repeated escaping.
fn match_url_escape(rest: &[u8], bytes: &[u8], is_exact: bool, steps: &mut u64) -> Option<usize> {
    let mut at = 0;
    for wanted in bytes {
        (rest.get(at) == Some(&b'%')).then_some(())?;
        at += 1;
        loop {
            let value = parse_hex(rest.get(at..at + 2)?)?;
            at += 2;
            let is_other_case = value == u32::from(wanted.to_ascii_lowercase())
                || value == u32::from(wanted.to_ascii_uppercase());
            if value == u32::from(*wanted) || is_other_case && !is_exact {
                break;
            }
            // A percent sign that is escaped itself.
            (value == u32::from(b'%')).then_some(())?;
            *steps += 1;
        }
    }
    Some(at)
}

/// Matches escapes of JSON: `\"`, `\/`, `\u002f`, `\x2f`, with more backslashes in nested texts. An escaped backslash is passed to
/// `more`.
fn match_json_escape(
    rest: &[u8],
    character: Option<char>,
    is_exact: bool,
    more: &mut dyn FnMut(usize),
) -> Option<usize> {
    let wanted = character?;
    let run = backslashes(rest);
    if wanted == '\\' {
        [2, 4, 8, 16].into_iter().filter(|count| *count <= run).for_each(more);
    }
    if let Some((first, end)) = unit(rest, run) {
        let mut units = [0; 2];
        let units = wanted.encode_utf16(&mut units);
        return match units {
            [_] => is_same(first, wanted, is_exact).then_some(end),
            [high, low] if u32::from(*high) == first => {
                let (second, end) = unit(rest, end + backslashes(&rest[end..]))?;
                (second == u32::from(*low)).then_some(end)
            }
            _ => None,
        };
    }
    let escaped = *rest.get(run)?;
    let meant = match escaped {
        b't' => '\t',
        other if other.is_ascii_alphanumeric() => return None,
        other => char::from(other),
    };
    (meant == wanted && escaped.is_ascii()).then_some(run + 1)
}

/// Returns the number of backslashes at the start of `rest`.
fn backslashes(rest: &[u8]) -> usize {
    rest.iter().take(BACKSLASHES_MAX).take_while(|byte| **byte == b'\\').count()
}

/// Returns the value and the end of `u002f` or `x2f` at `at`.
fn unit(rest: &[u8], at: usize) -> Option<(u32, usize)> {
    match rest.get(at)? {
        b'u' | b'U' => Some((parse_hex(rest.get(at + 1..at + 5)?)?, at + 5)),
        b'x' | b'X' => Some((parse_hex(rest.get(at + 1..at + 3)?)?, at + 3)),
        _ => None,
    }
}

/// Matches `&amp;`, `&#38;` and `&#x26;`.
fn match_html_escape(rest: &[u8], character: Option<char>, is_exact: bool) -> Option<usize> {
    let (meant, end) = reference(rest)?;
    is_same(meant, character?, is_exact).then_some(end)
}

/// Returns the character and the end of a reference in HTML.
fn reference(rest: &[u8]) -> Option<(u32, usize)> {
    const LONGEST: usize = 10;
    let end = rest.iter().take(LONGEST).position(|byte| *byte == b';')?;
    let meant = match &rest[1..end] {
        b"amp" => u32::from(b'&'),
        b"lt" => u32::from(b'<'),
        b"gt" => u32::from(b'>'),
        b"quot" => u32::from(b'"'),
        b"apos" => u32::from(b'\''),
        [b'#', b'x' | b'X', digits @ ..] => parse_hex(digits)?,
        [b'#', digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
        _ => return None,
    };
    Some((meant, end + 1))
}

/// Calls `with` with the first byte of each character that the escape sequence at the start of `rest` may represent. The sequence
/// must be complete. The search then compares only texts that begin with one of these bytes.
pub(super) fn for_each_escaped_byte(rest: &[u8], with: &mut dyn FnMut(u8)) {
    match rest.first() {
        Some(b'%') => {
            for value in rest[1..].chunks_exact(2).map_while(parse_hex) {
                // A byte, which need not be a character.
                with(value as u8);
                if value != u32::from(b'%') {
                    break;
                }
            }
        }
        Some(b'\\') => {
            let run = backslashes(rest);
            match unit(rest, run) {
                Some((code, _)) => first_of(code, with),
                None => match rest.get(run) {
                    Some(b't') => with(b'\t'),
                    Some(escaped) if !escaped.is_ascii_alphanumeric() => with(*escaped),
                    _ => {}
                },
            }
            with(b'\\');
        }
        Some(b'&') => reference(rest).into_iter().for_each(|(code, _)| first_of(code, with)),
        _ => {}
    }
}

fn first_of(code: u32, with: &mut dyn FnMut(u8)) {
    match char::from_u32(code) {
        Some(character) => with(character.encode_utf8(&mut [0; 4]).as_bytes()[0]),
        // Half of a surrogate pair: a character of four bytes.
        None => (0xf0..=0xf4).for_each(with),
    }
}

fn is_same(actual: u32, wanted: char, is_exact: bool) -> bool {
    char::from_u32(actual)
        .is_some_and(|actual| actual == wanted || !is_exact && actual.eq_ignore_ascii_case(&wanted))
}

fn parse_hex(digits: &[u8]) -> Option<u32> {
    let text =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s\u{e9}c/r\"t+k\\y 1";

    fn needles(text: &str) -> RedactionTexts {
        let mut needles = RedactionTexts::default();
        needles.inject(text.as_bytes());
        needles
    }

    fn without(needles: &RedactionTexts, text: &str, is_cut: bool) -> String {
        String::from_utf8(needles.clone().redacted(text.as_bytes(), is_cut).unwrap()).unwrap()
    }

    #[test]
    fn secret_is_redacted_in_every_encoding() {
        let needles = needles(SECRET);
        let json = |text: &str| serde_json::to_string(text).unwrap();
        let coded = |text: &str| STANDARD_NO_PAD.encode(text);
        for spelled in [
            SECRET.to_owned(),
            SECRET.to_uppercase().replace('\u{c9}', "\u{e9}"),
            "s%C3%A9c%2Fr%22t%2Bk%5Cy%201".to_owned(),
            "s%c3%a9c/r%22t%2bk%5cy+1".to_owned(),
            "%73%C3%A9%63%2F%72%22%74%2B%6B%5C%79%20%31".to_owned(),
            "s%25C3%25A9c%252Fr%2522t%252Bk%255Cy%25201".to_owned(),
            json(SECRET),
            json(&json(SECRET)),
            json(&json(&json(SECRET))),
            json(SECRET).replace('/', "\\/").replace('\u{e9}', "\\u00e9").replace(' ', "\\u0020"),
            "s&#233;c&#x2F;r&quot;t&#43;k\\y 1".to_owned(),
            coded(SECRET),
            coded(&format!("a{SECRET}b")),
            coded(&format!("ab{SECRET}cd")),
            URL_SAFE_NO_PAD.encode(format!("?{SECRET}")),
            "73c3a9632f72227 42b6b5c792031".replace(' ', ""),
        ] {
            let text = format!("before {spelled} between {spelled} after");
            let left = without(&needles, &text, false);
            assert_eq!(left.matches(REDACTED).count(), 2, "{spelled}: {left}");
            let left: String =
                left.replace(REDACTED, "").chars().filter(|one| one.is_alphanumeric()).collect();
            // In base64, characters that also encode bits of other bytes stay.
            assert!(
                left.starts_with("before") && left.ends_with("after") && left.len() < 32,
                "{spelled}: {left}"
            );
        }
        let other = "nothing of it: s%C3%A9c/r, k\\\\y 1, %, \\, &, &#;, \\u, %4";
        assert_eq!(without(&needles, other, false), other);
    }

    #[test]
    fn truncated_secret_is_redacted_as_far_as_it_matches() {
        let needles = needles("hunter2-hunter3");
        for (text, is_cut, wanted) in [
            ("it is hunter2-hun", true, "it is [redacted]"),
            ("it is hunter2-hun", false, "it is [redacted]"),
            ("it is h", true, "it is [redacted]"),
            ("it is h", false, "it is h"),
            ("it is hunter2%2", true, "it is [redacted]"),
            ("it is hunter2\\u00", true, "it is [redacted]"),
            ("hunter2-hunter3hunter2-hunter3", false, "[redacted][redacted]"),
            ("hunterhunter2-hunter3", false, "hunter[redacted]"),
        ] {
            assert_eq!(without(&needles, text, is_cut), wanted, "{text}");
        }
    }

    #[test]
    fn repetitive_text_exceeds_the_step_limit_and_is_rejected() {
        // Every position of a repetitive text matches up to the last character.
        let mut needles = RedactionTexts::default();
        needles.add_value(&[vec![b'a'; 8 << 10], b"Z".to_vec()].concat());
        let text = [vec![b'a'; 56 << 10], b".".to_vec()].concat();
        assert_eq!(needles.redacted(&text, false), Err(TooLong));
        assert!(
            needles.has_exceeded_limit() && needles.steps <= STEPS_MAX + PLACES_MAX as u64,
            "{}",
            needles.steps
        );
        assert_eq!(needles.redacted(b"nothing of it", false), Err(TooLong), "for the whole exchange");
        // A text with thousands of interpretations.
        let mut needles = RedactionTexts::default();
        needles.add_value(&[vec![b'\\'; 1_000], b"secret".to_vec()].concat());
        let text = [b"it is ".to_vec(), vec![b'\\'; 60 << 10], b"secret".to_vec()].concat();
        assert_eq!(needles.redacted(&text, false).unwrap(), b"it is [redacted]");
        assert!(needles.steps < 1_000, "{}", needles.steps);
        // Other texts are searched completely.
        let mut needles = RedactionTexts::default();
        needles.inject(b"hunter2-hunter3");
        let text = [b"%2Fh".repeat(16 << 10), b"hunter2-hunter3".to_vec()].concat();
        assert!(needles.redacted(&text, false).unwrap().ends_with(b"%2Fh[redacted]"));
        assert!(needles.steps < STEPS_MAX / 16, "{}", needles.steps);
    }

    #[test]
    fn needles_are_limited_in_number_and_hidden_in_debug_output() {
        let mut needles = RedactionTexts::default();
        needles.add_value(b"short");
        assert!(needles.is_empty());
        for number in 0..1_000 {
            needles.add_value(format!("cookie-{number:04}").as_bytes());
        }
        assert!(needles.too_many && needles.all.len() == NEEDLES_MAX);
        assert!(!format!("{needles:?}").contains("cookie"));
    }
}
