//! Keys on a PKCS#11 token, with SoftHSM from Debian.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::pkcs11::{Token, TokenConfig, TokenError, WrappedMasterKey};
use keys::{
    Context, Hash, KeyProvider, KeyRef, KeyType, Keyring, KeyringConfig, KeyringError, MasterKeySource,
    Scheme, SignError, Signer,
};
use x509::{PublicKey, verify_signature};

use testbed::openssl_verifies;

const INSTALL: &str = "this test needs SoftHSM: apt-get install -y softhsm2";
const PIN: &str = "1234";
const HERE: Context<'static> = Context { table: "keys", row: b"1", column: "sealed" };

/// Creates tokens for one case. SoftHSM writes to a token's files at login, and a process that starts at that moment may not see
/// the token.
fn home() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tokens")).unwrap();
    let tokens = folder.path().join("tokens");
    let config = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        tokens.display()
    );
    fs::write(folder.path().join("softhsm2.conf"), config).unwrap();
    folder
}

fn module() -> PathBuf {
    let paths = [
        "/usr/lib/softhsm/libsofthsm2.so",
        "/usr/lib64/softhsm/libsofthsm2.so",
        "/usr/local/lib/softhsm/libsofthsm2.so",
    ];
    paths.iter().map(PathBuf::from).find(|path| path.exists()).unwrap_or_else(|| panic!("{INSTALL}"))
}

/// SoftHSM finds its tokens by an environment variable, which a test must not change in its own process. Each case therefore runs
/// in a separate process, which the test of the same name starts.
fn in_a_process(case: &str) {
    let home = home();
    let conf = home.path().join("softhsm2.conf");
    for label in ["bulla", "other"] {
        let run = Command::new("softhsm2-util")
            .args(["--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "5678"])
            .env("SOFTHSM2_CONF", &conf)
            .output();
        let run = run.unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        assert!(run.status.success(), "softhsm2-util: {}", String::from_utf8_lossy(&run.stderr));
    }
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("pkcs11::inside::{case}"), "--ignored", "--nocapture"])
        .env("SOFTHSM2_CONF", &conf)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && out.contains("1 passed"), "{case}: {out}{err}");
}

macro_rules! cases {
    ($($case:ident)*) => {
        $(
            #[test]
            fn $case() { in_a_process(stringify!($case)); }
        )*
        /// Run by the tests above only, with the token's folder in the environment.
        mod inside { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "run by the test of the same name, which prepares a token"]
            async fn $case() { super::case::$case().await; }
        )* }
    };
}

cases! {
    each_key_type_signs_and_is_found_by_label_and_id
    concurrent_signatures_share_a_limited_number_of_sessions
    missing_keys_tokens_and_modules_are_reported
    lost_pkcs11_login_is_renewed
    pkcs11_wrapped_master_key_opens_only_with_its_wrapping_key
    pkcs11_token_is_a_key_provider
    digests_are_signed_with_each_scheme
    rsa_key_with_decrypt_permission_decrypts
}

mod case {
    use super::*;

    fn config() -> TokenConfig {
        TokenConfig::new(module(), "bulla", PIN.into())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    async fn signs(key: &dyn Signer) {
        let public = PublicKey::parse(key.spki()).unwrap();
        for message in [&b""[..], b"message", &[7; 10_000]] {
            let signature = key.sign(message, soon()).await.unwrap();
            assert_eq!(verify_signature(&public, &key.algorithm(), message, &signature), Ok(()), "{key:?}");
        }
    }

    pub(super) async fn each_key_type_signs_and_is_found_by_label_and_id() {
        let token = Token::open(config()).unwrap();
        for kind in [
            KeyType::Rsa2048,
            KeyType::Rsa3072,
            KeyType::P256,
            KeyType::P384,
            KeyType::P521,
            KeyType::Ed25519,
        ] {
            let label = format!("key {kind}");
            let key = token.generate(kind, &label).await.unwrap();
            assert_eq!((key.key_type(), key.label()), (kind, label.as_str()));
            signs(&key).await;
            let reopened = token.key_by_label(&label).await.unwrap();
            assert_eq!((reopened.spki(), reopened.id(), reopened.key_type()), (key.spki(), key.id(), kind));
            signs(&token.key_by_id(key.id()).await.unwrap()).await;
            // Enough signatures to cover r and s with leading zeros and high bits.
            if kind == KeyType::P256 {
                let public = PublicKey::parse(key.spki()).unwrap();
                for number in 0..300_u32 {
                    let message = number.to_be_bytes();
                    let signature = key.sign(&message, soon()).await.unwrap();
                    assert_eq!(
                        verify_signature(&public, &key.algorithm(), &message, &signature),
                        Ok(()),
                        "{number}"
                    );
                }
            }
        }
    }

    pub(super) async fn digests_are_signed_with_each_scheme() {
        let token = Token::open(config()).unwrap();
        for kind in [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::P521] {
            let key = token.generate(kind, &format!("digests {kind}")).await.unwrap();
            for hash in Hash::ALL {
                let digest: Vec<u8> = (0..hash.octets()).map(|at| 0xff - at as u8).collect();
                for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)] {
                    if scheme.check(kind, digest.len()).is_err() {
                        continue;
                    }
                    let weak = matches!(hash, Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224);
                    if scheme == Scheme::RsaPss(hash) && weak {
                        assert!(key.sign_digest(scheme, &digest, soon()).await.is_err(), "{scheme:?}");
                        continue;
                    }
                    let signature = key.sign_digest(scheme, &digest, soon()).await.unwrap();
                    assert!(openssl_verifies(key.spki(), scheme, &digest, &signature), "{kind} {scheme:?}");
                }
            }
            let wrong = key.sign_digest(Scheme::Ed25519, &[0; 36], soon()).await;
            assert!(matches!(wrong, Err(SignError::Failed(_))), "{wrong:?}");
        }
    }

    fn runs(folder: &std::path::Path, program: &str, arguments: &str) {
        let run = Command::new(program).current_dir(folder).args(arguments.split_whitespace()).output();
        let run = run.unwrap_or_else(|error| panic!("apt-get install -y openssl softhsm2 ({error})"));
        assert!(run.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    }

    pub(super) async fn rsa_key_with_decrypt_permission_decrypts() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        runs(at, "openssl", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key");
        runs(at, "openssl", "pkey -in key -pubout -out public");
        runs(at, "softhsm2-util", "--import key --token bulla --label decrypts --id d1 --pin 1234");
        let token = Token::open(config()).unwrap();
        let key = token.key_by_label("decrypts").await.unwrap();
        // Leading zeros are part of the number, even if only one byte is not zero.
        for zeros in [1, 2, 100, 255] {
            let mut clear = vec![0; 256];
            clear[zeros..].iter_mut().enumerate().for_each(|(at, byte)| *byte = 1 + at as u8 % 250);
            fs::write(at.join("clear"), &clear).unwrap();
            runs(
                at,
                "openssl",
                "pkeyutl -encrypt -pubin -inkey public -in clear -out c -pkeyopt rsa_padding_mode:none",
            );
            let c = fs::read(at.join("c")).unwrap();
            assert_eq!(*key.decrypt_raw(&c, soon()).await.unwrap(), clear, "{zeros}");
            for wrong in [&c[1..], &[&c[..], &[0]].concat()] {
                let refused = key.decrypt_raw(wrong, soon()).await;
                assert!(matches!(refused, Err(SignError::Failed(_))), "{refused:?}");
            }
        }
        // A key generated for signing only, and a key of another algorithm.
        for kind in [KeyType::Rsa2048, KeyType::P256] {
            let other = token.generate(kind, &format!("signs {kind}")).await.unwrap();
            assert!(other.decrypt_raw(&[7; 256], soon()).await.is_err(), "{kind}");
        }
    }

    pub(super) async fn concurrent_signatures_share_a_limited_number_of_sessions() {
        let token = Token::open(TokenConfig { sessions: 3, ..config() }).unwrap();
        let key: KeyRef = Arc::new(token.generate(KeyType::Rsa2048, "busy").await.unwrap());
        let tasks: Vec<_> = (0..100_u32)
            .map(|number| {
                let key = Arc::clone(&key);
                tokio::spawn(async move {
                    let message = number.to_be_bytes();
                    let signature = key.sign(&message, soon()).await.unwrap();
                    let public = PublicKey::parse(key.spki()).unwrap();
                    assert_eq!(verify_signature(&public, &key.algorithm(), &message, &signature), Ok(()));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let late = key.sign(b"x", Instant::now() - Duration::from_secs(1)).await;
        assert!(matches!(late, Ok(_) | Err(SignError::Late)), "{late:?}");
        signs(&*key).await;
    }

    pub(super) async fn missing_keys_tokens_and_modules_are_reported() {
        let token = Token::open(config()).unwrap();
        let error = token.key_by_label("none").await.unwrap_err();
        assert!(matches!(&error, TokenError::NoKey(which) if which.contains("none")), "{error}");
        for _ in 0..2 {
            token.generate(KeyType::P256, "twice").await.unwrap();
        }
        let error = token.key_by_label("twice").await.unwrap_err();
        assert!(matches!(error, TokenError::SeveralKeys(_)), "{error}");
        let error = token.generate(KeyType::MlDsa65, "x").await.unwrap_err();
        assert!(matches!(error, TokenError::Kind(KeyType::MlDsa65)), "{error}");
        let error = Token::open(TokenConfig { label: "missing".to_owned(), ..config() }).unwrap_err();
        assert!(
            matches!(&error, TokenError::NoToken { available, .. } if available.contains("bulla")),
            "{error}"
        );
        let error = Token::open(TokenConfig { module: "/none.so".into(), ..config() }).unwrap_err();
        assert!(matches!(error, TokenError::Module { .. }), "{error}");
        // A token without a login so far: the first login of a process decides.
        let error = Token::open(TokenConfig { label: "other".to_owned(), pin: "9999".into(), ..config() })
            .unwrap_err();
        assert!(matches!(error, TokenError::Pin { .. }), "{error}");
        assert!(!format!("{token:?} {:?}", config()).contains(PIN));
    }

    pub(super) async fn lost_pkcs11_login_is_renewed() {
        let token = Token::open(config()).unwrap();
        let key = token.generate(KeyType::P256, "lost").await.unwrap();
        signs(&key).await;
        // Another part of the process logs out. That has the same effect as a token that lost power.
        let context = cryptoki::context::Pkcs11::new(module()).unwrap();
        let mut slots = context.get_slots_with_initialized_token().unwrap().into_iter();
        let ours = |slot: &_| context.get_token_info(*slot).unwrap().label() == "bulla";
        let slot = slots.find(ours).unwrap();
        context.open_ro_session(slot).unwrap().logout().unwrap();
        signs(&key).await;
    }

    pub(super) async fn pkcs11_wrapped_master_key_opens_only_with_its_wrapping_key() {
        let folder = tempfile::tempdir().unwrap();
        let wrapped = |label: &str, create| {
            let token = Token::open(config()).unwrap();
            MasterKeySource::Pkcs11(WrappedMasterKey {
                token,
                key_label: label.to_owned(),
                path: folder.path().join("m"),
                create,
            })
        };
        let open = |current| Keyring::open(&KeyringConfig { current, older: Vec::new() });
        assert!(matches!(open(wrapped("kek", false)), Err(KeyringError::Missing(_))));
        let ring = open(wrapped("kek", true)).unwrap();
        let sealed = ring.seal(&HERE, b"secret");
        let reopened = open(wrapped("kek", false)).unwrap();
        assert_eq!(reopened.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"secret");
        assert_eq!(fs::metadata(folder.path().join("m")).unwrap().len(), 61);
        assert!(matches!(open(wrapped("another", false)), Err(KeyringError::Module(_))));
        let mut content = fs::read(folder.path().join("m")).unwrap();
        content[20] ^= 1;
        fs::write(folder.path().join("m"), &content).unwrap();
        assert!(matches!(open(wrapped("kek", false)), Err(KeyringError::Module(_))));
        fs::write(folder.path().join("m"), &content[..60]).unwrap();
        assert!(matches!(open(wrapped("kek", false)), Err(KeyringError::NotKey(_))));
    }

    pub(super) async fn pkcs11_token_is_a_key_provider() {
        let provider: Arc<dyn KeyProvider> = Arc::new(Token::open(config()).unwrap());
        assert_eq!(provider.name(), "pkcs11");
        let generated = provider.generate(KeyType::P384, "held").await.unwrap();
        assert!(generated.locator.starts_with("pkcs11:token=bulla;id="), "{}", generated.locator);
        let opened = provider.open(&generated.locator).await.unwrap();
        assert_eq!(opened.spki(), generated.signer.spki());
        signs(&*opened).await;
        assert!(matches!(provider.open("nonsense").await.unwrap_err(), SignError::Failed(_)));
        let missing = generated.locator.replace("id=", "id=%00");
        assert!(matches!(provider.open(&missing).await.unwrap_err(), SignError::Failed(_)));
    }
}
