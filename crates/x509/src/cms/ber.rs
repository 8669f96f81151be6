//! Conversion of messages from BER to DER: replaces indefinite lengths, and joins byte strings that streaming writers split into
//! pieces.

use crate::der::{DerError, Reader, Writer, tag};

/// Maximum nesting depth of elements. A certificate within a message has up to 12 levels.
const DEPTH_MAX: usize = 32;
/// Identifier of a constructed OCTET STRING.
const PIECES: u8 = tag::OCTET_STRING | CONSTRUCTED;
const CONSTRUCTED: u8 = 0x20;

/// An element whose end is not reached yet.
struct Open {
    tag: u8,
    /// Position in the output where the content starts.
    start: usize,
    /// Position in the input where the element ends; `None` for an indefinite length.
    end: Option<usize>,
}

/// Converts the single element in `ber` to DER: definite, shortest lengths, and byte strings in one piece.
pub(super) fn to_definite_der(ber: &[u8]) -> Result<Vec<u8>, DerError> {
    let mut out = Vec::with_capacity(ber.len());
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    loop {
        while let Some(done) = open.pop_if(|innermost| innermost.end == Some(at)) {
            close(&mut out, &done)?;
        }
        if open.is_empty() && at > 0 {
            let left = ber.len() - at;
            return if left == 0 { Ok(out) } else { Err(DerError::Trailing(left)) };
        }
        let limit = open.iter().rev().find_map(|element| element.end).unwrap_or(ber.len());
        let rest = ber.get(at..limit).ok_or(DerError::Truncated)?;
        if rest.starts_with(&[0, 0]) {
            match open.pop_if(|innermost| innermost.end.is_none()) {
                Some(done) => close(&mut out, &done)?,
                None => return Err(DerError::Malformed("end of contents")),
            }
            at += 2;
            continue;
        }
        match rest {
            [identifier, 0x80, ..] if identifier & CONSTRUCTED != 0 && identifier & 0x1f != 0x1f => {
                open.push(Open { tag: *identifier, start: out.len(), end: None });
                at += 2;
            }
            _ => {
                let element = Reader::new(rest).any()?;
                let end = at + element.whole.len();
                if element.tag & CONSTRUCTED == 0 {
                    write(&mut out, element.tag, element.content);
                    at = end;
                } else {
                    open.push(Open { tag: element.tag, start: out.len(), end: Some(end) });
                    at = end - element.content.len();
                }
            }
        }
        if open.len() > DEPTH_MAX {
            return Err(DerError::Malformed("nesting: too deep"));
        }
    }
}

/// Inserts the header before the element's content, which is at the end of the output.
fn close(out: &mut Vec<u8>, element: &Open) -> Result<(), DerError> {
    let content = out.split_off(element.start);
    if element.tag != PIECES {
        write(out, element.tag, &content);
        return Ok(());
    }
    let whole = pieces(&content)?;
    write(out, tag::OCTET_STRING, &whole);
    Ok(())
}

/// Joins the pieces of a byte string in `content`.
pub(super) fn pieces(content: &[u8]) -> Result<Vec<u8>, DerError> {
    let mut whole = Vec::with_capacity(content.len());
    let mut reader = Reader::new(content);
    while !reader.is_empty() {
        whole.extend_from_slice(reader.expect(tag::OCTET_STRING)?.content);
    }
    Ok(whole)
}

fn write(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let mut w = Writer::with_capacity(content.len() + 8);
    w.element(tag, content);
    out.extend_from_slice(&w.finish());
}
