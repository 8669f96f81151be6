//! Preparation of bodies for recording: decodes the content coding, and redacts secrets.

use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http_relay::access_log::CapturedBody;
use hyper::header::{CONTENT_ENCODING, HeaderMap};

use super::fields;
use super::needles::{RedactionTexts, TooLong};

/// A body prepared for recording.
pub(super) struct DecodedBody {
    pub(super) text: Vec<u8>,
    /// Whether the body was truncated.
    pub(super) is_cut: bool,
}

/// Prepares the body `captured` for recording, by its `headers`. `limits`: maximum bytes after decoding, and the names of fields to
/// redact.
///
/// # Errors
/// Reason why the body must not be recorded: it might contain secrets.
pub(super) fn shown(
    captured: &CapturedBody,
    headers: &HeaderMap,
    kind: &str,
    needles: &mut RedactionTexts,
    (most, names): (usize, &[String]),
) -> Result<DecodedBody, &'static str> {
    if needles.too_many {
        return Err("too many values must be redacted");
    }
    let mut shown = decoded(captured, headers, most)?;
    if needles.has_injected && !is_text(&shown) {
        return Err("the body is not text, and a credential was injected into the request");
    }
    if !needles.is_empty() {
        let without = needles.redacted(&shown.text, shown.is_cut);
        shown.text = without.map_err(|TooLong| "redaction takes too long")?;
    }
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_form = kind == "application/x-www-form-urlencoded";
    let is_json = kind.ends_with("/json") || kind.ends_with("+json") || kind.ends_with("/x-ndjson");
    if (is_form || is_json) && !names.is_empty() {
        let text = String::from_utf8_lossy(&shown.text);
        let without = match is_form {
            true => fields::joined(&fields::pairs(&text, names)),
            false => fields::json(&text, names),
        };
        shown.text = without.into_bytes();
    }
    Ok(shown)
}

/// Returns whether the body is text in which secrets can be found: UTF-8, possibly truncated within a character. UTF-16 contains
/// zero bytes.
fn is_text(shown: &DecodedBody) -> bool {
    let is_utf8 = std::str::from_utf8(&shown.text)
        .err()
        .is_none_or(|error| shown.is_cut && error.error_len().is_none());
    is_utf8 && !shown.text.contains(&0)
}

fn decoded(captured: &CapturedBody, headers: &HeaderMap, most: usize) -> Result<DecodedBody, &'static str> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let coding = match (codings.next(), codings.next()) {
        (None, _) => "identity".to_owned(),
        (Some(coding), None) => String::from_utf8_lossy(coding.as_bytes()).trim().to_ascii_lowercase(),
        _ => return Err("the body has two content codings"),
    };
    let is_cut = (captured.text.len() as u64) < captured.bytes;
    let text = captured.text.as_slice();
    match coding.as_str() {
        "identity" | "" => Ok(DecodedBody { text: text.to_vec(), is_cut }),
        "gzip" | "x-gzip" => Ok(read(MultiGzDecoder::new(text), most, is_cut)),
        "deflate" => Ok(read(ZlibDecoder::new(text), most, is_cut)),
        _ => Err("the content coding of the body is not supported"),
    }
}

/// Decodes a body up to `most` bytes or the first error. `is_cut`: whether the encoded body was truncated.
fn read(decoder: impl Read, most: usize, is_cut: bool) -> DecodedBody {
    let mut text = Vec::new();
    let mut limited = decoder.take(most as u64 + 1);
    let is_whole = limited.read_to_end(&mut text).is_ok() && text.len() <= most;
    text.truncate(most);
    DecodedBody { text, is_cut: is_cut || !is_whole }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    const MOST: usize = 1_024;

    fn needles() -> RedactionTexts {
        let mut needles = RedactionTexts::default();
        needles.inject(b"hunter2-hunter3");
        needles
    }

    fn gzipped(text: &[u8]) -> Vec<u8> {
        let mut into = GzEncoder::new(Vec::new(), Compression::best());
        into.write_all(text).unwrap();
        into.finish().unwrap()
    }

    fn of(text: &[u8], bytes: usize, coding: &str, kind: &str) -> Result<(String, bool), &'static str> {
        let mut headers = HeaderMap::new();
        if !coding.is_empty() {
            headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
        }
        let captured = CapturedBody { bytes: bytes as u64, text: text.to_vec() };
        let names = ["password".to_owned()];
        let shown = shown(&captured, &headers, kind, &mut needles(), (MOST, &names))?;
        Ok((String::from_utf8_lossy(&shown.text).into_owned(), shown.is_cut))
    }

    #[test]
    fn compressed_bodies_are_decoded_and_redacted_or_omitted() {
        let text = b"it is hunter2-hunter3, as said";
        let wanted = Ok(("it is [redacted], as said".to_owned(), false));
        let gzip = gzipped(text);
        assert_eq!(of(&gzip, gzip.len(), "gzip", ""), wanted);
        assert_eq!(of(&gzip, gzip.len(), "X-GZIP", ""), wanted);
        let mut into = ZlibEncoder::new(Vec::new(), Compression::best());
        into.write_all(text).unwrap();
        let deflated = into.finish().unwrap();
        assert_eq!(of(&deflated, deflated.len(), "deflate", ""), wanted);
        for coding in ["br", "zstd", "gzip, br", "compress"] {
            assert!(of(&gzip, gzip.len(), coding, "").is_err(), "{coding}");
        }
        // First a truncated body, then a body that is much longer after decoding.
        let (cut, is_cut) = of(&gzip[..gzip.len() - 12], gzip.len(), "gzip", "").unwrap();
        assert!(is_cut && !cut.contains("hunter2"), "{cut}");
        let (long, is_cut) = of(&gzipped(&vec![b'.'; 1 << 20]), 2_000, "gzip", "").unwrap();
        assert!(is_cut && long.len() == MOST);
        // First a compressed body without a declared coding, then a text with two bytes for each character.
        assert!(of(&gzip, gzip.len(), "", "").is_err());
        let wide: Vec<u8> = text.iter().flat_map(|byte| [*byte, 0]).collect();
        assert!(of(&wide, wide.len(), "", "").is_err());
    }

    #[test]
    fn fields_are_redacted_by_name_in_forms_and_json() {
        for (kind, text, wanted) in [
            (
                "application/json; charset=utf-8",
                r#"{"Password":"a","b":"hunter2-hunter3"}"#,
                r#"{"Password":"[redacted]","b":"[redacted]"}"#,
            ),
            ("application/problem+json", r#"{"password":"a"#, r#"{"password":"[redacted]""#),
            (
                "application/x-www-form-urlencoded",
                "password=a&b=hunter2%2Dhunter3",
                "password=[redacted]&b=[redacted]",
            ),
            ("text/plain", "password=a", "password=a"),
        ] {
            assert_eq!(of(text.as_bytes(), text.len(), "", kind), Ok((wanted.to_owned(), false)));
        }
    }
}
