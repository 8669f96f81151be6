//! Tests of offline ceremonies, verified with OpenSSL.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use authority::ceremony::{
    CeremonyError, CeremonyPlan, Kind, PlannedIntermediate, Published, SigningPlan, TranscriptError,
    Verified, create_root, sign, verify_transcript,
};
use authority::tree::{NameLimits, NewCa};
use keys::{KeyError, KeyType, PrivateKey, Signer};
use store::Clock;
use x509::{Fingerprint, build, csr, pem};

use crate::fixture::{NOW, openssl};

const PASSPHRASE: &[u8] = b"correct horse battery";
const YEAR: i64 = 365 * 86_400;

struct Room {
    folder: tempfile::TempDir,
    clock: Clock,
}

impl Room {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Clock::manual(NOW * 1_000_000) }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, arguments: &str) -> String {
        openssl(self.folder.path(), arguments).unwrap_or_else(|error| panic!("openssl {arguments}: {error}"))
    }

    /// Creates a CSR, as a CA with a database does.
    fn request(&self, name: &str, kind: KeyType) -> PrivateKey {
        let key = PrivateKey::generate(kind).unwrap();
        let subject = x509::DistinguishedName::from_text(&format!("CN={name}, O=Example")).unwrap();
        let tbs = csr::tbs(&subject.der, key.spki(), &[], None);
        let der = build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap());
        fs::write(self.path(&format!("{name}.csr")), pem::encode("CERTIFICATE REQUEST", &der)).unwrap();
        key
    }

    async fn create(&self, plan: &CeremonyPlan, name: &str) -> Result<Verified, CeremonyError> {
        let out = self.path(name);
        let made = create_root(plan, self.folder.path(), &out, PASSPHRASE, &self.clock, "bulla test").await?;
        let verified = verify_transcript(&out, Some(&made.root.fingerprint)).unwrap();
        assert_eq!(verified.transcript, made);
        Ok(verified)
    }
}

fn plan(kind: KeyType) -> CeremonyPlan {
    CeremonyPlan {
        operators: vec!["Ada Lovelace".to_owned(), "Grace Hopper".to_owned()],
        location: Some("Berlin".to_owned()),
        notes: Some("two lines\nof notes".to_owned()),
        root: NewCa {
            key_type: kind,
            path_length: Some(1),
            ..NewCa::root("root", "CN=Example Root, O=Example")
        },
        published: Published {
            crl_url: Some("http://pki.example/root.crl".to_owned()),
            issuer_url: Some("http://pki.example/root.cer".to_owned()),
            ocsp_url: None,
        },
        crl: Some(serde_json::from_str(r#"{"lifetime_seconds": 31536000}"#).unwrap()),
        intermediates: Vec::new(),
    }
}

fn intermediate(name: &str) -> PlannedIntermediate {
    PlannedIntermediate {
        name: name.to_owned(),
        request: format!("{name}.csr").into(),
        subject: None,
        lifetime_seconds: YEAR,
        path_length: 0,
        name_limits: NameLimits { permitted: vec!["dns:example.com".to_owned()], excluded: Vec::new() },
        policies: Vec::new(),
        extended_key_usage: Vec::new(),
    }
}

#[tokio::test]
async fn root_ceremony_output_is_accepted_by_openssl() {
    for kind in [KeyType::P384, KeyType::Rsa3072] {
        let room = Room::new();
        room.request("web", KeyType::P256);
        let plan = CeremonyPlan { intermediates: vec![intermediate("web")], ..plan(kind) };
        let verified = room.create(&plan, "out").await.unwrap();
        assert_eq!((verified.transcript.kind, verified.absent.len()), (Kind::CreateRoot, 0));
        let mut names: Vec<String> = fs::read_dir(room.path("out"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "root.crl",
            "root.key.pem",
            "root.pem",
            "transcript.json",
            "transcript.sig",
            "transcript.txt",
            "web.csr.pem",
            "web.pem",
        ];
        assert_eq!(names, expected);
        let mode = fs::metadata(room.path("out/root.key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let now = NOW + 60;
        let verdict = room.openssl(&format!(
            "verify -x509_strict -attime {now} -crl_check -CRLfile out/root.crl -CAfile out/root.pem out/web.pem"
        ));
        assert_eq!(verdict.trim(), "out/web.pem: OK");
        let text = room.openssl("x509 -in out/web.pem -noout -text");
        for part in [
            "CN = web",
            "pathlen:0",
            "DNS:example.com",
            "http://pki.example/root.crl",
            "http://pki.example/root.cer",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // With the passphrase, OpenSSL decrypts the key and verifies the signature of the transcript.
        fs::write(room.path("pass"), PASSPHRASE).unwrap();
        let public = room.openssl("pkey -in out/root.key.pem -passin file:pass -pubout");
        assert_eq!(public, room.openssl("x509 -in out/root.pem -noout -pubkey"));
        fs::write(room.path("public"), public).unwrap();
        let digest = if kind == KeyType::P384 { "sha384" } else { "sha256" };
        room.openssl(&format!(
            "dgst -{digest} -verify public -signature out/transcript.sig out/transcript.json"
        ));
        let text = fs::read_to_string(room.path("out/transcript.txt")).unwrap();
        for part in [
            "Ada Lovelace",
            "Berlin",
            "two lines of notes",
            "CN=Example Root",
            "bulla test",
            "lifetime_seconds",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains("horse")
                && !fs::read_to_string(room.path("out/transcript.json")).unwrap().contains("horse")
        );
        // Another program computes the same hash.
        let sum = room.openssl("dgst -sha256 -r out/web.pem");
        assert!(text.contains(sum.split_whitespace().next().unwrap()), "{sum}");
    }
}

#[tokio::test]
async fn root_signs_again_in_a_later_ceremony() {
    let room = Room::new();
    let first = room.create(&plan(KeyType::P256), "root").await.unwrap().transcript;
    room.request("web", KeyType::P256);
    room.request("mail", KeyType::Ed25519);
    let revoked = r#"{"number": 2, "lifetime_seconds": 86400,
        "revoked": [{"serial": "0a0b", "reason": "keyCompromise", "at": "2026-11-20T12:00:00Z"}]}"#;
    let plan = SigningPlan {
        operators: vec!["Ada".to_owned()],
        location: None,
        notes: None,
        published: Published::default(),
        crl: Some(serde_json::from_str(revoked).unwrap()),
        intermediates: vec![
            intermediate("web"),
            PlannedIntermediate { subject: Some("CN=Mail CA".to_owned()), ..intermediate("mail") },
        ],
    };
    let (requests, root, out) = (room.folder.path(), room.path("root"), room.path("out"));
    let made = sign(&plan, requests, &root, &out, PASSPHRASE, &room.clock, "bulla test").await.unwrap();
    let verified = verify_transcript(&out, Some(&first.root.fingerprint)).unwrap();
    assert_eq!((made.kind, made.signed.len(), verified.absent.len()), (Kind::Sign, 2, 0));
    assert!(!out.join("root.key.pem").exists());
    for name in ["web", "mail"] {
        let now = NOW + 60;
        room.openssl(&format!("verify -x509_strict -attime {now} -CAfile root/root.pem out/{name}.pem"));
    }
    assert_eq!(made.signed[1].certificate.subject, "CN=Mail CA");
    let crl = room.openssl("crl -inform DER -in out/root.crl -CAfile root/root.pem -noout -text");
    for part in ["0A0B", "Key Compromise", "X509v3 CRL Number: \n                2"] {
        assert!(crl.contains(part), "{part}: {crl}");
    }
    let wrong = sign(&plan, requests, &root, &room.path("x"), b"another passphrase", &room.clock, "t").await;
    assert!(matches!(wrong.unwrap_err(), CeremonyError::Key(KeyError::WrongPassphrase)));
    assert!(!room.path("x").exists());
    room.clock.set((NOW + 11 * YEAR) * 1_000_000);
    let late = sign(&plan, requests, &root, &room.path("x"), PASSPHRASE, &room.clock, "t").await;
    assert!(matches!(late.unwrap_err(), CeremonyError::Root { .. }));
}

#[tokio::test]
async fn modified_transcript_directory_is_detected() {
    let room = Room::new();
    room.request("web", KeyType::P256);
    let plan = CeremonyPlan { intermediates: vec![intermediate("web")], ..plan(KeyType::P256) };
    let root = room.create(&plan, "out").await.unwrap().transcript.root.fingerprint;
    let check = || verify_transcript(&room.path("out"), Some(&root));
    // The key is in a safe and not in every copy of the directory.
    fs::rename(room.path("out/root.key.pem"), room.path("safe")).unwrap();
    assert_eq!(check().unwrap().absent, ["root.key.pem"]);
    fs::write(room.path("out/root.key.pem"), "another").unwrap();
    assert!(matches!(check().unwrap_err(), TranscriptError::Changed(name) if name == "root.key.pem"));
    fs::remove_file(room.path("out/root.key.pem")).unwrap();

    for file in [
        "root.crl",
        "root.pem",
        "transcript.json",
        "transcript.sig",
        "transcript.txt",
        "web.csr.pem",
        "web.pem",
    ] {
        let path = room.path("out").join(file);
        let before = fs::read(&path).unwrap();
        for at in [0, before.len() / 2, before.len() - 2] {
            let mut changed = before.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(check().is_err(), "{file} changed at {at}");
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(check().unwrap_err(), TranscriptError::File { .. }), "{file}");
        fs::write(&path, &before).unwrap();
        check().unwrap();
    }
    // The directory of another ceremony is valid, but it has another root.
    let other = room.create(&plan, "other").await.unwrap().transcript.root.fingerprint;
    let error = verify_transcript(&room.path("other"), Some(&root)).unwrap_err();
    assert!(matches!(error, TranscriptError::OtherRoot { found, .. } if found == other), "{error}");
    // The certificate of the other ceremony replaces ours, including its hash.
    forge(&room.path("out"), &room.path("other"));
    assert!(matches!(check().unwrap_err(), TranscriptError::Signature | TranscriptError::Changed(_)));
    // A file name that leads out of the directory is rejected.
    let json = fs::read_to_string(room.path("out/transcript.json")).unwrap();
    fs::write(room.path("out/transcript.json"), json.replace("\"root.pem\"", "\"../other/root.pem\""))
        .unwrap();
    assert!(matches!(check().unwrap_err(), TranscriptError::Malformed(_)));
}

fn forge(ours: &Path, other: &Path) {
    let (before, after) = (fs::read(ours.join("web.pem")).unwrap(), fs::read(other.join("web.pem")).unwrap());
    let json = fs::read_to_string(ours.join("transcript.json")).unwrap();
    let (old, new) = (Fingerprint::of(&before).to_string(), Fingerprint::of(&after).to_string());
    assert!(json.contains(&old));
    fs::write(ours.join("transcript.json"), json.replace(&old, &new)).unwrap();
    fs::write(ours.join("web.pem"), after).unwrap();
}

#[tokio::test]
async fn invalid_ceremony_plans_are_rejected_before_a_key_is_generated() {
    let room = Room::new();
    room.request("web", KeyType::P256);
    let good = CeremonyPlan { intermediates: vec![intermediate("web")], ..plan(KeyType::P256) };
    let long = PlannedIntermediate { lifetime_seconds: 60 * YEAR, ..intermediate("web") };
    let outlives = PlannedIntermediate { lifetime_seconds: 11 * YEAR, ..intermediate("web") };
    let deep = PlannedIntermediate { path_length: 1, ..intermediate("web") };
    let https =
        Published { crl_url: Some("https://pki.example/root.crl".to_owned()), ..Published::default() };
    let twice = vec![intermediate("web"), intermediate("web")];
    let path = PlannedIntermediate { name: "../web".to_owned(), ..intermediate("web") };
    let provider = NewCa { key_provider: Some("pkcs11".to_owned()), ..good.root.clone() };
    let before = [
        CeremonyPlan { operators: Vec::new(), ..good.clone() },
        CeremonyPlan { operators: vec![" ".to_owned()], ..good.clone() },
        CeremonyPlan { published: https, ..good.clone() },
        CeremonyPlan { intermediates: vec![long], ..good.clone() },
        CeremonyPlan { intermediates: twice, ..good.clone() },
        CeremonyPlan { intermediates: vec![path], ..good.clone() },
        CeremonyPlan { intermediates: vec![intermediate("missing")], ..good.clone() },
        CeremonyPlan { root: provider, ..good.clone() },
    ];
    for (number, plan) in before.iter().enumerate() {
        let name = format!("before {number}");
        assert!(room.create(plan, &name).await.is_err(), "{plan:?}");
        assert!(!room.path(&name).exists(), "{plan:?}");
    }
    // These errors are detected only when the root exists. The root is then discarded.
    for (number, one) in [outlives, deep].into_iter().enumerate() {
        let name = format!("after {number}");
        let plan = CeremonyPlan { intermediates: vec![one], ..good.clone() };
        let error = room.create(&plan, &name).await.unwrap_err();
        assert!(matches!(error, CeremonyError::Certificate(_)), "{error}");
        assert!(!room.path(&name).exists());
    }
    let out = room.path("weak");
    let weak = create_root(&good, room.folder.path(), &out, b"short", &room.clock, "t").await.unwrap_err();
    assert!(matches!(weak, CeremonyError::WeakPassphrase), "{weak}");
    room.create(&good, "once").await.unwrap();
    let repeated = room.create(&good, "once").await.unwrap_err();
    assert!(
        matches!(&repeated, CeremonyError::File { error, .. } if error.to_string().contains("not empty")),
        "{repeated}"
    );
    // A CSR that was not signed with its own key.
    let text = fs::read_to_string(room.path("web.csr")).unwrap();
    let mut der = pem::blocks(text.as_bytes()).next().unwrap().1;
    let last = der.len() - 1;
    der[last] ^= 1;
    fs::write(room.path("web.csr"), &der).unwrap();
    let error = room.create(&good, "forged").await.unwrap_err();
    assert!(matches!(error, CeremonyError::Request { .. }), "{error}");
}
