//! Contents of leaf certificates, and rotation of their keys.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::{KeyType, PrivateKey};
use proxy::mint::{Authority, LeafKeyKind, LeafKeys, Minter, VALIDITY_MAX, new_root};
use tokio_util::sync::CancellationToken;
use x509::{Certificate, GeneralName, HostOrIp};

use crate::world::{TIMEOUT, now};

const CRL: &str = "http://crl.example/proxy.crl";

fn minter(validity: Duration) -> Minter {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let root = new_root(&key, now()).unwrap();
    let authority = Authority::new(&[root], Arc::new(key), vec![CRL.to_owned()]).unwrap();
    Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), validity)
}

async fn leaf(minter: &Minter, name: &str) -> Certificate {
    let name = HostOrIp::parse(name).unwrap();
    let leaf = minter.mint(&name, LeafKeyKind::P256, now()).await.unwrap();
    Certificate::parse(&leaf.certified.cert[0]).unwrap()
}

#[tokio::test]
async fn long_names_and_ip_addresses_are_in_subject_alt_names() {
    let minter = minter(Duration::from_secs(86_400));
    let long = format!("{}.{}.example", "a".repeat(60), "b".repeat(60));
    for (name, wanted, common) in [
        ("a.example", GeneralName::Dns("a.example".into()), vec!["a.example".to_owned()]),
        // A common name has 64 characters at most (RFC 5280 appendix A.1).
        (&long, GeneralName::Dns(long.clone()), Vec::new()),
        ("10.0.0.1", GeneralName::Ip("10.0.0.1".parse().unwrap()), vec!["10.0.0.1".to_owned()]),
        ("[2001:db8::1]", GeneralName::Ip("2001:db8::1".parse().unwrap()), vec!["2001:db8::1".to_owned()]),
    ] {
        let leaf = leaf(&minter, name).await;
        assert_eq!((leaf.subject_alt_names, leaf.subject.common_names), (vec![wanted], common), "{name}");
        assert_eq!(
            (leaf.crl_urls, leaf.faults, leaf.unknown_critical),
            (vec![CRL.to_owned()], vec![], vec![])
        );
        assert_eq!(leaf.extended_key_usage.unwrap(), ["1.3.6.1.5.5.7.3.1"]);
        assert!(!leaf.basic_constraints.unwrap().ca && leaf.authority_key_id.is_some());
    }
}

#[tokio::test]
async fn leaf_validity_is_limited_to_47_days_and_serials_are_unique() {
    let minter = minter(Duration::from_secs(400 * 86_400));
    let mut serials = HashSet::new();
    for _ in 0..1_000 {
        let leaf = leaf(&minter, "a.example").await;
        assert!(leaf.not_after.since(now()) <= VALIDITY_MAX.as_secs() as i64 && leaf.not_before < now());
        let serial = leaf.serial.content().to_vec();
        // 16 bytes with 126 random bits. The first byte is never zero.
        assert!(serial.len() == 16 && serials.insert(serial));
    }
    assert_eq!(VALIDITY_MAX.as_secs(), 47 * 86_400);
}

#[tokio::test]
async fn process_leaf_keys_rotate_over_time() {
    let keys = Arc::new(LeafKeys::new().unwrap());
    let stop = CancellationToken::new();
    let (rotated, stopping) = (Arc::clone(&keys), stop.clone());
    let keeping = tokio::spawn(async move { rotated.keep(Duration::from_millis(10), stopping).await });
    for kind in [LeafKeyKind::P256, LeafKeyKind::Rsa2048] {
        let (began, mut seen) = (Instant::now(), HashSet::new());
        while seen.len() < 3 {
            assert!(began.elapsed() < TIMEOUT, "{kind:?} changes no more");
            seen.insert(keys.current(kind).await.unwrap().fingerprint());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    stop.cancel();
    keeping.await.unwrap();
}
