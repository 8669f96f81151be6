//! Injection of credentials into requests. Clients never get the credentials.

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
use http_relay::clock::now;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use jiff::Timestamp;
use keys::Secret;
use outbound::http::percent_encoded;
use parking_lot::Mutex;
use x509::star;
use zeroize::Zeroizing;

use super::fetched::Fetched;
use super::google;
use super::needles::{EXACT_BYTES, NEEDLE_BYTES_MIN};
use super::rule::{Form, InjectText};
use super::setting::{InvalidSetting, header_name, invalid};
use super::sigv4::{AccessKey, Scope, Signable, is_presigned, sign_request};
use super::spellings::ValueEncodings;
use super::unavailable::SecretUnavailable;
use crate::leases::{IdentityLeases, LeaseError, SlotRef};
use crate::policy::{DatabaseSession, Grantee, Grants, SessionProtocol};

/// Time for which the previous version is still used for servers that reject the current one.
const GRACE: Duration = Duration::from_secs(600);
/// Time after a change of versions within which a read of the previous version is ignored. Such a read may have begun before the
/// change.
const STALE_READ: Duration = Duration::from_secs(5);
/// Minimum time between two reloads of a value that servers reject.
const RELOAD_AGAIN: Duration = Duration::from_secs(1);
/// Maximum bytes of a file with a credential.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Time for which the content of a file is cached.
const FILE_FRESH: Duration = Duration::from_secs(5);
/// Maximum values of one rule whose encodings are kept in memory. A rule may have many values, because each identity has its own
/// lease.
const SPELLINGS_MAX: usize = 32;
/// OAuth scope of tokens of Google Cloud. The permissions of the service account still apply.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Future of a requested credential.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Fetched, SecretUnavailable>> + Send + 'a>>;

/// A source of credentials. Implementations cache values, coalesce requests, and have a timeout.
pub trait Secrets: fmt::Debug + Send + Sync {
    /// Returns the values of `fields` in the current version at `path`. An empty field means the whole value, which must be a text.
    fn fetch<'a>(&'a self, path: &'a str, fields: &'a [Vec<String>]) -> Fetching<'a>;

    /// Invalidates a credential that a server rejected: the next request reads it again.
    fn doubt(&self, path: &str);
}

/// The sources of credentials that are not in files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CredentialSources<'a> {
    pub(crate) secrets: Option<&'a dyn Secrets>,
    pub(crate) leases: Option<&'a IdentityLeases>,
}

/// Reason why a credential is not injected.
#[derive(Debug)]
pub(super) enum NotInjected {
    Unavailable(SecretUnavailable),
    /// The request cannot be signed. The text is for the client.
    Unsignable(&'static str),
}

impl From<SecretUnavailable> for NotInjected {
    fn from(error: SecretUnavailable) -> Self {
        Self::Unavailable(error)
    }
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
    /// Patterns of the databases that the credential is for; empty: all.
    databases: Vec<String>,
    pub(super) insecure: bool,
    /// Whether response bodies may contain the credential. Such bodies are searched only if a hook gets them.
    may_echo: bool,
    /// Service and region of signatures, if they do not depend on the host.
    signature_scope: Option<Scope>,
    token_scope: String,
    /// The current token of Google Cloud.
    google: Mutex<Option<google::Token>>,
    /// Most recently sent values, in all encodings, with their digests. The newest value is the last.
    spellings: Mutex<Vec<([u8; 32], Arc<ValueEncodings>)>>,
    /// Whether the last read failed.
    is_missing: AtomicBool,
    /// SHA-256 of the last value that a server rejected, and the time of the last reload. Limits reloads, because several requests
    /// may report the same rejected value.
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
    /// Chooses the version to send. `read`: the version that the source returned. `refused`: the version that the server has just
    /// rejected. Also returns whether the current version has changed.
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
    Store {
        path: String,
        fields: Vec<Vec<String>>,
    },
    File {
        path: PathBuf,
        known: Mutex<Option<(Instant, Fetched)>>,
    },
    /// A role of dynamic credentials, of which each identity has its own lease.
    Lease {
        role: String,
        part: LeasePart,
    },
}

/// The part of a lease that is injected.
#[derive(Clone, Copy, Debug)]
enum LeasePart {
    Pair,
    Username,
    Password,
}

/// The value of the header field, the texts to redact in responses, and whether the secret is so short that unrelated texts may be
/// masked.
type Written = (Zeroizing<Vec<u8>>, Vec<Zeroizing<Vec<u8>>>, bool);

/// An injected credential, with the texts to redact in responses.
pub(crate) struct Injected {
    injection: Arc<Injection>,
    needles: Vec<Zeroizing<Vec<u8>>>,
    digest: [u8; 32],
    version: Option<String>,
    lease: Option<SlotRef>,
}

impl Injection {
    pub(super) fn read(text: &InjectText) -> Result<Self, InvalidSetting> {
        let bad = |why: &str, hint| invalid("inject", why, hint);
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
        let is_session = text.form.session_protocol().is_some();
        if text.user.is_some() && !has_user(text.form) {
            let why = "`user` is allowed only with as = \"basic\", \"postgresql\" and \"redis\"";
            return Err(bad(why, "remove it"));
        }
        if !text.database.is_empty() && !is_session {
            let why = "`database` is allowed only with as = \"postgresql\" and as = \"redis\"";
            return Err(bad(why, "remove it"));
        }
        if text.allow_echo && is_session {
            return Err(bad("`allow_echo` is about responses, which a session does not have", "remove it"));
        }
        if !is_session && text.user.as_ref().is_some_and(|user| user.contains(':')) {
            return Err(bad("`user` has a colon", "a user name cannot have a colon (RFC 7617)"));
        }
        let prefix = text.prefix.clone().unwrap_or_default();
        if HeaderValue::from_str(&prefix).is_err() {
            return Err(bad(
                "`prefix` has a control character",
                "visible characters, for example \"Token \"",
            ));
        }
        let signature_scope = signature_scope(text)?;
        if text.scope.is_some() && text.form != Form::Google {
            return Err(bad("`scope` is allowed only with as = \"google\"", "remove it"));
        }
        let source = source(text)?;
        Ok(Self {
            source,
            header,
            form: text.form,
            user: text.user.clone(),
            prefix,
            grants: text.grants(),
            ports: text.port.clone(),
            databases: text.database.clone(),
            insecure: text.insecure,
            // A signed request does not contain the key, so its response is not searched. A search would also prevent range
            // requests.
            may_echo: text.allow_echo || text.form == Form::SigV4,
            signature_scope,
            token_scope: text.scope.clone().unwrap_or_else(|| GOOGLE_SCOPE.to_owned()),
            google: Mutex::default(),
            spellings: Mutex::default(),
            is_missing: AtomicBool::new(false),
            refused: Mutex::default(),
            versions: Mutex::default(),
        })
    }

    pub(super) fn is_from_store(&self) -> bool {
        matches!(self.source, Source::Store { .. } | Source::Lease { .. })
    }

    /// Returns the role of dynamic credentials, if the credential is a lease.
    pub(super) fn role(&self) -> Option<&str> {
        match &self.source {
            Source::Lease { role, .. } => Some(role),
            Source::Store { .. } | Source::File { .. } => None,
        }
    }

    /// Returns whether the credential signs requests.
    pub(super) fn signs(&self) -> bool {
        self.form == Form::SigV4
    }

    /// Returns whether service and region of signatures must come from the name of an AWS host.
    pub(super) fn needs_aws_host(&self) -> bool {
        self.signs() && self.signature_scope.is_none()
    }

    /// Returns whether the credential is omitted from a request, because the request's URL already has a signature.
    pub(super) fn omits(&self, uri: &Uri) -> bool {
        self.signs() && is_presigned(uri)
    }

    /// Returns the identities that the credential is granted to.
    pub(super) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns whether the credential may be sent to this port of its hosts.
    pub(super) fn is_for_port(&self, port: u16, in_tls: bool) -> bool {
        port == if in_tls { 443 } else { 80 } || self.ports.contains(&port)
    }

    /// Returns the protocol of the sessions that the credential is for; `None` if it is for requests.
    pub(super) fn session_protocol(&self) -> Option<SessionProtocol> {
        self.form.session_protocol()
    }

    /// Returns whether the credential is for sessions with this database, at this port of its hosts.
    pub(super) fn is_for_session(&self, port: u16, session: DatabaseSession<'_>) -> bool {
        let DatabaseSession { protocol, database } = session;
        self.session_protocol() == Some(protocol)
            && (port == protocol.usual_port() || self.ports.contains(&port))
            && (self.databases.is_empty() || self.databases.iter().any(|one| star::matches(one, database)))
    }

    /// Records whether the last read failed. Returns true if the previous read had the other result.
    pub(super) fn record_missing(&self, is_missing: bool) -> bool {
        self.is_missing.swap(is_missing, Relaxed) != is_missing
    }

    /// Returns the credential's name for logs, never its value.
    pub(super) fn log_name(&self) -> String {
        match &self.source {
            Source::Store { path, .. } => path.clone(),
            Source::File { path, .. } => path.display().to_string(),
            Source::Lease { role, .. } => format!("lease:{role}"),
        }
    }

    /// Injects the credential, and replaces a value from the client. `tried` contains the credentials that the server rejected in
    /// earlier tries.
    pub(super) async fn put(
        self: &Arc<Self>,
        request: Signable<'_>,
        grantee: &Grantee,
        sources: CredentialSources<'_>,
        tried: &[Injected],
    ) -> Result<Injected, NotInjected> {
        // Removed first, so that the client's own value is never forwarded, even after an error.
        request.headers.remove(&self.header);
        let (chosen, is_new, lease) = self.chosen(grantee, sources, tried).await?;
        let Version { fetched: Fetched { values: texts, version }, digest } = chosen;
        if self.form == Form::SigV4 {
            let needles = self.sign(request, &texts)?;
            return Ok(Injected { injection: Arc::clone(self), needles, digest, version, lease });
        }
        let (value, needles, is_short) = self.written(&texts)?;
        if is_new && is_short {
            self.warn_of_length();
        }
        let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(value)).map_err(|_| {
            SecretUnavailable::Unusable(format!("{} cannot be sent in a header", self.log_name()))
        })?;
        // Excluded from Debug output and from the tables of HPACK.
        header.set_sensitive(true);
        request.headers.insert(self.header.clone(), header);
        Ok(Injected { injection: Arc::clone(self), needles, digest, version, lease })
    }

    /// Returns the user name and the password for a login. `tried` contains the credentials that the server rejected in earlier
    /// tries.
    pub(super) async fn login(
        self: &Arc<Self>,
        grantee: &Grantee,
        sources: CredentialSources<'_>,
        tried: &[Injected],
    ) -> Result<(Secret, Secret, Injected), SecretUnavailable> {
        let (Version { fetched, digest }, _, lease) = self.chosen(grantee, sources, tried).await?;
        let (user, password) = self.pair(&fetched.values)?;
        let (user, password) = (Secret::new(user), Secret::new(password));
        let injection = Arc::clone(self);
        let (needles, version) = (Vec::new(), fetched.version);
        Ok((user, password, Injected { injection, needles, digest, version, lease }))
    }

    /// Reads the credential, and chooses the version to send. Also returns whether the version is new, and the lease if the
    /// credential is a lease.
    async fn chosen(
        self: &Arc<Self>,
        grantee: &Grantee,
        sources: CredentialSources<'_>,
        tried: &[Injected],
    ) -> Result<(Version, bool, Option<SlotRef>), SecretUnavailable> {
        let (read, lease) = self.fetched(grantee, sources).await?;
        let read = if self.form == Form::Google { self.google_token(&read)? } else { read };
        let refused = tried.iter().rev().find(|one| Arc::ptr_eq(&one.injection, self)).map(|one| one.digest);
        let read = Version::of(read);
        // Each identity has its own lease, so the value read last may belong to another identity.
        let (chosen, is_new) =
            if lease.is_some() { (read, false) } else { self.versions.lock().choose(read, refused) };
        Ok((chosen, is_new, lease))
    }

    /// Returns the user name and the password in `texts`.
    fn pair<'a>(&'a self, texts: &'a [Secret]) -> Result<(&'a str, &'a str), SecretUnavailable> {
        let first = self.first(texts)?;
        match (&self.user, texts.get(1)) {
            (Some(user), _) => Ok((user, first)),
            (None, Some(password)) => Ok((first, password.expose())),
            // A user name contains no colon, but a password may (RFC 7617 section 2).
            (None, None) => match first.split_once(':') {
                Some(pair) => Ok(pair),
                // Redis also has passwords without a user.
                None if self.form == Form::Redis => Ok(("", first)),
                None => Err(SecretUnavailable::Unusable(format!("{} is not user:password", self.log_name()))),
            },
        }
    }

    /// Returns the first value of the credential, which must not be empty.
    fn first<'a>(&self, texts: &'a [Secret]) -> Result<&'a str, SecretUnavailable> {
        let first = texts.first().map(Secret::expose).filter(|text| !text.is_empty());
        first.ok_or_else(|| SecretUnavailable::Unusable(format!("{} is empty", self.log_name())))
    }

    /// Reads the credential from its source.
    async fn fetched(
        &self,
        grantee: &Grantee,
        sources: CredentialSources<'_>,
    ) -> Result<(Fetched, Option<SlotRef>), SecretUnavailable> {
        let none = || SecretUnavailable::StoreUnavailable("no credential store is configured".to_owned());
        match &self.source {
            Source::Store { path, fields } => {
                let store = sources.secrets.ok_or_else(none)?;
                Ok((store.fetch(path, fields).await?, None))
            }
            Source::File { path, known } => Ok((of_file(path, known).await?, None)),
            Source::Lease { role, part } => {
                let leases = sources.leases.ok_or_else(none)?;
                let identity = grantee.identity.as_ref().map(|identity| &identity.name);
                let identity = identity
                    .ok_or_else(|| SecretUnavailable::Unusable("a lease needs an identity".to_owned()))?;
                let (leased, slot) = leases.fetch(identity, role, grantee.ended.as_ref()).await?;
                let values = match part {
                    LeasePart::Pair => vec![leased.username, leased.password],
                    LeasePart::Username => vec![leased.username],
                    LeasePart::Password => vec![leased.password],
                };
                Ok((Fetched { values, version: Some(leased.id.to_string()) }, Some(slot)))
            }
        }
    }

    /// Returns a token of the service account whose key file was read.
    fn google_token(&self, file: &Fetched) -> Result<Fetched, SecretUnavailable> {
        let digest = Version::of(file.clone()).digest;
        let mut current = self.google.lock();
        if let Some(token) = current.as_ref().and_then(|token| token.current(&digest)) {
            return Ok(token);
        }
        let made_at = Timestamp::from_second(now().0).unwrap_or_default();
        let token = google::Token::make(file, digest, (&self.token_scope, &self.log_name()), made_at)?;
        let fetched = token.fetched();
        *current = Some(token);
        Ok(fetched)
    }

    /// Signs a request with the access key in `texts`. Returns the texts to redact.
    fn sign(&self, request: Signable<'_>, texts: &[Secret]) -> Result<Vec<Zeroizing<Vec<u8>>>, NotInjected> {
        let key = AccessKey::read(texts, &self.log_name())?;
        let host = request.host.to_str().unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let scope = self.signature_scope.clone().or_else(|| Scope::of_host(name)).ok_or_else(|| {
            let why = format!("{name} is no host of AWS: set `service` and `region` of inject");
            SecretUnavailable::Unusable(why)
        })?;
        let at = Timestamp::from_second(now().0).unwrap_or_default();
        sign_request(request, &key, &scope, at).map_err(NotInjected::Unsignable)?;
        Ok(key.session.iter().map(|session| Zeroizing::new(session.expose().as_bytes().to_vec())).collect())
    }

    fn warn_of_length(&self) {
        if !self.may_echo {
            tracing::warn!(
                credential = self.log_name(),
                "the credential has fewer than {EXACT_BYTES} bytes, so unrelated texts in responses may be masked: use a longer \
                 credential"
            );
        }
    }

    /// Returns the value of the header field, the texts to redact in responses, and whether the secret has fewer than
    /// [`EXACT_BYTES`] bytes, so that unrelated texts may be masked.
    fn written(&self, texts: &[Secret]) -> Result<Written, SecretUnavailable> {
        let bytes = |parts: &[&str]| Zeroizing::new(parts.concat().into_bytes());
        let first = self.first(texts)?;
        let (value, secret, password) = match self.form {
            // Requests with `sigv4` are signed instead.
            Form::Bearer | Form::Google | Form::SigV4 => (bytes(&["Bearer ", first]), bytes(&[first]), first),
            Form::Header => (bytes(&[&self.prefix, first]), bytes(&[first]), first),
            // Credentials of sessions are not written to headers.
            Form::Basic | Form::Postgresql | Form::Redis => {
                let (user, password) = self.pair(texts)?;
                let coded = Zeroizing::new(STANDARD.encode(bytes(&[user, ":", password])));
                (bytes(&["Basic ", &coded]), bytes(&[&coded]), password)
            }
        };
        let mut needles = vec![secret, bytes(&[password]), escaped(password)];
        needles.retain(|needle| needle.len() >= NEEDLE_BYTES_MIN);
        // Longer texts first, because they may contain shorter ones.
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        needles.dedup();
        Ok((value, needles, password.len() < EXACT_BYTES))
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
            // A rejected lease is recorded in the slot of its identity.
            Source::Lease { .. } => {}
        }
    }
}

/// Returns whether a credential of this form is a user with a password.
fn has_user(form: Form) -> bool {
    form == Form::Basic || form.session_protocol().is_some()
}

fn source(text: &InjectText) -> Result<Source, InvalidSetting> {
    const HINT: &str =
        "{ credential = \"/path\" } or { lease = \"/path\" } of the store, or { file = \"/path\" }";
    let bad = |why: &str, hint| invalid("inject", why, hint);
    match (&text.credential, &text.file, &text.lease) {
        (None, None, None) => Err(bad("no credential is given", HINT)),
        (Some(path), None, None) if path.starts_with('/') => {
            Ok(Source::Store { path: path.clone(), fields: fields(text)? })
        }
        (None, Some(_), None) if text.field.is_some() => {
            Err(bad("`field` is allowed only with `credential` and `lease`, not with `file`", "remove it"))
        }
        (None, Some(path), None) if path.is_absolute() => {
            Ok(Source::File { path: path.clone(), known: Mutex::default() })
        }
        (None, None, Some(role)) if role.starts_with('/') => {
            Ok(Source::Lease { role: role.clone(), part: lease_part(text)? })
        }
        (Some(_), None, None) | (None, Some(_), None) | (None, None, Some(_)) => {
            Err(bad("the path must begin with /", HINT))
        }
        _ => Err(bad("more than one of `credential`, `file` and `lease` is given", HINT)),
    }
}

/// Returns the fields of a credential in the store.
fn fields(text: &InjectText) -> Result<Vec<Vec<String>>, InvalidSetting> {
    let is_pair = has_user(text.form) && text.user.is_none();
    match &text.field {
        Some(_) if is_pair => {
            let hint = "without `field`, the fields `username` and `password` are used";
            let why = "as = \"basic\", \"postgresql\" and \"redis\" with `field` require `user`";
            Err(invalid("inject", why, hint))
        }
        Some(field) => Ok(vec![field.split('.').map(str::to_owned).collect()]),
        None if is_pair || text.form == Form::SigV4 => {
            Ok(vec![vec!["username".to_owned()], vec!["password".to_owned()]])
        }
        None => Ok(vec![Vec::new()]),
    }
}

fn lease_part(text: &InjectText) -> Result<LeasePart, InvalidSetting> {
    let bad = |why: &str, hint| Err(invalid("inject", why, hint));
    let is_pair = has_user(text.form);
    if matches!(text.form, Form::SigV4 | Form::Google) {
        return bad("a lease has no cloud access key", "use as = \"basic\", \"bearer\" or \"header\"");
    }
    if text.user.is_some() {
        return bad("`user` is not allowed with a lease, which has its own user", "remove `user`");
    }
    if text.grants().is_empty() {
        let hint =
            "each identity has its own lease: name identities, teams or tags of [[proxy.policy.identities]]";
        return bad("a lease needs `identities`, `teams` or `tags`", hint);
    }
    match text.field.as_deref() {
        None if is_pair => Ok(LeasePart::Pair),
        Some(_) if is_pair => {
            bad("as = \"basic\", \"postgresql\" and \"redis\" use both fields of a lease", "remove `field`")
        }
        None | Some("password") => Ok(LeasePart::Password),
        Some("username") => Ok(LeasePart::Username),
        Some(_) => bad("a lease has the fields `username` and `password`", "use one of them"),
    }
}

/// Returns the service and region of signatures, if the rule has them.
fn signature_scope(text: &InjectText) -> Result<Option<Scope>, InvalidSetting> {
    let is_label = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    match (&text.service, &text.region) {
        (None, None) => Ok(None),
        _ if text.form != Form::SigV4 => {
            let why = "`service` and `region` are allowed only with as = \"sigv4\"";
            Err(invalid("inject", why, "remove them"))
        }
        (Some(service), Some(region)) if is_label(service) && is_label(region) => {
            Ok(Some(Scope { service: service.clone(), region: region.clone() }))
        }
        _ => Err(invalid(
            "inject",
            "`service` and `region` must be set together, in lower case",
            "for example service = \"s3\", region = \"eu-central-1\"",
        )),
    }
}

/// Returns `text` in percent-encoding.
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
    let fetched = read.map_err(|error| SecretUnavailable::StoreUnavailable(error.to_string()))??;
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
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize + 1));
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("the file has more than {FILE_BYTES_MAX} bytes")));
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
        self.injection.log_name().into()
    }

    /// Returns the name of the injected version for logs.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns whether the last of the credentials `sent` has the same value.
    pub(crate) fn was_sent_last(&self, sent: &[Self]) -> bool {
        let last = sent.iter().rev().find(|one| Arc::ptr_eq(&one.injection, &self.injection));
        last.is_some_and(|last| last.digest == self.digest)
    }

    /// Returns whether the version is the ID of a lease.
    pub(crate) fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Returns the texts to redact.
    pub(crate) fn needles(&self) -> impl Iterator<Item = &[u8]> {
        self.needles.iter().map(|needle| needle.as_slice())
    }

    /// Records that the server accepted the credential.
    pub(super) fn accepted(&self) {
        if self.lease.is_some() {
            return;
        }
        self.injection.versions.lock().accepted(&self.digest);
        let mut refused = self.injection.refused.lock();
        if refused.is_some_and(|(digest, _)| digest == self.digest) {
            *refused = None;
        }
    }

    /// Records that the server rejected the credential.
    pub(super) fn refused(&self, secrets: Option<&dyn Secrets>) {
        match &self.lease {
            Some(lease) => lease.doubt(),
            None => self.injection.doubt(self.digest, secrets),
        }
    }

    /// Returns whether the response body may contain the credential. The body then passes unchanged, unless a hook gets it.
    pub(crate) fn may_echo(&self) -> bool {
        self.injection.may_echo
    }

    /// Returns the value in all encodings, to be searched in the response.
    pub(super) fn spellings(&self) -> Arc<ValueEncodings> {
        let mut known = self.injection.spellings.lock();
        if let Some((_, spellings)) = known.iter().find(|(digest, _)| *digest == self.digest) {
            return Arc::clone(spellings);
        }
        let spellings = Arc::new(ValueEncodings::of(self.needles()));
        if known.len() >= SPELLINGS_MAX {
            known.remove(0);
        }
        known.push((self.digest, Arc::clone(&spellings)));
        spellings
    }
}

impl From<LeaseError> for SecretUnavailable {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::StoreUnavailable(_) => Self::StoreUnavailable(error.to_string()),
            LeaseError::Denied(why) | LeaseError::Refused(why) => Self::Unusable(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;
    use hyper::header::HeaderMap;

    use super::*;

    async fn put(injection: &Arc<Injection>, headers: &mut HeaderMap) -> Result<Injected, String> {
        let (uri, host) = (Uri::from_static("/"), HeaderValue::from_static("a.example"));
        let request = Signable { method: &Method::GET, uri: &uri, host: &host, headers, body: None };
        let grantee = Grantee::default();
        let put = injection.put(request, &grantee, CredentialSources::default(), &[]);
        put.await.map_err(|error| format!("{error:?}"))
    }

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
        let refused = put(&bearer, &mut headers).await.err().unwrap();
        assert!(refused.contains("chmod 600") && headers.is_empty(), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(
            !bearer.record_missing(false) && bearer.record_missing(true) && !bearer.record_missing(true),
            "said once"
        );
        assert!(
            bearer.record_missing(false) && bearer.record_missing(true),
            "and again once it could be had"
        );
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
            let injected = put(&injection, &mut headers).await.unwrap();
            let all: Vec<_> = headers.get_all(&injection.header).iter().collect();
            assert_eq!(all, [&HeaderValue::from_str(wanted).unwrap()]);
            assert!(!format!("{headers:?}{injection:?}").contains("word"), "{headers:?}");
            let echo = format!("a {wanted} b {wanted} stays");
            let echo = injected.spellings().redacted(echo.as_bytes()).unwrap().unwrap();
            let echo = String::from_utf8(echo.to_vec()).unwrap();
            assert!(!echo.contains("word") && !echo.contains("bWU6") && echo.contains("stays"), "{echo}");
            if is_basic {
                // The password is also masked without the user name, although it contains a colon.
                let echo = injected.spellings().redacted(b"it is pa ss:word.").unwrap().unwrap();
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
        // The source has the new version, but the server accepts only the old one.
        assert_eq!(sent(&mut versions, &two, None), "two");
        assert_eq!(sent(&mut versions, &two, Some(&two)), "one");
        versions.accepted(&one.digest);
        assert_eq!(sent(&mut versions, &two, None), "one", "without a request for each try");
        // The server switches to the new version between two tries of a request.
        assert_eq!(sent(&mut versions, &two, Some(&one)), "two");
        versions.accepted(&two.digest);
        assert_eq!(sent(&mut versions, &two, None), "two");
        // After a rejection, the proxy reads the third version.
        assert_eq!(sent(&mut versions, &three, Some(&two)), "three");
        assert_eq!(sent(&mut versions, &three, Some(&three)), "two");
        // A read that began before the change of versions returns the old version, and is ignored.
        assert_eq!(sent(&mut versions, &two, None), "three");
        assert_eq!(sent(&mut versions, &two, Some(&three)), "two", "as the version before");
        // Later, the old version means that the source was changed back.
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
