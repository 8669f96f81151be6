//! Framing of HTTP/1 messages in a byte stream (RFC 9112 section 6). Detects ambiguous messages: lines that end without CR, and
//! `Content-Length` together with `Transfer-Encoding`. The HTTP library accepts both silently.

use std::ops::ControlFlow;

/// Maximum bytes of a header: more than the HTTP library accepts, so that the library's own error comes first.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// Whether a stream carries HTTP requests or responses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Messages {
    Requests,
    Responses,
}

/// An ambiguity that two HTTP parsers could resolve differently.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FramingAmbiguity {
    #[error("a line ends without CR")]
    BareLf,
    #[error("a message has both Content-Length and Transfer-Encoding")]
    TwoLengths,
    #[error("a message has several Content-Length values, or an invalid one")]
    Length,
    #[error("invalid chunked encoding (RFC 9112 section 7.1)")]
    Chunk,
    #[error("the header section is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
}

/// Result of parsing a slice of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// All bytes belong to a message that is not complete.
    More,
    /// The header of a message ends after this number of bytes.
    Head(usize),
    /// After this number of bytes, trailers or the end of the message follow.
    LastChunk(usize),
    /// A message ends after this number of bytes.
    End(usize),
}

/// Reason why parsing of a message stops.
#[derive(Clone, Copy, Debug)]
enum ParseStop {
    Head,
    LastChunk,
    End,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Head,
    Sized(u64),
    ChunkSize {
        size: u64,
        digits: u8,
        in_extension: bool,
    },
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// Opaque bytes: after a protocol upgrade, or in a body that ends with the connection.
    Opaque,
}

const CHUNK: State = State::ChunkSize { size: 0, digits: 0, in_extension: false };

/// Parser of message boundaries in one direction.
#[derive(Debug)]
pub(crate) struct Framing {
    messages: Messages,
    state: State,
    /// The part of the header that has been received.
    head: Vec<u8>,
    /// Bytes of the current header line, including its CR. In trailers: 1 if the line is not empty.
    line: usize,
    /// Whether the last byte of a line of chunk framing was a CR.
    has_cr: bool,
    /// Whether the last header requests or confirms a protocol upgrade.
    changes: bool,
    /// Whether the last request was HEAD, whose response has no body.
    is_head: bool,
}

/// Framing fields of a header.
#[derive(Debug, Default)]
struct Lengths {
    length: Option<u64>,
    /// `None` without a transfer coding; else whether the last coding is `chunked`.
    coding: Option<bool>,
    upgrade: bool,
}

impl Framing {
    pub(crate) fn new(messages: Messages) -> Self {
        Self {
            messages,
            state: State::Head,
            head: Vec::new(),
            line: 0,
            has_cr: false,
            changes: false,
            is_head: false,
        }
    }

    /// Returns whether the last complete message requests a protocol upgrade.
    pub(crate) fn requests_upgrade(&self) -> bool {
        self.changes
    }

    /// Returns whether the last request was HEAD.
    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    /// Returns whether the parser is in a header or expects one.
    pub(crate) fn in_head(&self) -> bool {
        self.state == State::Head
    }

    /// Returns whether the current header has begun. Empty lines before it do not count.
    pub(crate) fn has_begun_head(&self) -> bool {
        self.in_head() && !self.head.is_empty()
    }

    /// Marks all further bytes as opaque: they are not parsed.
    pub(crate) fn close(&mut self) {
        self.state = State::Opaque;
    }

    /// Returns whether all further bytes are opaque.
    pub(crate) fn is_opaque(&self) -> bool {
        self.state == State::Opaque
    }

    /// Sets whether the next response belongs to a HEAD request.
    pub(crate) fn set_response_to_head(&mut self, is_head: bool) {
        self.is_head = is_head;
    }

    /// Parses `bytes` up to the end of the next header or message.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<Progress, FramingAmbiguity> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (used, flow) = match self.state {
                State::Head => self.head(rest)?,
                State::Sized(left) => {
                    let (used, left) = skip(rest, left);
                    (used, self.sized(left))
                }
                State::ChunkData(left) => {
                    let (used, left) = skip(rest, left);
                    self.state = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                    (used, ControlFlow::Continue(()))
                }
                State::ChunkSize { .. } | State::ChunkEnd | State::Trailers => (1, self.byte(rest[0])?),
                State::Opaque => return Ok(Progress::More),
            };
            at += used;
            if let ControlFlow::Break(stop) = flow {
                return Ok(match stop {
                    ParseStop::Head => Progress::Head(at),
                    ParseStop::LastChunk => Progress::LastChunk(at),
                    ParseStop::End => Progress::End(at),
                });
            }
        }
        Ok(Progress::More)
    }

    fn sized(&mut self, left: u64) -> ControlFlow<ParseStop> {
        if left > 0 {
            self.state = State::Sized(left);
            return ControlFlow::Continue(());
        }
        self.ended()
    }

    fn ended(&mut self) -> ControlFlow<ParseStop> {
        self.state = State::Head;
        ControlFlow::Break(ParseStop::End)
    }

    /// Parses up to the end of a header line. At the end of the header, determines what follows.
    fn head(&mut self, bytes: &[u8]) -> Result<(usize, ControlFlow<ParseStop>), FramingAmbiguity> {
        let lf = bytes.iter().position(|byte| *byte == b'\n');
        let line = &bytes[..lf.unwrap_or(bytes.len())];
        if self.head.len() + line.len() > HEAD_BYTES_MAX {
            return Err(FramingAmbiguity::TooLong);
        }
        self.head.extend_from_slice(line);
        self.line += line.len();
        let Some(lf) = lf else { return Ok((bytes.len(), ControlFlow::Continue(()))) };
        if self.head.last() != Some(&b'\r') || self.line == 0 {
            return Err(FramingAmbiguity::BareLf);
        }
        let is_empty = self.line == 1;
        self.line = 0;
        if is_empty && self.head.len() == 1 {
            // Empty lines before a message are permitted (RFC 9112 section 2.2).
            self.head.clear();
            return Ok((lf + 1, ControlFlow::Continue(())));
        }
        self.head.push(b'\n');
        if !is_empty {
            return Ok((lf + 1, ControlFlow::Continue(())));
        }
        let head = std::mem::take(&mut self.head);
        let flow = self.finish_header(&head);
        self.head = head;
        self.head.clear();
        Ok((lf + 1, flow?))
    }

    /// Determines what follows a complete header. Breaks at the end of the header, or of a message without a body.
    fn finish_header(&mut self, head: &[u8]) -> Result<ControlFlow<ParseStop>, FramingAmbiguity> {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.next().unwrap_or_default();
        let lengths = lengths(lines)?;
        if lengths.length.is_some() && lengths.coding.is_some() {
            return Err(FramingAmbiguity::TwoLengths);
        }
        self.state = match self.messages {
            Messages::Requests => {
                let method = first.split(|byte| *byte == b' ').next().unwrap_or_default();
                self.is_head = method == b"HEAD";
                self.changes = lengths.upgrade || method == b"CONNECT";
                match lengths.coding {
                    // The HTTP library rejects a request whose last coding is not `chunked`.
                    Some(_) => CHUNK,
                    None => State::Sized(lengths.length.unwrap_or(0)),
                }
            }
            Messages::Responses => match first.split(|byte| *byte == b' ').nth(1) {
                Some(b"101") => State::Opaque,
                // An interim response: another header of the same response follows.
                Some([b'1', _, _]) => return Ok(ControlFlow::Break(ParseStop::Head)),
                Some(b"204" | b"304") => State::Sized(0),
                _ if self.is_head => State::Sized(0),
                _ => match (lengths.coding, lengths.length) {
                    (Some(true), _) => CHUNK,
                    (Some(false), _) | (None, None) => State::Opaque,
                    (None, Some(length)) => State::Sized(length),
                },
            },
        };
        match self.state {
            State::Sized(0) => Ok(self.ended()),
            _ => Ok(ControlFlow::Break(ParseStop::Head)),
        }
    }

    /// Parses one byte of chunk framing.
    fn byte(&mut self, byte: u8) -> Result<ControlFlow<ParseStop>, FramingAmbiguity> {
        if byte == b'\n' {
            if !std::mem::take(&mut self.has_cr) {
                return Err(FramingAmbiguity::BareLf);
            }
            return self.finish_line();
        }
        if self.has_cr {
            return Err(FramingAmbiguity::Chunk);
        }
        if byte == b'\r' {
            self.has_cr = true;
            return Ok(ControlFlow::Continue(()));
        }
        match &mut self.state {
            State::ChunkSize { size, digits, in_extension } if !*in_extension => {
                match char::from(byte).to_digit(16) {
                    Some(digit) if *digits < 16 => {
                        (*size, *digits) = (*size << 4 | u64::from(digit), *digits + 1);
                    }
                    None if matches!(byte, b';' | b' ' | b'\t') => *in_extension = true,
                    _ => return Err(FramingAmbiguity::Chunk),
                }
            }
            State::ChunkEnd => return Err(FramingAmbiguity::Chunk),
            State::Trailers => self.line = 1,
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Continues after a CRLF in chunk framing.
    fn finish_line(&mut self) -> Result<ControlFlow<ParseStop>, FramingAmbiguity> {
        self.state = match self.state {
            State::ChunkSize { digits: 0, .. } => return Err(FramingAmbiguity::Chunk),
            State::ChunkSize { size: 0, .. } => {
                self.state = State::Trailers;
                return Ok(ControlFlow::Break(ParseStop::LastChunk));
            }
            State::ChunkSize { size, .. } => State::ChunkData(size),
            State::ChunkEnd => CHUNK,
            _ if std::mem::take(&mut self.line) == 0 => return Ok(self.ended()),
            _ => State::Trailers,
        };
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns how many of the `left` bytes are in `bytes`, and how many remain.
fn skip(bytes: &[u8], left: u64) -> (usize, u64) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (used, left - used as u64)
}

fn lengths<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Lengths, FramingAmbiguity> {
    let mut found = Lengths::default();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = number(value).ok_or(FramingAmbiguity::Length)?;
            if found.length.replace(length).is_some_and(|before| before != length) {
                return Err(FramingAmbiguity::Length);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            found.coding = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            found.upgrade = true;
        }
    }
    Ok(found)
}

fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ends of all messages in `text`, parsed in steps of `step` bytes.
    fn ends(messages: Messages, text: &str, step: usize) -> Result<Vec<usize>, FramingAmbiguity> {
        let (mut framing, mut ends, mut before) = (Framing::new(messages), Vec::new(), 0);
        for part in text.as_bytes().chunks(step) {
            let mut at = 0;
            while at < part.len() {
                at += match framing.advance(&part[at..])? {
                    Progress::More => part.len() - at,
                    Progress::Head(used) | Progress::LastChunk(used) => used,
                    Progress::End(used) => {
                        ends.push(before + at + used);
                        used
                    }
                };
            }
            before += part.len();
        }
        Ok(ends)
    }

    #[test]
    fn message_ends_are_found_by_content_length_and_chunks() {
        use Messages::{Requests, Responses};
        let table: [(Messages, &[&str]); 6] = [
            (
                Requests,
                &[
                    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                    "\r\nPOST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\n\n\n\n\n",
                ],
            ),
            (
                Requests,
                &[
                    "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5;a=\"b\"\r\n\n\r\n\nx\r\nA\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
                    "GET / HTTP/1.1\r\n\r\n",
                ],
            ),
            (
                Requests,
                &["POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"],
            ),
            (
                Responses,
                &[
                    "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                    "HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n",
                ],
            ),
            (
                Responses,
                &[
                    "HTTP/1.1 204 x\r\n\r\n",
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
                ],
            ),
            (Responses, &[]),
        ];
        for (messages, parts) in table {
            let mut wanted = Vec::new();
            parts.iter().fold(0, |before, part| {
                wanted.push(before + part.len());
                before + part.len()
            });
            // A body that ends with the connection has no end in the stream.
            let text = parts.concat()
                + if messages == Responses { "HTTP/1.1 200 OK\r\n\r\na\nb\r\n\r\n" } else { "" };
            for step in [1, 2, 7, usize::MAX] {
                assert_eq!(ends(messages, &text, step).as_ref(), Ok(&wanted), "{step}: {text}");
            }
        }
    }

    #[test]
    fn ambiguous_framing_is_rejected() {
        use FramingAmbiguity::{BareLf, Chunk, Length, TwoLengths};
        let chunked = |rest: &str| format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
        let head = |lines: &str| format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n");
        for (text, why) in [
            (head("Content-Length: 3\r\nTransfer-Encoding: chunked"), TwoLengths),
            (head("Transfer-Encoding: chunked\r\ncontent-length: 3"), TwoLengths),
            (head("Transfer-Encoding: identity\r\nContent-Length : 0"), TwoLengths),
            (head("Content-Length: 3\r\nContent-Length: 4"), Length),
            (head("Content-Length: +3"), Length),
            (head("Content-Length: 3, 3"), Length),
            ("GET / HTTP/1.1\nHost: a\r\n\r\n".into(), BareLf),
            ("GET / HTTP/1.1\r\nHost: a\n\r\n".into(), BareLf),
            ("GET / HTTP/1.1\r\nHost: a\r\n\n".into(), BareLf),
            ("\nGET / HTTP/1.1\r\n\r\n".into(), BareLf),
            (chunked("1\na\r\n0\r\n\r\n"), BareLf),
            (chunked("1;a\nb\r\na\r\n0\r\n\r\n"), BareLf),
            (chunked("1\r\na\n0\r\n\r\n"), BareLf),
            (chunked("1\r\nab\r\n0\r\n\r\n"), Chunk),
            (chunked("0\r\nA: b\n\r\n"), BareLf),
            (chunked("0\r\n\n"), BareLf),
            (chunked("\r\n"), Chunk),
            (chunked("10000000000000000\r\n"), Chunk),
        ] {
            for step in [1, 3, usize::MAX] {
                assert_eq!(ends(Messages::Requests, &text, step), Err(why), "{step}: {text:?}");
            }
        }
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(ends(Messages::Responses, both, 1), Err(TwoLengths));
    }

    #[test]
    fn response_to_head_has_no_body() {
        let mut framing = Framing::new(Messages::Responses);
        framing.set_response_to_head(true);
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(framing.advance(text), Ok(Progress::End(text.len())));
        framing.set_response_to_head(false);
        assert_eq!(framing.advance(text), Ok(Progress::Head(text.len())));
    }
}
