//! `bulla key serve` with keys in cloud KMS services.

use crate::key_service::Fixture;

const SETTINGS: [(&str, &str, bool); 3] = [
    ("aws_kms", r#"{ key = "alias/web", region = "eu-west-1" }"#, cfg!(feature = "aws")),
    ("azure_keys", r#"{ key = "https://v.vault.azure.net/keys/web" }"#, cfg!(feature = "azure")),
    (
        "gcp_kms",
        r#"{ version = "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1" }"#,
        cfg!(feature = "gcp"),
    ),
];

/// The build is checked before any request is sent. `config check` reports it too.
#[test]
fn cloud_keys_are_rejected_in_a_build_without_the_feature() {
    let fixture = Fixture::new();
    for (setting, key, built) in SETTINGS {
        std::fs::write(fixture.path("bulla.toml"), format!("[keys]\n{setting} = [{key}]\n")).unwrap();
        let mut command = crate::world::bulla();
        let run =
            command.current_dir(fixture.folder.path()).args(["config", "check", "--config", "bulla.toml"]);
        let run =
            run.env("HOME", fixture.folder.path()).env("BULLA_DATA", fixture.path("data")).output().unwrap();
        let printed = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.success(), built, "{setting}: {printed}");
        if !built {
            let feature = setting.split('_').next().unwrap();
            let named = [format!("keys.{setting}"), format!("`--features {feature}`")];
            assert!(named.iter().all(|named| printed.contains(named)), "{printed}");
        }
        std::fs::write(fixture.path("bulla.toml"), format!("[keys]\n{setting} = [{{ nothing = 1 }}]\n"))
            .unwrap();
        let mut command = crate::world::bulla();
        let run =
            command.current_dir(fixture.folder.path()).args(["config", "check", "--config", "bulla.toml"]);
        let run =
            run.env("HOME", fixture.folder.path()).env("BULLA_DATA", fixture.path("data")).output().unwrap();
        assert!(!run.status.success(), "{setting} with an unknown key");
    }
}

/// A simulated AWS KMS key, over the socket, with credentials from the environment.
#[cfg(feature = "aws")]
#[test]
fn aws_kms_keys_sign() {
    use fleet::cloud::keys::KeyServices;
    use fleet::cloud::{CloudBehavior, Fault};

    use crate::key_service::{figures, sign};

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let services = runtime.block_on(async { KeyServices::start(&CloudBehavior::default()) }).unwrap();
    let mut fixture = Fixture::new();
    fixture.environment = vec![
        ("AWS_ACCESS_KEY_ID", "id".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
    ];
    let endpoint = services.endpoint();
    let key = |name: &str| {
        format!("{{ key = \"alias/{name}\", region = \"eu-west-1\", endpoint = \"{endpoint}\" }}")
    };
    let text = format!("[keys]\naws_kms = [{}, {}]\n", key("rsa-2048"), key("p-256"));
    std::fs::write(fixture.path("bulla.toml"), text).unwrap();
    let printed = fixture.serve(&["--config", "bulla.toml"]);
    assert!(printed.contains("bulla signs with 2 keys"), "{printed}");
    let mut stream = fixture.socket();
    for (name, opcode, length, options) in [
        ("p-256", 0x15, 32, ""),
        ("p-256", 0x17, 64, ""),
        ("rsa-2048", 0x06, 48, "-pkeyopt digest:sha384"),
        (
            "rsa-2048",
            0x35,
            32,
            "-pkeyopt digest:sha256 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:digest",
        ),
    ] {
        let spki = &services.keys().iter().find(|key| key.name == name).unwrap().spki;
        let ski = x509::build::key_sha1(spki);
        let digest = vec![7; length];
        let (reply, signature) = sign(&mut stream, opcode, &ski, &digest);
        assert_eq!(reply, 0xf0, "{name} {opcode:#x}: {signature:?}");
        for (file, length) in [("public", &spki[..]), ("digest", &digest[..]), ("signature", &signature[..])]
        {
            std::fs::write(fixture.path(file), length).unwrap();
        }
        let verify = "pkeyutl -verify -pubin -keyform DER -inkey public -in digest -sigfile signature";
        fixture.openssl(&format!("{verify} {options}"));
    }
    // A wrong signature is never returned.
    let spki = &services.keys().iter().find(|key| key.name == "p-256").unwrap().spki;
    services.set_fault(Fault::WrongSignatures);
    assert_eq!(sign(&mut stream, 0x15, &x509::build::key_sha1(spki), &[7; 32]), (0xff, vec![1]));
    let figures = figures(&printed);
    for (outcome, count) in [("done", 4), ("wrong", 1)] {
        let line = format!(
            "bulla_keyless_cloud_signatures_total{{service=\"AWS KMS\",outcome=\"{outcome}\"}} {count}"
        );
        assert!(figures.contains(&line), "{line}: {figures}");
    }
    // Both keys and all schemes share one destination. The withheld signature counts as an error.
    let of = "{destination=\"aws-kms:eu-west-1\"";
    for (name, value) in [
        (format!("request_duration_seconds_count{of}}}"), 5),
        (format!("requests_in_flight{of}}}"), 0),
        (format!("requests_in_flight_max{of}}}"), 8_192),
        (format!("calls_max{of}}}"), 64),
        (format!("errors_total{of},error=\"internal\"}}"), 1),
        (format!("refusals_total{of},kind=\"key\"}}"), 0),
    ] {
        let line = format!("bulla_keyless_destination_{name} {value}\n");
        assert!(figures.contains(&line), "{line}: {figures}");
    }
    assert_eq!(fixture.stop(), Some(0));
}
