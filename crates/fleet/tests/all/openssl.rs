//! The chains as OpenSSL verifies them. OpenSSL shares no code with the fleet.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet::{Counters, Fleet, Truth};
use tempfile::TempDir;

use crate::{address_of, of_kind, one_of_each};

/// Reached only if a handshake is never counted.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `openssl`. Returns whether it succeeded, and the output of both streams.
fn openssl(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("this test needs openssl: apt-get install -y openssl");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Creates a directory with the fleet's roots in `roots.pem`.
fn roots(fleet: &Fleet) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("roots.pem");
    std::fs::write(&path, fleet.roots_pem()).unwrap();
    (folder, path)
}

/// Connects to the endpoint. Returns whether it succeeded, and the output of `s_client`.
fn connect(truth: &Truth, more: &[&str]) -> (bool, String) {
    let address = address_of(truth).to_string();
    let mut arguments = vec!["s_client", "-connect", &address, "-servername", &truth.host];
    arguments.extend(more);
    openssl(&arguments)
}

/// Returns the PEM blocks in a text.
fn certificates(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let parts = text.split_inclusive(END).filter(|part| part.ends_with(END));
    parts.filter_map(|part| part.find("-----BEGIN").map(|start| part[start..].to_owned())).collect()
}

fn fingerprint(pem: &str) -> String {
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    x509::Fingerprint::of(&STANDARD.decode(body).unwrap()).to_string()
}

/// Returns the counters once the servers have counted this many handshakes: a client may end earlier.
async fn counted(fleet: &Fleet, handshakes: u64) -> Counters {
    let noticed = async {
        loop {
            let counters = fleet.counters();
            if counters.handshakes_full + counters.handshakes_resumed >= handshakes {
                return counters;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, noticed).await.expect("handshakes are counted")
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_accepts_healthy_chains() {
    let fleet = one_of_each().await;
    let (folder, roots) = roots(&fleet);
    for kind in ["p256", "p384", "ed25519", "rsa-chain", "long-chain", "cross-signed", "hundred-names"] {
        let truth = of_kind(&fleet, kind);
        let trusting =
            ["-CAfile", path(&roots), "-verify_return_error", "-verify_hostname", &truth.host, "-showcerts"];
        let (content, text) = connect(&truth, &trusting);
        assert!(content && text.contains("Verify return code: 0 (ok)"), "{kind}: {text}");
        let sent = certificates(&text);
        assert_eq!(Some(fingerprint(&sent[0])), truth.leaf_sha256, "{kind}");
        let (leaf, above) = (folder.path().join("leaf.pem"), folder.path().join("above.pem"));
        std::fs::write(&leaf, &sent[0]).unwrap();
        std::fs::write(&above, sent[1..].concat()).unwrap();
        let verify = ["verify", "-CAfile", path(&roots), "-untrusted", path(&above), path(&leaf)];
        let (content, text) = openssl(&verify);
        assert!(content, "{kind}: {text}");
    }
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_rejects_flawed_chains_with_the_expected_error() {
    // Error numbers as in openssl-verification-options(1).
    let wrong = [
        ("expired", "verify error:num=10:"),
        ("not-yet-valid", "verify error:num=9:"),
        ("self-signed", "verify error:num=18:"),
        ("untrusted", "verify error:num=19:"),
        ("incomplete-chain", "verify error:num=20:"),
        ("name-mismatch", "verify error:num=62:"),
    ];
    let fleet = one_of_each().await;
    let (_folder, roots) = roots(&fleet);
    for (kind, error) in wrong {
        let truth = of_kind(&fleet, kind);
        let trusting = ["-CAfile", path(&roots), "-verify_return_error", "-verify_hostname", &truth.host];
        let (content, text) = connect(&truth, &trusting);
        assert!(!content && text.contains(error), "{kind}: {text}");
    }
    fleet.stop().await;
}

/// A scanner must not resume sessions. A ticket belongs to an earlier handshake, and the resuming client keeps the earlier
/// certificate, whatever the server presents now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_session_shows_the_certificate_before_replacement() {
    let fleet = one_of_each().await;
    let (folder, _) = roots(&fleet);
    let session = folder.path().join("session.pem");
    let truth = of_kind(&fleet, "tls-1.2-only");
    let (_, text) = connect(&truth, &["-sess_out", path(&session)]);
    let old = fingerprint(&certificates(&text)[0]);
    assert_eq!(Some(&old), truth.leaf_sha256.as_ref());
    let new = fleet.replace_certificate(&truth.host).expect("a new certificate");
    let (_, text) = connect(&truth, &["-sess_in", path(&session)]);
    assert!(text.contains("Reused, TLSv1.2"), "{text}");
    assert_eq!(fingerprint(&certificates(&text)[0]), old);
    let (_, text) = connect(&truth, &[]);
    assert!(text.contains("New, TLSv1.2"), "{text}");
    assert_eq!(fingerprint(&certificates(&text)[0]), new);
    let counters = counted(&fleet, 3).await;
    assert_eq!((counters.handshakes_full, counters.handshakes_resumed), (2, 1));
    assert_eq!(counters.certificates_sent, 2, "none was sent to the client that resumed");
    fleet.stop().await;
}
