//! Tests of EST with curl and openssl as clients, on both databases.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use authority::enrolment::{DecideError, Decision, FixedPasswords};
use authority::est::{Est, EstOptions};
use authority::issue::{IssueRequest, IssuedRef, Source};
use authority::plan::IssuancePlan;
use authority::principal::Principal;
use authority::profile::{MustStaple, Profile};
use authority::tables::{EnrolmentRow, EnrolmentState};
use authority::tree::NewCa;
use keys::{KeyType, PrivateKey, Signer};
use serde_json::json;
use x509::crl::Reason;
use x509::{Certificate, GeneralName};

use crate::fixture::{Fixture, pem};
use crate::http::{Server, serve, tls};

/// An EST server with a root, an intermediate and two profiles: `web`, and `vip`, which requires approval.
struct World {
    fixture: Fixture,
    est: Est,
    server: Server,
}

impl World {
    async fn new(fixture: Fixture, change: impl FnOnce(&mut EstOptions)) -> Self {
        // curl and rustls use the system clock.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        fixture.clock.set(now.as_micros() as i64);
        let authority = &fixture.authority;
        let root = NewCa::root("root", "CN=Test Root, O=Example");
        let root = authority.create_root(&root, "user:a").await.unwrap();
        let issuing = NewCa::intermediate("issuing", "CN=Test Issuing, O=Example");
        authority.create_intermediate("root", &issuing, "user:a").await.unwrap();
        for name in ["web", "vip", "hidden"] {
            let names = json!({ "dns_allowed": [".a.example", "localhost"], "ip_allowed": ["127.0.0.0/8"] });
            let mut profile = Profile::for_servers(name, serde_json::from_value(names).unwrap());
            profile.ca = Some("issuing".to_owned());
            profile.requires_approval = name == "vip";
            profile.must_staple = if name == "vip" { MustStaple::Always } else { MustStaple::OnRequest };
            profile.extended_key_usage = serde_json::from_value(json!(["serverAuth", "clientAuth"])).unwrap();
            authority.put_profile(profile, None, "user:a").await.unwrap();
        }
        let mut options = EstOptions {
            profiles: vec!["web".to_owned(), "vip".to_owned()],
            default_profile: Some("web".to_owned()),
            ..EstOptions::default()
        };
        change(&mut options);
        let passwords = FixedPasswords::new().with("web", "alice", "secret").with("vip", "alice", "secret");
        let est = Est::new(authority.clone(), Some(Arc::new(passwords)), options);

        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let names = vec![GeneralName::parse("127.0.0.1").unwrap()];
        let own = IssueRequest::new("web", key.spki().to_vec(), names, Source::System, "system:tls");
        let own = authority.issue(own).await.unwrap();
        let chain: Vec<Arc<[u8]>> = std::iter::once(&own.der).chain(own.chain.iter()).cloned().collect();
        let config = tls(&chain, &key.to_pkcs8_der(), &root.certificate.der);
        let handler = est.clone();
        let server = serve(Some(config), move |request, peer| {
            let est = handler.clone();
            async move { est.handle(request, &peer).await }
        });
        fixture.write("root.pem", pem(&[&root.certificate.der]));
        let server = server.await;
        Self { fixture, est, server }
    }

    /// Runs an EST operation with curl. Returns the status; the body is in the file `out`.
    async fn curl(&self, operation: &str, arguments: &str) -> u16 {
        let url = format!("https://{}/.well-known/est/{operation}", self.server.address);
        let arguments = format!("-sS --cacert root.pem -o out -D head -w %{{http_code}} {arguments} {url}");
        let folder = self.fixture.path("");
        tokio::task::spawn_blocking(move || run("curl", &arguments, &folder)).await.unwrap().parse().unwrap()
    }

    /// Creates a CSR with openssl: base64 in `NAME.b64`, its key in `NAME.key`.
    fn request(&self, name: &str, key: &str, subject: &str, names: &str) {
        let names = if names.is_empty() { String::new() } else { format!("-addext subjectAltName={names}") };
        self.fixture.openssl(&format!(
            "req -new -nodes -newkey {key} -keyout {name}.key -out {name}.der -outform der -subj {subject} {names}"
        ));
        self.fixture.openssl(&format!("base64 -in {name}.der -out {name}.b64"));
    }

    async fn enroll(&self, operation: &str, name: &str, who: &str) -> u16 {
        let pkcs10 = format!("-H Content-Type:application/pkcs10 --data-binary @{name}.b64 {who}");
        self.curl(operation, &pkcs10).await
    }

    /// Returns the only certificate in `out`. `openssl verify` must accept it with the CA certificates of cacerts. It is also
    /// written to `NAME.pem`.
    fn certificate(&self, name: &str) -> Certificate {
        self.fixture.openssl("base64 -d -in out -out out.p7");
        self.fixture.openssl(&format!("pkcs7 -inform der -in out.p7 -print_certs -out {name}.pem"));
        let verified = self
            .fixture
            .openssl(&format!("verify -x509_strict -CAfile root.pem -untrusted ca.pem {name}.pem"));
        assert_eq!(verified.trim(), format!("{name}.pem: OK"));
        // A client presents its certificate together with the issuer's.
        let text = self.fixture.read(&format!("{name}.pem"));
        self.fixture.write(&format!("{name}.chain"), text.clone() + &self.fixture.read("ca.pem"));
        let mut all = x509::pem::certificates(text.as_bytes());
        let (_, der) = all.next().unwrap();
        assert!(all.next().is_none(), "only the certificate (RFC 7030 section 4.2.3)");
        Certificate::parse(&der).unwrap()
    }

    /// Writes the CA certificates that EST returns to `ca.pem`.
    async fn trust(&self) {
        assert_eq!(self.curl("cacerts", "").await, 200);
        self.fixture.openssl("base64 -d -in out -out ca.p7");
        self.fixture.openssl("pkcs7 -inform der -in ca.p7 -print_certs -out ca.pem");
    }

    fn out(&self) -> String {
        self.fixture.read("out")
    }
}

fn run(program: &str, arguments: &str, folder: &Path) -> String {
    let run = Command::new(program).current_dir(folder).args(arguments.split_whitespace()).output();
    let run = run
        .unwrap_or_else(|error| panic!("this test needs {program}: apt-get install -y {program} ({error})"));
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{program} {arguments}: {errors}");
    String::from_utf8(run.stdout).unwrap()
}

const ALICE: &str = "-u alice:secret";

pub(crate) async fn curl_enrolls_and_renews(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    let ca = world.fixture.read("ca.pem");
    assert!(
        ca.contains("subject=O = Example, CN = Test Issuing")
            && ca.contains("subject=O = Example, CN = Test Root")
    );
    let head = world.fixture.read("head").to_ascii_lowercase();
    assert!(head.contains("content-type: application/pkcs7-mime"), "{head}");

    let keys = [("rsa", "rsa:2048"), ("ec", "ec -pkeyopt ec_paramgen_curve:P-256"), ("ed", "ed25519")];
    for (name, key) in keys {
        world.request(name, key, "/CN=www.a.example", "DNS:www.a.example,DNS:b.a.example");
        assert_eq!(world.enroll("web/simpleenroll", name, ALICE).await, 200, "{}", world.out());
        let first = world.certificate(name);
        assert_eq!(first.names(), ["www.a.example", "b.a.example"]);
        // The same request again, as after a lost response, returns the same certificate.
        assert_eq!(world.enroll("simpleenroll", name, ALICE).await, 200);
        assert_eq!(world.certificate(name).fingerprint, first.fingerprint);

        // Re-enrolment with a new key, authenticated by the certificate.
        let repeated = format!("{name}2");
        world.request(&repeated, key, "/CN=www.a.example", "DNS:www.a.example,DNS:b.a.example");
        let certificate_arguments = format!("--cert {name}.chain --key {name}.key");
        assert_eq!(
            world.enroll("simplereenroll", &repeated, &certificate_arguments).await,
            200,
            "{}",
            world.out()
        );
        let second = world.certificate(&repeated);
        assert_ne!(second.public_key, first.public_key);
        assert_eq!(second.subject_alt_names, first.subject_alt_names);
        let record = world
            .fixture
            .authority
            .issued(&IssuedRef::Fingerprint(second.fingerprint))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((record.source, record.profile.as_str()), (Source::Est, "web"));
        assert_eq!(record.requester, format!("certificate:{}", first.fingerprint));
    }
}

pub(crate) async fn invalid_and_unauthorized_requests_are_rejected(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    world.request("own", "rsa:2048", "/CN=own.a.example", "DNS:own.a.example");
    world.request("other", "rsa:2048", "/CN=other.a.example", "DNS:other.a.example");
    world.request("outside", "rsa:2048", "/CN=www.b.example", "DNS:www.b.example");
    world.request("org", "rsa:2048", "/O=Other/CN=own.a.example", "DNS:own.a.example");
    world.request("small", "rsa:1024", "/CN=own.a.example", "DNS:own.a.example");
    // Signed with another key: the last bytes belong to the signature.
    let mut forged = std::fs::read(world.fixture.path("own.der")).unwrap();
    *forged.last_mut().unwrap() ^= 1;
    world.fixture.write("forged.der", forged);
    world.fixture.openssl("base64 -in forged.der -out forged.b64");
    world.fixture.write("noise.b64", "aGVsbG8=");
    world.fixture.write("huge.b64", "A".repeat(70_000));

    let pairs = [
        ("simpleenroll", "own", "", 401),
        ("simpleenroll", "own", "-u alice:wrong", 401),
        ("simpleenroll", "own", "-u bob:secret", 401),
        ("simpleenroll", "own", "-H Authorization:Bearer", 401),
        ("simpleenroll", "forged", ALICE, 400),
        ("simpleenroll", "noise", ALICE, 400),
        ("simpleenroll", "huge", ALICE, 413),
        ("simpleenroll", "small", ALICE, 400),
        ("simpleenroll", "outside", ALICE, 400),
        ("simplereenroll", "own", ALICE, 401),
        ("hidden/simpleenroll", "own", ALICE, 401),
        ("none/simpleenroll", "own", ALICE, 401),
        ("fullcmc", "own", ALICE, 501),
        ("nonsense", "own", ALICE, 404),
        ("cacerts", "own", ALICE, 405),
        ("simpleenroll", "own", ALICE, 200),
    ];
    for (operation, name, who, want) in pairs {
        assert_eq!(
            world.enroll(operation, name, who).await,
            want,
            "{operation} {name} {who}: {}",
            world.out()
        );
    }
    let own = world.certificate("own");
    assert_eq!(world.curl("simpleenroll", ALICE).await, 405);
    assert_eq!(
        world.curl("simpleenroll", "-X POST -H Content-Type:text/plain -d x -u alice:secret").await,
        415
    );

    // Authenticated by the certificate: only its own names, and no other subject.
    let certificate_arguments = "--cert own.chain --key own.key";
    assert_eq!(world.enroll("simpleenroll", "own", certificate_arguments).await, 200, "{}", world.out());
    for (operation, name) in [
        ("simpleenroll", "other"),
        ("simpleenroll", "org"),
        ("simplereenroll", "other"),
        ("simplereenroll", "org"),
    ] {
        assert_eq!(
            world.enroll(operation, name, certificate_arguments).await,
            403,
            "{operation} {name}: {}",
            world.out()
        );
    }
    assert_eq!(
        world.enroll("vip/simplereenroll", "own", certificate_arguments).await,
        403,
        "of another profile"
    );
    assert_eq!(world.enroll("simplereenroll", "own", certificate_arguments).await, 200);
    // A revoked certificate does not authenticate.
    let selection = authority::revoke::Selection::Fingerprint(own.fingerprint);
    world.fixture.authority.revoke(selection, Reason::Superseded, None, "user:a").await.unwrap();
    assert_eq!(world.enroll("simplereenroll", "own", certificate_arguments).await, 403);
    assert_eq!(world.enroll("simpleenroll", "own", certificate_arguments).await, 403);
}

pub(crate) async fn strangers_cannot_tell_which_profiles_are_offered_for_enrollment(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    world.request("own", "rsa:2048", "/CN=own.a.example", "DNS:own.a.example");
    assert_eq!(world.enroll("simpleenroll", "own", ALICE).await, 200, "{}", world.out());
    world.certificate("own");
    let strangers = ["", "-u alice:wrong", "--cert own.chain --key own.key"];
    for operation in ["simpleenroll", "simplereenroll", "serverkeygen"] {
        for who in strangers {
            let answer = async |profile: &str| {
                let status = world.enroll(&format!("{profile}/{operation}"), "own", who).await;
                (status, world.out().replace(profile, "PROFILE"))
            };
            let offered = answer("vip").await;
            assert!(matches!(offered.0, 401 | 403), "{operation} {who}: {offered:?}");
            for other in ["hidden", "none"] {
                assert_eq!(answer(other).await, offered, "{operation} {who}: {other}");
            }
        }
    }
    // The CA certificates of a profile are public, so its name is too. A profile that exists is answered like one that does not.
    assert_eq!(world.curl("hidden/cacerts", "").await, 404);
    let hidden = world.out().replace("hidden", "PROFILE");
    assert_eq!(world.curl("none/cacerts", "").await, 404);
    assert_eq!(world.out().replace("none", "PROFILE"), hidden);
}

pub(crate) async fn registrar_enrolls_for_any_name(fixture: Fixture) {
    let mut spki = None;
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let world = World::new(fixture, |options| {
        let hash = x509::SpkiHash::of(key.spki());
        spki = Some(hash);
        options.registrars.push(hash);
    })
    .await;
    world.trust().await;
    let names = vec![GeneralName::parse("ra.a.example").unwrap()];
    let request = IssueRequest::new("web", key.spki().to_vec(), names, Source::Api, "user:a");
    let issued = world.fixture.authority.issue(request).await.unwrap();
    world.fixture.write("ra.pem", issued.chain_pem());
    world.fixture.write("ra.key", key.to_pkcs8_pem().as_bytes());
    world.request("other", "rsa:2048", "/CN=other.a.example", "DNS:other.a.example");
    assert_eq!(
        world.enroll("simpleenroll", "other", "--cert ra.pem --key ra.key").await,
        200,
        "{}",
        world.out()
    );
    assert_eq!(world.certificate("other").names(), ["other.a.example"]);
}

pub(crate) async fn server_generates_the_key_on_request(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    world.request("new", "rsa:3072", "/CN=new.a.example", "DNS:new.a.example");
    assert_eq!(world.enroll("serverkeygen", "new", ALICE).await, 200, "{}", world.out());
    let head = world.fixture.read("head");
    let boundary = head.split("boundary=").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let body = world.out();
    let parts: Vec<&str> = body.split(&format!("--{boundary}")).collect();
    assert_eq!((parts.len(), parts[3].trim()), (4, "--"));
    let content = |part: &str, kind: &str| {
        let (headers, content) = part.split_once("\r\n\r\n").unwrap();
        assert!(headers.contains(kind), "{headers}");
        content.to_owned()
    };
    world.fixture.write("key.b64", content(parts[1], "application/pkcs8"));
    world.fixture.openssl("base64 -d -in key.b64 -out key.der");
    let public = world.fixture.openssl("pkey -inform der -in key.der -pubout");
    world.fixture.write("out", content(parts[2], "application/pkcs7-mime; smime-type=certs-only"));
    let certificate = world.certificate("made");
    assert_eq!(world.fixture.openssl("x509 -in made.pem -noout -pubkey"), public);
    // The server generates a key of the type in the CSR, if the profile allows it. It does not certify the key of the CSR.
    assert_eq!((certificate.public_key.bits, certificate.names()), (3_072, vec!["new.a.example".to_owned()]));
    assert_ne!(public, world.fixture.openssl("pkey -in new.key -pubout"));
    let keys = store::Keys::of(&world.fixture.store).page(None, 100).await.unwrap().rows;
    assert!(keys.iter().all(|key| *key.spki != *certificate.public_key.spki), "it is kept nowhere");
    assert_eq!(world.enroll("serverkeygen", "new", "").await, 401);
}

pub(crate) async fn csr_attributes_list_key_type_signature_and_must_staple(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    for (operation, staple) in [("csrattrs", false), ("vip/csrattrs", true)] {
        assert_eq!(world.curl(operation, "").await, 200);
        assert!(world.fixture.read("head").contains("application/csrattrs"));
        world.fixture.openssl("base64 -d -in out -out out.der");
        let shown = world.fixture.openssl("asn1parse -inform der -in out.der");
        for line in ["id-ecPublicKey", "prime256v1", "ecdsa-with-SHA256"] {
            assert!(shown.contains(line), "{line} is not in {shown}");
        }
        assert_eq!(shown.contains("TLS Feature"), staple, "{shown}");
    }
}

pub(crate) async fn enrollment_waits_for_approval_and_is_issued_or_rejected(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    let authority = &world.fixture.authority;
    world.request("vip", "rsa:2048", "/CN=vip.a.example", "DNS:vip.a.example");
    world.request("not", "rsa:2048", "/CN=not.a.example", "DNS:not.a.example");
    world.request("outside", "rsa:2048", "/CN=www.b.example", "DNS:www.b.example");
    for name in ["vip", "vip", "not"] {
        assert_eq!(world.enroll("vip/simpleenroll", name, ALICE).await, 202, "{}", world.out());
        assert!(world.fixture.read("head").to_ascii_lowercase().contains("retry-after: 300"));
    }
    assert_eq!(world.enroll("vip/simpleenroll", "outside", ALICE).await, 400, "refused at once");
    let waiting = authority.enrolments(EnrolmentState::Open, None, 10).await.unwrap().rows;
    let summaries: Vec<&str> = waiting.iter().map(|row| row.summary.as_str()).collect();
    assert_eq!(summaries, ["CN=vip.a.example [vip.a.example]", "CN=not.a.example [not.a.example]"]);

    assert!(
        authority
            .decide_enrolment(waiting[0].id, Decision::Approve, None, "", &Principal::from_actor("est:alice"))
            .await
            .is_err()
    );
    let decided = authority
        .decide_enrolment(waiting[0].id, Decision::Approve, None, "known", &Principal::from_actor("user:bob"))
        .await
        .unwrap();
    assert_eq!((decided.state, decided.decided_by.as_deref()), (EnrolmentState::Approved, Some("user:bob")));
    authority
        .decide_enrolment(
            waiting[1].id,
            Decision::Reject,
            None,
            "unknown",
            &Principal::from_actor("user:bob"),
        )
        .await
        .unwrap();
    assert!(
        authority
            .decide_enrolment(waiting[1].id, Decision::Approve, None, "", &Principal::from_actor("user:bob"))
            .await
            .is_err()
    );

    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 200, "{}", world.out());
    let first = world.certificate("vip");
    assert!(first.must_staple);
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 200);
    assert_eq!(world.certificate("vip").fingerprint, first.fingerprint, "one certificate for one consent");
    assert_eq!(world.enroll("vip/simpleenroll", "not", ALICE).await, 403);
    assert!(world.out().contains("unknown"));
    let actions = world.fixture.actions().await;
    for action in ["enrolment.request", "enrolment.approve", "enrolment.reject"] {
        assert!(actions.iter().any(|known| known == action), "{action}");
    }
}

pub(crate) async fn requester_by_certificate_cannot_approve_as_its_api_identity(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    world.request("own", "rsa:2048", "/CN=own.a.example", "DNS:own.a.example");
    world.request("next", "rsa:2048", "/CN=own.a.example", "DNS:own.a.example");
    let authority = &world.fixture.authority;
    let waiting = async || authority.enrolments(EnrolmentState::Open, None, 10).await.unwrap().rows.remove(0);
    // A certificate can request only the profile that issued it.
    assert_eq!(world.enroll("vip/simpleenroll", "own", ALICE).await, 202, "{}", world.out());
    let bob = Principal::from_actor("user:bob");
    authority.decide_enrolment(waiting().await.id, Decision::Approve, None, "", &bob).await.unwrap();
    assert_eq!(world.enroll("vip/simpleenroll", "own", ALICE).await, 200, "{}", world.out());
    let own = world.certificate("own");
    let certificate_arguments = "--cert own.chain --key own.key";
    assert_eq!(world.enroll("vip/simpleenroll", "next", certificate_arguments).await, 202, "{}", world.out());
    let waiting = waiting().await;
    // The API identifies the same certificate by the name of the identity that it is mapped to.
    let laptop = Principal::from_actor("certificate:laptop");
    let by_name = laptop.clone().with("dns:own.a.example");
    for person in [laptop.clone().with_certificate(&own), by_name] {
        let own = authority.decide_enrolment(waiting.id, Decision::Approve, None, "", &person).await;
        assert!(matches!(own, Err(DecideError::OwnRequest(_))), "{person:?}: {own:?}");
    }
    authority.decide_enrolment(waiting.id, Decision::Approve, None, "", &laptop).await.unwrap();
    assert_eq!(world.enroll("vip/simpleenroll", "next", certificate_arguments).await, 200, "{}", world.out());
}

pub(crate) async fn profile_change_invalidates_an_enrollment_approval(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    let authority = &world.fixture.authority;
    world.request("vip", "rsa:2048", "/CN=vip.a.example", "DNS:vip.a.example");
    let bob = Principal::from_actor("user:bob");
    let change = |days: i64| async move {
        let mut profile = (*authority.profile("vip").await.unwrap()).clone();
        profile.validity.default_seconds = days * 86_400;
        authority.put_profile(profile, None, "user:eve").await.unwrap();
    };
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 202, "{}", world.out());
    let waiting = authority.enrolments(EnrolmentState::Open, None, 10).await.unwrap().rows.remove(0);
    change(30).await;
    let changed = authority.decide_enrolment(waiting.id, Decision::Approve, None, "", &bob).await;
    assert!(matches!(changed, Err(DecideError::PlanChanged)), "{changed:?}");
    authority.decide_enrolment(waiting.id, Decision::Approve, None, "", &bob).await.unwrap();
    change(40).await;
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 202, "{}", world.out());
    let repeated = authority.enrolment(waiting.id).await.unwrap().unwrap();
    assert_eq!((repeated.state, repeated.decided_by), (EnrolmentState::Open, None));
    authority.decide_enrolment(waiting.id, Decision::Approve, None, "", &bob).await.unwrap();
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 200, "{}", world.out());
    assert!(world.fixture.actions().await.iter().any(|action| action == "enrolment.void"));
}

pub(crate) async fn enrollment_requires_the_number_of_approvals_of_the_profile(fixture: Fixture) {
    let world = World::new(fixture, |_| ()).await;
    world.trust().await;
    let authority = &world.fixture.authority;
    let profile = Profile { approvals: 2, ..(*authority.profile("vip").await.unwrap()).clone() };
    authority.put_profile(profile, None, "user:eve").await.unwrap();
    world.request("vip", "rsa:2048", "/CN=vip.a.example", "DNS:vip.a.example");
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 202, "{}", world.out());
    let waiting = authority.enrolments(EnrolmentState::Open, None, 10).await.unwrap().rows.remove(0);
    assert_eq!((waiting.given, waiting.needed), (0, 2));
    let plan: IssuancePlan = serde_json::from_str(waiting.plan.as_deref().unwrap()).unwrap();
    assert_eq!(
        (plan.names, waiting.plan_sha256),
        (vec!["vip.a.example".to_owned()], Some(plan_hash(&waiting)))
    );
    let approve = async |shown, person: &str| {
        authority
            .decide_enrolment(
                waiting.id,
                Decision::Approve,
                shown,
                "",
                &Principal::from_password_owner(person),
            )
            .await
    };
    let other = approve(Some([0; 32]), "user:bob").await;
    assert!(matches!(other, Err(DecideError::OtherPlan)), "{other:?}");
    let own = approve(waiting.plan_sha256, "scep:alice").await;
    assert!(matches!(own, Err(DecideError::OwnRequest(_))), "{own:?}");
    let half = approve(waiting.plan_sha256, "user:bob").await.unwrap();
    assert_eq!((half.state, half.given), (EnrolmentState::Open, 1));
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 202, "one of two");
    let repeated = approve(None, "est:bob").await;
    assert!(matches!(repeated, Err(DecideError::Repeated { given: 1, needed: 2 })), "{repeated:?}");
    let whole = approve(None, "user:carl").await.unwrap();
    assert_eq!(whole.state, EnrolmentState::Approved);
    assert_eq!(authority.enrolment_approvers(&whole).await.unwrap(), ["user:bob", "user:carl"]);
    assert_eq!(world.enroll("vip/simpleenroll", "vip", ALICE).await, 200, "{}", world.out());
}

fn plan_hash(row: &EnrolmentRow) -> [u8; 32] {
    serde_json::from_str::<IssuancePlan>(row.plan.as_deref().unwrap()).unwrap().sha256()
}

pub(crate) async fn mismatched_channel_binding_is_rejected(fixture: Fixture) {
    let world = World::new(fixture, |options| options.require_channel_binding = true).await;
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let send = |password: Option<&'static str>, binding: Option<[u8; 32]>| {
        let subject = x509::DistinguishedName::from_text("CN=www.a.example").unwrap();
        let tbs = x509::csr::tbs(&subject.der, key.spki(), &[], password);
        let der = x509::build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap());
        let request = http::Request::post("/.well-known/est/simpleenroll")
            .header("authorization", "Basic YWxpY2U6c2VjcmV0")
            .body(bytes::Bytes::from(x509::pem::encode("CERTIFICATE REQUEST", &der)))
            .unwrap();
        let peer = authority::Peer { channel_binding: binding, ..authority::Peer::local() };
        let est = world.est.clone();
        async move { est.handle(request, &peer).await.status().as_u16() }
    };
    const BINDING: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    assert_eq!(send(Some(BINDING), Some([7; 32])).await, 200);
    assert_eq!(send(Some(BINDING), Some([8; 32])).await, 400);
    assert_eq!(send(None, Some([7; 32])).await, 400);
    assert_eq!(send(Some(BINDING), None).await, 400);
}
