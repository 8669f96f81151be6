//! Where master keys come from.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use keys::{Argon2Cost, Context, Keyring, KeyringConfig, KeyringError, MasterKey, PassphraseSource};

const HERE: Context<'static> = Context { table: "keys", row: b"1", column: "sealed" };
/// The least argon2 allows: the tests are of the plumbing.
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 32, passes: 1, lanes: 1 };

fn file(path: &Path, create: bool) -> MasterKey {
    MasterKey::File { path: path.to_owned(), create }
}

fn passphrase(path: &Path, text: &str, create: Option<Argon2Cost>) -> MasterKey {
    MasterKey::Passphrase(PassphraseSource { passphrase: text.into(), parameters: path.to_owned(), create })
}

fn open(current: MasterKey) -> Result<Keyring, KeyringError> {
    Keyring::open(&KeyringConfig { current, older: Vec::new() })
}

#[test]
fn a_file_is_made_for_its_owner_alone_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master");
    assert!(matches!(open(file(&path, false)), Err(KeyringError::Missing(_))));
    let ring = open(file(&path, true)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 32));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    let sealed = ring.seal(&HERE, b"secret");
    let again = open(file(&path, false)).unwrap();
    assert_eq!(again.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"secret");
    assert_eq!(again.current(), file(&path, false).id().unwrap());
}

#[test]
fn many_that_start_at_once_have_one_key() {
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
fn a_file_that_everybody_reads_or_that_is_no_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master");
    open(file(&path, true)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(open(file(&path, true)), Err(KeyringError::Open { mode: 0o644, .. })));
    // As Kubernetes mounts it for a group.
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
fn a_passphrase_opens_what_it_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("parameters");
    let words = "correct horse battery";
    assert!(matches!(open(passphrase(&path, words, None)), Err(KeyringError::Missing(_))));
    assert!(matches!(open(passphrase(&path, "short", Some(CHEAP))), Err(KeyringError::WeakPassphrase)));
    let ring = open(passphrase(&path, words, Some(CHEAP))).unwrap();
    let sealed = ring.seal(&HERE, b"secret");
    // The cost is the file's from now on, whatever is asked for.
    let again = open(passphrase(&path, words, Some(Argon2Cost::default()))).unwrap();
    assert_eq!(again.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"secret");
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
fn nothing_secret_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let master = passphrase(&folder.path().join("p"), "correct horse battery", Some(CHEAP));
    assert!(!format!("{master:?}").contains("horse"));
    let ring = open(master).unwrap();
    assert_eq!(format!("{ring:?}"), format!("Keyring {{ masters: [MasterKeyId({})], .. }}", ring.current()));
}

#[test]
fn an_older_key_named_twice_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let config = KeyringConfig {
        current: file(&one, true),
        older: vec![file(&two, true), file(&one, true), file(&two, true)],
    };
    assert_eq!(Keyring::open(&config).unwrap().masters().len(), 2);
}
