//! Sources of master keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use keys::{
    Argon2Cost, Context, Keyring, KeyringConfig, KeyringError, MasterKeySource, MissingFileAction, OpenError,
    PassphraseSource, UnwrappedKey,
};

const HERE: Context<'static> = Context { table: "keys", row: b"1", column: "sealed" };
/// The lowest cost that argon2 allows: the tests are not about its strength.
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 32, passes: 1, lanes: 1 };

fn file(path: &Path, create: bool) -> MasterKeySource {
    MasterKeySource::File { path: path.to_owned(), create }
}

fn passphrase(path: &Path, text: &str, create: Option<Argon2Cost>) -> MasterKeySource {
    MasterKeySource::Passphrase(PassphraseSource {
        passphrase: text.into(),
        parameters: path.to_owned(),
        create,
    })
}

fn open(current: MasterKeySource) -> Result<Keyring, KeyringError> {
    Keyring::open(&KeyringConfig { current, older: Vec::new() })
}

#[test]
fn master_key_file_is_created_owner_only_and_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master");
    assert!(matches!(open(file(&path, false)), Err(KeyringError::Missing(_))));
    let ring = open(file(&path, true)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 32));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    let sealed = ring.seal(&HERE, b"secret");
    let reopened = open(file(&path, false)).unwrap();
    assert_eq!(reopened.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"secret");
    assert_eq!(reopened.current(), file(&path, false).id().unwrap());
}

#[test]
fn concurrent_startups_create_one_master_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master");
    let ids: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| open(file(&path, true)).unwrap().current())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn master_key_file_with_open_permissions_or_wrong_content_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master");
    open(file(&path, true)).unwrap();
    for mode in [0o644, 0o604, 0o640, 0o660, 0o620, 0o460] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = open(file(&path, true)).unwrap_err();
        assert!(
            matches!(error, KeyringError::Open { mode: found, .. } if found == mode),
            "{mode:o}: {error}"
        );
        assert!(error.to_string().ends_with(&format!("run: chmod 600 {}", path.display())), "{error}");
    }
    // Mode that Kubernetes uses for group-readable mounts.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
    open(file(&path, true)).unwrap();
    for content in [&b""[..], &[1; 31], &[1; 33], b"0123456789abcdef0123456789abcdef0123456789abcdef"] {
        let path = folder.path().join("bad");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(open(file(&path, true)), Err(KeyringError::NotKey(_))), "{content:?}");
    }
}

#[test]
fn passphrase_opens_data_sealed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("parameters");
    let words = "correct horse battery";
    assert!(matches!(open(passphrase(&path, words, None)), Err(KeyringError::Missing(_))));
    assert!(matches!(open(passphrase(&path, "short", Some(CHEAP))), Err(KeyringError::WeakPassphrase)));
    let ring = open(passphrase(&path, words, Some(CHEAP))).unwrap();
    let sealed = ring.seal(&HERE, b"secret");
    // The cost stored in the file applies from now on, whatever is configured.
    let reopened = open(passphrase(&path, words, Some(Argon2Cost::default()))).unwrap();
    assert_eq!(reopened.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"secret");
    assert!(matches!(
        open(passphrase(&path, "correct horse batter", None)),
        Err(KeyringError::WrongPassphrase(_))
    ));
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("correct"), "{text}");
    let other = folder.path().join("other");
    assert_ne!(open(passphrase(&other, words, Some(CHEAP))).unwrap().current(), ring.current(), "salted");
    for (from, to) in [
        ("argon2id", "scrypt"),
        ("memory_kib = 32", "memory_kib = 99999999"),
        ("memory_kib = 32", "memory_kib = 1"),
        ("passes = 1", "passes = x"),
        ("salt = ", "salt = zz"),
    ] {
        fs::write(&other, text.replace(from, to)).unwrap();
        let error = open(passphrase(&other, words, None)).unwrap_err();
        assert!(matches!(error, KeyringError::NotParameters { .. }), "{to}: {error}");
    }
}

#[test]
fn debug_output_hides_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let master = passphrase(&folder.path().join("p"), "correct horse battery", Some(CHEAP));
    assert!(!format!("{master:?}").contains("horse"));
    let ring = open(master).unwrap();
    assert_eq!(format!("{ring:?}"), format!("Keyring {{ masters: [MasterKeyId({})], .. }}", ring.current()));
}

#[test]
fn duplicate_older_keys_are_loaded_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let config = KeyringConfig {
        current: file(&one, true),
        older: vec![file(&two, true), file(&one, true), file(&two, true)],
    };
    assert_eq!(Keyring::open(&config).unwrap().masters().len(), 2);
}

/// A key wrapper that inverts every bit and counts its calls. It can be made to fail or to return wrong answers.
#[derive(Default)]
struct Turner {
    calls: std::sync::atomic::AtomicU32,
    wrong: bool,
    failing: bool,
}

impl Turner {
    fn turn(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if self.failing { Err("away".to_owned()) } else { Ok(bytes.iter().map(|byte| !byte).collect()) }
    }
}

impl keys::Wrapper for Turner {
    fn name(&self) -> &'static str {
        "turner"
    }

    fn wrap<'a>(&'a self, key: &'a [u8]) -> futures_util::future::BoxFuture<'a, Result<Vec<u8>, String>> {
        Box::pin(async { self.turn(key) })
    }

    fn unwrap_key<'a>(
        &'a self,
        wrapped: &'a [u8],
    ) -> futures_util::future::BoxFuture<'a, Result<zeroize::Zeroizing<Vec<u8>>, String>> {
        Box::pin(async {
            let mut key = self.turn(wrapped)?;
            key[0] ^= u8::from(self.wrong);
            Ok(zeroize::Zeroizing::new(key))
        })
    }
}

#[tokio::test]
async fn wrapped_master_key_is_unwrapped_once_and_validated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrapped");
    let turner = Turner::default();
    let load = async |turner: &Turner, missing| UnwrappedKey::load(&path, turner, missing).await;
    assert!(matches!(load(&turner, MissingFileAction::Refuse).await, Err(KeyringError::Missing(_))));
    let failing = Turner { failing: true, ..Turner::default() };
    assert!(
        matches!(load(&failing, MissingFileAction::Create).await, Err(KeyringError::Wrapper { why, .. }) if why == "away")
    );
    let wrong = Turner { wrong: true, ..Turner::default() };
    assert!(matches!(load(&wrong, MissingFileAction::Create).await, Err(KeyringError::OtherKey { .. })));
    assert!(!path.exists(), "a key that does not come back is not begun with");
    let key = load(&turner, MissingFileAction::Create).await.unwrap();
    assert_eq!(format!("{key:?}"), "UnwrappedKey(…)");
    let ring = open(MasterKeySource::Unwrapped(key)).unwrap();
    let sealed = ring.seal(&HERE, b"secret");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let fresh = Turner::default();
    let reopened =
        open(MasterKeySource::Unwrapped(load(&fresh, MissingFileAction::Refuse).await.unwrap())).unwrap();
    for _ in 0..100 {
        assert_eq!(reopened.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"secret");
    }
    assert_eq!(fresh.calls.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert!(matches!(load(&wrong, MissingFileAction::Refuse).await, Err(KeyringError::OtherKey { .. })));
    let text = fs::read_to_string(&path).unwrap();
    for (from, to) in [("turner", "other"), ("wrapped = ", "wrapped = !"), ("master_key = ", "other = ")] {
        fs::write(&path, text.replace(from, to)).unwrap();
        assert!(
            matches!(load(&turner, MissingFileAction::Refuse).await, Err(KeyringError::NotWrapped { .. })),
            "{to}"
        );
    }
}

#[test]
fn canary_verifies_only_with_its_own_key() {
    let folder = tempfile::tempdir().unwrap();
    let ring = open(file(&folder.path().join("a"), true)).unwrap();
    let other = open(file(&folder.path().join("b"), true)).unwrap();
    let (id, canary) = ring.canary();
    assert_eq!((ring.proves(id, &canary), other.proves(id, &canary)), (Ok(true), Ok(false)));
    let (another, of_other) = other.canary();
    assert_eq!(ring.proves(id, &of_other), Err(OpenError::Forged), "a canary of another key");
    assert_eq!(other.proves(another, &of_other), Ok(true));
    for at in 0..canary.len() {
        let mut changed = canary.clone();
        changed[at] ^= 1;
        assert!(ring.proves(id, &changed).is_err(), "octet {at}");
    }
}
