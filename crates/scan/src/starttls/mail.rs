//! Line-based protocols: SMTP, LMTP, IMAP, POP3, ManageSieve, FTP, NNTP.

use super::error::{malformed, not_offered, refused};
use super::input::Input;
use super::reply::{Reply, ReplyReader};
use super::turn::{Action, ActionResult};

/// Client name for protocols that require one (RFC 5321 section 4.1.1.1): a reserved name (RFC 6761 section 6.4).
const CLIENT_NAME: &str = "bulla.invalid";

/// SMTP (RFC 3207) and LMTP (RFC 2033), which differ in the greeting command.
#[derive(Debug)]
pub(super) struct Smtp {
    stage: SmtpStage,
    lmtp: bool,
    replies: ReplyReader,
}

#[derive(Debug)]
enum SmtpStage {
    Greeting,
    Extensions,
    GoAhead,
}

impl Smtp {
    pub(super) fn new(lmtp: bool) -> Self {
        Self { stage: SmtpStage::Greeting, lmtp, replies: ReplyReader::default() }
    }

    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        let Some(reply) = self.replies.read(input)? else { return Ok(Action::Wait) };
        match self.stage {
            SmtpStage::Greeting => self.on_greeting(&reply),
            SmtpStage::Extensions => self.extensions(&reply),
            SmtpStage::GoAhead if reply.code == 220 => Ok(Action::Ready(Vec::new())),
            // The server does not know the command, although it announced it.
            SmtpStage::GoAhead if matches!(reply.code, 500 | 502) => Err(not_offered(&reply.server_text())),
            SmtpStage::GoAhead => Err(refused(&reply.server_text())),
        }
    }

    fn on_greeting(&mut self, reply: &Reply) -> ActionResult {
        if reply.code != 220 {
            return Err(refused(&reply.server_text()));
        }
        self.stage = SmtpStage::Extensions;
        let verb = if self.lmtp { "LHLO" } else { "EHLO" };
        Ok(Action::Send(format!("{verb} {CLIENT_NAME}\r\n").into_bytes()))
    }

    fn extensions(&mut self, reply: &Reply) -> ActionResult {
        match reply.code {
            250 => {}
            // Servers without RFC 1869 support no extensions.
            500..=504 => return Err(not_offered(&reply.server_text())),
            _ => return Err(refused(&reply.server_text())),
        }
        // The first line contains the server's name.
        let offered = reply.lines.iter().skip(1).any(|line| first_word_is(line, b"STARTTLS"));
        if !offered {
            return Err(not_offered(b""));
        }
        self.stage = SmtpStage::GoAhead;
        Ok(Action::Send(b"STARTTLS\r\n".to_vec()))
    }
}

/// FTP (RFC 4217 section 4).
#[derive(Debug)]
pub(super) struct Ftp {
    tls_requested: bool,
    replies: ReplyReader,
}

impl Default for Ftp {
    fn default() -> Self {
        Self { tls_requested: false, replies: ReplyReader::for_ftp() }
    }
}

impl Ftp {
    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        let Some(reply) = self.replies.read(input)? else { return Ok(Action::Wait) };
        match (self.tls_requested, reply.code) {
            // "Service ready in nnn minutes": the actual greeting follows later.
            (false, 120) => Ok(Action::Continue),
            (false, 220) => {
                self.tls_requested = true;
                Ok(Action::Send(b"AUTH TLS\r\n".to_vec()))
            }
            (false, _) => Err(refused(&reply.server_text())),
            (true, 234) => Ok(Action::Ready(Vec::new())),
            // Unknown command or mechanism; servers without TLS also respond to any command except USER with 530 "please log in".
            (true, 500 | 501 | 502 | 504 | 530) => Err(not_offered(&reply.server_text())),
            (true, _) => Err(refused(&reply.server_text())),
        }
    }
}

/// IMAP (RFC 9051 section 6.2.1).
#[derive(Debug, Default)]
pub(super) struct Imap {
    stage: ImapStage,
    offered: bool,
}

#[derive(Debug, Default)]
enum ImapStage {
    #[default]
    Greeting,
    Capability,
    GoAhead,
}

impl Imap {
    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        input.expect_first(|byte| byte == b'*')?;
        let Some(line) = input.line()? else { return Ok(Action::Wait) };
        match self.stage {
            ImapStage::Greeting => self.on_greeting(&line, input),
            ImapStage::Capability => self.capability(&line),
            ImapStage::GoAhead => go_ahead(&line),
        }
    }

    fn on_greeting(&mut self, line: &[u8], input: &Input) -> ActionResult {
        let status = line.strip_prefix(b"* ").unwrap_or_default();
        if first_word_is(status, b"OK") {
            self.stage = ImapStage::Capability;
            return Ok(Action::Send(b"a1 CAPABILITY\r\n".to_vec()));
        }
        // After PREAUTH the command is not allowed (RFC 9051 section 7.1.4).
        if first_word_is(status, b"BYE") || first_word_is(status, b"PREAUTH") {
            return Err(refused(line));
        }
        Err(input.wrong_protocol_error_for(line))
    }

    fn capability(&mut self, line: &[u8]) -> ActionResult {
        if let Some(untagged) = line.strip_prefix(b"* ") {
            if first_word_is(untagged, b"BYE") {
                return Err(refused(line));
            }
            if first_word_is(untagged, b"CAPABILITY") {
                self.offered |= has_word(untagged, b"STARTTLS");
            }
            return Ok(Action::Continue);
        }
        match status_of(line, b"a1 ") {
            Some(true) if self.offered => {
                self.stage = ImapStage::GoAhead;
                Ok(Action::Send(b"a2 STARTTLS\r\n".to_vec()))
            }
            Some(true) => Err(not_offered(b"")),
            Some(false) => Err(refused(line)),
            None => Err(malformed("not an answer to CAPABILITY", line)),
        }
    }
}

fn go_ahead(line: &[u8]) -> ActionResult {
    if let Some(untagged) = line.strip_prefix(b"* ") {
        return if first_word_is(untagged, b"BYE") { Err(refused(line)) } else { Ok(Action::Continue) };
    }
    match status_of(line, b"a2 ") {
        Some(true) => Ok(Action::Ready(Vec::new())),
        Some(false) => Err(refused(line)),
        None => Err(malformed("not an answer to STARTTLS", line)),
    }
}

/// Returns whether the line with the client's tag has the status OK; `None` for another tag or without a status.
fn status_of(line: &[u8], tag: &[u8]) -> Option<bool> {
    let status = line.strip_prefix(tag)?;
    let begins_with = |word: &[u8]| first_word_is(status, word);
    if begins_with(b"OK") { Some(true) } else { (begins_with(b"NO") || begins_with(b"BAD")).then_some(false) }
}

/// POP3 (RFC 2595 section 4, RFC 2449).
#[derive(Debug, Default)]
pub(super) struct Pop3 {
    stage: Pop3Stage,
    offered: bool,
}

#[derive(Debug, Default)]
enum Pop3Stage {
    #[default]
    Greeting,
    Capa,
    CapaList,
    GoAhead {
        announced: bool,
    },
}

impl Pop3 {
    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        input.expect_first(|byte| matches!(byte, b'+' | b'-'))?;
        let Some(line) = input.line()? else { return Ok(Action::Wait) };
        if matches!(self.stage, Pop3Stage::CapaList) {
            return self.capability(&line);
        }
        let ok = if first_word_is(&line, b"+OK") {
            true
        } else if first_word_is(&line, b"-ERR") {
            false
        } else if matches!(self.stage, Pop3Stage::Greeting) {
            return Err(input.wrong_protocol_error_for(&line));
        } else {
            return Err(malformed("neither +OK nor -ERR", &line));
        };
        self.on_status(ok, &line)
    }

    fn on_status(&mut self, ok: bool, line: &[u8]) -> ActionResult {
        match (&self.stage, ok) {
            (Pop3Stage::Greeting, true) => {
                self.stage = Pop3Stage::Capa;
                Ok(Action::Send(b"CAPA\r\n".to_vec()))
            }
            (Pop3Stage::Greeting, false) => Err(refused(line)),
            (Pop3Stage::Capa, true) => {
                self.stage = Pop3Stage::CapaList;
                Ok(Action::Continue)
            }
            // Servers without RFC 2449 may still support STLS.
            (Pop3Stage::Capa, false) => Ok(self.request_tls(false)),
            (Pop3Stage::GoAhead { .. }, true) => Ok(Action::Ready(Vec::new())),
            (Pop3Stage::GoAhead { announced: true }, false) => Err(refused(line)),
            (_, _) => Err(not_offered(line)),
        }
    }

    fn capability(&mut self, line: &[u8]) -> ActionResult {
        if line == b"." {
            return if self.offered { Ok(self.request_tls(true)) } else { Err(not_offered(b"")) };
        }
        self.offered |= first_word_is(line, b"STLS");
        Ok(Action::Continue)
    }

    fn request_tls(&mut self, announced: bool) -> Action {
        self.stage = Pop3Stage::GoAhead { announced };
        Action::Send(b"STLS\r\n".to_vec())
    }
}

/// ManageSieve (RFC 5804 sections 1.7 and 2.2): the greeting is the list of capabilities, each a
/// quoted string or a literal.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    tls_requested: bool,
    offered: bool,
    /// Remaining bytes of a literal to skip.
    literal: usize,
    /// Whether the line continues after a literal and is therefore not a status line.
    continued: bool,
}

impl Sieve {
    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        input.expect_first(|byte| matches!(byte, b'"' | b'{') || byte.is_ascii_alphabetic())?;
        if self.literal > 0 {
            self.literal -= input.skip(self.literal)?;
            if self.literal > 0 {
                return Ok(Action::Wait);
            }
        }
        let Some(line) = input.line()? else { return Ok(Action::Wait) };
        let continued = std::mem::take(&mut self.continued);
        if let Some(length) = literal_length(&line) {
            (self.literal, self.continued) = (length, true);
            return Ok(Action::Continue);
        }
        let begins_with = |word: &[u8]| first_word_is(&line, word);
        if continued || line.is_empty() || line.starts_with(b"\"") {
            self.offered |= !continued && begins_with(b"\"STARTTLS\"");
            Ok(Action::Continue)
        } else if begins_with(b"OK") {
            self.ok()
        } else if begins_with(b"NO") || begins_with(b"BYE") {
            Err(refused(&line))
        } else if self.tls_requested {
            Err(malformed("neither OK nor NO", &line))
        } else {
            Err(input.wrong_protocol_error_for(&line))
        }
    }

    fn ok(&mut self) -> ActionResult {
        if self.tls_requested {
            return Ok(Action::Ready(Vec::new()));
        }
        if !self.offered {
            return Err(not_offered(b""));
        }
        self.tls_requested = true;
        Ok(Action::Send(b"STARTTLS\r\n".to_vec()))
    }
}

/// Returns the number in a `{n}` or `{n+}` at the end of a line (RFC 5804 section 1.2).
fn literal_length(line: &[u8]) -> Option<usize> {
    let open = line.iter().rposition(|&byte| byte == b'{')?;
    let inside = line[open + 1..].strip_suffix(b"}")?;
    let digits = inside.strip_suffix(b"+").unwrap_or(inside);
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// NNTP (RFC 4642).
#[derive(Debug, Default)]
pub(super) struct Nntp {
    stage: NntpStage,
    offered: bool,
}

#[derive(Debug, Default)]
enum NntpStage {
    #[default]
    Greeting,
    Capabilities,
    CapabilityList,
    GoAhead,
}

impl Nntp {
    pub(super) fn turn(&mut self, input: &mut Input) -> ActionResult {
        input.expect_first(|byte| byte.is_ascii_digit())?;
        let Some(line) = input.line()? else { return Ok(Action::Wait) };
        if matches!(self.stage, NntpStage::CapabilityList) {
            return self.capability(&line);
        }
        let Some(code) = parse_reply_code(&line) else {
            return Err(match self.stage {
                NntpStage::Greeting => input.wrong_protocol_error_for(&line),
                _ => malformed("a reply without a code", &line),
            });
        };
        match (&self.stage, code) {
            (NntpStage::Greeting, 200 | 201) => {
                self.stage = NntpStage::Capabilities;
                Ok(Action::Send(b"CAPABILITIES\r\n".to_vec()))
            }
            (NntpStage::Capabilities, 101) => {
                self.stage = NntpStage::CapabilityList;
                Ok(Action::Continue)
            }
            // Servers without RFC 3977 have no capability list, but may support STARTTLS.
            (NntpStage::Capabilities, 500) => Ok(self.request_tls()),
            (NntpStage::GoAhead, 382) => Ok(Action::Ready(Vec::new())),
            (NntpStage::GoAhead, 500 | 501 | 503) => Err(not_offered(&line)),
            _ => Err(refused(&line)),
        }
    }

    fn capability(&mut self, line: &[u8]) -> ActionResult {
        if line == b"." {
            return if self.offered { Ok(self.request_tls()) } else { Err(not_offered(b"")) };
        }
        self.offered |= first_word_is(line, b"STARTTLS");
        Ok(Action::Continue)
    }

    fn request_tls(&mut self) -> Action {
        self.stage = NntpStage::GoAhead;
        Action::Send(b"STARTTLS\r\n".to_vec())
    }
}

fn parse_reply_code(line: &[u8]) -> Option<u16> {
    let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit))?;
    let ends = line.get(3).is_none_or(|&byte| byte == b' ');
    ends.then(|| code.iter().fold(0, |code, digit| 10 * code + u16::from(digit - b'0')))
}

/// Returns whether the first word is `word`, ignoring case.
fn first_word_is(line: &[u8], word: &[u8]) -> bool {
    words_of(line).next().is_some_and(|first| first.eq_ignore_ascii_case(word))
}

fn has_word(line: &[u8], word: &[u8]) -> bool {
    words_of(line).any(|other| other.eq_ignore_ascii_case(word))
}

fn words_of(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}
