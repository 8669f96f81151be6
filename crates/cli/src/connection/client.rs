//! The client of a server's API. Each command creates one client and reuses its connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::credhub::ErrorView;
use api::problem::ProblemDocument;
use clap::Args;
use reqwest::header::{CONTENT_TYPE, DATE, ETAG, HeaderValue, IF_MATCH};
use reqwest::{Certificate, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::configuration::ClientSettings;
use crate::exit::{Exit, Outcome, Problem};
use crate::terminal::clean;
use crate::url::is_unencrypted;

/// Timeout of a request. Bulk actions over a million certificates take seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout for connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the server, the token to authenticate with, and the trust anchors.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// The server: https://HOST:PORT [default: client.url of the configuration, else the local `bulla up`]
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// File with the API token [default: client.token_file, else the local server's admin token]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File of certificates to trust for the server [default: client.ca_file, else the local server's root]
    #[arg(long, global = true, value_name = "FILE")]
    server_ca: Option<PathBuf>,
}

/// Files that a local server writes to its data folder for the commands on the same machine.
pub mod local {
    /// Name of the file with the server's address.
    pub const URL: &str = "server.url";
    /// Name of the file with the credential store's address; the file is empty without a credential store.
    pub const CREDENTIAL_URL: &str = "credentials.url";
    /// Name of the file with the admin token.
    pub const TOKEN: &str = "admin.token";
    /// Name of the file with the root of the server's certificate, PEM.
    pub const ROOT: &str = "root.pem";
}

/// A client of a server's API, with its address, token and trust anchors.
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<SecretString>,
    roots: Option<PathBuf>,
}

/// The prefix of an address that is a Unix socket: `unix:/run/bulla/agent.sock`.
const SOCKET: &str = "unix:";

impl Client {
    /// Opens a client of the server that the flags name, else the configuration, else the data folder of a local server.
    /// `BULLA_CLIENT_TOKEN` may contain the token.
    pub fn open(args: &ServerArgs, settings: &ClientSettings) -> Outcome<Self> {
        let base = match url(args, settings) {
            Some(given) => given,
            None => read(&local_file(local::URL).ok_or_else(no_server)?)?.trim().to_owned(),
        };
        Self::for_address(&base, args, settings)
    }

    /// Opens a client of the credential store at `given`, else at the configured address, else of the local one. An agent
    /// (`unix:PATH`) gets no token, and its socket has no TLS.
    pub fn open_credentials(
        args: &ServerArgs,
        given: Option<&str>,
        settings: &ClientSettings,
    ) -> Outcome<Self> {
        let configured = Some(settings.credential_url.as_str());
        let base = match given.or(configured.filter(|url| !url.is_empty())) {
            Some(url) => url.to_owned(),
            None => {
                let text = local_file(local::CREDENTIAL_URL).map(|path| read(&path)).transpose()?;
                text.map(|text| text.trim().to_owned()).unwrap_or_default()
            }
        };
        if base.is_empty() {
            return Err(Problem::usage("no credential store is configured").hint(
                "start one with `bulla up`, or give --credential-server https://HOST:8844 (client.credential_url in \
                 the configuration)",
            ));
        }
        if let Some(path) = base.strip_prefix(SOCKET) {
            // An agent logs in to the store itself, so the user's token is not sent to the agent.
            let http = http(None, Some(Path::new(path)))?;
            return Ok(Self { http, base, token: None, roots: None });
        }
        Self::for_address(&base, args, settings)
    }

    /// Creates a client for an address. Token and trust anchors come from the flags, else from the configuration, else from the data
    /// folder.
    fn for_address(base: &str, args: &ServerArgs, settings: &ClientSettings) -> Outcome<Self> {
        check_address(base)?;
        if is_unencrypted(base) {
            return Err(Problem::usage(format_args!("the token would be sent to {base} unencrypted"))
                .hint("use https"));
        }
        let token = match std::env::var("BULLA_CLIENT_TOKEN") {
            Ok(token) if !token.is_empty() => Some(token),
            _ => token_file(args, settings)
                .or_else(|| local_file(local::TOKEN))
                .map(|path| read(&path))
                .transpose()?,
        };
        if let Some(token) = &token {
            check_token(token)?;
        }
        let roots = args
            .server_ca
            .clone()
            .or_else(|| non_empty_path(&settings.ca_file))
            .or_else(|| local_file(local::ROOT));
        Ok(Self {
            http: http(roots.as_deref(), None)?,
            roots,
            base: base.trim_end_matches('/').to_owned(),
            token: token.map(|token| token.trim().to_owned().into()),
        })
    }

    /// Creates a client of another server, with this token. Without `roots` it trusts the system's roots.
    pub fn at(base: &str, token: Option<SecretString>, roots: Option<&Path>) -> Outcome<Self> {
        Ok(Self {
            http: http(roots, None)?,
            roots: roots.map(Path::to_owned),
            base: base.trim_end_matches('/').to_owned(),
            token,
        })
    }

    /// Returns the address of the server: a URL, or `unix:PATH` for an agent.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Posts a form to any URL, without the token.
    pub async fn form(&self, url: &str, form: &impl Serialize) -> Outcome<Value> {
        let answer =
            self.http.post(url).form(form).send().await.map_err(|error| connection_error(url, &error))?;
        if answer.status().is_success() { json(answer).await } else { Err(refused(answer).await) }
    }

    /// Creates a caching client of the same credential store: see [`client::Client`].
    pub fn caching_client(&self) -> Outcome<client::Builder> {
        let mut builder = client::Client::builder(self.base.as_str());
        if let Some(path) = &self.roots {
            builder = builder.roots(read(path)?);
        }
        if let Some(token) = &self.token {
            builder = builder.bearer(token.expose_secret());
        }
        Ok(builder)
    }

    /// Returns the server's clock: the `Date` of a response (RFC 9110 section 6.6.1), in whole seconds. `None` without this header.
    pub async fn date(&self) -> Outcome<Option<jiff::Timestamp>> {
        let answer = self.send_request(Method::GET, "/healthz", None).await?;
        let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|date| date.timestamp()))
    }

    /// Returns the token that requests are sent with.
    pub fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    /// Gets a JSON document. The query is a type of crate `api`, or `()` for none.
    pub async fn get(&self, path: &str, query: &impl Serialize) -> Outcome<Value> {
        let answer = self.send_request(Method::GET, &with_query(path, query)?, None).await?;
        json(answer).await
    }

    /// Gets a body that is not JSON: PEM, PKCS#12, JSON lines.
    pub async fn get_bytes(&self, path: &str, query: &impl Serialize) -> Outcome<Vec<u8>> {
        let answer = self.send_request(Method::GET, &with_query(path, query)?, None).await?;
        answer.bytes().await.map(|bytes| bytes.to_vec()).map_err(|error| connection_error(&self.base, &error))
    }

    /// Like [`Self::send`], for responses that are not always JSON. Requests with secrets use POST, because URLs are logged.
    pub async fn send_bytes(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Vec<u8>> {
        let answer = self.send_request(method, path, body.map(Value::to_string)).await?;
        answer.bytes().await.map(|bytes| bytes.to_vec()).map_err(|error| connection_error(&self.base, &error))
    }

    /// Sends a request with a JSON body, and returns the JSON of the response.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Value> {
        self.send_text(method, path, body.map(Value::to_string)).await
    }

    async fn send_text(&self, method: Method, path: &str, body: Option<String>) -> Outcome<Value> {
        let answer = self.send_request(method, path, body).await?;
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        json(answer).await
    }

    /// Like [`Self::send`], with a request type of the API.
    pub async fn submit(&self, method: Method, path: &str, request: &impl Serialize) -> Outcome<Value> {
        self.send_text(method, path, Some(text_of(request)?)).await
    }

    /// Like [`Self::submit`], but parses the response text into a response type of the API.
    pub async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        request: &impl Serialize,
    ) -> Outcome<T> {
        let answer = self.send_request(method, path, Some(text_of(request)?)).await?;
        self.parsed(answer).await
    }

    /// Like [`Self::get`], but parses the response text into a response type of the API.
    pub async fn fetch<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Outcome<T> {
        let answer = self.send_request(Method::GET, &with_query(path, query)?, None).await?;
        self.parsed(answer).await
    }

    async fn parsed<T: DeserializeOwned>(&self, answer: reqwest::Response) -> Outcome<T> {
        let bytes = answer.bytes().await.map_err(|error| connection_error(&self.base, &error))?;
        serde_json::from_slice(&bytes).map_err(unreadable)
    }

    /// Deletes the objects that the path and the query select.
    pub async fn delete(&self, path: &str, query: &impl Serialize) -> Outcome<()> {
        self.send(Method::DELETE, &with_query(path, query)?, None).await.map(drop)
    }

    /// Replaces a document by the result of `to_be`. Returns an error if the document has changed in the meantime (If-Match).
    pub async fn change(
        &self,
        path: &str,
        to_be: impl AsyncFnOnce(&Value) -> Outcome<Value>,
    ) -> Outcome<Value> {
        let before = self.send_request(Method::GET, path, None).await?;
        let revision = before.headers().get(ETAG).cloned();
        let body = to_be(&json(before).await?).await?;
        json(self.send_if_match(Method::PUT, path, (Some(body.to_string()), revision)).await?).await
    }

    async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Outcome<reqwest::Response> {
        self.send_if_match(method, path, (body, None)).await
    }

    /// Sends a request with a body of JSON and, if given, the entity tag that the document must have.
    async fn send_if_match(
        &self,
        method: Method,
        path: &str,
        (body, revision): (Option<String>, Option<HeaderValue>),
    ) -> Outcome<reqwest::Response> {
        let base = if self.base.starts_with(SOCKET) { "http://localhost" } else { &self.base };
        let url = reqwest::Url::parse(&format!("{base}{path}")).map_err(|error| {
            Problem::usage(format_args!("{:?} is not an address of a server: {error}", self.base))
                .hint("for example https://HOST:PORT")
        })?;
        let mut request = self.http.request(method.clone(), url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if method == Method::POST {
            // With this key, a repeated request after a lost response has no second effect.
            request = request.header("idempotency-key", uuid::Uuid::new_v4().to_string());
        }
        if let Some(revision) = revision {
            request = request.header(IF_MATCH, revision);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let answer = request.send().await.map_err(|error| connection_error(&self.base, &error))?;
        if answer.status().is_success() { Ok(answer) } else { Err(refused(answer).await) }
    }
}

/// Checks that a token can be sent in a header.
fn check_token(token: &str) -> Outcome<()> {
    let token = token.trim();
    if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let what = if token.is_empty() { "is empty" } else { "has spaces or other characters that no token has" };
    Err(Problem::usage(format_args!("the API token {what}"))
        .hint("check --token-file (client.token_file), or BULLA_CLIENT_TOKEN"))
}

/// Checks that the address of a server is a URL for HTTP.
fn check_address(base: &str) -> Outcome<()> {
    let wrong = |reason: &str| {
        let host = base.split_once("://").map_or(base, |(_, host)| host);
        Problem::usage(format_args!("{base:?} is not an address of a server: {reason}"))
            .hint(format!("write https://{}", if host.is_empty() { "HOST:PORT" } else { host }))
    };
    match reqwest::Url::parse(base) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        _ if !base.contains("://") => Err(wrong("it has no scheme")),
        Ok(url) => Err(wrong(&format!("the scheme {} is not https", url.scheme()))),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

/// Returns a path with its query.
fn with_query(path: &str, query: &impl Serialize) -> Outcome<String> {
    let query = serde_urlencoded::to_string(query).map_err(|error| Problem::new(Exit::Machine, error))?;
    Ok(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
}

/// Returns a request of the API as a JSON document.
pub fn document_of(request: &impl Serialize) -> Outcome<Value> {
    serde_json::to_value(request).map_err(|error| Problem::new(Exit::Machine, error))
}

fn text_of(request: &impl Serialize) -> Outcome<String> {
    serde_json::to_string(request).map_err(|error| Problem::new(Exit::Machine, error))
}

/// Parses a response of the API from its JSON document. Unknown fields are ignored.
pub fn read_as<T: DeserializeOwned>(document: &Value) -> Outcome<T> {
    T::deserialize(document).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Problem {
    Problem::new(Exit::Server, format_args!("cannot read the server's response: {error}"))
        .hint("check that the address is a Bulla server of the same version")
}

/// Returns the path of a file that a local server wrote to its data folder; `None` if the file does not exist.
fn local_file(name: &str) -> Option<PathBuf> {
    crate::data::folder().ok().map(|folder| folder.join(name)).filter(|path| path.exists())
}

fn url(args: &ServerArgs, settings: &ClientSettings) -> Option<String> {
    args.server.clone().or_else(|| Some(settings.url.clone()).filter(|url| !url.is_empty()))
}

fn token_file(args: &ServerArgs, settings: &ClientSettings) -> Option<PathBuf> {
    args.token_file.clone().or_else(|| non_empty_path(&settings.token_file))
}

fn non_empty_path(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}

fn no_server() -> Problem {
    Problem::usage("no server is configured").hint(
        "start one with `bulla up`, or give --server https://HOST:PORT with --token-file and --server-ca (or client.url, \
         client.token_file and client.ca_file in the configuration)",
    )
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("check the file and its permissions")
    })
}

fn http(roots: Option<&Path>, socket: Option<&Path>) -> Outcome<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .timeout(RESPONSE_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")));
    if let Some(path) = socket {
        client::check_socket(path)
            .map_err(|error| Problem::usage(error).hint("name the socket of an agent that you trust"))?;
        builder = builder.unix_socket(path).no_proxy();
    }
    if let Some(path) = roots {
        let certificates = Certificate::from_pem_bundle(read(path)?.as_bytes()).map_err(|error| {
            Problem::usage(format_args!("{} contains no certificates: {error}", path.display()))
                .hint("give a PEM file of certificates")
        })?;
        if certificates.is_empty() {
            return Err(Problem::usage(format_args!("{} contains no certificates", path.display()))
                .hint("give a PEM file of certificates"));
        }
        builder = builder.tls_certs_only(certificates);
    }
    builder
        .build()
        .map_err(|error| Problem::new(Exit::Machine, format_args!("cannot create an HTTP client: {error}")))
}

async fn json(answer: reqwest::Response) -> Outcome<Value> {
    let status = answer.status();
    let body: Value = answer.json().await.map_err(|error| {
        Problem::new(Exit::Server, format_args!("the server's response ({status}) is not JSON: {error}"))
            .hint("check that the address is a Bulla server of the same version")
    })?;
    if let Some(notice) = pending_approval(status, &body) {
        eprintln!("{notice}");
    }
    Ok(body)
}

/// Returns the message for a change that waits for approval; `None` for other responses.
fn pending_approval(status: StatusCode, body: &Value) -> Option<String> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(|text| clean(text).into_owned());
    let (id, object, _) = (text("id")?, text("object")?, text("plan_sha256")?);
    let needed = body.get("approvals_needed").and_then(Value::as_u64).unwrap_or(1);
    let people = if needed == 1 { "another person".to_owned() } else { format!("{needed} other people") };
    (status == StatusCode::ACCEPTED).then(|| {
        format!("{object} is not changed yet: approval by {people} is required. See: bulla change show {id}")
    })
}

fn connection_error(base: &str, error: &reqwest::Error) -> Problem {
    let hint = if error.is_timeout() {
        "the server is slow or unreachable: see its log"
    } else if base.starts_with("http://") && !error.is_connect() {
        "the server probably speaks HTTPS: use https:// in the address"
    } else {
        "check that the server runs (`bulla up`), the address, and --server-ca"
    };
    Problem::new(Exit::Server, format_args!("{base} does not answer: {}", crate::exit::chain(error)))
        .hint(hint)
}

/// Converts a problem document (RFC 9457) to an error of this program.
async fn refused(answer: reqwest::Response) -> Problem {
    let status = answer.status();
    let body = answer.bytes().await.unwrap_or_default();
    let problem: Option<ProblemDocument> = serde_json::from_slice(&body).ok();
    let (message, hint) = match problem {
        Some(ProblemDocument { title, detail: Some(detail), hint, .. }) => {
            (format!("{title}: {detail}"), hint)
        }
        Some(ProblemDocument { title, hint, .. }) => (title, hint),
        // The credential store returns its error as one sentence.
        None => {
            let error: Option<ErrorView> = serde_json::from_slice(&body).ok();
            (error.map_or_else(|| status.to_string(), |error| error.error), None)
        }
    };
    // After a rate limit or a timeout, the same request may succeed later.
    let passing = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    let exit = if status.is_server_error() || passing { Exit::Server } else { Exit::Refused };
    let problem = Problem::new(exit, message);
    match hint {
        Some(hint) => problem.hint(hint),
        None if status == StatusCode::PRECONDITION_FAILED => {
            problem.hint("another user changed the object in the meantime: run the command again")
        }
        None if status == StatusCode::UNAUTHORIZED => {
            problem.hint("give --token-file, or BULLA_CLIENT_TOKEN")
        }
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use api::agents::AgentsQuery;
    use api::certificates::CertificateFilter;
    use api::listing::PageQuery;

    use super::*;

    #[test]
    fn tokens_and_trust_anchors_of_another_kind_are_refused() {
        assert!(check_token(" bulla_Ab-9\n").is_ok());
        for bad in ["", "\n", "two words", "a\u{1}b", "é"] {
            assert!(check_token(bad).is_err(), "{bad:?}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{}").unwrap();
        let refused = http(Some(file.path()), None).unwrap_err();
        assert!(refused.message.contains("contains no certificates"), "{}", refused.message);
    }

    #[test]
    fn address_without_the_scheme_of_http_is_refused() {
        let refused = |base: &str| {
            let problem = check_address(base).err().unwrap();
            (problem.message, problem.hint.unwrap_or_default())
        };
        for base in ["localhost:8443", "pki.example", "10.0.0.1:8443"] {
            let (message, hint) = refused(base);
            assert!(message.contains("no scheme"), "{message}");
            assert_eq!(hint, format!("write https://{base}"));
        }
        assert_eq!(refused("ftp://a").1, "write https://a");
        assert_eq!(refused("").1, "write https://HOST:PORT");
        assert!(refused("https://").0.contains("empty host"), "{:?}", refused("https://"));
        assert!(check_address("https://a:1").is_ok() && check_address("http://[::1]").is_ok());
    }

    #[test]
    fn query_string_has_only_the_given_parameters() {
        let of = |query: &dyn Fn() -> Outcome<String>| query().ok().unwrap();
        let filter = CertificateFilter { name: Some("a b&c".to_owned()), ..CertificateFilter::default() };
        let page = PageQuery { limit: Some(500), cursor: Some("x=".to_owned()), fields: None };
        let agents = AgentsQuery { online: Some(false), retired: true, ..AgentsQuery::default() };
        assert_eq!(of(&|| with_query("/a", &())), "/a");
        assert_eq!(of(&|| with_query("/a", &CertificateFilter::default())), "/a");
        assert_eq!(of(&|| with_query("/a", &agents)), "/a?online=false&retired=true");
        assert_eq!(of(&|| with_query("/a", &page.of(&()))), "/a?limit=500&cursor=x%3D");
        assert_eq!(of(&|| with_query("/a", &page.of(&filter))), "/a?name=a+b%26c&limit=500&cursor=x%3D");
    }
}
