use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use proptest::prelude::*;

use super::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(FIXTURES).join(name)).unwrap()
}

/// Returns the DER of `chain.pem`: leaf, then root.
fn chain() -> [Vec<u8>; 2] {
    let found = contents(&fixture("chain.pem"), &Passwords::default()).unwrap();
    <[Vec<u8>; 2]>::try_from(ders(&found)).unwrap()
}

fn ders(contents: &Contents) -> Vec<Vec<u8>> {
    contents.certificates.iter().map(|found| found.der.clone()).collect()
}

/// Returns alias, entry and index of each certificate.
fn positions(contents: &Contents) -> Vec<(Option<&str>, u32, u32)> {
    let certificates = contents.certificates.iter();
    certificates.map(|found| (found.alias.as_deref(), found.entry, found.index)).collect()
}

fn passwords(text: &str) -> Passwords {
    Passwords::from_lines(text)
}

/// A temporary directory with a key, a leaf and its root created by openssl; runs `openssl` in it.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        world.openssl("ecparam -name prime256v1 -genkey -noout -out key.pem");
        world.openssl("req -x509 -new -key key.pem -subj /CN=root.example -days 30 -out root.pem");
        world.openssl("req -new -key key.pem -subj /CN=leaf.example -out leaf.csr");
        world.openssl("x509 -req -in leaf.csr -CA root.pem -CAkey key.pem -CAcreateserial -out leaf.pem");
        world.openssl("x509 -in root.pem -outform DER -out root.der");
        world.openssl("x509 -in leaf.pem -outform DER -out leaf.der");
        world
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(self.0.path())
            .output()
            .expect("openssl is needed: apt-get install -y openssl");
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> std::path::PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn read(&self, name: &str, passwords: &Passwords) -> Result<Contents, FileError> {
        read(&self.path(name), passwords)
    }

    fn leaf_and_root(&self) -> BTreeSet<Vec<u8>> {
        BTreeSet::from([self.bytes("leaf.der"), self.bytes("root.der")])
    }
}

#[test]
fn all_openssl_certificate_formats_are_read_unchanged() {
    let world = World::new();
    world.openssl("x509 -in root.pem -trustout -addtrust serverAuth -out trusted.pem");
    world.openssl("crl2pkcs7 -nocrl -certfile leaf.pem -certfile root.pem -out bundle.p7b");
    world.openssl("crl2pkcs7 -nocrl -certfile leaf.pem -certfile root.pem -outform DER -out bundle.p7c");
    // BER: indefinite lengths, constructed strings.
    world.openssl("cms -sign -stream -signer leaf.pem -inkey key.pem -certfile root.pem -in leaf.csr -binary -nodetach -outform DER -out stream.p7m");
    let (leaf, root) = (world.bytes("leaf.der"), world.bytes("root.der"));
    world.write("two.der", [leaf.clone(), root.clone(), b"\n".to_vec()].concat());
    let cases: [(&str, Format, &[&Vec<u8>]); 8] = [
        ("leaf.pem", Format::Pem, &[&leaf]),
        ("trusted.pem", Format::Pem, &[&root]),
        ("leaf.der", Format::Der, &[&leaf]),
        ("two.der", Format::Der, &[&leaf, &root]),
        ("bundle.p7b", Format::Pkcs7, &[&leaf, &root]),
        ("bundle.p7c", Format::Pkcs7, &[&leaf, &root]),
        ("stream.p7m", Format::Pkcs7, &[&leaf, &root]),
        ("root.pem", Format::Pem, &[&root]),
    ];
    for (name, format, expected) in cases {
        let found = world.read(name, &Passwords::default()).unwrap();
        let expected: BTreeSet<Vec<u8>> = expected.iter().map(|&der| der.clone()).collect();
        assert_eq!(found.format, format, "{name}");
        assert_eq!(ders(&found).into_iter().collect::<BTreeSet<_>>(), expected, "{name}");
        assert_eq!(found.certificates.len(), expected.len(), "{name}");
        assert_eq!(found.notes, [""; 0], "{name}");
    }
}

#[test]
fn pkcs12_opens_only_with_the_right_password() {
    let world = World::new();
    let export = "pkcs12 -export -inkey key.pem -in leaf.pem -certfile root.pem -name server";
    for (name, how) in [
        ("modern.p12", "-passout pass:right"),
        ("legacy.p12", "-legacy -passout pass:right"),
        ("triple-des.p12", "-legacy -descert -passout pass:right"),
        ("international.p12", "-passout pass:contraseña"),
    ] {
        world.openssl(&format!("{export} {how} -out {name}"));
        let found = world.read(name, &passwords("wrong\nright\ncontraseña\n")).unwrap();
        assert_eq!(found.format, Format::Pkcs12);
        assert_eq!(ders(&found).into_iter().collect::<BTreeSet<_>>(), world.leaf_and_root(), "{name}");
        assert_eq!(found.certificates[0].alias.as_deref(), Some("server"), "{name}");
        let without = world.read(name, &Passwords::default()).unwrap_err();
        assert!(matches!(without, FileError::PasswordNeeded), "{name}: {without}");
        let wrong = world.read(name, &passwords("wrong\nRight\n")).unwrap_err();
        assert!(matches!(wrong, FileError::WrongPassword { tried: 2 }), "{name}: {wrong}");
    }
}

#[test]
fn pkcs12_without_required_password_is_read() {
    let world = World::new();
    let export = "pkcs12 -export -inkey key.pem -in leaf.pem -certfile root.pem";
    world.openssl(&format!("{export} -certpbe NONE -passout pass:right -out clear.p12"));
    world.openssl(&format!("{export} -passout pass: -out empty.p12"));
    // Without a MAC, openssl encrypts only the keys.
    world.openssl(&format!("{export} -nomac -passout pass:right -out without-mac.p12"));
    for name in ["clear.p12", "empty.p12", "without-mac.p12"] {
        let found = world.read(name, &Passwords::default()).unwrap();
        assert_eq!(ders(&found).into_iter().collect::<BTreeSet<_>>(), world.leaf_and_root(), "{name}");
    }
    let open = contents(&fixture("open.p12"), &Passwords::default()).unwrap();
    assert_eq!(positions(&open), [(Some("root"), 0, 0)]);
    assert_eq!(ders(&open), chain()[1..]);
}

#[test]
fn pkcs12_in_ber_encoding_is_read() {
    let world = World::new();
    world.openssl(
        "pkcs12 -export -inkey key.pem -in leaf.pem -certfile root.pem -passout pass:right -out der.p12",
    );
    let der = world.bytes("der.p12");
    let file = ber::Elements::new(&der).next().unwrap();
    let mut fields = file.inside();
    let (version, info) = (fields.next().unwrap(), fields.next().unwrap());
    let mut inside = info.inside();
    let kind = inside.next().unwrap();
    let content_bytes = inside.next().unwrap().inside().next().unwrap().content;
    // The same file with indefinite lengths, and the octet string in pieces of 1,000 bytes.
    let segments: Vec<u8> =
        content_bytes.chunks(1_000).flat_map(|chunk| ber::write(ber::OCTET_STRING, &[chunk])).collect();
    let string = [b"\x24\x80", &segments[..], b"\0\0"].concat();
    let content = [b"\xa0\x80", &string[..], b"\0\0"].concat();
    let info = [b"\x30\x80", kind.whole, &content, b"\0\0"].concat();
    let rest: Vec<u8> = fields.flat_map(|field| field.whole.to_vec()).collect();
    let ber = [b"\x30\x80", version.whole, &info, &rest, b"\0\0"].concat();
    let found = contents(&ber, &passwords("right")).unwrap();
    assert_eq!(ders(&found).into_iter().collect::<BTreeSet<_>>(), world.leaf_and_root());
}

#[test]
fn java_keystores_are_read_without_and_verified_with_a_password() {
    for (name, format) in [("store.jks", Format::Jks), ("store.jceks", Format::Jceks)] {
        let bytes = fixture(name);
        let found = contents(&bytes, &Passwords::default()).unwrap();
        assert_eq!((found.format, found.integrity_verified), (format, false), "{name}");
        let [leaf, root] = chain();
        let of = |alias: &str| -> Vec<Vec<u8>> {
            let own = found.certificates.iter().filter(|found| found.alias.as_deref() == Some(alias));
            own.map(|found| found.der.clone()).collect()
        };
        assert_eq!(of("server"), [leaf, root.clone()], "{name}");
        assert_eq!(of("root"), [root], "{name}");
        assert!(contents(&bytes, &passwords("wrong\nchangeit")).unwrap().integrity_verified, "{name}");
        assert!(!contents(&bytes, &passwords("wrong")).unwrap().integrity_verified, "{name}");
        let mut changed = bytes.clone();
        changed[40] ^= 1;
        assert!(!contents(&changed, &passwords("changeit")).is_ok_and(|found| found.integrity_verified));
    }
}

#[test]
fn certificates_of_one_key_share_its_entry() {
    let found = contents(&fixture("store.jks"), &Passwords::default()).unwrap();
    let of_server: Vec<_> =
        positions(&found).into_iter().filter(|(alias, ..)| *alias == Some("server")).collect();
    assert_eq!(of_server.iter().map(|position| position.2).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(of_server[0].1, of_server[1].1);
}

#[test]
fn certificates_are_grouped_into_chains_in_file_order() {
    let world = World::new();
    let (leaf, root, other) = (world.bytes("leaf.pem"), world.bytes("root.pem"), fixture("chain.pem"));
    let lengths = |parts: &[&Vec<u8>]| -> Vec<usize> {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let found = contents(&all, &Passwords::default()).unwrap();
        found.chains().map(<[CertificateFound]>::len).collect()
    };
    assert_eq!(lengths(&[&leaf, &root]), [2]);
    assert_eq!(lengths(&[&root, &leaf]), [1, 1]);
    assert_eq!(lengths(&[&root, &root]), [1, 1]);
    assert_eq!(lengths(&[&leaf, &leaf, &root, &other, &root]), [1, 2, 2, 1]);
    let store = contents(&fixture("store.jks"), &Passwords::default()).unwrap();
    let mut lengths: Vec<_> = store.chains().map(<[CertificateFound]>::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [1, 2]);
}

#[test]
fn secret_keys_in_a_jceks_store_are_skipped() {
    let bytes = fixture("store.jceks");
    let object = bytes.windows(4).position(|window| window == b"\xac\xed\x00\x05").unwrap();
    let found = contents(&bytes, &Passwords::default()).unwrap();
    assert_eq!((found.certificates.len(), found.notes.as_slice()), (3, &[][..]));
    let behind = found.certificates.iter().any(|certificate| {
        bytes[object..].windows(certificate.der.len()).any(|window| window == certificate.der)
    });
    assert!(behind, "the fixture has a certificate behind a secret key");
}

#[test]
fn pkcs12_of_keytool_is_read() {
    let found = contents(&fixture("keytool.p12"), &passwords("changeit")).unwrap();
    let [leaf, root] = chain();
    assert_eq!(ders(&found).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([leaf, root]));
    let aliases: BTreeSet<_> = found.certificates.iter().filter_map(|c| c.alias.clone()).collect();
    assert!(aliases.contains("server") && aliases.contains("root"), "{aliases:?}");
}

#[test]
fn pem_is_parsed_leniently_and_private_keys_are_skipped() {
    let world = World::new();
    let (leaf, root) = (world.bytes("leaf.pem"), world.bytes("root.pem"));
    let key = world.bytes("key.pem");
    let one_line = String::from_utf8(root.clone()).unwrap().replace('\n', "\r\n");
    let all = [
        b"subject=leaf\n-----BEGIN\n\n" as &[u8],
        &key,
        &leaf,
        b"between ----- lines\n",
        one_line.as_bytes(),
        &key,
    ]
    .concat();
    let found = contents(&all, &Passwords::default()).unwrap();
    assert_eq!(ders(&found), [world.bytes("leaf.der"), world.bytes("root.der")]);
    assert_eq!(positions(&found), [(None, 0, 0), (None, 0, 1)]);
    assert_eq!(found.notes, [""; 0]);
    let only_key = contents(&key, &Passwords::default()).unwrap_err();
    assert!(matches!(only_key, FileError::NoCertificate), "{only_key}");
}

#[test]
fn broken_pem_blocks_are_reported_and_the_others_are_read() {
    let good = fixture("chain.pem");
    let cases: [(&[u8], &str); 3] = [
        (b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", "certificate 1 is not base64"),
        (b"-----BEGIN CERTIFICATE-----\nMIIB\n", "certificate 1 has no END line"),
        (
            b"-----BEGIN PKCS7-----\nMAsGCSqGSIb3DQEHAw==\n-----END PKCS7-----\n",
            "is pkcs7 but cannot be parsed: only SignedData holds certificates",
        ),
    ];
    for (broken, note) in cases {
        let found = contents(&[broken, &good].concat(), &Passwords::default()).unwrap();
        assert_eq!((found.certificates.len(), found.notes.as_slice()), (2, &[note.to_owned()][..]));
        let alone = contents(broken, &Passwords::default()).unwrap_err();
        assert!(alone.to_string().contains(note), "{alone}");
    }
}

#[test]
fn files_without_certificates_are_rejected() {
    let world = World::new();
    world.openssl("req -in leaf.csr -outform DER -out request.der");
    world.openssl("pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key8.der");
    world.openssl("ec -in key.pem -outform DER -out key.der");
    world.write("text.txt", "0 is a digit, and no sequence\n");
    world.write("empty", "");
    for name in ["request.der", "key8.der", "key.der", "text.txt", "empty", "leaf.csr"] {
        let error = world.read(name, &Passwords::default()).unwrap_err();
        assert!(matches!(error, FileError::NoCertificate), "{name}: {error}");
    }
}

#[test]
fn truncated_files_yield_an_error_or_fewer_certificates() {
    let world = World::new();
    world.openssl("crl2pkcs7 -nocrl -certfile leaf.pem -certfile root.pem -outform DER -out bundle.p7c");
    let files = [
        fixture("store.jks"),
        fixture("store.jceks"),
        fixture("open.p12"),
        world.bytes("bundle.p7c"),
        world.bytes("leaf.der"),
    ];
    for file in files {
        let whole = contents(&file, &Passwords::default()).unwrap().certificates.len();
        for cut in 0..file.len() {
            if let Ok(found) = contents(&file[..cut], &Passwords::default()) {
                assert!(found.certificates.len() <= whole);
            }
        }
    }
}

/// Returns the results of a walk with file names only, sorted.
fn walked(root: &Path, passwords: &Passwords) -> (Vec<String>, WalkCounts) {
    let mut walk = Walk::new(root, passwords);
    let mut results: Vec<String> = walk
        .by_ref()
        .map(|file| {
            let name = file.path.strip_prefix(root).unwrap_or(&file.path).display().to_string();
            match file.result {
                Ok(found) => format!("{name}: {}", found.certificates.len()),
                Err(error) => format!("{name}: {error}"),
            }
        })
        .collect();
    results.sort();
    (results, walk.counts())
}

#[test]
fn walk_reads_the_whole_tree_but_no_links_out_of_it() {
    let (world, outside) = (World::new(), World::new());
    let chain = fixture("chain.pem");
    world.write("tree/a/b/c/chain.crt", &chain);
    world.write("tree/a/notes.txt", "nothing here");
    world.write("tree/a/store.jks", fixture("store.jks"));
    symlink(outside.0.path(), world.path("tree/out")).unwrap();
    symlink("..", world.path("tree/a/b/up")).unwrap();
    symlink("c/chain.crt", world.path("tree/a/b/again.crt")).unwrap();
    let _socket = UnixListener::bind(world.path("tree/socket")).unwrap();
    let (results, counts) = walked(&world.path("tree"), &Passwords::default());
    assert_eq!(results, ["a/b/c/chain.crt: 2", "a/store.jks: 3"]);
    let expected = WalkCounts { read: 3, without_certificate: 1, links_out: 1, special: 1 };
    assert_eq!(counts, expected);
}

#[test]
fn named_path_may_be_a_symlink_and_must_contain_a_certificate() {
    let world = World::new();
    world.write("real/chain.pem", fixture("chain.pem"));
    world.write("real/empty.txt", "");
    symlink("real", world.path("folder")).unwrap();
    symlink("real/chain.pem", world.path("file")).unwrap();
    let none = Passwords::default();
    assert_eq!(walked(&world.path("folder"), &none).0, ["chain.pem: 2"]);
    assert_eq!(walked(&world.path("file"), &none).0, [": 2"]);
    assert_eq!(walked(&world.path("real/empty.txt"), &none).0, [": contains no certificate"]);
    let missing = walked(&world.path("missing"), &none).0;
    assert!(missing[0].contains("cannot be read: No such file"), "{missing:?}");
}

#[test]
fn special_and_oversized_files_are_rejected() {
    let world = World::new();
    let pipe = world.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // Opening the pipe would block until there is a writer.
    let error = read(&pipe, &Passwords::default()).unwrap_err();
    assert!(matches!(error, FileError::Special("pipe")), "{error}");
    let large = world.write("large.pem", "");
    fs::File::options().write(true).open(&large).unwrap().set_len(FILE_MAX + 1).unwrap();
    let error = read(&large, &Passwords::default()).unwrap_err();
    assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
    let folder = read(world.0.path(), &Passwords::default()).unwrap_err();
    assert!(matches!(folder, FileError::Special("folder")), "{folder}");
}

#[test]
fn walk_without_results_can_be_stopped() {
    let world = World::new();
    for number in 0..20 {
        world.write(&format!("tree/{number}"), "nothing");
    }
    let root = world.path("tree");
    let none = Passwords::default();
    let mut walk = Walk::new(&root, &none).stopped_by({
        let checks = std::sync::atomic::AtomicU32::new(0);
        move || checks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 5
    });
    assert!(walk.next().is_none());
    assert_eq!(walk.counts().read, 5);
}

#[test]
fn directories_beyond_the_depth_limit_are_reported() {
    let world = World::new();
    let deep = vec!["d"; DEPTH_MAX + 3].join("/");
    world.write(&format!("tree/{deep}/chain.pem"), fixture("chain.pem"));
    let (results, _) = walked(&world.path("tree"), &Passwords::default());
    assert_eq!(results.len(), 1);
    assert!(
        results[0].ends_with("is nested more than 64 folders deep; give the path of the file, or of a deeper folder that contains it"),
        "{results:?}"
    );
}

#[test]
fn password_file_has_one_password_per_line_and_is_not_shown() {
    let world = World::new();
    let path = world.write("passwords", "first\r\n with spaces \n\nlast");
    let read = Passwords::read(&path).unwrap();
    assert_eq!(read.iter().collect::<Vec<_>>(), ["", "first", " with spaces ", "last"]);
    assert!(!format!("{read:?}").contains("first"));
    world.write("many", "x\n".repeat(PASSWORDS_MAX + 1));
    assert!(Passwords::read(&world.path("many")).is_err());
}

#[test]
fn many_unterminated_pem_markers_are_read_in_one_pass() {
    // If the rest were examined once per block, this would be 10^12 bytes.
    let text = b"-----BEGIN X-----\n".repeat(900_000);
    assert!(matches!(contents(&text, &Passwords::default()), Err(FileError::NoCertificate)));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(
        head in proptest::sample::select(vec![&b"\xfe\xed\xfe\xed\0\0\0\x02"[..], b"\xce\xce\xce\xce\0\0\0\x01", b"\x30\x80", b"-----BEGIN CERTIFICATE-----\n", b""]),
        rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = contents(&[head, &rest].concat(), &Passwords::default());
    }

    #[test]
    fn fixtures_with_one_changed_byte_do_not_panic(
        name in proptest::sample::select(vec!["store.jks", "store.jceks", "open.p12", "chain.pem"]),
        at: proptest::sample::Index,
        byte: u8,
    ) {
        let mut bytes = fixture(name);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = contents(&bytes, &Passwords::default());
    }
}
