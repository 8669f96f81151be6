//! Replies with a three-digit code and text, on one or more lines (RFC 5321 section 4.2.1, RFC 959 section 4.2).

use super::error::{StartTlsError, malformed};
use super::input::Input;

/// A complete reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// The text of each line, without the code.
    pub(super) lines: Vec<Vec<u8>>,
}

impl Reply {
    /// Returns code and text of the last line, for people.
    pub(super) fn server_text(&self) -> Vec<u8> {
        let mut server_text = format!("{} ", self.code).into_bytes();
        server_text.extend(self.lines.join(&b' '));
        server_text
    }
}

/// Collects the lines of a reply.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    code: Option<u16>,
    lines: Vec<Vec<u8>>,
    free_middle: bool,
}

impl ReplyReader {
    /// Creates a reader for FTP, where lines between the first and the last may contain any text.
    pub(super) fn for_ftp() -> Self {
        Self { free_middle: true, ..Self::default() }
    }

    /// Returns the next complete reply.
    pub(super) fn read(&mut self, input: &mut Input) -> Result<Option<Reply>, StartTlsError> {
        input.expect_first(|byte| byte.is_ascii_digit())?;
        loop {
            let Some(line) = input.line()? else { return Ok(None) };
            input.check_total()?;
            if let Some(reply) = self.line(line, input)? {
                return Ok(Some(reply));
            }
        }
    }

    fn line(&mut self, line: Vec<u8>, input: &Input) -> Result<Option<Reply>, StartTlsError> {
        let head = head(&line);
        let (code, last, text) = match (self.code, head) {
            (None, None) => return Err(input.wrong_protocol_error_for(&line)),
            (Some(first_code), Some((code, last))) if code == first_code => (code, last, text(&line)),
            (Some(first_code), _) if self.free_middle => (first_code, false, line),
            (Some(_), _) => return Err(malformed("a reply changes its code between lines", &line)),
            (None, Some((code, last))) => (code, last, text(&line)),
        };
        self.lines.push(text);
        self.code = Some(code);
        if !last {
            return Ok(None);
        }
        self.code = None;
        Ok(Some(Reply { code, lines: std::mem::take(&mut self.lines) }))
    }
}

/// Returns the code, and whether the line is the last of its reply.
fn head(line: &[u8]) -> Option<(u16, bool)> {
    let code = line.get(..3)?;
    if !code.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = code.iter().fold(0, |code, digit| 10 * code + u16::from(digit - b'0'));
    match line.get(3) {
        None | Some(b' ') => Some((code, true)),
        Some(b'-') => Some((code, false)),
        Some(_) => None,
    }
}

fn text(line: &[u8]) -> Vec<u8> {
    line.get(4..).unwrap_or_default().to_vec()
}
