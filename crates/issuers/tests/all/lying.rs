//! Tests that delivered certificates are compared with the order.

use issuers::{Check, IssuerError, NameRule, Order, VerifyConfig};
use x509::{GeneralName, UnixTime};

use super::authority_of_tests::{DAY, HOUR, Leaf, TestCa, request};
use super::world::order;

const NOW: UnixTime = UnixTime(1_800_000_000);

struct Scene {
    order: Order,
    root: TestCa,
    middle: TestCa,
    good: Leaf,
}

fn scene() -> Scene {
    let order = order("one", &["a.example", "*.b.example", "10.0.0.1"]);
    let root = TestCa::root("Root", NOW);
    let middle = root.below("Middle", NOW);
    let good = Leaf::of(&order.csr_der, NOW);
    Scene { order, root, middle, good }
}

fn check(config: VerifyConfig) -> Check {
    Check::new(&config).unwrap()
}

fn lie(check: &Check, order: &Order, chain: &[Vec<u8>]) -> String {
    match check.delivery(order, chain, NOW) {
        Err(IssuerError::Lying { reason }) => reason,
        other => panic!("believed: {other:?}"),
    }
}

#[test]
fn valid_chain_is_ordered_without_root_and_stray_certificates() {
    let Scene { order, root, middle, good } = scene();
    let leaf = middle.sign(&good);
    let stray = TestCa::root("Stray", NOW);
    let expected = vec![leaf.clone(), middle.der.clone()];
    let trusting = check(VerifyConfig { roots: Some(root.pem()), names: NameRule::Exact });
    let plain = check(VerifyConfig::default());
    let sent: [Vec<Vec<u8>>; 4] = [
        vec![leaf.clone(), middle.der.clone()],
        vec![leaf.clone(), middle.der.clone(), root.der.clone()],
        vec![leaf.clone(), root.der.clone(), middle.der.clone()],
        vec![leaf, stray.der.clone(), middle.der.clone(), root.der],
    ];
    for chain in sent {
        for check in [&trusting, &plain] {
            assert_eq!(check.delivery(&order, &chain, NOW).unwrap().chain, expected, "{} sent", chain.len());
        }
    }
}

#[test]
fn certificates_that_differ_from_the_order_are_rejected() {
    let Scene { order, root, middle, good } = scene();
    let plain = check(VerifyConfig::default());
    let dns = |name: &str| GeneralName::Dns(name.to_owned());
    let alter = |change: &dyn Fn(&mut Leaf)| {
        let mut leaf = good.clone();
        change(&mut leaf);
        middle.sign(&leaf)
    };
    let other_key = request(&["a.example"]).1;
    let other_spki = keys::Signer::spki(&other_key).to_vec();
    let lies: [(&str, Vec<u8>); 9] = [
        ("another public key than the CSR", alter(&|leaf| leaf.spki = other_spki.clone())),
        ("the certificate does not contain the name", alter(&|leaf| drop(leaf.names.pop()))),
        ("the certificate does not contain the name", alter(&|leaf| leaf.names[1] = dns("b.example"))),
        ("the certificate also contains", alter(&|leaf| leaf.names.push(dns("evil.example")))),
        ("the certificate also contains", alter(&|leaf| leaf.common_name = Some("evil.example".to_owned()))),
        ("expired", alter(&|leaf| leaf.not_after = NOW)),
        ("not valid before", alter(&|leaf| leaf.not_before = NOW.plus(HOUR))),
        ("certification authority", alter(&|leaf| leaf.ca = true)),
        ("the chain is invalid:", TestCa::root("Middle", NOW).sign(&good)),
    ];
    for (words, leaf) in lies {
        let reason = lie(&plain, &order, &[leaf, middle.der.clone()]);
        assert!(reason.contains(words), "{words}: {reason}");
    }
    assert!(lie(&plain, &order, &[]).contains("0 certificates"));
    assert!(
        lie(&plain, &order, &[middle.sign(&good)]).contains("the issuer's certificate is missing from the")
    );
    assert!(lie(&plain, &order, &[vec![0x30, 0], middle.der.clone()]).contains("not an X.509"));
    let elsewhere =
        check(VerifyConfig { roots: Some(TestCa::root("Root", NOW).pem()), ..VerifyConfig::default() });
    assert!(
        lie(&elsewhere, &order, &[middle.sign(&good), middle.der.clone(), root.der.clone()])
            .contains("the chain is invalid")
    );
}

#[test]
fn harmless_differences_from_the_order_are_accepted() {
    let Scene { order, middle, good, .. } = scene();
    let plain = check(VerifyConfig::default());
    let adding = check(VerifyConfig { roots: None, names: NameRule::MayAdd });
    let alter = |change: &dyn Fn(&mut Leaf)| {
        let mut leaf = good.clone();
        change(&mut leaf);
        [middle.sign(&leaf), middle.der.clone()]
    };
    let more = alter(&|leaf| leaf.names.push(GeneralName::Dns("www.a.example".to_owned())));
    assert!(adding.delivery(&order, &more, NOW).is_ok());
    for honest in [
        alter(&|leaf| leaf.names[0] = GeneralName::Dns("A.Example".to_owned())),
        alter(&|leaf| leaf.names.reverse()),
        alter(&|leaf| leaf.common_name = Some("a.example".to_owned())),
        alter(&|leaf| leaf.common_name = Some("My server".to_owned())),
        alter(&|leaf| leaf.not_before = NOW.plus(60)),
        alter(&|leaf| leaf.not_after = NOW.plus(3_000 * DAY)),
    ] {
        plain.delivery(&order, &honest, NOW).unwrap();
    }
}

#[test]
fn invalid_roots_are_rejected() {
    for roots in ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"] {
        let error = Check::new(&VerifyConfig { roots: Some(roots.to_owned()), names: NameRule::Exact }).err();
        assert!(matches!(error, Some(IssuerError::Misconfigured { .. })), "{roots:?}");
    }
}
