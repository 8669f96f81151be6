//! Injection of credentials into requests, so that clients never have them.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use keys::Secret;
use outbound::http::percent_encoded;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::needles::{EXACT_OCTETS, NEEDLE_OCTETS_MIN};
use super::rule::{Form, InjectText};
use super::setting::{InvalidSetting, header_name, invalid};
use super::spellings::ValueEncodings;
use crate::policy::Grants;

/// Time for which the previous version is still used for servers that reject the current one.
const GRACE: Duration = Duration::from_secs(600);
/// Time after a change within which a fetched previous version is ignored, because the read began before the change.
const STALE_READ: Duration = Duration::from_secs(5);
/// Minimum time between two reloads of a value that servers reject.
const RELOAD_AGAIN: Duration = Duration::from_secs(1);
/// Maximum bytes of a file with a credential.
const FILE_OCTETS_MAX: u64 = 64 << 10;
/// Time for which the content of a file is cached.
const FILE_FRESH: Duration = Duration::from_secs(5);

/// Future of a requested credential.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Fetched, SecretUnavailable>> + Send + 'a>>;

/// A credential as read from its source. Its `Debug` output contains no value.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The values of the requested fields.
    pub values: Vec<Secret>,
    /// Name of the version in the audit log: the id in the store, or the modification time of a file.
    pub version: Option<String>,
}

/// A source of credentials. Implementations cache values, coalesce requests, and have a timeout.
pub trait Secrets: fmt::Debug + Send + Sync {
    /// Returns the values of `fields` in the current version at `path`. An empty field means the whole value, which must be a text.
    fn fetch<'a>(&'a self, path: &'a str, fields: &'a [Vec<String>]) -> Fetching<'a>;

    /// Invalidates a credential that a server rejected: the next request reads it again.
    fn doubt(&self, path: &str);
}

/// Reason why a credential is not available. Contains no part of its value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SecretUnavailable {
    /// The store does not respond. A retry is safe.
    #[error("the credential store does not answer: {0}")]
    Away(String),
    /// The credential does not exist, may not be read, or has an unexpected form.
    #[error("{0}")]
    Unusable(String),
}

/// The source and form of an injected credential.
#[derive(Debug)]
pub(super) struct Injection {
    source: Source,
    pub(super) header: HeaderName,
    form: Form,
    user: Option<String>,
    prefix: String,
    grants: Grants,
    ports: Vec<u16>,
    pub(super) insecure: bool,
    /// Whether response bodies may contain the credential: they are then not searched.
    may_echo: bool,
    /// The current value in all encodings, with its digest.
    spellings: Mutex<Option<([u8; 32], Arc<ValueEncodings>)>>,
    /// Whether the last read failed.
    is_missing: AtomicBool,
    /// SHA-256 of the last value that a server rejected, and the time of the last reload, so that not every request reloads the
    /// value.
    refused: Mutex<Option<([u8; 32], Instant)>>,
    versions: Mutex<Versions>,
}

/// The last two versions of a credential. After a rotation a server may still accept only the previous version for a while.
#[derive(Debug, Default)]
struct Versions {
    current: Option<Version>,
    /// The previous version, and the time at which it was replaced.
    previous: Option<(Version, Instant)>,
    /// Whether the last accepted request used the previous version.
    prefers_previous: bool,
}

#[derive(Clone, Debug)]
struct Version {
    fetched: Fetched,
    /// SHA-256 of the values.
    digest: [u8; 32],
}

impl Version {
    fn of(fetched: Fetched) -> Self {
        let mut context = Context::new(&SHA256);
        for value in &fetched.values {
            context.update(&(value.expose().len() as u64).to_be_bytes());
            context.update(value.expose().as_bytes());
        }
        let digest = context.finish().as_ref().try_into().unwrap_or_default();
        Self { fetched, digest }
    }
}

impl Versions {
    /// Chooses the version to send after `read` was read. Also returns whether `read` is a new version. `refused`: the version that
    /// the server has just rejected.
    fn choose(&mut self, read: Version, refused: Option<[u8; 32]>) -> (Version, bool) {
        let is_stale = self
            .previous
            .as_ref()
            .is_some_and(|(previous, at)| previous.digest == read.digest && at.elapsed() < STALE_READ);
        let read = self.current.clone().filter(|_| is_stale).unwrap_or(read);
        let is_new = self.current.as_ref().is_none_or(|current| current.digest != read.digest);
        if is_new {
            let replaced = self.current.replace(read.clone());
            self.previous = replaced.map(|version| (version, Instant::now()));
            self.prefers_previous = false;
        }
        let previous =
            self.previous.as_ref().filter(|(_, at)| at.elapsed() < GRACE).map(|(version, _)| version);
        let is_previous = |previous: &Version| match refused {
            Some(refused) => read.digest == refused && previous.digest != refused,
            None => self.prefers_previous,
        };
        (previous.filter(|one| is_previous(one)).cloned().unwrap_or(read), is_new)
    }

    /// Records that a server accepted a version.
    fn accepted(&mut self, digest: &[u8; 32]) {
        self.prefers_previous = self.current.as_ref().is_some_and(|current| current.digest != *digest)
            && self.previous.as_ref().is_some_and(|(previous, _)| previous.digest == *digest);
    }
}

#[derive(Debug)]
enum Source {
    Store { path: String, fields: Vec<Vec<String>> },
    File { path: PathBuf, known: Mutex<Option<(Instant, Fetched)>> },
}

/// The value of the header field, the texts to redact in responses, and whether a text is too short to be redacted.
type Written = (Zeroizing<Vec<u8>>, Vec<Zeroizing<Vec<u8>>>, bool);

/// An injected credential, with the texts to redact in responses.
pub(crate) struct Injected {
    injection: Arc<Injection>,
    needles: Vec<Zeroizing<Vec<u8>>>,
    digest: [u8; 32],
    version: Option<String>,
}

impl Injection {
    pub(super) fn read(text: &InjectText) -> Result<Self, InvalidSetting> {
        const HINT: &str = "{ credential = \"/path\" } of the store, or { file = \"/path\" }";
        let bad = |why: &str, hint| invalid("inject", why, hint);
        let is_basic = text.form == Form::Basic;
        let header = match (text.form, &text.header) {
            (Form::Header, Some(name)) => header_name("inject", name)?,
            (Form::Header, None) => {
                return Err(bad("as = \"header\" requires `header`", "header = \"X-Api-Key\""));
            }
            (_, Some(_)) => {
                return Err(bad(
                    "`header` is allowed only with as = \"header\"",
                    "give both, or remove `header`",
                ));
            }
            (_, None) => AUTHORIZATION,
        };
        if text.prefix.is_some() && text.form != Form::Header {
            return Err(bad("`prefix` is allowed only with as = \"header\"", "remove it"));
        }
        if text.user.is_some() && !is_basic {
            return Err(bad("`user` is allowed only with as = \"basic\"", "remove it"));
        }
        if text.user.as_ref().is_some_and(|user| user.contains(':')) {
            return Err(bad("`user` has a colon", "a user name cannot have a colon (RFC 7617)"));
        }
        let prefix = text.prefix.clone().unwrap_or_default();
        if HeaderValue::from_str(&prefix).is_err() {
            return Err(bad(
                "`prefix` has a control character",
                "visible characters, for example \"Token \"",
            ));
        }
        let source = match (&text.credential, &text.file) {
            (Some(path), None) if path.starts_with('/') => {
                let fields = match (&text.field, is_basic && text.user.is_none()) {
                    (Some(_), true) => {
                        let hint = "without `field`, the fields `username` and `password` are used";
                        return Err(bad("as = \"basic\" with `field` requires `user`", hint));
                    }
                    (None, true) => vec![vec!["username".to_owned()], vec!["password".to_owned()]],
                    (Some(field), false) => vec![field.split('.').map(str::to_owned).collect()],
                    (None, false) => vec![Vec::new()],
                };
                Source::Store { path: path.clone(), fields }
            }
            (None, Some(_)) if text.field.is_some() => {
                return Err(bad("`field` is allowed only with `credential`, not with `file`", "remove it"));
            }
            (None, Some(path)) if path.is_absolute() => {
                Source::File { path: path.clone(), known: Mutex::default() }
            }
            (None, None) => return Err(bad("no credential is given", HINT)),
            (Some(_), Some(_)) => return Err(bad("both `credential` and `file` are given", HINT)),
            _ => return Err(bad("the path must begin with /", HINT)),
        };
        Ok(Self {
            source,
            header,
            form: text.form,
            user: text.user.clone(),
            prefix,
            grants: text.grants(),
            ports: text.port.clone(),
            insecure: text.insecure,
            may_echo: text.allow_echo,
            spellings: Mutex::default(),
            is_missing: AtomicBool::new(false),
            refused: Mutex::default(),
            versions: Mutex::default(),
        })
    }

    pub(super) fn is_from_store(&self) -> bool {
        matches!(self.source, Source::Store { .. })
    }

    /// Returns the identities that the credential is granted to.
    pub(super) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns whether the credential may be sent to this port of its hosts.
    pub(super) fn is_for_port(&self, port: u16, in_tls: bool) -> bool {
        port == if in_tls { 443 } else { 80 } || self.ports.contains(&port)
    }

    /// Records whether the last read failed. Returns true if that changed.
    pub(super) fn is_news(&self, is_missing: bool) -> bool {
        self.is_missing.swap(is_missing, Relaxed) != is_missing
    }

    /// Returns the credential's name for logs, never its value.
    pub(super) fn called(&self) -> String {
        match &self.source {
            Source::Store { path, .. } => path.clone(),
            Source::File { path, .. } => path.display().to_string(),
        }
    }

    /// Injects the credential, and replaces a value from the client. `tried` contains the credentials that the server rejected in
    /// earlier tries.
    pub(super) async fn put(
        self: &Arc<Self>,
        headers: &mut HeaderMap,
        secrets: Option<&dyn Secrets>,
        tried: &[Injected],
    ) -> Result<Injected, SecretUnavailable> {
        // Removed first, so that the client's own value is never forwarded, even after an error.
        headers.remove(&self.header);
        let read = match &self.source {
            Source::Store { path, fields } => {
                let store = secrets
                    .ok_or_else(|| SecretUnavailable::Away("no credential store is configured".to_owned()))?;
                store.fetch(path, fields).await?
            }
            Source::File { path, known } => of_file(path, known).await?,
        };
        let refused = tried.iter().rev().find(|one| Arc::ptr_eq(&one.injection, self)).map(|one| one.digest);
        let (chosen, is_new) = self.versions.lock().choose(Version::of(read), refused);
        let Version { fetched: Fetched { values: texts, version }, digest } = chosen;
        let (value, needles, is_short) = self.written(&texts)?;
        if is_new && is_short {
            self.warn_of_length();
        }
        let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(value)).map_err(|_| {
            SecretUnavailable::Unusable(format!("{} cannot be sent in a header", self.called()))
        })?;
        // Excluded from Debug output and from the tables of HPACK.
        header.set_sensitive(true);
        headers.insert(self.header.clone(), header);
        Ok(Injected { injection: Arc::clone(self), needles, digest, version })
    }

    fn warn_of_length(&self) {
        if !self.may_echo {
            tracing::warn!(
                credential = self.called(),
                "the credential has fewer than {EXACT_OCTETS} bytes, so unrelated texts in responses may be masked: use a longer \
                 credential"
            );
        }
    }

    /// Returns the value of the header field, the texts to redact in responses, and whether the value is so short that it
    /// also occurs in unrelated texts.
    fn written(&self, texts: &[Secret]) -> Result<Written, SecretUnavailable> {
        let octets = |parts: &[&str]| Zeroizing::new(parts.concat().into_bytes());
        let first = texts.first().map(Secret::expose).filter(|text| !text.is_empty());
        let first =
            first.ok_or_else(|| SecretUnavailable::Unusable(format!("{} is empty", self.called())))?;
        let (value, secret, password) = match self.form {
            Form::Bearer => (octets(&["Bearer ", first]), octets(&[first]), first),
            Form::Header => (octets(&[&self.prefix, first]), octets(&[first]), first),
            Form::Basic => {
                let pair = match (&self.user, texts.get(1)) {
                    (Some(user), _) => octets(&[user, ":", first]),
                    (None, Some(password)) => octets(&[first, ":", password.expose()]),
                    (None, None) if first.contains(':') => octets(&[first]),
                    (None, None) => {
                        return Err(SecretUnavailable::Unusable(format!(
                            "{} is not user:password",
                            self.called()
                        )));
                    }
                };
                let coded = Zeroizing::new(STANDARD.encode(&pair));
                let password = texts.get(1).map_or(first, Secret::expose);
                // Only the user name has no colon (RFC 7617 section 2).
                let password = password
                    .split_once(':')
                    .filter(|_| texts.len() == 1 && self.user.is_none())
                    .map_or(password, |(_, after)| after);
                (octets(&["Basic ", &coded]), octets(&[&coded]), password)
            }
        };
        let mut needles = vec![secret, octets(&[password]), escaped(password)];
        needles.retain(|needle| needle.len() >= NEEDLE_OCTETS_MIN);
        // A text that contains another one comes first.
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        needles.dedup();
        Ok((value, needles, password.len() < EXACT_OCTETS))
    }

    fn doubt(&self, digest: [u8; 32], secrets: Option<&dyn Secrets>) {
        {
            let mut refused = self.refused.lock();
            if refused.is_some_and(|(one, at)| one == digest && at.elapsed() < RELOAD_AGAIN) {
                return;
            }
            *refused = Some((digest, Instant::now()));
        }
        match &self.source {
            Source::Store { path, .. } => secrets.into_iter().for_each(|store| store.doubt(path)),
            Source::File { known, .. } => *known.lock() = None,
        }
    }
}

/// Returns the percent-encoded form.
fn escaped(text: &str) -> Zeroizing<Vec<u8>> {
    let mut into = Zeroizing::new(Vec::with_capacity(text.len() * 3));
    for part in percent_encoded(text) {
        into.extend_from_slice(part.as_bytes());
    }
    into
}

async fn of_file(
    path: &Path,
    known: &Mutex<Option<(Instant, Fetched)>>,
) -> Result<Fetched, SecretUnavailable> {
    if let Some((read_at, fetched)) = &*known.lock()
        && read_at.elapsed() < FILE_FRESH
    {
        return Ok(fetched.clone());
    }
    let owned = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read_file(&owned)).await;
    let fetched = read.map_err(|error| SecretUnavailable::Away(error.to_string()))??;
    *known.lock() = Some((Instant::now(), fetched.clone()));
    Ok(fetched)
}

/// Reads a file that only its owner may read, without its final line break.
fn read_file(path: &Path) -> Result<Fetched, SecretUnavailable> {
    let failed = |why: String| SecretUnavailable::Unusable(format!("{}: {why}", path.display()));
    // Opening a named pipe must not block until there is a writer.
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).map_err(|error| failed(error.to_string()))?;
    let about = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !about.is_file() {
        return Err(failed("not a regular file".to_owned()));
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(failed("other users can read the file: run chmod 600".to_owned()));
    }
    let mut text = Zeroizing::new(String::with_capacity(FILE_OCTETS_MAX as usize + 1));
    file.take(FILE_OCTETS_MAX + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > FILE_OCTETS_MAX {
        return Err(failed(format!("the file has more than {FILE_OCTETS_MAX} bytes")));
    }
    let written = about.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
    let values = vec![Secret::new(text.trim_end_matches(['\r', '\n']))];
    Ok(Fetched { values, version: written.map(|at| at.to_string()) })
}

impl Injected {
    /// Returns the name of the header field with the credential.
    pub(crate) fn header(&self) -> &HeaderName {
        &self.injection.header
    }

    /// Returns the name of the credential in logs, never its value.
    pub(crate) fn name(&self) -> Arc<str> {
        self.injection.called().into()
    }

    /// Returns the name of the value's version.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns whether the last of the credentials `sent` has the same value.
    pub(crate) fn was_sent_last(&self, sent: &[Self]) -> bool {
        let last = sent.iter().rev().find(|one| Arc::ptr_eq(&one.injection, &self.injection));
        last.is_some_and(|last| last.digest == self.digest)
    }

    /// Returns the texts to redact.
    pub(crate) fn needles(&self) -> impl Iterator<Item = &[u8]> {
        self.needles.iter().map(|needle| needle.as_slice())
    }

    /// Records that the server accepted the credential.
    pub(super) fn accepted(&self) {
        self.injection.versions.lock().accepted(&self.digest);
        let mut refused = self.injection.refused.lock();
        if refused.is_some_and(|(digest, _)| digest == self.digest) {
            *refused = None;
        }
    }

    /// Records that the server rejected the credential.
    pub(super) fn refused(&self, secrets: Option<&dyn Secrets>) {
        self.injection.doubt(self.digest, secrets);
    }

    /// Returns whether the response's body passes unchanged.
    pub(crate) fn may_echo(&self) -> bool {
        self.injection.may_echo
    }

    /// Returns the value in all encodings, to be searched in the response.
    pub(super) fn spellings(&self) -> Arc<ValueEncodings> {
        let mut known = self.injection.spellings.lock();
        if let Some((digest, spellings)) = &*known
            && *digest == self.digest
        {
            return Arc::clone(spellings);
        }
        let spellings = Arc::new(ValueEncodings::of(self.needles()));
        *known = Some((self.digest, Arc::clone(&spellings)));
        spellings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injection(text: InjectText) -> Arc<Injection> {
        Arc::new(Injection::read(&text).map_err(|wrong| wrong.why).unwrap())
    }

    #[test]
    fn fifo_is_rejected_as_credential_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        let refused = read_file(&path).err().unwrap().to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
    }

    #[tokio::test]
    async fn credential_file_is_injected_in_each_form_and_its_echo_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "me:pa ss:word\n").unwrap();
        let of = |form, header: Option<&str>| InjectText {
            file: Some(path.clone()),
            form,
            header: header.map(str::to_owned),
            prefix: header.map(|_| "Token ".to_owned()),
            ..InjectText::default()
        };
        let bearer = injection(of(Form::Bearer, None));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("mine"));
        let refused = bearer.put(&mut headers, None, &[]).await.err().unwrap();
        assert!(refused.to_string().contains("chmod 600") && headers.is_empty(), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!bearer.is_news(false) && bearer.is_news(true) && !bearer.is_news(true), "said once");
        assert!(bearer.is_news(false) && bearer.is_news(true), "and again once it could be had");
        for (text, wanted) in [
            (of(Form::Bearer, None), "Bearer me:pa ss:word"),
            (of(Form::Basic, None), "Basic bWU6cGEgc3M6d29yZA=="),
            (of(Form::Header, Some("x-key")), "Token me:pa ss:word"),
        ] {
            let is_basic = text.form == Form::Basic;
            let injection = injection(text);
            let mut headers = HeaderMap::new();
            headers.append(&injection.header, HeaderValue::from_static("mine"));
            headers.append(&injection.header, HeaderValue::from_static("mine too"));
            let injected = injection.put(&mut headers, None, &[]).await.unwrap();
            let all: Vec<_> = headers.get_all(&injection.header).iter().collect();
            assert_eq!(all, [&HeaderValue::from_str(wanted).unwrap()]);
            assert!(!format!("{headers:?}{injection:?}").contains("word"), "{headers:?}");
            let echo = format!("a {wanted} b {wanted} stays");
            let echo = injected.spellings().taken_out(echo.as_bytes()).unwrap().unwrap();
            let echo = String::from_utf8(echo.to_vec()).unwrap();
            assert!(!echo.contains("word") && !echo.contains("bWU6") && echo.contains("stays"), "{echo}");
            if is_basic {
                // The password alone has a colon itself.
                let echo = injected.spellings().taken_out(b"it is pa ss:word.").unwrap().unwrap();
                assert_eq!(String::from_utf8_lossy(&echo), "it is [redacted].");
            }
        }
    }

    #[test]
    fn previous_version_is_sent_while_servers_reject_the_new_one() {
        let version = |text: &str| {
            Version::of(Fetched { values: vec![Secret::new(text)], version: Some(text.to_owned()) })
        };
        let (one, two, three) = (version("one"), version("two"), version("three"));
        let mut versions = Versions::default();
        let sent = |versions: &mut Versions, read: &Version, refused: Option<&Version>| {
            versions.choose(read.clone(), refused.map(|one| one.digest)).0.fetched.version.unwrap()
        };
        assert_eq!(sent(&mut versions, &one, None), "one");
        assert_eq!(sent(&mut versions, &one, Some(&one)), "one", "there is no other");
        // The source has the new one, and the server does not.
        assert_eq!(sent(&mut versions, &two, None), "two");
        assert_eq!(sent(&mut versions, &two, Some(&two)), "one");
        versions.accepted(&one.digest);
        assert_eq!(sent(&mut versions, &two, None), "one", "without a request for each try");
        // The server switches, also between two tries of a request.
        assert_eq!(sent(&mut versions, &two, Some(&one)), "two");
        versions.accepted(&two.digest);
        assert_eq!(sent(&mut versions, &two, None), "two");
        // The proxy reads the next one after a rejection, and not before.
        assert_eq!(sent(&mut versions, &three, Some(&two)), "three");
        assert_eq!(sent(&mut versions, &three, Some(&three)), "two");
        // A read that began before the change ends after it.
        assert_eq!(sent(&mut versions, &two, None), "three");
        assert_eq!(sent(&mut versions, &two, Some(&three)), "two", "as the version before");
        // Later, it is a change back.
        let replaced = versions.previous.as_mut().unwrap();
        replaced.1 = replaced.1.checked_sub(STALE_READ).unwrap();
        assert_eq!(sent(&mut versions, &two, None), "two");
        assert_eq!(sent(&mut versions, &two, Some(&two)), "three");
    }

    #[test]
    fn a_short_password_is_one_to_warn_of_once() {
        let text = InjectText { file: Some("/secret".into()), form: Form::Basic, ..InjectText::default() };
        let injection = injection(text);
        for (pair, wanted) in [("a-long-name:1234567", true), ("me:12345678", false), ("me:123:4567", false)]
        {
            let (_, _, is_short) = injection.written(&[Secret::new(pair)]).unwrap();
            assert_eq!(is_short, wanted, "{pair}");
        }
        let version = Version::of(Fetched { values: vec![Secret::new("me:1")], version: None });
        let mut versions = Versions::default();
        assert!(versions.choose(version.clone(), None).1 && !versions.choose(version, None).1);
    }
}
