//! Simulated revocation: CAs that create certificates, CRLs and OCSP responses with arbitrary content, and a server that delivers
//! them, with configurable delays and faults.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use x509::build::{CertificateSpec, Extension, key_sha1, signed, tbs_certificate};
use x509::crl::{CrlSpec, Revoked, Scope, tbs_crl};
use x509::der::{self, Reader, Writer, tag};
use x509::ocsp::{
    CertificateId, ErrorStatus, Request, ResponseEntry, Status, basic_response, error_response, tbs_response,
};
use x509::{
    BasicConstraints, Certificate, DAY, DistinguishedName, KeyUsage, SerialNumber, SignatureAlgorithm,
    UnixTime,
};

use crate::FleetError;
use crate::ct::http::{CtRequest, Page, Server};
use crate::forge::random_serial;
use crate::key::{Key, SignedWith};
use crate::key_kind::KeyKind;

pub use crate::ct::{CtCounts as HttpCounts, Quota, Trouble};

/// A CA that can revoke certificates.
#[derive(Debug)]
pub struct RevokingAuthority {
    key: Arc<Key>,
    certificate: Certificate,
}

/// Content of a certificate to create.
#[derive(Clone, Debug)]
pub struct TestLeafSpec {
    /// Content bytes of the serial number; `None`: random.
    pub serial: Option<Vec<u8>>,
    /// Host name in the subject alternative name (dNSName).
    pub name: String,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// URLs of CRL distribution points.
    pub crl_urls: Vec<String>,
    /// URLs of OCSP responders.
    pub ocsp_urls: Vec<String>,
    /// Extended key usages as dotted object identifiers; empty: the extension is absent.
    pub usages: Vec<String>,
    /// Further extensions.
    pub extensions: Vec<Extension>,
}

impl Default for TestLeafSpec {
    /// Returns a server certificate valid for ninety days, thirty of them past, without CRL or OCSP URLs.
    fn default() -> Self {
        let now = crate::clock::now();
        Self {
            serial: None,
            name: "leaf.example".to_owned(),
            not_before: now.plus(-30 * DAY),
            not_after: now.plus(60 * DAY),
            crl_urls: Vec::new(),
            ocsp_urls: Vec::new(),
            usages: vec!["1.3.6.1.5.5.7.3.1".to_owned()],
            extensions: Vec::new(),
        }
    }
}

/// Content of a CRL to create.
#[derive(Clone, Debug)]
pub struct TestCrlSpec {
    /// The field thisUpdate: creation time of the CRL.
    pub this_update: UnixTime,
    /// The field nextUpdate: time at which the next CRL is expected.
    pub next_update: UnixTime,
    /// Value of the CRL number extension.
    pub number: u64,
    /// For a delta CRL: the number of its base CRL.
    pub base: Option<u64>,
    /// URL in the issuing distribution point.
    pub distribution_point: Option<String>,
    /// Scope in the issuing distribution point.
    pub scope: Scope,
    /// URL of the delta CRLs.
    pub freshest: Option<String>,
    /// Entries, in the order written.
    pub revoked: Vec<Revoked>,
    /// Replaces all extensions, to create invalid CRLs.
    pub extensions: Option<Vec<Extension>>,
}

impl Default for TestCrlSpec {
    /// Returns an empty CRL without scope, an hour old, valid for a week.
    fn default() -> Self {
        let now = crate::clock::now();
        Self {
            this_update: now.plus(-3_600),
            next_update: now.plus(7 * DAY),
            number: 1,
            base: None,
            distribution_point: None,
            scope: Scope::All,
            freshest: None,
            revoked: Vec::new(),
            extensions: None,
        }
    }
}

impl RevokingAuthority {
    /// Creates a root named `CN=Fleet Revoking NUMBER` with a P-256 key.
    ///
    /// # Errors
    /// [`FleetError::Key`], [`FleetError::Sign`].
    pub fn new(number: u32) -> Result<Self, FleetError> {
        Self::with_usage(number, KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN)
    }

    /// Like [`Self::new`], with other key usages (RFC 5280 section 4.2.1.3).
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with_usage(number: u32, usage: u16) -> Result<Self, FleetError> {
        let key = Arc::new(Key::generate(KeyKind::P256)?);
        let name = DistinguishedName::from_text(&format!("CN=Fleet Revoking {number}"))
            .map_err(|_| FleetError::Sign)?;
        let extensions = [
            Extension::basic_constraints(BasicConstraints { ca: true, path_len: None }),
            Extension::key_usage(KeyUsage(usage)),
        ];
        let spki = key.spki();
        let tbs = tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_content(&random_serial()),
            signature: SignatureAlgorithm::EcdsaSha256,
            issuer: &name.der,
            subject: &name.der,
            not_before: crate::clock::now().plus(-365 * DAY),
            not_after: crate::clock::now().plus(3_650 * DAY),
            spki: &spki,
            extensions: &extensions,
        });
        let der = sign(&key, &tbs)?;
        let certificate = Certificate::parse(&der).map_err(|_| FleetError::Sign)?;
        Ok(Self { key, certificate })
    }

    /// Returns the certificate of the CA.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Creates a certificate, DER, with a new key that is discarded.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn issue(&self, order: &TestLeafSpec) -> Result<Vec<u8>, FleetError> {
        self.issue_for(order, &Key::generate(KeyKind::P256)?)
    }

    fn issue_for(&self, order: &TestLeafSpec, key: &Key) -> Result<Vec<u8>, FleetError> {
        let names = [x509::GeneralName::Dns(order.name.clone())];
        let mut extensions = vec![Extension::subject_alt_names(&names)];
        if !order.usages.is_empty() {
            extensions.push(Extension::extended_key_usage(&order.usages));
        }
        if !order.crl_urls.is_empty() {
            extensions.push(Extension::crl_distribution_points(&order.crl_urls));
        }
        if !order.ocsp_urls.is_empty() {
            extensions.push(Extension::authority_info_access(&order.ocsp_urls, &[]));
        }
        extensions.extend(order.extensions.iter().cloned());
        let subject =
            DistinguishedName::from_text(&format!("CN={}", order.name)).map_err(|_| FleetError::Sign)?;
        let serial = order.serial.clone().unwrap_or_else(random_serial);
        let spki = key.spki();
        let tbs = tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_content(&serial),
            signature: SignatureAlgorithm::EcdsaSha256,
            issuer: &self.certificate.subject.der,
            subject: &subject.der,
            not_before: order.not_before,
            not_after: order.not_after,
            spki: &spki,
            extensions: &extensions,
        });
        sign(&self.key, &tbs)
    }

    /// Creates a CRL, DER.
    ///
    /// # Errors
    /// [`FleetError::Sign`].
    pub fn crl(&self, order: &TestCrlSpec) -> Result<Vec<u8>, FleetError> {
        let spec = CrlSpec {
            signature: SignatureAlgorithm::EcdsaSha256,
            issuer: &self.certificate.subject.der,
            this_update: order.this_update,
            next_update: order.next_update,
            number: order.number,
            authority_key_id: &[7; 20],
            base: order.base,
            distribution_point: order.distribution_point.as_deref(),
            scope: order.scope,
            freshest: order.freshest.as_deref(),
        };
        let mut tbs = tbs_crl(&spec, &order.revoked);
        if let Some(extensions) = &order.extensions {
            tbs = with_extensions(&tbs, extensions).ok_or(FleetError::Sign)?;
        }
        sign(&self.key, &tbs)
    }

    /// Creates an OCSP response with these entries, signed by the CA.
    ///
    /// # Errors
    /// [`FleetError::Sign`].
    pub fn ocsp(&self, answers: &[ResponseEntry]) -> Result<Vec<u8>, FleetError> {
        ocsp(&self.key, answers, &[])
    }

    /// Creates an OCSP response signed by a delegated responder. The responder's certificate is created from `delegate` and
    /// included.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn ocsp_delegated(
        &self,
        answers: &[ResponseEntry],
        delegate: &TestLeafSpec,
    ) -> Result<Vec<u8>, FleetError> {
        let key = Key::generate(KeyKind::P256)?;
        ocsp(&key, answers, &[&self.issue_for(delegate, &key)?])
    }
}

fn ocsp(key: &Key, answers: &[ResponseEntry], certificates: &[&[u8]]) -> Result<Vec<u8>, FleetError> {
    let tbs = tbs_response(&key_sha1(&key.spki()), crate::clock::now(), answers, None);
    let signature = key.sign_certificate(SignedWith::Usual, &tbs)?;
    Ok(basic_response(&tbs, &SignatureAlgorithm::EcdsaSha256, &signature, certificates))
}

/// Creates a complete CRL of a fleet's CA, valid for a week.
pub(crate) fn crl_of(
    key: &Key,
    issuer: &[u8],
    now: UnixTime,
    revoked: &[Revoked],
) -> Result<Vec<u8>, FleetError> {
    let signature = match key {
        Key::P256(_) => SignatureAlgorithm::EcdsaSha256,
        _ => SignatureAlgorithm::RsaSha256,
    };
    let tbs = tbs_crl(
        &CrlSpec {
            signature: signature.clone(),
            issuer,
            this_update: now.plus(-3_600),
            next_update: now.plus(7 * DAY),
            number: 1,
            authority_key_id: &crate::forge::key_id(&key.spki()),
            base: None,
            distribution_point: None,
            scope: Scope::All,
            freshest: None,
        },
        revoked,
    );
    Ok(signed(&tbs, &signature, &key.sign_certificate(SignedWith::Usual, &tbs)?))
}

fn sign(key: &Key, tbs: &[u8]) -> Result<Vec<u8>, FleetError> {
    let signature = key.sign_certificate(SignedWith::Usual, tbs)?;
    Ok(signed(tbs, &SignatureAlgorithm::EcdsaSha256, &signature))
}

/// Returns a tbsCertList with these extensions instead of its own.
fn with_extensions(tbs: &[u8], extensions: &[Extension]) -> Option<Vec<u8>> {
    let fields = Reader::new(tbs).sequence().ok()?;
    let mut out = Writer::new();
    out.sequence(|w| {
        let own = tag::context_constructed(0);
        for field in fields.flatten().filter(|field| field.tag != own) {
            w.raw(field.whole);
        }
        w.context(0, |w| {
            w.sequence(|w| {
                for extension in extensions {
                    w.sequence(|w| {
                        w.oid_text(&extension.oid);
                        if extension.critical {
                            w.boolean(true);
                        }
                        w.octets(&extension.value);
                    });
                }
            });
        });
    });
    Some(out.finish())
}

/// Returns a critical issuing distribution point (RFC 5280 section 5.2.5) with `url` and these flags, given by their tags from 1 to
/// 5.
#[must_use]
pub fn issuing_distribution_point(url: Option<&str>, flags: &[u8]) -> Extension {
    let value = der::write(|w| {
        w.sequence(|w| {
            if let Some(url) = url {
                w.context(0, |w| {
                    w.context(0, |w| {
                        w.context_primitive(6, url.as_bytes());
                    });
                });
            }
            for flag in flags {
                // onlySomeReasons is a BIT STRING (keyCompromise here), the others are BOOLEANs.
                let content: &[u8] = if *flag == 3 { &[6, 0x40] } else { &[0xff] };
                w.context_primitive(*flag, content);
            }
        });
    });
    Extension::custom("2.5.29.28", value).critical(true)
}

/// A document that the revocation server serves at one path.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The response body.
    pub body: Vec<u8>,
    /// Whether the response has an ETag, and a matching If-None-Match gets 304.
    pub etag: bool,
    /// Fault of every response.
    pub trouble: Option<Trouble>,
    /// Delay before the response.
    pub delay: Duration,
    /// If set, the server responds with 302 and this `Location`.
    pub moved_to: Option<String>,
}

/// An OCSP responder: statuses by serial number (content bytes, as in the certificates); others are unknown.
#[derive(Clone, Debug)]
pub struct Responder {
    /// The CA that signs the responses.
    pub authority: Arc<RevokingAuthority>,
    /// Statuses by serial number.
    pub statuses: HashMap<Vec<u8>, Status>,
    /// thisUpdate in seconds from now; negative in the past.
    pub this_update: i64,
    /// nextUpdate in seconds from now; `None`: absent.
    pub next_update: Option<i64>,
    /// If set, every response is this error.
    pub error: Option<ErrorStatus>,
}

#[derive(Default)]
struct ServedDocuments {
    documents: Mutex<HashMap<String, (Document, u64)>>,
    responders: Mutex<HashMap<String, Responder>>,
    not_modified: AtomicU64,
}

/// A plain HTTP server on loopback with CRLs and OCSP responders.
pub struct RevocationServer {
    server: Server,
    served_documents: Arc<ServedDocuments>,
}

impl RevocationServer {
    /// Starts a server whose responses are delayed by `latency`.
    ///
    /// # Errors
    /// When the system returns an error for the socket.
    pub async fn start(latency: Duration) -> Result<Self, FleetError> {
        let served_documents = Arc::new(ServedDocuments::default());
        let serving = served_documents.clone();
        let server = Server::start(Quota::default(), latency, move |asked| serving.serve(asked)).await?;
        Ok(Self { server, served_documents })
    }

    /// Returns the URL of `path`, which starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    /// Publishes `document` at `path`.
    pub fn put(&self, path: &str, document: Document) {
        let mut documents = self.served_documents.documents.lock();
        let asked = documents.get(path).map_or(0, |(_, asked)| *asked);
        documents.insert(path.to_owned(), (document, asked));
    }

    /// Publishes these bytes at `path`, with an ETag.
    pub fn put_bytes(&self, path: &str, body: Vec<u8>) {
        self.put(path, Document { body, etag: true, ..Document::default() });
    }

    /// Responds to OCSP requests below `path`, which must not end in a slash.
    pub fn put_responder(&self, path: &str, responder: Responder) {
        self.served_documents.responders.lock().insert(path.to_owned(), responder);
    }

    /// Returns the number of requests for `path`.
    #[must_use]
    pub fn asked(&self, path: &str) -> u64 {
        self.served_documents.documents.lock().get(path).map_or(0, |(_, asked)| *asked)
    }

    /// Returns the counters of all requests.
    #[must_use]
    pub fn counts(&self) -> HttpCounts {
        self.server.counts()
    }

    /// Returns the number of 304 (Not Modified) responses.
    #[must_use]
    pub fn not_modified(&self) -> u64 {
        self.served_documents.not_modified.load(Relaxed)
    }

    /// Stops the server and waits until its tasks have ended.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

impl ServedDocuments {
    fn serve(&self, asked: &CtRequest<'_>) -> Page {
        let path = asked.uri.path();
        if let Some((document, count)) = self.documents.lock().get_mut(path) {
            *count += 1;
            return self.serve_document(document, asked);
        }
        let responders = self.responders.lock();
        let found = responders
            .iter()
            .find_map(|(at, responder)| Some((path.strip_prefix(at)?.strip_prefix('/')?, responder)));
        match found {
            Some((question, responder)) => match responder.answer(question) {
                Some(der) => Page::ok("application/ocsp-response", der),
                None => Page::status(400, "not an OCSP request\n"),
            },
            None => Page::status(404, "not found\n"),
        }
    }

    fn serve_document(&self, document: &Document, asked: &CtRequest<'_>) -> Page {
        let mut page = match document.trouble {
            Some(Trouble::Status(status)) => Page::status(status, "trouble\n"),
            _ => Page::ok("application/pkix-crl", Vec::new()),
        };
        (page.trouble, page.delay) = (document.trouble, document.delay);
        if let Some(location) = &document.moved_to {
            return Page { status: 302, headers: vec![("location", location.clone())], ..page };
        }
        if page.status != 200 {
            return page;
        }
        if document.etag {
            let tag = format!("\"{}\"", x509::Fingerprint::of(&document.body));
            if asked.if_none_match == Some(&tag) {
                self.not_modified.fetch_add(1, Relaxed);
                return Page { status: 304, headers: vec![("etag", tag)], ..page };
            }
            page.headers.push(("etag", tag));
        }
        page.body = document.body.clone();
        page
    }
}

impl Responder {
    /// Creates a responder whose responses have thisUpdate an hour ago and nextUpdate in a day.
    #[must_use]
    pub fn new(authority: Arc<RevokingAuthority>, statuses: HashMap<Vec<u8>, Status>) -> Self {
        Self { authority, statuses, this_update: -3_600, next_update: Some(DAY), error: None }
    }

    fn answer(&self, question: &str) -> Option<Vec<u8>> {
        if let Some(error) = self.error {
            return Some(error_response(error));
        }
        let text = question.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
        let request = Request::parse(&STANDARD.decode(text).ok()?).ok()?;
        let now = crate::clock::now();
        let answer = |id: CertificateId| {
            let status = self.statuses.get(id.serial.content()).copied().unwrap_or(Status::Unknown);
            (id, status, now.plus(self.this_update), self.next_update.map(|due| now.plus(due)))
        };
        let answers: Vec<ResponseEntry> = request.certificates.into_iter().map(answer).collect();
        self.authority.ocsp(&answers).ok()
    }
}
