//! Texts to remove from recordings, in every spelling.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use data_encoding::HEXLOWER;
use percent_encoding::percent_decode;
use zeroize::Zeroizing;

use super::inject::{NEEDLE_OCTETS_MIN, REDACTED};

/// Texts of one exchange: a client chooses how many cookies it sends, and each is looked for.
const NEEDLES_MAX: usize = 128;
/// What a client or a server left out says itself, and is shorter, would stand there at random.
const OWN_OCTETS_MIN: usize = 8;
/// Bytes of the longest spelling of one character, at the end of a text that is cut off.
const SPELLING_OCTETS_MAX: usize = 24;
/// Backslashes before a character: texts within texts, four deep.
const BACKSLASHES_MAX: usize = 16;
/// Places that one text may have come to at once, as backslashes are read in several ways: beyond, it counts as met.
const PLACES_MAX: usize = 64;
/// Characters held against places of what is recorded, for one exchange: enough for [`NEEDLES_MAX`] texts in two bodies of 64 KiB that are
/// escaped throughout. What repeats itself, and is looked for in what does, would take hours.
const STEPS_MAX: u64 = 1 << 23;

/// What is looked for. Wiped when it is dropped, and not shown by `Debug`.
#[derive(Clone, Default)]
pub(super) struct Needles {
    all: Vec<Zeroizing<Vec<u8>>>,
    /// Whether a credential that a rule put in is among them.
    pub(super) has_injected: bool,
    /// Whether there were more than are looked for.
    pub(super) too_many: bool,
    /// Taken so far, of [`STEPS_MAX`].
    steps: u64,
}

/// So many steps would be needed that nobody says what is in there: it is not to be written.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct TooLong;

impl fmt::Debug for Needles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Needles").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

impl Needles {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && !self.too_many
    }

    /// A credential that was put in: as it is, in base64 wherever it begins there, and in hexadecimal.
    pub(super) fn inject(&mut self, text: &[u8]) {
        self.has_injected = true;
        let mut hex = Zeroizing::new(vec![0; 2 * text.len()]);
        HEXLOWER.encode_mut(text, &mut hex);
        for offset in 0..3 {
            let mut shifted = Zeroizing::new(vec![0; offset]);
            shifted.extend_from_slice(text);
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let coded = Zeroizing::new(engine.encode(&*shifted));
                // Of its first and last character bytes beside it have a part.
                let inner = (8 * offset).div_ceil(6)..8 * shifted.len() / 6;
                self.put(coded.as_bytes().get(inner).unwrap_or_default());
            }
        }
        self.put(&hex);
        self.put(text);
    }

    /// Adds a value to remove elsewhere, both as written and percent-decoded.
    pub(super) fn own(&mut self, text: &[u8]) {
        self.own_as_it_is(text);
        if text.contains(&b'%') {
            self.own_as_it_is(&Zeroizing::new(percent_decode(text).collect::<Vec<u8>>()));
        }
    }

    fn own_as_it_is(&mut self, text: &[u8]) {
        if text.len() >= OWN_OCTETS_MIN && text != REDACTED.as_bytes() {
            self.put(text);
        }
    }

    fn put(&mut self, text: &[u8]) {
        if text.len() < NEEDLE_OCTETS_MIN || self.all.iter().any(|one| one.as_slice() == text) {
            return;
        }
        match self.all.len() < NEEDLES_MAX {
            true => self.all.push(Zeroizing::new(text.to_vec())),
            false => self.too_many = true,
        }
    }

    /// Whether more steps would have been needed than are taken.
    pub(super) fn is_used_up(&self) -> bool {
        self.steps > STEPS_MAX
    }

    /// `text` without them. One that goes on beyond a text that `is_cut` is taken out as far as it goes.
    ///
    /// # Errors
    /// [`TooLong`], from then on for all texts.
    pub(super) fn taken_out(&mut self, text: &[u8], is_cut: bool) -> Result<Vec<u8>, TooLong> {
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

/// Of one text.
struct Search<'a> {
    text: &'a [u8],
    is_cut: bool,
    steps: &'a mut u64,
    /// Where the characters end that were met so far, in each way in which they can be read.
    at: Vec<usize>,
    next: Vec<usize>,
}

impl Search<'_> {
    fn find(&mut self, mut from: usize, needle: &[u8]) -> Result<Option<(usize, usize)>, TooLong> {
        let Some(first) = needle.first() else { return Ok(None) };
        let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
        // All spellings of a character begin with one of these.
        let begins =
            |octet: &u8| *octet == lower || *octet == upper || matches!(octet, b'%' | b'\\' | b'&' | b'+');
        loop {
            // Where there are no more steps, nothing is said to be without.
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

    /// Where `needle` ends that begins at `start`, each of its characters in any spelling.
    fn met(&mut self, start: usize, needle: &[u8]) -> Result<Option<usize>, TooLong> {
        let (text, is_cut) = (self.text, self.is_cut);
        self.at.clear();
        self.at.push(start);
        let mut read = 0;
        while read < needle.len() {
            let (length, character) = character_of(&needle[read..]);
            self.next.clear();
            for from in &self.at {
                *self.steps += spelled(text, *from, &needle[read..read + length], character, &mut self.next);
            }
            if *self.steps > STEPS_MAX {
                return Err(TooLong);
            }
            if self.next.is_empty() {
                let least = if is_cut { 1 } else { NEEDLE_OCTETS_MIN };
                // The end has come before the needle's.
                let is_end =
                    |from: &&usize| **from == text.len() || is_cut && begins_spelling(&text[**from..]);
                return Ok(self.at.iter().find(is_end).filter(|_| read >= least).map(|_| text.len()));
            }
            self.next.sort_unstable();
            self.next.dedup();
            if self.next.len() > PLACES_MAX {
                // It may end anywhere.
                return Ok(Some(text.len()));
            }
            std::mem::swap(&mut self.at, &mut self.next);
            read += length;
        }
        Ok(self.at.last().copied())
    }
}

/// The first character and its bytes; an byte that is of none stands for itself.
fn character_of(octets: &[u8]) -> (usize, Option<char>) {
    for length in 1..=octets.len().min(4) {
        if let Ok(text) = std::str::from_utf8(&octets[..length]) {
            return (length, text.chars().next());
        }
    }
    (1, None)
}

fn begins_spelling(rest: &[u8]) -> bool {
    rest.len() < SPELLING_OCTETS_MAX && matches!(rest.first(), Some(b'%' | b'\\' | b'&'))
}

/// All ends of the character with these bytes, where it stands at `from`: as it is, in upper or lower case, escaped as in URLs and
/// forms, as in JSON, or as in HTML. Says how many steps that took.
fn spelled(text: &[u8], from: usize, octets: &[u8], character: Option<char>, ends: &mut Vec<usize>) -> u64 {
    let Some(rest) = text.get(from..) else { return 1 };
    let mut steps = 1;
    if rest.get(..octets.len()).is_some_and(|some| some.eq_ignore_ascii_case(octets)) {
        ends.push(from + octets.len());
    }
    let length = match rest.first() {
        Some(b'+') => (octets == b" ").then_some(1),
        Some(b'%') => of_url(rest, octets, &mut steps),
        Some(b'\\') => of_json(rest, character, &mut |length| ends.push(from + length)),
        Some(b'&') => of_html(rest, character),
        _ => None,
    };
    ends.extend(length.map(|length| from + length));
    steps
}

/// `%2F`, and `%252F` where that was escaped again.
fn of_url(rest: &[u8], octets: &[u8], steps: &mut u64) -> Option<usize> {
    let mut at = 0;
    for wanted in octets {
        (rest.get(at) == Some(&b'%')).then_some(())?;
        at += 1;
        loop {
            let value = hex_of(rest.get(at..at + 2)?)?;
            at += 2;
            if value == u32::from(*wanted)
                || value == u32::from(wanted.to_ascii_lowercase())
                || value == u32::from(wanted.to_ascii_uppercase())
            {
                break;
            }
            // The escape of a percent sign.
            (value == u32::from(b'%')).then_some(())?;
            *steps += 1;
        }
    }
    Some(at)
}

/// Escapes of JSON: `\"`, `\/`, `\u002f`, `\x2f`, with more backslashes where a text is nested in another; an escaped backslash
/// goes to `more`.
fn of_json(rest: &[u8], character: Option<char>, more: &mut dyn FnMut(usize)) -> Option<usize> {
    let wanted = character?;
    let run = rest.iter().take(BACKSLASHES_MAX).take_while(|octet| **octet == b'\\').count();
    if wanted == '\\' {
        [2, 4, 8, 16].into_iter().filter(|count| *count <= run).for_each(more);
    }
    let unit = |at: usize| match rest.get(at)? {
        b'u' | b'U' => Some((hex_of(rest.get(at + 1..at + 5)?)?, at + 5)),
        b'x' | b'X' => Some((hex_of(rest.get(at + 1..at + 3)?)?, at + 3)),
        _ => None,
    };
    if let Some((first, end)) = unit(run) {
        let mut units = [0; 2];
        let units = wanted.encode_utf16(&mut units);
        return match units {
            [_] => is_same(first, wanted).then_some(end),
            [high, low] if u32::from(*high) == first => {
                let run =
                    rest[end..].iter().take(BACKSLASHES_MAX).take_while(|octet| **octet == b'\\').count();
                let (second, end) = unit(end + run)?;
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

/// `&amp;`, `&#38;`, `&#x26;`.
fn of_html(rest: &[u8], character: Option<char>) -> Option<usize> {
    const LONGEST: usize = 10;
    let end = rest.iter().take(LONGEST).position(|octet| *octet == b';')?;
    let meant = match &rest[1..end] {
        b"amp" => u32::from(b'&'),
        b"lt" => u32::from(b'<'),
        b"gt" => u32::from(b'>'),
        b"quot" => u32::from(b'"'),
        b"apos" => u32::from(b'\''),
        [b'#', b'x' | b'X', digits @ ..] => hex_of(digits)?,
        [b'#', digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
        _ => return None,
    };
    is_same(meant, character?).then_some(end + 1)
}

fn is_same(said: u32, wanted: char) -> bool {
    char::from_u32(said).is_some_and(|said| said.eq_ignore_ascii_case(&wanted))
}

fn hex_of(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|octet| octet.is_ascii_hexdigit()))?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s\u{e9}c/r\"t+k\\y 1";

    fn needles(text: &str) -> Needles {
        let mut needles = Needles::default();
        needles.inject(text.as_bytes());
        needles
    }

    fn without(needles: &Needles, text: &str, is_cut: bool) -> String {
        String::from_utf8(needles.clone().taken_out(text.as_bytes(), is_cut).unwrap()).unwrap()
    }

    #[test]
    fn no_spelling_of_a_secret_stays() {
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
            // Of a text in base64 the characters stay that others have a part in.
            assert!(
                left.starts_with("before") && left.ends_with("after") && left.len() < 32,
                "{spelled}: {left}"
            );
        }
        let other = "nothing of it: s%C3%A9c/r, k\\\\y 1, %, \\, &, &#;, \\u, %4";
        assert_eq!(without(&needles, other, false), other);
    }

    #[test]
    fn one_that_is_cut_off_is_taken_out_as_far_as_it_goes() {
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
    fn what_repeats_itself_is_given_up_within_the_steps_and_never_shown() {
        // All places of a text of one character, each up to the last of what is looked for.
        let mut needles = Needles::default();
        needles.own(&[vec![b'a'; 8 << 10], b"Z".to_vec()].concat());
        let text = [vec![b'a'; 56 << 10], b".".to_vec()].concat();
        assert_eq!(needles.taken_out(&text, false), Err(TooLong));
        assert!(needles.is_used_up() && needles.steps <= STEPS_MAX + PLACES_MAX as u64, "{}", needles.steps);
        assert_eq!(needles.taken_out(b"nothing of it", false), Err(TooLong), "for the whole exchange");
        // Read in thousands of ways.
        let mut needles = Needles::default();
        needles.own(&[vec![b'\\'; 1_000], b"secret".to_vec()].concat());
        let text = [b"it is ".to_vec(), vec![b'\\'; 60 << 10], b"secret".to_vec()].concat();
        assert_eq!(needles.taken_out(&text, false).unwrap(), b"it is [redacted]");
        assert!(needles.steps < 1_000, "{}", needles.steps);
        // Of others all is looked at.
        let mut needles = Needles::default();
        needles.inject(b"hunter2-hunter3");
        let text = [b"%2Fh".repeat(16 << 10), b"hunter2-hunter3".to_vec()].concat();
        assert!(needles.taken_out(&text, false).unwrap().ends_with(b"%2Fh[redacted]"));
        assert!(needles.steps < STEPS_MAX / 16, "{}", needles.steps);
    }

    #[test]
    fn they_are_bounded_in_number_and_shown_to_nobody() {
        let mut needles = Needles::default();
        needles.own(b"short");
        assert!(needles.is_empty());
        for number in 0..1_000 {
            needles.own(format!("cookie-{number:04}").as_bytes());
        }
        assert!(needles.too_many && needles.all.len() == NEEDLES_MAX);
        assert!(!format!("{needles:?}").contains("cookie"));
    }
}
