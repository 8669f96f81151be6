//! XMPP (RFC 6120 sections 4 and 5).
//!
//! No XML parser is needed: only tag names matter before TLS, and a stream is one endless document.

use super::error::{StartTlsError, malformed, not_offered, refused};
use super::input::{Input, LINE_MAX};
use super::turn::{Action, ActionResult};

#[derive(Debug)]
pub(super) struct Xmpp {
    to: String,
    between_servers: bool,
    stage: Stage,
    offered: bool,
}

#[derive(Debug)]
enum Stage {
    Header,
    Features,
    InFeatures,
    GoAhead,
    /// Inside `<proceed>`, waiting for its end.
    Proceeding,
    /// Inside an error or failure; the next tag names the condition.
    Turned,
}

#[derive(Debug)]
struct Tag {
    /// Local name: the server chooses the prefix.
    name: Vec<u8>,
    kind: Kind,
}

#[derive(Debug, Eq, PartialEq)]
enum Kind {
    Open,
    Close,
    Empty,
}

impl Xmpp {
    pub(super) fn new(to: &str, between_servers: bool) -> Self {
        // Host names contain no XML special characters; such characters from a caller are removed.
        let to = to.chars().filter(|c| !matches!(c, '<' | '>' | '&' | '\'' | '"')).collect();
        Self { to, between_servers, stage: Stage::Header, offered: false }
    }

    pub(super) fn opening(&self) -> Vec<u8> {
        let space = if self.between_servers { "jabber:server" } else { "jabber:client" };
        format!(
            "<?xml version='1.0'?><stream:stream xmlns='{space}' \
             xmlns:stream='http://etherx.jabber.org/streams' to='{}' version='1.0'>",
            self.to
        )
        .into_bytes()
    }

    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        input.expect_first(|byte| byte == b'<' || byte.is_ascii_whitespace())?;
        let Some(tag) = tag(input)? else { return Ok(Action::Wait) };
        match self.stage {
            Stage::Header => self.header(&tag, input),
            Stage::Features => self.features(&tag),
            Stage::InFeatures => self.feature(&tag),
            Stage::GoAhead => self.go_ahead(&tag),
            Stage::Proceeding if tag.name == b"proceed" && tag.kind == Kind::Close => {
                Ok(Action::Ready(Vec::new()))
            }
            Stage::Proceeding => Err(malformed("content inside <proceed/>", &tag.name)),
            Stage::Turned => Err(refused(&tag.name)),
        }
    }

    fn header(&mut self, tag: &Tag, input: &Input) -> ActionResult {
        if tag.name != b"stream" || tag.kind != Kind::Open {
            return Err(input.wrong_protocol_error_for(&tag.name));
        }
        self.stage = Stage::Features;
        Ok(Action::Continue)
    }

    fn features(&mut self, tag: &Tag) -> ActionResult {
        match (tag.name.as_slice(), &tag.kind) {
            (b"features", Kind::Empty) => Err(not_offered(b"")),
            (b"features", Kind::Open) => {
                self.stage = Stage::InFeatures;
                Ok(Action::Continue)
            }
            _ => self.handle_refusal(tag),
        }
    }

    fn feature(&mut self, tag: &Tag) -> ActionResult {
        match (tag.name.as_slice(), &tag.kind) {
            (b"starttls", _) => self.offered = true,
            (b"features", Kind::Close) if self.offered => {
                self.stage = Stage::GoAhead;
                let request = b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
                return Ok(Action::Send(request.to_vec()));
            }
            (b"features", Kind::Close) => return Err(not_offered(b"")),
            _ => {}
        }
        Ok(Action::Continue)
    }

    fn go_ahead(&mut self, tag: &Tag) -> ActionResult {
        match (tag.name.as_slice(), &tag.kind) {
            (b"proceed", Kind::Empty) => Ok(Action::Ready(Vec::new())),
            (b"proceed", Kind::Open) => {
                self.stage = Stage::Proceeding;
                Ok(Action::Continue)
            }
            _ => self.handle_refusal(tag),
        }
    }

    fn handle_refusal(&mut self, tag: &Tag) -> ActionResult {
        match (tag.name.as_slice(), &tag.kind) {
            (b"error" | b"failure", Kind::Open) => {
                self.stage = Stage::Turned;
                Ok(Action::Continue)
            }
            (b"error" | b"failure" | b"stream", _) => Err(refused(&tag.name)),
            _ => Err(malformed("an unexpected element before TLS", &tag.name)),
        }
    }
}

/// Returns the next tag; skips text, declarations and comments.
fn tag(input: &mut Input) -> Result<Option<Tag>, StartTlsError> {
    loop {
        let text = input.pending().iter().take_while(|&&byte| byte != b'<').count();
        input.skip(text)?;
        let Some(end) = tag_end(input.pending())? else {
            // Requests one byte more than available, only to check the length limit.
            input.exact(input.pending().len() + 1, "tag")?;
            return Ok(None);
        };
        let Some(whole) = input.exact(end + 1, "tag")? else { return Ok(None) };
        input.check_total()?;
        let inside = &whole[1..end];
        match inside.first() {
            Some(b'?') => {}
            Some(b'!') if inside.starts_with(b"!--") => {}
            Some(b'!') => return Err(malformed("a document type declaration, which XMPP forbids", &whole)),
            _ => return Ok(Some(parse_tag(inside))),
        }
    }
}

/// Returns the end of the tag at the start of `bytes`, if it is complete.
fn tag_end(bytes: &[u8]) -> Result<Option<usize>, StartTlsError> {
    let until = |end: &[u8]| {
        let found = bytes.windows(end.len()).position(|window| window == end);
        Ok(found.map(|at| at + end.len() - 1))
    };
    if bytes.starts_with(b"<?") {
        return until(b"?>");
    }
    if bytes.starts_with(b"<!--") {
        return until(b"-->");
    }
    let mut quote = None;
    for (at, &byte) in bytes.iter().enumerate().take(LINE_MAX) {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'>') => return Ok(Some(at)),
            (None, _) => {}
        }
    }
    Ok(None)
}

fn parse_tag(inside: &[u8]) -> Tag {
    let (inside, kind) = match inside {
        [b'/', rest @ ..] => (rest, Kind::Close),
        [rest @ .., b'/'] => (rest, Kind::Empty),
        rest => (rest, Kind::Open),
    };
    let name = inside.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let local = name.rsplit(|&byte| byte == b':').next().unwrap_or_default();
    Tag { name: local.to_vec(), kind }
}
