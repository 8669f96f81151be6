//! Tests of SCEP with certmonger, and with openssl and some helper code, on both databases.

use std::process::Command;
use std::sync::Arc;

use authority::Peer;
use authority::enrolment::{Decision, FixedPasswords};
use authority::issue::{IssuedRef, Source};
use authority::principal::Principal;
use authority::profile::Profile;
use authority::scep::{Scep, ScepOptions};
use authority::tables::EnrolmentState;
use authority::tree::NewCa;
use base64::Engine as _;
use bytes::Bytes;
use http::Request;
use keys::{KeyType, PrivateKey, Signer};
use serde_json::json;
use x509::cms::{Attribute, DATA, Digest, Identity, SignedData, SignedSpec, signed_attributes, signed_data};
use x509::crl::Reason;
use x509::der::{self, Reader};
use x509::{Certificate, DistinguishedName, GeneralName, SerialNumber, UnixTime, build, csr};

use crate::fixture::{Fixture, pem};
use crate::http::{Server, serve};

/// A SCEP server with a root, an intermediate and two profiles: `tablets`, and `vip`, which requires approval.
struct World {
    fixture: Fixture,
    scep: Scep,
    root: Arc<[u8]>,
}

fn server(fixture: &Fixture, allow_sha1: bool) -> Scep {
    let passwords = FixedPasswords::new().with("tablets", "mdm", "secret").with("vip", "mdm", "secret");
    let options = ScepOptions {
        profiles: vec!["tablets".to_owned(), "vip".to_owned()],
        default_profile: Some("tablets".to_owned()),
        allow_sha1,
    };
    Scep::new(fixture.authority.clone(), Some(Arc::new(passwords)), options)
}

impl World {
    async fn new(fixture: Fixture) -> Self {
        // The clients use the system clock.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        fixture.clock.set(now.as_micros() as i64);
        let authority = &fixture.authority;
        let root =
            authority.create_root(&NewCa::root("root", "CN=Test Root, O=Example"), "user:a").await.unwrap();
        let issuing = NewCa::intermediate("issuing", "CN=Test Issuing, O=Example");
        authority.create_intermediate("root", &issuing, "user:a").await.unwrap();
        for name in ["tablets", "vip", "hidden"] {
            let names = json!({ "dns_allowed": [".a.example"] });
            let mut profile = Profile::for_servers(name, serde_json::from_value(names).unwrap());
            profile.ca = Some("issuing".to_owned());
            profile.requires_approval = name == "vip";
            authority.put_profile(profile, None, "user:a").await.unwrap();
        }
        let scep = server(&fixture, false);
        let world = Self { fixture, scep, root: root.certificate.der.clone() };
        world.fixture.write("root.pem", pem(&[&world.root]));
        let (kind, bundle) = world.get("operation=GetCACert").await;
        assert_eq!(kind, "application/x-x509-ca-ra-cert");
        world.fixture.write("ca.p7", &bundle);
        world.fixture.openssl("pkcs7 -inform der -in ca.p7 -print_certs -out ca.pem");
        let ders = x509::cms::certificates_of(&bundle).unwrap();
        world.fixture.write("ra.pem", pem(&ders[..1]));
        world.fixture.openssl("verify -x509_strict -CAfile root.pem -untrusted ca.pem ra.pem");
        world
    }

    async fn send_request(&self, request: Request<Bytes>) -> (u16, String, Vec<u8>) {
        let response = self.scep.handle(request, &Peer::local()).await;
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        (response.status().as_u16(), kind, response.body().to_vec())
    }

    async fn get(&self, query: &str) -> (String, Vec<u8>) {
        let request = Request::get(format!("/scep?{query}")).body(Bytes::new()).unwrap();
        let (status, kind, body) = self.send_request(request).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        (kind, body)
    }

    /// Encrypts content with openssl to the certificate from GetCACert.
    fn encrypt(&self, content: &[u8], how: &str) -> Vec<u8> {
        self.fixture.write("content", content);
        self.fixture
            .openssl(&format!("cms -encrypt -binary {how} -outform der -in content -out envelope ra.pem"));
        std::fs::read(self.fixture.path("envelope")).unwrap()
    }

    async fn send(&self, profile: &str, message: Vec<u8>) -> Reply {
        let request = Request::post(format!("/scep/{profile}/pkiclient.exe?operation=PKIOperation"));
        let (status, kind, body) = self.send_request(request.body(message.into()).unwrap()).await;
        assert_eq!(
            (status, kind.as_str()),
            (200, "application/x-pki-message"),
            "{}",
            String::from_utf8_lossy(&body)
        );
        self.reply(body)
    }

    /// Parses a reply that openssl verifies.
    fn reply(&self, message: Vec<u8>) -> Reply {
        self.fixture.write("reply", &message);
        self.fixture.write("none", b"");
        let signed = SignedData::parse(&message).unwrap();
        let content = if signed.content.is_some() { "" } else { "-content none" };
        self.fixture.openssl(&format!(
            "cms -verify -binary -inform der -in reply {content} -CAfile ca.pem -purpose any -out opened"
        ));
        let text = |oid: &str| {
            let value = signed.signers[0].attribute(oid)?;
            Some(Reader::new(value).any().unwrap().text())
        };
        assert_eq!(text(&attribute(2)).as_deref(), Some("3"), "CertRep");
        assert_eq!(signed.signers[0].attribute(&attribute(5)).unwrap().len(), 18, "a nonce of its own");
        assert_eq!(signed.signers[0].attribute(&attribute(6)), Some(&NONCE_DER[..]), "our nonce");
        Reply {
            transaction: text(&attribute(7)).unwrap(),
            status: text(&attribute(3)).unwrap(),
            failure: text(&attribute(4)),
            reason: text("1.3.6.1.5.5.7.24.1"),
        }
    }

    /// Returns the certificates of the last reply, decrypted by openssl with the device's key.
    fn granted(&self, device: &Device) -> Vec<Certificate> {
        let all = SignedData::parse(&self.opened(device)).unwrap().certificates;
        all.iter().map(|der| Certificate::parse(der).unwrap()).collect()
    }

    fn opened(&self, device: &Device) -> Vec<u8> {
        self.fixture.write("device.pem", pem(&[&device.certificate.der]));
        self.fixture.write("device.key", device.key.to_pkcs8_pem().as_bytes());
        self.fixture.openssl(
            "cms -decrypt -binary -inform der -in opened -recip device.pem -inkey device.key -out plain",
        );
        std::fs::read(self.fixture.path("plain")).unwrap()
    }

    /// Sends a certificate request that must be granted.
    async fn enrol(&self, device: &Device, name: &str) -> Certificate {
        let message = device.message("19", "t1", &self.encrypt(&device.request(name, Some("secret")), AES));
        let reply = self.send("tablets", message).await;
        assert_eq!((reply.status.as_str(), reply.transaction.as_str()), ("0", "t1"), "{reply:?}");
        self.granted(device).remove(0)
    }
}

const AES: &str = "-aes-128-cbc";
const NONCE_DER: [u8; 18] = [4, 16, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];

fn attribute(number: u8) -> String {
    format!("2.16.840.1.113733.1.9.{number}")
}

#[derive(Debug, Eq, PartialEq)]
struct Reply {
    transaction: String,
    status: String,
    failure: Option<String>,
    reason: Option<String>,
}

impl Reply {
    fn failure(&self) -> Option<&str> {
        (self.status == "2").then_some(self.failure.as_deref()).flatten()
    }
}

/// A device with a key and a certificate, self-signed or granted.
struct Device {
    key: PrivateKey,
    certificate: Certificate,
}

impl Device {
    fn new() -> Self {
        Self::with(PrivateKey::generate(KeyType::Rsa2048).unwrap())
    }

    fn with(key: PrivateKey) -> Self {
        let name = DistinguishedName::from_text("CN=device").unwrap();
        let tbs = build::tbs_certificate(&build::CertificateSpec {
            serial: &SerialNumber::from_random([1; 16]),
            signature: key.algorithm(),
            issuer: &name.der,
            subject: &name.der,
            not_before: UnixTime(1_700_000_000),
            not_after: UnixTime(2_500_000_000),
            spki: key.spki(),
            extensions: &[],
        });
        let certificate =
            Certificate::parse(&build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap()));
        Self { certificate: certificate.unwrap(), key }
    }

    /// Returns a CSR of the device for a name.
    fn request(&self, name: &str, password: Option<&str>) -> Vec<u8> {
        let subject = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
        let names = [build::Extension::subject_alt_names(&[GeneralName::Dns(name.to_owned())])];
        let tbs = csr::tbs(&subject.der, self.key.spki(), &names, password);
        build::signed(&tbs, &self.key.algorithm(), &self.key.sign_now(&tbs).unwrap())
    }

    fn message(&self, kind: &str, transaction: &str, envelope: &[u8]) -> Vec<u8> {
        self.message_as(kind, transaction, envelope, Digest::Sha256, &self.key)
    }

    fn message_as(
        &self,
        kind: &str,
        transaction: &str,
        envelope: &[u8],
        digest: Digest,
        key: &PrivateKey,
    ) -> Vec<u8> {
        let printable = |number, text: &str| Attribute {
            oid: attribute(number),
            value: der::write(|w| {
                w.printable(text);
            }),
        };
        let nonce = Attribute { oid: attribute(5), value: NONCE_DER.to_vec() };
        let others = [printable(2, kind), printable(7, transaction), nonce];
        let attributes = signed_attributes(DATA, &digest.of(envelope), &others);
        signed_data(&SignedSpec {
            content_type: DATA,
            content: Some(envelope),
            certificates: &[&self.certificate.der],
            signer: &Identity::of(&self.certificate),
            digest,
            attributes: &attributes,
            algorithm: &key.algorithm(),
            signature: &key.sign_now(&attributes).unwrap(),
        })
    }
}

async fn over_http(world: &World) -> Server {
    let scep = world.scep.clone();
    serve(None, move |request, peer| {
        let scep = scep.clone();
        async move { scep.handle(request, &peer).await }
    })
    .await
}

/// Runs certmonger in its own session: requests a certificate by SCEP, and then another one.
const CERTMONGER: &str = r#"
getcert add-scep-ca -s -c scep -u "$1" -v &&
getcert request -s -c scep -f "$PWD/c.pem" -k "$PWD/c.key" -G rsa -g 2048 -N CN=c.a.example -D c.a.example -L secret -w -v &&
cp c.pem first.pem &&
getcert resubmit -s -f "$PWD/c.pem" -w -v
getcert list -s
"#;

pub(crate) async fn certmonger_enrolls(fixture: Fixture) {
    let world = World::new(fixture).await;
    let server = over_http(&world).await;
    let url = format!("http://{}/scep/tablets", server.address);
    let folder = world.fixture.path("");
    let output = tokio::task::spawn_blocking(move || {
        let run = Command::new("dbus-run-session")
            .args(["--", "sh", "-c", CERTMONGER, "sh", &url])
            .current_dir(&folder)
            .env("HOME", &folder)
            .output();
        let run = run.unwrap_or_else(|error| {
            panic!("this test needs certmonger: apt-get install -y certmonger dbus ({error})")
        });
        String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()
    });
    let output = output.await.unwrap();
    assert!(output.contains("status: MONITORING"), "{output}");
    let verified =
        world.fixture.openssl("verify -x509_strict -CAfile root.pem -untrusted ca.pem first.pem c.pem");
    assert_eq!(verified.trim(), "first.pem: OK\nc.pem: OK");
    let mut requesters = Vec::new();
    let mut fingerprints = Vec::new();
    for name in ["first.pem", "c.pem"] {
        let text = world.fixture.read(name);
        let certificate =
            Certificate::parse(&x509::pem::certificates(text.as_bytes()).next().unwrap().1).unwrap();
        assert_eq!(certificate.names(), ["c.a.example"]);
        let which = IssuedRef::Fingerprint(certificate.fingerprint);
        let record = world.fixture.authority.issued(&which).await.unwrap().unwrap();
        assert_eq!(record.source, Source::Scep);
        requesters.push(record.requester);
        fingerprints.push(certificate.fingerprint);
    }
    assert_eq!(requesters, ["scep:mdm", "scep:mdm"]);
    assert_ne!(fingerprints[0], fingerprints[1]);
}

pub(crate) async fn repeated_transaction_returns_the_same_certificate(fixture: Fixture) {
    let world = World::new(fixture).await;
    let (kind, capabilities) = world.get("operation=GetCACaps&message=x").await;
    assert_eq!(kind, "text/plain");
    let capabilities = String::from_utf8(capabilities).unwrap();
    for word in ["SCEPStandard", "AES", "POSTPKIOperation", "Renewal", "SHA-256", "SHA-512"] {
        assert!(capabilities.lines().any(|line| line == word), "{word}");
    }
    assert!(!capabilities.contains("DES") && !capabilities.contains("SHA-1\n"));

    let device = Device::new();
    let request = device.request("d.a.example", Some("secret"));
    let ciphers = ["-aes-128-cbc", "-aes-256-cbc", "-aes-192-cbc -stream"];
    let mut found = Vec::new();
    for cipher in ciphers {
        let reply = world.send("tablets", device.message("19", "t1", &world.encrypt(&request, cipher))).await;
        assert_eq!((reply.status.as_str(), reply.transaction.as_str()), ("0", "t1"), "{reply:?}");
        let granted = world.granted(&device);
        assert_eq!(granted.len(), 2, "and the issuer's");
        assert_eq!(granted[0].names(), ["d.a.example"]);
        found.push(granted[0].fingerprint);
    }
    found.dedup();
    assert_eq!(found.len(), 1, "the same transaction, the same certificate");
    // The message is sent by GET, encoded in base64.
    let message = device.message("19", "t2", &world.encrypt(&request, AES));
    let message = base64::engine::general_purpose::STANDARD.encode(message);
    let query = format!("operation=PKIOperation&message={}", message.replace('+', "%2B").replace('=', "%3D"));
    let (_, body) = world.get(&query).await;
    assert_eq!(world.reply(body).status, "0");
    assert_ne!(world.granted(&device)[0].fingerprint, found[0], "another transaction");
}

pub(crate) async fn invalid_requests_fail_with_their_failure_code(fixture: Fixture) {
    let world = World::new(fixture).await;
    let (device, other) = (Device::new(), Device::new());
    let good = device.request("d.a.example", Some("secret"));
    let sealed = |content: &[u8]| world.encrypt(content, AES);
    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    let by_another = device.message_as("19", "t", &sealed(&good), Digest::Sha256, &other.key);
    let small = Device::with(PrivateKey::generate(KeyType::P256).unwrap());
    let mut damaged = sealed(&good);
    *damaged.last_mut().unwrap() ^= 1;
    let table = [
        ("no password", device.message("19", "t", &sealed(&device.request("d.a.example", None))), "2"),
        ("a wrong one", device.message("19", "t", &sealed(&device.request("d.a.example", Some("x")))), "2"),
        (
            "another's name",
            device.message("19", "t", &sealed(&device.request("d.b.example", Some("secret")))),
            "2",
        ),
        ("another's key", other.message("19", "t", &sealed(&good)), "2"),
        ("a renewal of nothing", device.message("17", "t", &sealed(&good)), "2"),
        ("an unknown type", device.message("18", "t", &sealed(&good)), "2"),
        ("a forged request", device.message("19", "t", &sealed(&forged)), "1"),
        ("a forged message", by_another, "1"),
        ("noise inside", device.message("19", "t", &sealed(b"noise")), "1"),
        ("damaged on the way", device.message("19", "t", &damaged), "1"),
        ("not encrypted", device.message("19", "t", &good), "0"),
        ("triple DES", device.message("19", "t", &world.encrypt(&good, "-des-ede3-cbc")), "0"),
        ("a poll for nothing", device.message("20", "t", &sealed(&poll())), "4"),
    ];
    let mut reasons = Vec::new();
    for (what, message, failure) in table {
        let reply = world.send("tablets", message).await;
        assert_eq!(reply.failure(), Some(failure), "{what}: {reply:?}");
        reasons.push((what, reply.reason.unwrap()));
    }
    // Errors within the encrypted content are not distinguished.
    let reason = |what: &str| reasons.iter().find(|(which, _)| *which == what).unwrap().1.clone();
    assert_eq!(reason("noise inside"), reason("damaged on the way"));
    // SHA-1 is accepted only with an option.
    let old = device.message_as("19", "t", &sealed(&good), Digest::Sha1, &device.key);
    assert_eq!(world.send("tablets", old).await.failure(), Some("0"));
    // Requests that cannot be answered by a SCEP message.
    let ec = small.message("19", "t", &sealed(&good));
    assert_eq!(
        world.send("tablets", ec).await.failure(),
        Some("0"),
        "an elliptic curve cannot be encrypted to"
    );
    for (method, path, body, want) in [
        ("POST", "/scep?operation=PKIOperation", &b"noise"[..], 400),
        ("GET", "/scep?operation=PKIOperation", b"", 400),
        ("GET", "/scep?operation=GetNextCACert", b"", 400),
        ("GET", "/scep/hidden?operation=GetCACert", b"", 404),
        ("GET", "/scep/none?operation=GetCACert", b"", 404),
        ("PUT", "/scep?operation=GetCACert", b"", 405),
        ("POST", "/scep?operation=PKIOperation", &[0; 70_000], 413),
    ] {
        let request = Request::builder().method(method).uri(path).body(Bytes::copy_from_slice(body)).unwrap();
        assert_eq!(world.send_request(request).await.0, want, "{method} {path}");
    }
}

/// Encodes IssuerAndSubject.
fn poll() -> Vec<u8> {
    let name = |text: &str| DistinguishedName::from_text(text).unwrap().der;
    der::write(|w| {
        w.sequence(|w| {
            w.raw(&name("CN=Test Issuing, O=Example")).raw(&name("CN=v.a.example"));
        });
    })
}

pub(crate) async fn renewal_is_authenticated_by_the_current_certificate(fixture: Fixture) {
    let world = World::new(fixture).await;
    let mut device = Device::new();
    let first = world.enrol(&device, "d.a.example").await;
    device.certificate = first;
    let next = Device::new();
    let renewal = world.encrypt(&next.request("d.a.example", None), AES);
    let reply = world.send("tablets", device.message("17", "t2", &renewal)).await;
    assert_eq!(reply.status, "0", "{reply:?}");
    let second = world.granted(&device).remove(0);
    assert_eq!(*second.public_key.spki, *next.key.spki());
    assert_eq!(second.subject_alt_names, device.certificate.subject_alt_names);
    // As some clients renew: PKCSReq signed with the certificate, without a password, and with the same key.
    let encrypted = world.encrypt(&device.request("d.a.example", None), AES);
    let reply = world.send("tablets", device.message("19", "t1", &encrypted)).await;
    assert_eq!(reply.status, "0", "{reply:?}");
    assert_ne!(world.granted(&device)[0].fingerprint, device.certificate.fingerprint, "a new one");

    let other = world.encrypt(&next.request("e.a.example", None), AES);
    assert_eq!(
        world.send("tablets", device.message("17", "t3", &other)).await.failure(),
        Some("2"),
        "another name"
    );
    assert_eq!(
        world.send("vip", device.message("17", "t4", &renewal)).await.failure(),
        Some("2"),
        "another profile"
    );
    let selection = authority::revoke::Selection::Fingerprint(device.certificate.fingerprint);
    world.fixture.authority.revoke(selection, Reason::Superseded, None, "user:a").await.unwrap();
    let revoked = world.encrypt(&Device::new().request("d.a.example", None), AES);
    assert_eq!(
        world.send("tablets", device.message("17", "t5", &revoked)).await.failure(),
        Some("2"),
        "revoked"
    );
}

pub(crate) async fn pending_request_is_polled_until_approved_or_rejected(fixture: Fixture) {
    let world = World::new(fixture).await;
    let authority = &world.fixture.authority;
    let device = Device::new();
    let sealed = world.encrypt(&device.request("v.a.example", Some("secret")), AES);
    let enrolment = device.message("19", "t1", &sealed);
    let polled = device.message("20", "t1", &world.encrypt(&poll(), AES));
    for message in [&enrolment, &polled, &enrolment] {
        assert_eq!(world.send("vip", message.clone()).await.status, "3");
    }
    let waiting = authority.enrolments(EnrolmentState::Open, None, 10).await.unwrap().rows;
    assert_eq!(waiting.len(), 1);
    assert_eq!((waiting[0].protocol, waiting[0].requester.as_str()), (Source::Scep, "scep:mdm"));
    let stored = csr::CertificateRequest::parse(&waiting[0].request).unwrap();
    assert_eq!(stored.challenge_password, None, "the password is not stored");
    authority
        .decide_enrolment(waiting[0].id, Decision::Approve, None, "", &Principal::from_actor("user:bob"))
        .await
        .unwrap();
    let stranger = Device::new().message("20", "t1", &world.encrypt(&poll(), AES));
    assert_eq!(world.send("vip", stranger).await.failure(), Some("4"), "another key");
    assert_eq!(world.send("vip", polled.clone()).await.status, "0");
    let granted = world.granted(&device).remove(0);
    assert_eq!(*granted.public_key.spki, *device.key.spki());
    assert_eq!(world.send("vip", polled).await.status, "0");
    assert_eq!(world.granted(&device)[0].fingerprint, granted.fingerprint);

    let rejected = device.message("19", "t2", &sealed);
    assert_eq!(world.send("vip", rejected.clone()).await.status, "3");
    let waiting = authority.enrolments(EnrolmentState::Open, None, 10).await.unwrap().rows;
    authority
        .decide_enrolment(
            waiting[0].id,
            Decision::Reject,
            None,
            "not yours",
            &Principal::from_actor("user:bob"),
        )
        .await
        .unwrap();
    let reply = world.send("vip", rejected).await;
    assert_eq!(reply.failure(), Some("2"));
    assert!(reply.reason.unwrap().contains("not yours"));
}

pub(crate) async fn certificates_and_crls_are_fetched(fixture: Fixture) {
    let world = World::new(fixture).await;
    let device = Device::new();
    let granted = world.enrol(&device, "d.a.example").await;
    let named = |serial: &SerialNumber| {
        der::write(|w| {
            w.sequence(|w| {
                w.raw(&granted.issuer.der).integer_content(serial.content());
            });
        })
    };
    let content = world.encrypt(&named(&granted.serial), AES);
    assert_eq!(world.send("tablets", device.message("21", "t2", &content)).await.status, "0");
    assert_eq!(world.granted(&device)[0].fingerprint, granted.fingerprint);
    let unknown = world.encrypt(&named(&SerialNumber::from_random([1; 16])), AES);
    assert_eq!(world.send("tablets", device.message("21", "t3", &unknown)).await.failure(), Some("4"));

    let selection = authority::revoke::Selection::Fingerprint(granted.fingerprint);
    world.fixture.authority.revoke(selection, Reason::KeyCompromise, None, "user:a").await.unwrap();
    assert_eq!(world.send("tablets", device.message("22", "t4", &content)).await.status, "0");
    let opened = SignedData::parse(&world.opened(&device)).unwrap();
    let crl = x509::crl::Crl::parse(&opened.crls[0]).unwrap();
    assert_eq!(crl.find(&granted.serial).unwrap().reason, Some(Reason::KeyCompromise));
    let ca =
        Certificate::parse(&world.fixture.authority.ca("issuing").await.unwrap().certificate.der).unwrap();
    assert_eq!(crl.signed_by(&ca.public_key), Ok(()));
}

pub(crate) async fn nodes_share_the_recipient_key_and_renew_its_certificate(fixture: Fixture) {
    let world = World::new(fixture).await;
    let (_, before) = world.get("operation=GetCACert").await;
    let other = Scep::new(
        world.fixture.another_node(),
        None,
        ScepOptions { profiles: vec!["tablets".to_owned()], ..ScepOptions::default() },
    );
    let fetch = || async {
        let request = Request::get("/scep/tablets?operation=GetCACert").body(Bytes::new()).unwrap();
        other.handle(request, &Peer::local()).await.body().to_vec()
    };
    assert_eq!(fetch().await, before);

    // After two thirds of two years there is another certificate for the same key. Earlier encrypted messages can still be opened.
    let device = Device::new();
    let sealed = world.encrypt(&device.request("d.a.example", Some("secret")), AES);
    world.fixture.advance(500 * 86_400);
    let later = server(&world.fixture, false);
    let request = Request::get("/scep?operation=GetCACert").body(Bytes::new()).unwrap();
    let after = later.handle(request, &Peer::local()).await.body().to_vec();
    let first = |bundle: &[u8]| Certificate::parse(&x509::cms::certificates_of(bundle).unwrap()[0]).unwrap();
    assert_ne!(first(&after).fingerprint, first(&before).fingerprint);
    assert_eq!(first(&after).public_key, first(&before).public_key);
    let message = device.message("19", "t1", &sealed);
    let request = Request::post("/scep/tablets?operation=PKIOperation").body(message.into()).unwrap();
    let reply = later.handle(request, &Peer::local()).await.body().to_vec();
    let reply = SignedData::parse(&reply).unwrap();
    assert_eq!(reply.signers[0].attribute(&attribute(3)), Some(&b"\x13\x010"[..]));
    let keys = store::Keys::of(&world.fixture.store).page(None, 100).await.unwrap().rows;
    assert_eq!(keys.iter().filter(|key| key.label == "SCEP to issuing").count(), 1);
}
