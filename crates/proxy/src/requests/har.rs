//! Recordings in HAR 1.2: one file for each hour, complete after each write.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use http_relay::access_log::{CapturedBody, Sink, private};
use hyper::header::HeaderMap;
use hyper::{StatusCode, Version};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use zeroize::Zeroizing;

use super::har_parts::{self, RequestPart, ResponsePart, entry_of};
use super::needles::{REDACTED, RedactionTexts, TooLong};
use super::{body, fields};

/// End of a recording file. The next entry overwrites this text.
const TAIL: &str = "\n]}}\n";
/// Prefix of the names of recording files. Files without this prefix are never deleted.
const NAMED: &str = "bulla-proxy-";
/// A recording file is closed when it reaches one part in `PARTS` of the total limit. When the oldest file is removed, the other
/// files remain.
const PARTS: u64 = 8;
/// Maximum recording files of one hour. The numbers in the file names give the order of the files.
const NUMBERS_MAX: u32 = 100_000;
/// Header fields that are always redacted, in addition to configured and injected ones.
const HIDDEN: [&str; 4] = ["authorization", "cookie", "set-cookie", "proxy-authorization"];

/// Base64 with or without padding, as clients write it.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Options of recordings: folder, limits, and values to redact.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Folder of the recordings; created if missing.
    pub folder: PathBuf,
    /// Maximum recorded bytes of a body, in each direction; the rest is omitted.
    pub body_bytes_max: usize,
    /// Maximum bytes of all files; the oldest are removed.
    pub bytes_max: u64,
    /// Names of header fields to redact, in addition to the fixed ones.
    pub redact_headers: Vec<String>,
    /// Names of query parameters to redact.
    pub redact_query: Vec<String>,
}

/// A request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) began: Timestamp,
    pub(super) wait_ms: f64,
    pub(super) receive_ms: f64,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) version: Version,
    pub(super) request: HeaderMap,
    pub(super) request_body: CapturedBody,
    pub(super) status: Option<StatusCode>,
    pub(super) response: HeaderMap,
    pub(super) answered: CapturedBody,
    /// Secrets to redact, among them injected credentials.
    pub(super) needles: RedactionTexts,
    pub(super) rules: Vec<std::sync::Arc<str>>,
}

/// A finished recording that is not written yet. Its slot is freed once it is written.
pub(super) struct Recorded {
    exchange: Box<Exchange>,
    _slot: OwnedSemaphorePermit,
}

impl Recorded {
    pub(super) fn new(exchange: Exchange, slot: OwnedSemaphorePermit) -> Self {
        Self { exchange: Box::new(exchange), _slot: slot }
    }
}

/// Folder of recordings, with the file that is being written.
pub(super) struct HarFolder {
    options: RecordOptions,
    current: Option<Current>,
    /// Completed files, oldest first.
    done: VecDeque<(PathBuf, u64)>,
}

struct Current {
    path: PathBuf,
    file: File,
    bytes: u64,
    is_empty: bool,
    hour: i64,
}

impl HarFolder {
    pub(super) fn new(options: RecordOptions) -> Self {
        Self { options, current: None, done: VecDeque::new() }
    }

    fn file(&mut self, hour: i64) -> io::Result<&mut Current> {
        let most = self.options.bytes_max / PARTS;
        // An exchange that began in the previous hour is written to the current file.
        let hour = self.current.as_ref().map_or(hour, |current| current.hour.max(hour));
        if self.current.as_ref().is_some_and(|current| current.hour != hour || current.bytes >= most) {
            self.finish();
        }
        if self.current.is_none() {
            self.current = Some(self.begin(hour)?);
        }
        self.current.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn finish(&mut self) {
        if let Some(current) = self.current.take() {
            self.done.push_back((current.path, current.bytes));
        }
    }

    fn begin(&mut self, hour: i64) -> io::Result<Current> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.options.folder)?;
        self.scan_folder()?;
        let stamp =
            Timestamp::from_second(hour * 3_600).unwrap_or_default().strftime("%Y%m%dT%HZ").to_string();
        let creator = har_parts::creator();
        let head = format!("{{\"log\":{{\"version\":\"1.2\",\"creator\":{creator},\"entries\":[{TAIL}");
        // After the highest number of this hour: reusing a lower number would make the newest file the oldest.
        let first = self.done.iter().filter_map(|(path, _)| number_of(path, &stamp)).max();
        for number in first.map_or(0, |last| last + 1)..NUMBERS_MAX {
            let path = self.options.folder.join(format!("{NAMED}{stamp}-{number:05}.har"));
            match private().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    if let Err(error) = file.write_all_at(head.as_bytes(), 0) {
                        // A file with a partial header is useless and is removed.
                        let _ = std::fs::remove_file(&path);
                        return Err(error);
                    }
                    return Ok(Current { path, file, bytes: head.len() as u64, is_empty: true, hour });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Finds existing files, including files of earlier processes.
    fn scan_folder(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.options.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(NAMED) && name.ends_with(".har") {
                found.push((entry.path(), entry.metadata()?.len()));
            }
        }
        found.sort();
        self.done = found.into();
        Ok(())
    }

    /// Adds an entry. If that fails, the file is restored and closed.
    fn add(&mut self, exchange: &Exchange) -> io::Result<()> {
        let entry = self.entry(exchange).to_string();
        let current = self.file(exchange.began.as_second().div_euclid(3_600))?;
        let before = if current.is_empty { "\n" } else { ",\n" };
        let at = current.bytes - TAIL.len() as u64;
        let text = format!("{before}{entry}{TAIL}");
        if let Err(error) = current.file.write_all_at(text.as_bytes(), at) {
            let taken_back = undo_write(&current.file, at);
            self.finish();
            return taken_back.and(Err(error));
        }
        current.bytes = at + text.len() as u64;
        current.is_empty = false;
        Ok(())
    }

    /// Removes the oldest files until the rest fits the limit.
    fn delete_oldest_files(&mut self) -> io::Result<()> {
        let current = self.current.as_ref().map_or(0, |current| current.bytes);
        let mut all = current + self.done.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while all > self.options.bytes_max
            && let Some((path, bytes)) = self.done.pop_front()
        {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => all -= bytes,
            }
        }
        Ok(())
    }

    fn hides(&self, name: &str) -> bool {
        HIDDEN.contains(&name) || self.options.redact_headers.iter().any(|one| one.eq_ignore_ascii_case(name))
    }

    fn headers(&self, headers: &HeaderMap, needles: &mut RedactionTexts) -> Value {
        let all = headers.iter().map(|(name, value)| {
            let value = match name.as_str() {
                name if value.is_sensitive() || self.hides(name) => REDACTED.to_owned(),
                "location" | "content-location" | "referer" => {
                    self.url(&searched(value.as_bytes(), needles)).0
                }
                _ => searched(value.as_bytes(), needles),
            };
            json!({ "name": name.as_str(), "value": value })
        });
        all.collect()
    }

    /// Returns URL and query, redacted. A fragment is removed if it could contain a token (RFC 6749 section 4.2.2).
    fn url(&self, url: &str) -> (String, Value) {
        let (url, fragment) = match url.split_once('#') {
            Some((url, fragment)) if fragment.contains('=') => (url, format!("#{REDACTED}")),
            Some((url, fragment)) => (url, format!("#{fragment}")),
            None => (url, String::new()),
        };
        let Some((before, query)) = url.split_once('?') else {
            return (format!("{url}{fragment}"), json!([]));
        };
        let pairs = fields::pairs(query, &self.options.redact_query);
        let all =
            pairs.iter().map(|(name, value)| json!({ "name": name, "value": value.unwrap_or_default() }));
        (format!("{before}?{}{fragment}", fields::joined(&pairs)), all.collect())
    }

    /// Collects values to redact wherever they appear: injected credentials and redacted values.
    fn needles(&self, exchange: &Exchange) -> RedactionTexts {
        let mut needles = exchange.needles.clone();
        for (name, value) in exchange.request.iter().chain(&exchange.response) {
            if !self.hides(name.as_str()) {
                continue;
            }
            let value = value.as_bytes();
            match name.as_str() {
                "cookie" | "set-cookie" => {
                    let first = if name == "cookie" { usize::MAX } else { 1 };
                    for pair in value.split(|byte| *byte == b';').take(first) {
                        let value = pair.iter().position(|byte| *byte == b'=').map(|at| &pair[at + 1..]);
                        needles.add_value(value.unwrap_or_default().trim_ascii());
                    }
                }
                _ => {
                    needles.add_value(value);
                    // The part after the scheme of an Authorization value.
                    let space = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
                    let (scheme, credential) = (&value[..space], value[space..].trim_ascii());
                    needles.add_value(credential);
                    if scheme.eq_ignore_ascii_case(b"basic")
                        && let Ok(pair) = PADDED_OR_NOT.decode(credential).map(Zeroizing::new)
                    {
                        let colon = pair.iter().position(|byte| *byte == b':');
                        needles.add_value(colon.map_or(&[], |at| &pair[at + 1..]));
                        needles.add_value(&pair);
                    }
                }
            }
        }
        let query = exchange.url.split_once('?').map_or("", |(_, query)| query);
        let query = query.split_once('#').map_or(query, |(query, _)| query);
        let shown = fields::pairs(query, &self.options.redact_query);
        for ((_, value), (_, shown)) in fields::pairs(query, &[]).into_iter().zip(shown) {
            if value != shown {
                needles.add_value(value.unwrap_or_default().as_bytes());
            }
        }
        needles
    }

    fn entry(&self, exchange: &Exchange) -> Value {
        let mut needles = self.needles(exchange);
        let version = format!("{:?}", exchange.version);
        let (url, query) = self.url(&searched(exchange.url.as_bytes(), &mut needles));
        let part = RequestPart {
            method: &exchange.method,
            url: &url,
            version: &version,
            bytes: exchange.request_body.bytes,
        };
        let mut request = part.json(&self.headers(&exchange.request, &mut needles), &query);
        if exchange.request_body.bytes > 0 {
            let mut post = self.body(&exchange.request_body, &exchange.request, &mut needles);
            post["params"] = json!([]);
            request["postData"] = post;
        }
        let headers = self.headers(&exchange.response, &mut needles);
        let location = exchange.response.get("location");
        let location = location.filter(|to| !to.is_sensitive() && !self.hides("location"));
        let location = location.map_or_else(String::new, |to| searched(to.as_bytes(), &mut needles));
        let mut content = self.body(&exchange.answered, &exchange.response, &mut needles);
        content["size"] = json!(exchange.answered.bytes);
        let part =
            ResponsePart { status: exchange.status, version: &version, bytes: exchange.answered.bytes };
        let response = part.json(&headers, &content, &self.url(&location).0);
        let mut entry = entry_of(exchange.began, (exchange.wait_ms, exchange.receive_ms), request, response);
        entry["_rules"] = json!(exchange.rules);
        if needles.has_exceeded_limit() {
            entry["comment"] = json!("incomplete: redaction takes too long");
        }
        entry
    }

    /// Returns the type and text of a body, or the reason why it is omitted.
    fn body(&self, recorded: &CapturedBody, headers: &HeaderMap, needles: &mut RedactionTexts) -> Value {
        let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let shown_kind =
            if self.hides("content-type") { REDACTED.to_owned() } else { searched(kind.as_bytes(), needles) };
        let mut body = json!({ "mimeType": shown_kind });
        let limits = (self.options.body_bytes_max, self.options.redact_query.as_slice());
        let shown = match body::shown(recorded, headers, kind, needles, limits) {
            Ok(shown) => shown,
            Err(why) => {
                body["comment"] = json!(format!("not recorded: {why}"));
                body["text"] = json!("");
                return body;
            }
        };
        match String::from_utf8(shown.text) {
            Ok(text) => body["text"] = json!(text),
            Err(binary) => {
                body["text"] = json!(STANDARD.encode(binary.as_bytes()));
                body["encoding"] = json!("base64");
            }
        }
        if shown.is_cut {
            body["comment"] = json!(format!("the first {} of {} bytes", recorded.text.len(), recorded.bytes));
        }
        body
    }
}

/// Returns a line of text with secrets redacted.
fn searched(text: &[u8], needles: &mut RedactionTexts) -> String {
    match needles.redacted(text, false) {
        Ok(without) => String::from_utf8_lossy(&without).into_owned(),
        Err(TooLong) => REDACTED.to_owned(),
    }
}

/// Returns the number in the name of a recording file of the hour `stamp`.
fn number_of(path: &Path, stamp: &str) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(NAMED)?.strip_prefix(stamp)?;
    name.strip_prefix('-')?.strip_suffix(".har")?.parse().ok().filter(|number| *number < NUMBERS_MAX)
}

/// Undoes a partial write: writes [`TAIL`] at its old position `at`, which needs no new disk space.
fn undo_write(file: &File, at: u64) -> io::Result<()> {
    file.write_all_at(TAIL.as_bytes(), at)?;
    file.set_len(at + TAIL.len() as u64)
}

impl Sink for HarFolder {
    type Item = Recorded;
    const TASK: &'static str = "proxy-recorder";

    fn write(&mut self, items: &[Self::Item]) -> (usize, io::Result<()>) {
        for (written, item) in items.iter().enumerate() {
            if let Err(error) = self.add(&item.exchange) {
                return (written, Err(error));
            }
            if let Err(error) = self.delete_oldest_files() {
                return (written + 1, Err(error));
            }
        }
        (items.len(), Ok(()))
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(dir: &Path, bytes_max: u64) -> HarFolder {
        HarFolder::new(RecordOptions {
            folder: dir.to_owned(),
            body_bytes_max: 1 << 10,
            bytes_max,
            redact_headers: Vec::new(),
            redact_query: vec!["access_token".to_owned()],
        })
    }

    fn exchange(url: &str) -> Exchange {
        Exchange {
            began: Timestamp::UNIX_EPOCH,
            wait_ms: 1.0,
            receive_ms: 1.0,
            method: "GET".to_owned(),
            url: url.to_owned(),
            version: Version::HTTP_11,
            request: HeaderMap::new(),
            request_body: CapturedBody::default(),
            status: Some(StatusCode::OK),
            response: HeaderMap::new(),
            answered: CapturedBody::default(),
            needles: RedactionTexts::default(),
            rules: Vec::new(),
        }
    }

    /// Returns the URLs of all entries, file by file, and checks that each file is complete.
    fn urls(dir: &Path) -> Vec<String> {
        let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            let all: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let urls = all["log"]["entries"].as_array().unwrap().iter();
            urls.map(|entry| entry["request"]["url"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        files.iter().flat_map(read).collect()
    }

    #[test]
    fn oldest_entries_are_deleted_and_the_newest_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut har = folder(dir.path(), 8 << 10);
        for number in 0..40 {
            har.add(&exchange(&format!("https://a/{number}"))).unwrap();
            har.delete_oldest_files().unwrap();
            let recorded = urls(dir.path());
            assert_eq!(recorded.last().unwrap(), &format!("https://a/{number}"), "{recorded:?}");
        }
        let recorded = urls(dir.path());
        let wanted: Vec<_> = (40 - recorded.len()..40).map(|number| format!("https://a/{number}")).collect();
        assert_eq!(recorded, wanted);
        assert!((4..20).contains(&recorded.len()), "{}", recorded.len());
    }

    #[test]
    fn failed_write_leaves_a_valid_file_and_the_next_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let mut har = folder(dir.path(), 1 << 20);
        har.add(&exchange("https://a/1")).unwrap();
        let current = har.current.as_mut().unwrap();
        // State after a disk became full in the middle of an entry.
        let (at, whole) =
            (current.bytes - TAIL.len() as u64, std::fs::read_to_string(&current.path).unwrap());
        current.file.write_all_at(b",\n{\"startedDateTime\":\"19", at).unwrap();
        undo_write(&current.file, at).unwrap();
        assert_eq!(std::fs::read_to_string(&current.path).unwrap(), whole);
        // A file that cannot be written to.
        current.file = File::open(&current.path).unwrap();
        har.add(&exchange("https://a/2")).unwrap_err();
        har.add(&exchange("https://a/3")).unwrap();
        assert_eq!(urls(dir.path()), ["https://a/1", "https://a/3"]);
    }

    #[test]
    fn unsearched_parts_are_omitted_when_the_search_limit_is_reached() {
        let har = folder(Path::new("/nowhere"), 0);
        let mut hostile = exchange("https://a/x");
        let secret = format!("{}Z", "a".repeat(8 << 10));
        hostile.request.insert("cookie", format!("a={secret}").parse().unwrap());
        hostile.response.insert("x-echo", "seen".parse().unwrap());
        let text = format!("{}.{secret}", "a".repeat(56 << 10)).into_bytes();
        hostile.request_body = CapturedBody { bytes: text.len() as u64, text: text.clone() };
        hostile.answered = CapturedBody { bytes: text.len() as u64, text };
        let entry = har.entry(&hostile);
        for body in [&entry["request"]["postData"], &entry["response"]["content"]] {
            assert_eq!(body["text"], "");
            assert!(body["comment"].as_str().unwrap().contains("takes too long"), "{body}");
        }
        assert!(entry["comment"].as_str().unwrap().contains("takes too long"), "{}", entry["comment"]);
        assert_eq!(entry["request"]["url"], "https://a/x", "it was searched before");
        assert_eq!(entry["response"]["headers"][0]["value"], REDACTED);
        assert!(!entry.to_string().contains("aaaa"));
        // Other bodies have no comment.
        assert!(har.entry(&exchange("https://a/x"))["comment"].is_null());
    }

    #[test]
    fn redacted_values_do_not_appear_in_urls() {
        let mut har = folder(Path::new("/nowhere"), 0);
        let mut one = exchange("https://a/hidden-1/x?b=hidden-1");
        one.request.insert("cookie", "a=hidden-1".parse().unwrap());
        one.response.insert("location", "/to/hidden-1?c=hidden-1".parse().unwrap());
        let entry = har.entry(&one);
        assert_eq!(entry["request"]["url"], "https://a/[redacted]/x?b=[redacted]");
        assert_eq!(entry["request"]["queryString"][0]["value"], REDACTED);
        assert_eq!(entry["response"]["redirectURL"], "/to/[redacted]?c=[redacted]");
        har.options.redact_headers.push("Location".to_owned());
        assert_eq!(har.entry(&one)["response"]["redirectURL"], "");
    }

    #[test]
    fn decoded_cookie_and_basic_values_are_redacted_in_bodies() {
        let har = folder(Path::new("/nowhere"), 0);
        let pair = "someone:pass%word-1";
        for (name, value, credential) in [
            ("cookie", "a=hidden%2D1%20long".to_owned(), "hidden-1 long"),
            ("authorization", format!("Basic {}", STANDARD.encode(pair)), pair),
            (
                "authorization",
                format!("basic {}", STANDARD.encode(pair).trim_end_matches('=')),
                "pass%word-1",
            ),
            ("proxy-authorization", format!("Basic {}", STANDARD.encode(pair)), "pass%word-1"),
        ] {
            let mut one = exchange("https://a/x");
            one.request.insert(name, value.parse().unwrap());
            let text = format!("it is {credential}!").into_bytes();
            one.answered = CapturedBody { bytes: text.len() as u64, text };
            assert_eq!(
                har.entry(&one)["response"]["content"]["text"],
                "it is [redacted]!",
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn query_and_fragment_parameters_are_redacted_in_any_encoding() {
        let har = folder(Path::new("/nowhere"), 0);
        for (url, wanted) in [
            ("/x#access_token=1", "/x#[redacted]"),
            ("/x?a=1#top", "/x?a=1#top"),
            ("/x?a=1&access_token=2#b=3", "/x?a=1&access_token=[redacted]#[redacted]"),
            (
                "/x?access%5Ftoken=1&%61ccess_Token=2",
                "/x?access%5Ftoken=[redacted]&%61ccess_Token=[redacted]",
            ),
            ("/x#a?access_token=1", "/x#[redacted]"),
        ] {
            assert_eq!(har.url(url).0, wanted);
        }
    }
}
