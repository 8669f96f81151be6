//! Objects, the token, and sessions, as programs see them.

use cryptoki::error::{Error, RvError};
use cryptoki::object::{Attribute, AttributeType, ObjectClass};
use cryptoki::session::UserType;
use cryptoki::types::AuthPin;
use keys::{KeyType, PrivateKey, Signer};
use x509::build::key_sha1;

use crate::world::{KINDS, World, in_a_process, initialised, session, spki};

#[test]
fn certificates_public_and_private_keys_are_listed() {
    in_a_process("certificates::certificates_public_and_private_keys_are_listed_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn certificates_public_and_private_keys_are_listed_() {
    let world = World::new();
    let module = initialised();
    let session = session(&module);
    assert_eq!(session.find_objects(&[]).unwrap().len(), 3 * KINDS.len());
    for kind in KINDS {
        let public = spki(&world, kind.name());
        let id = Attribute::Id(key_sha1(&public).to_vec());
        for class in [ObjectClass::CERTIFICATE, ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY] {
            let by_id = session.find_objects(&[Attribute::Class(class), id.clone()]).unwrap();
            let label = Attribute::Label(kind.name().into());
            assert_eq!(by_id, session.find_objects(&[label, Attribute::Class(class)]).unwrap(), "{kind}");
            assert_eq!(by_id.len(), 1, "{kind} {class:?}");
            let attributes = session.get_attributes(by_id[0], &[AttributeType::PublicKeyInfo]).unwrap();
            assert_eq!(attributes, [Attribute::PublicKeyInfo(public.clone())]);
        }
        let wanted = [Attribute::Class(ObjectClass::PRIVATE_KEY), id];
        let private = session.find_objects(&wanted).unwrap()[0];
        let yes_and_no = [
            AttributeType::Sign,
            AttributeType::Sensitive,
            AttributeType::Extractable,
            AttributeType::Private,
        ];
        let attributes = session.get_attributes(private, &yes_and_no).unwrap();
        let wanted = [
            Attribute::Sign(true),
            Attribute::Sensitive(true),
            Attribute::Extractable(false),
            Attribute::Private(false),
        ];
        assert_eq!(attributes, wanted);
        let secrets: &[AttributeType] = match kind {
            KeyType::Rsa2048 => {
                &[AttributeType::PrivateExponent, AttributeType::Prime1, AttributeType::Coefficient]
            }
            _ => &[AttributeType::Value],
        };
        // Secret attributes are neither returned nor usable in searches.
        for secret in secrets {
            assert_eq!(session.get_attributes(private, &[*secret]).unwrap(), [], "{kind} {secret:?}");
        }
        let by_value = [Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Value(Vec::new())];
        assert_eq!(session.find_objects(&by_value).unwrap(), []);
    }
}

/// Attributes of an Ed25519 key as tools expect them: PKCS#11 3.0, mechanisms, section 2.3.11.
#[test]
fn ed25519_key_uses_its_named_curve() {
    in_a_process("certificates::ed25519_key_uses_its_named_curve_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn ed25519_key_uses_its_named_curve_() {
    let world = World::new();
    let module = initialised();
    let session = session(&module);
    let public = spki(&world, "ed25519");
    let point = [&[0x04, 0x20], &public[public.len() - 32..]].concat();
    for class in [ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY] {
        let kind = Attribute::KeyType(cryptoki::object::KeyType::EC_EDWARDS);
        let found = session.find_objects(&[Attribute::Class(class), kind]).unwrap();
        assert_eq!(found.len(), 1, "{class:?}");
        let requested = [AttributeType::EcParams, AttributeType::EcPoint];
        let attributes = session.get_attributes(found[0], &requested).unwrap();
        let wanted =
            [Attribute::EcParams(b"\x13\x0cedwards25519".to_vec()), Attribute::EcPoint(point.clone())];
        assert_eq!(attributes, wanted, "{class:?}");
    }
}

/// OpenSSL's engine in Debian 12 finds no keys at all if one has an unknown type.
#[test]
fn ed25519_keys_are_hidden_unless_enabled() {
    in_a_process("certificates::ed25519_keys_are_hidden_unless_enabled_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn ed25519_keys_are_hidden_unless_enabled_() {
    let _world = World::with("");
    let module = initialised();
    let session = session(&module);
    assert_eq!(session.find_objects(&[]).unwrap().len(), 3 * (KINDS.len() - 1));
    assert_eq!(session.find_objects(&[Attribute::Label("ed25519".into())]).unwrap(), []);
}

#[test]
fn certificate_files_are_reloaded_on_search() {
    in_a_process("certificates::certificate_files_are_reloaded_on_search_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn certificate_files_are_reloaded_on_search_() {
    let world = World::new();
    let module = initialised();
    let session = session(&module);
    let labelled = |label: &str| session.find_objects(&[Attribute::Label(label.into())]).unwrap();
    let before = labelled("p256");
    let (key, secret) = (PrivateKey::generate(KeyType::P256).unwrap(), world.chains().join("secret.pem"));
    world.certify("new", &key);
    // A file that contains a private key is ignored.
    let both = std::fs::read_to_string(world.chains().join("new.pem")).unwrap() + &key.to_pkcs8_pem();
    std::fs::write(&secret, both).unwrap();
    std::fs::remove_file(world.chains().join("p384.pem")).unwrap();
    assert_eq!(labelled("new").len(), 3);
    assert_eq!(labelled("secret"), []);
    assert_eq!(labelled("p384"), []);
    assert_eq!(labelled("p256"), before, "the others keep their handles");
    let id = Attribute::Id(key_sha1(key.spki()).to_vec());
    assert_eq!(session.find_objects(&[id]).unwrap().len(), 3);
    // Another certificate under the same file name becomes a new object.
    world.certify("p256", &key);
    assert!(labelled("p256").iter().all(|handle| !before.contains(handle)));
    assert!(session.get_attributes(before[0], &[AttributeType::Label]).is_err());
}

#[test]
fn login_is_optional_and_accepts_any_pin() {
    in_a_process("certificates::login_is_optional_and_accepts_any_pin_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn login_is_optional_and_accepts_any_pin_() {
    let _world = World::new();
    let module = initialised();
    let slot = module.get_slots_with_token().unwrap()[0];
    let token = module.get_token_info(slot).unwrap();
    assert!(token.token_initialized() && !token.login_required());
    assert_eq!(token.label(), "bulla");
    let session = session(&module);
    let login = || session.login(UserType::User, Some(&AuthPin::new("whatever".into())));
    login().unwrap();
    assert!(matches!(login(), Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _))));
    session.logout().unwrap();
    assert!(matches!(session.logout(), Err(Error::Pkcs11(RvError::UserNotLoggedIn, _))));
}

#[test]
fn number_of_sessions_is_limited() {
    in_a_process("certificates::number_of_sessions_is_limited_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn number_of_sessions_is_limited_() {
    let _world = World::new();
    let module = initialised();
    let slot = module.get_slots_with_token().unwrap()[0];
    let mut open: Vec<_> = (0..4_096).map(|_| module.open_ro_session(slot).unwrap()).collect();
    assert!(matches!(module.open_ro_session(slot), Err(Error::Pkcs11(RvError::SessionCount, _))));
    open.pop();
    assert!(module.open_ro_session(slot).is_ok());
}

#[test]
fn invalid_settings_are_rejected_at_initialization() {
    in_a_process("certificates::invalid_settings_are_rejected_at_initialization_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn invalid_settings_are_rejected_at_initialization_() {
    use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
    let module = Pkcs11::new(crate::world::library()).unwrap();
    let initialize = |flags| module.initialize(CInitializeArgs::new(flags));
    let refused = initialize(CInitializeFlags::OS_LOCKING_OK);
    assert!(matches!(refused, Err(Error::Pkcs11(RvError::GeneralError, _))), "no file: {refused:?}");
    let _world = World::with("surplus = 1");
    let refused = initialize(CInitializeFlags::OS_LOCKING_OK);
    assert!(matches!(refused, Err(Error::Pkcs11(RvError::GeneralError, _))), "a key too many: {refused:?}");
    let refused = initialize(CInitializeFlags::LIBRARY_CANT_CREATE_OS_THREADS);
    assert!(matches!(refused, Err(Error::Pkcs11(RvError::NeedToCreateThreads, _))), "{refused:?}");
}
