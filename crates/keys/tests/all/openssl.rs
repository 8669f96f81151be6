//! Interoperability with OpenSSL: each side reads the files of the other.

use std::fs;
use std::path::Path;
use std::process::Command;

use keys::{DecryptError, KeyError, KeyType, OaepHash, PrivateKey, Signer};

use crate::software::key;

/// The key types that OpenSSL 3.0 knows; ML-DSA was added in 3.5.
const KNOWN: [KeyType; 7] = [
    KeyType::Rsa2048,
    KeyType::Rsa3072,
    KeyType::Rsa4096,
    KeyType::P256,
    KeyType::P384,
    KeyType::P521,
    KeyType::Ed25519,
];

/// Runs openssl in a folder and returns its standard output.
fn openssl(folder: &Path, arguments: &str) -> Vec<u8> {
    let run = Command::new("openssl").current_dir(folder).args(arguments.split_whitespace()).output();
    let run =
        run.unwrap_or_else(|error| panic!("this test needs openssl: apt-get install -y openssl ({error})"));
    assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    run.stdout
}

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap()
}

/// Returns the SubjectPublicKeyInfo that OpenSSL derives from the key in a file.
fn spki(folder: &Path, file: &str, more: &str) -> Vec<u8> {
    openssl(folder, &format!("pkey -in {file} -pubout -outform DER {more}"))
}

#[test]
fn keys_generated_by_openssl_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let cases = [
        ("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out k", KeyType::Rsa2048),
        ("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:3072 -out k", KeyType::Rsa3072),
        ("genrsa -out k 2048", KeyType::Rsa2048),
        ("genrsa -traditional -out k 2048", KeyType::Rsa2048),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out k", KeyType::P256),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out k", KeyType::P384),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out k", KeyType::P521),
        // These files have EC PARAMETERS before the key.
        ("ecparam -genkey -name prime256v1 -out k", KeyType::P256),
        ("ecparam -genkey -name secp384r1 -out k", KeyType::P384),
        ("ecparam -genkey -name secp521r1 -noout -out k", KeyType::P521),
        ("genpkey -algorithm ED25519 -out k", KeyType::Ed25519),
    ];
    for (command, kind) in cases {
        openssl(folder, command);
        let key =
            PrivateKey::from_pem(&read(folder, "k")).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_eq!(key.key_type(), kind, "{command}");
        assert_eq!(key.spki(), spki(folder, "k", ""), "{command}");
    }
    for (form, label) in [("-traditional", "RSA PRIVATE KEY"), ("", "PRIVATE KEY")] {
        openssl(folder, "genrsa -out k 2048");
        openssl(folder, &format!("rsa -in k {form} -out t"));
        assert!(read(folder, "t").contains(&format!("BEGIN {label}")));
        assert_eq!(PrivateKey::from_pem(&read(folder, "t")).unwrap().spki(), spki(folder, "k", ""));
        openssl(folder, &format!("rsa -in k {form} -outform DER -out t"));
        let der = fs::read(folder.join("t")).unwrap();
        assert_eq!(PrivateKey::from_der(&der).unwrap().spki(), spki(folder, "k", ""));
    }
}

#[test]
fn unsupported_keys_are_rejected_with_their_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (command, name) in [
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1 -out k", "1.3.132.0.10"),
        ("genpkey -algorithm X25519 -out k", "1.3.101.110"),
        ("genpkey -algorithm ED448 -out k", "1.3.101.113"),
        ("genpkey -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048 -out k", "1.2.840.113549.1.1.10"),
        ("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2560 -out k", "2560"),
    ] {
        openssl(folder, command);
        let error = PrivateKey::from_pem(&read(folder, "k")).unwrap_err();
        assert!(matches!(&error, KeyError::Unsupported(what) if what.contains(name)), "{command}: {error:?}");
    }
    openssl(folder, "genrsa -out k 1024");
    assert!(PrivateKey::from_pem(&read(folder, "k")).is_err());
}

#[test]
fn openssl_parses_our_keys_and_verifies_signatures() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for kind in KNOWN {
        let key = key(kind);
        fs::write(folder.join("k"), key.to_pkcs8_pem().as_bytes()).unwrap();
        assert_eq!(spki(folder, "k", ""), key.spki(), "{kind}");
        let text = openssl(folder, "pkey -in k -check -noout");
        assert!(String::from_utf8_lossy(&text).contains("valid"), "{kind}");
        fs::write(folder.join("e"), key.to_encrypted_pem(b"a pass phrase".as_slice()).unwrap()).unwrap();
        fs::write(folder.join("pass"), "a pass phrase\n").unwrap();
        assert_eq!(spki(folder, "e", "-passin file:pass"), key.spki(), "{kind}");
        // OpenSSL also verifies our signature.
        fs::write(folder.join("m"), b"message").unwrap();
        fs::write(folder.join("s"), key.sign_now(b"message").unwrap()).unwrap();
        let digest = match kind {
            KeyType::Ed25519 => "",
            KeyType::P384 => "-digest sha384",
            KeyType::P521 => "-digest sha512",
            _ => "-digest sha256",
        };
        openssl(folder, &format!("pkeyutl -verify -inkey k -rawin {digest} -in m -sigfile s"));
    }
}

#[test]
fn openssl_encrypted_keys_are_decrypted_with_the_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("pass"), "secret words\n").unwrap();
    openssl(folder, "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out k");
    let public = spki(folder, "k", "");
    for how in
        ["-v2 aes-256-cbc", "-v2 aes-128-cbc -v2prf hmacWithSHA1", "-v2 aes-192-cbc -v2prf hmacWithSHA512"]
    {
        openssl(folder, &format!("pkcs8 -topk8 -in k -out e -passout file:pass {how}"));
        let text = read(folder, "e");
        assert_eq!(PrivateKey::from_pem(&text).unwrap_err(), KeyError::Encrypted);
        assert_eq!(PrivateKey::from_encrypted_pem(&text, b"secret words").unwrap().spki(), public, "{how}");
        assert_eq!(
            PrivateKey::from_encrypted_pem(&text, b"other words").unwrap_err(),
            KeyError::WrongPassphrase
        );
    }
    openssl(folder, "pkcs8 -topk8 -in k -out e -passout file:pass -scrypt");
    let error = PrivateKey::from_encrypted_pem(&read(folder, "e"), b"secret words").unwrap_err();
    assert!(matches!(error, KeyError::Unsupported(_)), "{error:?}");
    openssl(folder, "ec -in k -aes256 -passout file:pass -out old");
    assert_eq!(PrivateKey::from_pem(&read(folder, "old")).unwrap_err(), KeyError::LegacyEncryption);
}

#[test]
fn data_encrypted_by_openssl_to_an_rsa_key_is_decrypted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = key(KeyType::Rsa2048);
    fs::write(folder.join("k"), key.to_pkcs8_pem().as_bytes()).unwrap();
    fs::write(folder.join("m"), b"content key").unwrap();
    openssl(folder, "pkeyutl -encrypt -inkey k -in m -out c");
    let mut ciphertext = fs::read(folder.join("c")).unwrap();
    assert_eq!(key.rsa_decrypt_pkcs1(&ciphertext).unwrap().as_slice(), b"content key");
    ciphertext[7] ^= 1;
    assert_ne!(
        key.rsa_decrypt_pkcs1(&ciphertext).ok().as_deref().map(Vec::as_slice),
        Some(&b"content key"[..])
    );
    assert_eq!(key.rsa_decrypt_pkcs1(b"short").unwrap_err(), DecryptError::Failed);
    for (name, hash) in [
        ("sha1", OaepHash::Sha1),
        ("sha256", OaepHash::Sha256),
        ("sha384", OaepHash::Sha384),
        ("sha512", OaepHash::Sha512),
    ] {
        openssl(
            folder,
            &format!(
                "pkeyutl -encrypt -inkey k -in m -out c -pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:{name}"
            ),
        );
        let ciphertext = fs::read(folder.join("c")).unwrap();
        assert_eq!(key.rsa_decrypt_oaep(hash, &ciphertext).unwrap().as_slice(), b"content key", "{name}");
        let other = if hash == OaepHash::Sha1 { OaepHash::Sha256 } else { OaepHash::Sha1 };
        assert_eq!(key.rsa_decrypt_oaep(other, &ciphertext).unwrap_err(), DecryptError::Failed, "{name}");
    }
}
