//! The ACME server (RFC 8555).
//!
//! It also supports:
//!
//! - renewal information (RFC 9773) and profiles (draft-ietf-acme-profiles);
//! - IP identifiers (RFC 8738) and CAA (RFC 8659, RFC 8657);
//! - tls-alpn-01 (RFC 8737), dns-account-01 and dns-persist-01 (drafts).
//!
//! Request processing: [`Acme::handle`] → `route` → `request` (signature, URL, nonce, account) → the module of the resource →
//! `writes` for changes. `work` runs validations and resumes work that a crash interrupted.

mod account;
mod accounts;
mod admin;
mod authorizations;
mod binding;
mod certificates;
mod directory;
mod finalize;
mod fresh_certificates;
mod identifier;
pub mod jose;
mod key_change;
mod limits;
mod nonce;
mod options;
mod orders;
mod override_index;
mod overrides;
mod problem;
mod queue;
mod reads;
mod renewal;
mod request;
mod requested_identifier;
mod respond;
mod revocation;
mod route;
mod server;
mod state;
mod validate;
mod work;
mod writes;

use bytes::Bytes;
use http::{HeaderValue, Method as Verb, Request, Response, StatusCode, header};
use shared::Shared;
use store::{Clock, Store};

use crate::tables;
use crate::{Authority, Peer};
use accounts::Accounts;
use fresh_certificates::FreshCertificates;
use limits::Limiter;
use nonce::Nonces;
use override_index::Overrides;
use problem::Problem;
use queue::ValidationQueue;
use reads::Reads;
pub use route::OPERATIONS;
use route::Route;
use server::Server;
use validate::Validator;
use writes::WriteBatchers;

pub use admin::OrderWithStatus;
pub use binding::{ExternalKey, ExternalKeyError, NewExternalKey};
pub use options::{
    AcmeOptions, BadOptions, DirectoryOptions, Limit, LimitOptions, Method, ValidationOptions,
};
pub use overrides::{BadOverride, NewOverride};
pub use server::Acme;
pub use validate::SetupError;
pub use work::Figures;

/// Reason why the ACME server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The options are invalid. The operator must correct the configuration.
    #[error(transparent)]
    Options(#[from] BadOptions),
    /// Domain validation cannot be set up, for example because the resolver configuration is invalid.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Acme {
    /// Creates the server. Call it within a Tokio runtime, because it spawns tasks for database access. Validations start only with
    /// [`Acme::run`].
    ///
    /// # Errors
    /// [`AcmeError`].
    pub fn new(
        authority: Authority,
        store: Store,
        clock: Clock,
        options: AcmeOptions,
    ) -> Result<Self, AcmeError> {
        let options = options.checked()?;
        authority.keystore().register_sealed_column(&tables::acme::SEALED_SECRETS);
        Ok(Self(Shared::new(Server {
            nonces: Nonces::new(),
            accounts: Accounts::new(),
            fresh_certificates: FreshCertificates::new(),
            limiter: Limiter::default(),
            overrides: Overrides::default(),
            validator: Validator::new(&options)?,
            reads: Reads::new(&store),
            writes: WriteBatchers::new(&store),
            queue: ValidationQueue::default(),
            authority,
            store,
            clock,
            options,
        })))
    }

    /// Handles a request to a path that begins with `/acme/`. The body must be complete. The listener limits it to
    /// [`jose::REQUEST_MAX`], and this function rejects longer bodies too.
    ///
    /// # Cancellation
    /// If the future is dropped, the request may or may not have been processed; the client repeats it.
    #[crate::boxed]
    pub async fn handle(&self, request: Request<Bytes>, peer: &Peer) -> Response<Bytes> {
        let answer = self.0.answer(&request, peer).await;
        let response = answer.unwrap_or_else(|problem| problem.respond());
        self.0.finish(response, &request)
    }

    /// Returns the options of the server, after validation and normalization.
    #[must_use]
    pub fn options(&self) -> &AcmeOptions {
        &self.0.options
    }
}

impl Server {
    async fn answer(&self, request: &Request<Bytes>, peer: &Peer) -> Result<Response<Bytes>, Problem> {
        let route = Route::parse(request.uri().path())
            .ok_or_else(|| Problem::malformed("unknown ACME resource").status(StatusCode::NOT_FOUND))?;
        if request.method() == Verb::OPTIONS {
            return Ok(respond::empty(StatusCode::NO_CONTENT));
        }
        let methods = route.operation().methods;
        if !methods.contains(&request.method().as_str()) {
            return Err(not_allowed(if methods == ["POST"] { "POST" } else { "GET, HEAD" }));
        }
        match (&route, request.method()) {
            (Route::Directory(profile), _) => self.directory(*profile).await,
            (Route::NewNonce, &Verb::HEAD) => Ok(respond::empty(StatusCode::OK)),
            (Route::NewNonce, _) => Ok(respond::empty(StatusCode::NO_CONTENT)),
            (Route::RenewalInfo(id), _) => self.renewal_info(id).await,
            _ => self.post(route, request, peer).await,
        }
    }

    async fn post(
        &self,
        route: Route<'_>,
        request: &Request<Bytes>,
        peer: &Peer,
    ) -> Result<Response<Bytes>, Problem> {
        match route {
            Route::NewAccount(profile) => {
                let signed = self.verify_key_request(request).await?;
                self.new_account(profile, signed, peer).await
            }
            Route::RevokeCertificate => self.revoke(request).await,
            route => {
                let signed = self.verify_account_request(request).await?;
                match route {
                    Route::NewOrder(profile) => self.new_order(profile, &signed).await,
                    Route::NewAuthorization(profile) => self.new_authorization(profile, &signed).await,
                    Route::KeyChange => self.change_key(&signed).await,
                    Route::Account(id) => self.account(id, &signed).await,
                    Route::Orders(id) => self.orders(id, &signed, request.uri().query()).await,
                    Route::Order(id) => self.order(id, &signed).await,
                    Route::Finalize(id) => self.finalize(id, &signed).await,
                    Route::Authorization(id) => self.authorization(id, &signed).await,
                    Route::Challenge(id, method) => self.challenge(id, method, &signed).await,
                    Route::Certificate(id, chain) => self.certificate(id, chain, &signed).await,
                    _ => Err(not_allowed("GET, HEAD")),
                }
            }
        }
    }

    /// Adds the header fields of every response: a fresh nonce, the link to the directory, and the CORS fields that let scripts
    /// read both.
    fn finish(&self, mut response: Response<Bytes>, request: &Request<Bytes>) -> Response<Bytes> {
        let headers = response.headers_mut();
        if let Ok(nonce) = HeaderValue::from_str(&self.nonces.issue()) {
            headers.insert("replay-nonce", nonce);
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        let exposed = HeaderValue::from_static("Link, Replay-Nonce, Location, Retry-After");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        match Route::parse(request.uri().path()) {
            Some(Route::Directory(_)) => response,
            Some(
                Route::NewAccount(profile) | Route::NewOrder(profile) | Route::NewAuthorization(profile),
            ) => respond::with_link(response, &self.directory_url(profile), "index"),
            _ => respond::with_link(response, &self.directory_url(None), "index"),
        }
    }
}

fn not_allowed(methods: &'static str) -> Problem {
    Problem::malformed(format!("this resource accepts {methods}"))
        .status(StatusCode::METHOD_NOT_ALLOWED)
        .allow(methods)
}
