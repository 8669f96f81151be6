//! Keys sealed to policies open only with the policy's key and with the same context.

mod by_parts;

use keys::sealed::{
    KEM_PUBLIC, KemPublic, NodeKey, OVERHEAD, PolicyKey, SEALED_KEY_MAX, SEED, SealContext, SealedError,
    WRAP, WrapContext, check_sealed_key, seal_key,
};
use keys::{KeyError, KeyType, PrivateKey, Signer as _};
use proptest::prelude::*;

use crate::software::key;

const WRAP_CONTEXT: WrapContext = WrapContext { policy: [1; 16], generation: 1, node: [2; 16] };

fn seal_context(key: &PrivateKey) -> SealContext {
    SealContext { policy: [1; 16], generation: 1, spki_sha256: *key.spki_hash().as_bytes() }
}

#[test]
fn sealed_key_is_opened_by_the_node_holding_the_policy_key() {
    let node = NodeKey::from_bytes(&*NodeKey::generate().unwrap().to_bytes()).unwrap();
    let policy = PolicyKey::generate().unwrap();
    let wrap = policy.wrap_for(node.public(), &WRAP_CONTEXT).unwrap();
    assert_eq!(wrap.len(), WRAP);
    let opened = node.unwrap_seed(&wrap, &WRAP_CONTEXT).unwrap();
    assert_eq!(opened.public(), policy.public());
    assert_eq!(*opened.seed(), *policy.seed());
    for kind in KeyType::ALL {
        let (key, context) = (key(kind), seal_context(&key(kind)));
        let sealed = seal_key(policy.public(), &key, &context).unwrap();
        assert_eq!(sealed.len(), key.to_pkcs8_der().len() + OVERHEAD);
        assert_eq!(check_sealed_key(&sealed), Ok(()));
        let opened = opened.open_key(&sealed, &context).unwrap();
        assert_eq!(opened.spki(), key.spki(), "{kind}");
        assert_eq!(*opened.to_pkcs8_der(), *key.to_pkcs8_der(), "{kind}");
    }
}

#[test]
fn wrapped_seed_opens_only_for_its_node_policy_and_generation() {
    let (node, other) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
    let policy = PolicyKey::generate().unwrap();
    let wrap = policy.wrap_for(node.public(), &WRAP_CONTEXT).unwrap();
    assert_eq!(other.unwrap_seed(&wrap, &WRAP_CONTEXT).unwrap_err(), SealedError::Forged, "another's key");
    for context in [
        WrapContext { node: [3; 16], ..WRAP_CONTEXT },
        WrapContext { policy: [3; 16], ..WRAP_CONTEXT },
        WrapContext { generation: 2, ..WRAP_CONTEXT },
        WrapContext { policy: WRAP_CONTEXT.node, node: WRAP_CONTEXT.policy, ..WRAP_CONTEXT },
    ] {
        assert_eq!(node.unwrap_seed(&wrap, &context).unwrap_err(), SealedError::Forged, "{context:?}");
    }
    for length in [0, 1, OVERHEAD, WRAP - 1] {
        assert_eq!(
            node.unwrap_seed(&wrap[..length], &WRAP_CONTEXT).unwrap_err(),
            SealedError::Length(length)
        );
    }
    let longer = [&wrap[..], &[0]].concat();
    assert_eq!(node.unwrap_seed(&longer, &WRAP_CONTEXT).unwrap_err(), SealedError::Length(WRAP + 1));
    let mut later = wrap;
    later[0] = 2;
    let error = node.unwrap_seed(&later, &WRAP_CONTEXT).unwrap_err();
    assert_eq!(error, SealedError::Algorithm(2));
    assert!(error.to_string().contains("update"), "{error}");
}

#[test]
fn sealed_key_opens_only_for_its_policy_generation_and_public_key() {
    let (policy, other) = (PolicyKey::generate().unwrap(), PolicyKey::generate().unwrap());
    let key = key(KeyType::P256);
    let context = seal_context(&key);
    let sealed = seal_key(policy.public(), &key, &context).unwrap();
    assert_eq!(other.open_key(&sealed, &context).unwrap_err(), SealedError::Forged);
    for context in [
        SealContext { policy: [3; 16], ..context },
        SealContext { generation: 2, ..context },
        SealContext { spki_sha256: [3; 32], ..context },
    ] {
        assert_eq!(policy.open_key(&sealed, &context).unwrap_err(), SealedError::Forged, "{context:?}");
    }
    for length in [1, OVERHEAD - 1] {
        assert_eq!(policy.open_key(&sealed[..length], &context).unwrap_err(), SealedError::Length(length));
        assert_eq!(check_sealed_key(&sealed[..length]), Err(SealedError::Length(length)));
    }
    assert_eq!(policy.open_key(&[], &context).unwrap_err(), SealedError::Length(0));
    let cut = &sealed[..sealed.len() - 1];
    assert_eq!(policy.open_key(cut, &context).unwrap_err(), SealedError::Forged, "cut within what is sealed");
    let long = vec![1; SEALED_KEY_MAX + 1];
    assert_eq!(policy.open_key(&long, &context).unwrap_err(), SealedError::Length(long.len()));
    assert_eq!(check_sealed_key(&long), Err(SealedError::Length(long.len())));
    let mut later = sealed;
    later[0] = 7;
    assert_eq!(policy.open_key(&later, &context).unwrap_err(), SealedError::Algorithm(7));
    assert_eq!(check_sealed_key(&later), Err(SealedError::Algorithm(7)));
}

#[test]
fn key_is_resealed_to_the_next_generation() {
    let (old, new) = (PolicyKey::generate().unwrap(), PolicyKey::generate().unwrap());
    let key = key(KeyType::Ed25519);
    let from = seal_context(&key);
    let into = SealContext { generation: 2, ..from };
    let sealed = seal_key(old.public(), &key, &from).unwrap();
    let anew = old.reseal(&sealed, &from, new.public(), &into).unwrap();
    assert_eq!(new.open_key(&anew, &into).unwrap().spki(), key.spki());
    assert_eq!(old.open_key(&anew, &into).unwrap_err(), SealedError::Forged);
    assert_eq!(new.reseal(&sealed, &from, new.public(), &into).unwrap_err(), SealedError::Forged);
    let other = SealContext { spki_sha256: [9; 32], ..into };
    assert_eq!(old.reseal(&sealed, &from, new.public(), &other).unwrap_err(), SealedError::OtherKey);
}

/// A wrapped seed is not a sealed key, although both are sealed to key pairs of the same type.
#[test]
fn wrapped_seed_does_not_open_as_a_sealed_key() {
    let seed = PolicyKey::generate().unwrap().seed();
    let (node, policy) = (NodeKey::from_bytes(&*seed).unwrap(), PolicyKey::from_seed(&*seed).unwrap());
    assert_eq!(node.public(), policy.public());
    let wrap = policy.wrap_for(node.public(), &WRAP_CONTEXT).unwrap();
    let context = SealContext { policy: [1; 16], generation: 1, spki_sha256: [0; 32] };
    assert_eq!(policy.open_key(&wrap, &context).unwrap_err(), SealedError::Forged);
}

#[test]
fn sealing_a_key_that_differs_from_its_context_is_rejected() {
    let (policy, one) = (PolicyKey::generate().unwrap(), key(KeyType::P256));
    let context = seal_context(&key(KeyType::Ed25519));
    assert_eq!(seal_key(policy.public(), &one, &context).unwrap_err(), SealedError::OtherKey);
}

#[test]
fn foreign_sealed_keys_are_checked_against_their_context() {
    let (policy, key) = (PolicyKey::generate().unwrap(), key(KeyType::P256));
    let context = seal_context(&key);
    let foreign = |bytes: &[u8], spki: [u8; 32]| foreign_seal(policy.public(), bytes, &context, spki);
    let another = seal_context(&crate::software::key(KeyType::Ed25519)).spki_sha256;
    let lying = SealContext { spki_sha256: another, ..context };
    let sealed = foreign(&key.to_pkcs8_der(), another);
    assert_eq!(policy.open_key(&sealed, &lying).unwrap_err(), SealedError::OtherKey);
    let sealed = foreign(b"no key", context.spki_sha256);
    let error = policy.open_key(&sealed, &context).unwrap_err();
    assert!(matches!(error, SealedError::NotKey(KeyError::Malformed(_))), "{error:?}");
    let sealed = foreign(&key.to_pkcs8_der(), context.spki_sha256);
    assert_eq!(policy.open_key(&sealed, &context).unwrap().spki(), key.spki(), "another's seal of the same");
}

/// Seals as another program would: from primitives, with the context encoded by hand.
fn foreign_seal(to: &KemPublic, bytes: &[u8], context: &SealContext, spki_sha256: [u8; 32]) -> Vec<u8> {
    let aad = [
        &[0, 0, 0, 0, 0, 0, 0, 16][..],
        &context.policy,
        &[0, 0, 0, 0, 0, 0, 0, 4],
        &context.generation.to_be_bytes(),
        &[0, 0, 0, 0, 0, 0, 0, 32],
        &spki_sha256,
    ]
    .concat();
    by_parts::seal(to.as_bytes(), b"bulla private key to policy v1", &aad, bytes)
}

#[test]
fn debug_output_hides_secrets() {
    let seed = [0xab; SEED];
    let (node, policy) = (NodeKey::from_bytes(&seed).unwrap(), PolicyKey::from_seed(&seed).unwrap());
    assert_eq!(format!("{node:?} {policy:?}"), "NodeKey(…) PolicyKey(…)");
    let shown = format!("{:?}", node.public());
    assert!(shown.starts_with("KemPublic(") && shown.len() < 32, "{shown}");
}

#[test]
fn seeds_and_public_keys_are_validated() {
    for length in [0, 31, 33] {
        let bytes = vec![7; length];
        assert_eq!(NodeKey::from_bytes(&bytes).unwrap_err(), SealedError::NotSeed(length));
        assert_eq!(PolicyKey::from_seed(&bytes).unwrap_err(), SealedError::NotSeed(length));
    }
    let node = NodeKey::generate().unwrap();
    let good = node.public().as_bytes();
    assert_eq!(good.len(), KEM_PUBLIC);
    assert_eq!(KemPublic::parse(good).as_ref(), Ok(node.public()));
    assert_eq!(KemPublic::from_text(&node.public().to_text()).as_ref(), Ok(node.public()));
    for wrong in [&good[1..], &[good, &[0]].concat(), b"", &[0xff; KEM_PUBLIC]] {
        assert_eq!(KemPublic::parse(wrong), Err(SealedError::NotPublic), "{} octets", wrong.len());
    }
    assert_eq!(KemPublic::from_text("!"), Err(SealedError::NotPublic));
    assert_ne!(NodeKey::generate().unwrap().public(), node.public(), "random");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn modified_ciphertext_never_opens(at in any::<proptest::sample::Index>(), bits in 1_u8..) {
        static ONCE: std::sync::OnceLock<(NodeKey, PolicyKey, Vec<u8>, Vec<u8>)> = std::sync::OnceLock::new();
        let ec = key(KeyType::P256);
        let (node, policy, wrap, sealed) = ONCE.get_or_init(|| {
            let (node, policy) = (NodeKey::generate().unwrap(), PolicyKey::generate().unwrap());
            let wrap = policy.wrap_for(node.public(), &WRAP_CONTEXT).unwrap();
            let sealed = seal_key(policy.public(), &ec, &seal_context(&ec)).unwrap();
            (node, policy, wrap, sealed)
        });
        let flip = |bytes: &[u8]| {
            let mut changed = bytes.to_vec();
            changed[at.index(bytes.len())] ^= bits;
            changed
        };
        for error in [
            node.unwrap_seed(&flip(wrap), &WRAP_CONTEXT).unwrap_err(),
            policy.open_key(&flip(sealed), &seal_context(&ec)).unwrap_err(),
        ] {
            prop_assert!(matches!(error, SealedError::Forged | SealedError::Algorithm(_)), "{error:?}");
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..1_400)) {
        let policy = PolicyKey::from_seed(&[1; SEED]).unwrap();
        let node = NodeKey::from_bytes(&[1; SEED]).unwrap();
        let context = SealContext { policy: [1; 16], generation: 1, spki_sha256: [0; 32] };
        let first = [&[1][..], &bytes].concat();
        for bytes in [bytes, first] {
            prop_assert!(policy.open_key(&bytes, &context).is_err());
            prop_assert!(node.unwrap_seed(&bytes, &WRAP_CONTEXT).is_err());
        }
    }
}
