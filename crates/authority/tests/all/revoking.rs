//! Tests of bulk revocation and of the resulting CRLs, verified with OpenSSL.

use std::collections::HashSet;

use authority::AuthorityOptions;
use authority::crl::CrlPart;
use authority::issue::{IssueRequest, IssuedRef, Source};
use authority::revoke::{CertificateStatus, RevocationDates, RevocationFilter, RevokeError, Selection};
use authority::tables::IssuedFilter;
use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;
use x509::crl::{Crl, Reason};
use x509::{Certificate, SpkiHash, UnixTime};

use crate::fixture::eventually;
use crate::office::{Office, both, new_spki, options, request};

both! {
    certificate_is_revoked_once_by_id_serial_or_fingerprint
    only_holds_are_lifted_and_reasons_only_escalate
    one_filter_revokes_a_thousand_certificates_in_few_statements
    key_block_revokes_all_its_certificates_and_rejects_new_ones
    key_block_revokes_certificates_issued_concurrently
    invalid_revocation_dates_and_selections_are_rejected
    crls_are_numbered_and_shared_by_all_nodes
    delta_crl_applies_to_every_unexpired_full_crl
    expired_certificates_leave_the_crl_after_one_more_crl
    expired_ca_publishes_one_last_crl
}

fn filter(profile: &str) -> Selection {
    Selection::Filter(RevocationFilter { profile: Some(profile.to_owned()), ..RevocationFilter::default() })
}

async fn crl(office: &Office) -> Crl {
    let document = office.authority.crl(office.ca.id, CrlPart::Full).await.unwrap().unwrap();
    let crl = Crl::parse(&document.der).unwrap();
    crl.signed_by(&office.ca.certificate.public_key).unwrap();
    assert_eq!(document.entries as usize, crl.len());
    crl
}

async fn certificate_is_revoked_once_by_id_serial_or_fingerprint(office: Office) {
    let authority = &office.authority;
    let issued = [office.issue("web", &["a.example"]).await, office.issue("web", &["b.example"]).await];
    let good = office.issue("web", &["c.example"]).await;
    assert!(crl(&office).await.is_empty(), "a CA has a CRL before anything is revoked");
    authority.tick().await.unwrap();

    let first =
        authority.revoke(Selection::Id(issued[0].id), Reason::Superseded, None, "user:bob").await.unwrap();
    assert_eq!((first.count, first.already, first.expired), (1, 0, 0));
    let second =
        authority.revoke(Selection::Id(issued[0].id), Reason::Superseded, None, "user:bob").await.unwrap();
    assert_eq!((second.count, second.already), (0, 1));
    let since = UnixTime(office.clock.now_seconds() - 3_600);
    let dates = RevocationDates { revoked_at: Some(since), invalid_since: Some(since.plus(-60)) };
    let by_serial = Selection::Serial { ca: office.ca.id, serial: issued[1].serial.clone() };
    authority.revoke_with_invalidity_date(by_serial, Reason::KeyCompromise, dates, "user:bob").await.unwrap();
    let by_hash = Selection::Fingerprint(issued[1].fingerprint);
    assert_eq!(authority.revoke(by_hash, Reason::KeyCompromise, None, "user:bob").await.unwrap().already, 1);
    let unknown = authority.revoke(Selection::Id(Uuid::new_v4()), Reason::Superseded, None, "user:bob").await;
    assert!(matches!(unknown, Err(RevokeError::Unknown)));

    assert_eq!(authority.tick().await.unwrap().crls, 1);
    let list = crl(&office).await;
    assert_eq!(list.len(), 2);
    let entry = list.find(&issued[1].serial).unwrap();
    assert_eq!((entry.at, entry.reason), (since, Some(Reason::KeyCompromise)));
    assert_eq!(entry.invalidity_date, Some(since.plus(-60)));
    let status = authority.status(&IssuedRef::Id(issued[1].id)).await.unwrap();
    let revoked = CertificateStatus::Revoked {
        at: since,
        reason: Reason::KeyCompromise,
        invalid_since: Some(since.plus(-60)),
    };
    assert_eq!(status, Some(revoked));
    assert_eq!(authority.status(&IssuedRef::Id(good.id)).await.unwrap(), Some(CertificateStatus::Good));

    // OpenSSL sees the same result.
    office.write_chain();
    let document = authority.crl(office.ca.id, CrlPart::Full).await.unwrap().unwrap();
    office.write("ca.crl", &document.der);
    let shown = office.openssl("crl -inform DER -in ca.crl -CAfile ca.pem -noout -text -verify");
    assert!(
        shown.contains("Key Compromise") && shown.contains("Superseded") && shown.contains("Invalidity Date")
    );
    office.openssl("crl -inform DER -in ca.crl -out crl.pem");
    let root_crl = authority.crl(office.root.id, CrlPart::Full).await.unwrap().unwrap();
    office.write("root.crl", &root_crl.der);
    office.openssl("crl -inform DER -in root.crl -out root-crl.pem");
    let check =
        "verify -crl_check_all -CAfile root.pem -untrusted ca.pem -CRLfile crl.pem -CRLfile root-crl.pem";
    office.write("good.pem", good.chain_pem());
    office.write("bad.pem", issued[0].chain_pem());
    office.openssl(&format!("{check} good.pem"));
    let refused = office.try_openssl(&format!("{check} bad.pem")).unwrap_err();
    assert!(refused.contains("certificate revoked"), "{refused}");
    assert_eq!(office.audited().await["certificate.revoke"], 2);
}

async fn only_holds_are_lifted_and_reasons_only_escalate(office: Office) {
    let authority = &office.authority;
    let issued = office.issue("web", &["a.example"]).await;
    let revoke = |reason| authority.revoke(Selection::Id(issued.id), reason, None, "user:bob");
    let reason_now = || async {
        match authority.status(&IssuedRef::Id(issued.id)).await.unwrap().unwrap() {
            CertificateStatus::Revoked { reason, .. } => Some(reason),
            _ => None,
        }
    };
    assert_eq!(revoke(Reason::RemoveFromCrl).await.unwrap().count, 0, "nothing is on hold");
    assert_eq!(revoke(Reason::CertificateHold).await.unwrap().count, 1);
    assert_eq!(reason_now().await, Some(Reason::CertificateHold));
    authority.tick().await.unwrap();
    assert_eq!(crl(&office).await.len(), 1);
    assert_eq!(revoke(Reason::RemoveFromCrl).await.unwrap().count, 1);
    assert_eq!(reason_now().await, None);
    authority.tick().await.unwrap();
    assert_eq!(crl(&office).await.len(), 0);
    assert_eq!(revoke(Reason::CertificateHold).await.unwrap().count, 1);
    assert_eq!(revoke(Reason::CessationOfOperation).await.unwrap().count, 1);
    assert_eq!(revoke(Reason::RemoveFromCrl).await.unwrap().count, 0, "only a hold ends");
    assert_eq!(revoke(Reason::CertificateHold).await.unwrap().count, 0);
    assert_eq!(reason_now().await, Some(Reason::CessationOfOperation));
    assert_eq!(revoke(Reason::KeyCompromise).await.unwrap().count, 1);
    assert_eq!(revoke(Reason::Superseded).await.unwrap().count, 0);
    assert_eq!(reason_now().await, Some(Reason::KeyCompromise));
    // The same with a list of certificates.
    let others = [office.issue("web", &["b.example"]).await.id, office.issue("web", &["c.example"]).await.id];
    let list =
        |reason| authority.revoke(Selection::Ids([&others[..], &others].concat()), reason, None, "user:bob");
    assert_eq!(list(Reason::CertificateHold).await.unwrap().count, 2);
    assert_eq!(list(Reason::RemoveFromCrl).await.unwrap().count, 2);
    assert_eq!(list(Reason::Superseded).await.unwrap().count, 2);
    let second = list(Reason::Superseded).await.unwrap();
    assert_eq!((second.count, second.already), (0, 2));
}

async fn one_filter_revokes_a_thousand_certificates_in_few_statements(office: Office) {
    const COUNT: usize = 1_000;
    let authority = &office.authority;
    office.profile(json!({"name": "bulk", "names": {"dns_allowed": [".example"]}})).await;
    let spki = new_spki();
    let issue = |number: usize| {
        let request =
            IssueRequest { spki: spki.clone(), ..request("bulk", &[&format!("n{number}.bulk.example")]) };
        authority.issue(request)
    };
    let issued = join_all((0..COUNT).map(issue)).await;
    assert!(issued.iter().all(Result::is_ok));
    let other = office.issue("web", &["other.example"]).await;
    authority.tick().await.unwrap();

    let before = office.store.statements_sent();
    let done =
        authority.revoke(filter("bulk"), Reason::CessationOfOperation, None, "user:bob").await.unwrap();
    let sent = office.store.statements_sent() - before;
    assert_eq!(done.count, COUNT as u64);
    assert!(sent <= 10, "{sent} statements");
    assert_eq!(office.audited().await["certificate.revoke"], COUNT);
    let before = office.store.statements_sent();
    assert_eq!(authority.tick().await.unwrap().crls, 1, "one CRL after all of them");
    let sent = office.store.statements_sent() - before;
    assert!(sent <= 25, "{sent} statements");
    let list = crl(&office).await;
    assert_eq!(list.len(), COUNT);
    let delta = authority.crl(office.ca.id, CrlPart::Delta).await.unwrap().unwrap();
    assert_eq!(
        (delta.base, delta.entries),
        (Some(delta.number), 0),
        "a delta with all of it would serve nobody"
    );
    let listed: HashSet<_> = list.entries().map(|entry| entry.serial).collect();
    assert!(issued.iter().all(|issued| listed.contains(&issued.as_ref().unwrap().serial)));
    assert!(!listed.contains(&other.serial));
    let second =
        authority.revoke(filter("bulk"), Reason::CessationOfOperation, None, "user:bob").await.unwrap();
    assert_eq!((second.count, second.already), (0, COUNT as u64));

    // Every other filter condition, each alone.
    let one = |change: &dyn Fn(&mut RevocationFilter)| {
        let mut filter = RevocationFilter::default();
        change(&mut filter);
        Selection::Filter(filter)
    };
    let ca = office.ca.id;
    let now = UnixTime(office.clock.now_seconds());
    let selections = [
        one(&|f| f.name_suffix = Some("other.example".to_owned())),
        one(&|f| f.requester = Some("user:alice".to_owned())),
        one(&|f| f.source = Some(Source::Api)),
        one(&|f| f.ca = Some(ca)),
        one(&|f| f.issued_after = Some(now)),
        one(&|f| (f.issued_after, f.issued_before) = (Some(now.plus(-60)), Some(now.plus(60)))),
    ];
    for selection in selections {
        let held =
            authority.revoke(selection.clone(), Reason::CertificateHold, None, "user:bob").await.unwrap();
        assert!(held.count >= 1, "{selection:?}");
        let lifted =
            authority.revoke(selection.clone(), Reason::RemoveFromCrl, None, "user:bob").await.unwrap();
        assert_eq!(lifted.count, held.count, "{selection:?}");
    }
    let none = one(&|f| f.issued_before = Some(now.plus(-60)));
    assert_eq!(authority.revoke(none, Reason::CertificateHold, None, "user:bob").await.unwrap().count, 0);
}

async fn key_block_revokes_all_its_certificates_and_rejects_new_ones(office: Office) {
    let authority = &office.authority;
    let spki = new_spki();
    let shared = || IssueRequest { spki: spki.clone(), ..request("web", &["a.example"]) };
    let issued = [authority.issue(shared()).await.unwrap(), authority.issue(shared()).await.unwrap()];
    let other = office.issue("web", &["b.example"]).await;
    let hash = SpkiHash::of(&spki);
    assert!(!authority.is_blocked(&hash).await.unwrap());
    assert_eq!(authority.block_key(hash, "user:bob").await.unwrap().count, 2);
    assert!(authority.is_blocked(&hash).await.unwrap());
    assert_eq!(authority.block_key(hash, "user:bob").await.unwrap().count, 0);
    for one in &issued {
        let status = authority.status(&IssuedRef::Id(one.id)).await.unwrap().unwrap();
        assert!(matches!(status, CertificateStatus::Revoked { reason: Reason::KeyCompromise, .. }));
    }
    assert_eq!(authority.status(&IssuedRef::Id(other.id)).await.unwrap(), Some(CertificateStatus::Good));
    assert!(authority.issue(shared()).await.is_err());
    assert!(office.another_node().issue(shared()).await.is_err());
    let audited = office.audited().await;
    assert_eq!((audited["key.block"], audited["certificate.revoke"]), (1, 2));
}

async fn key_block_revokes_certificates_issued_concurrently(office: Office) {
    let spki = new_spki();
    let node = office.another_node();
    let issuing = (0..200).map(|_| {
        let (authority, spki) = (office.authority.clone(), spki.clone());
        tokio::spawn(async move {
            authority.issue(IssueRequest { spki, ..request("web", &["a.example"]) }).await.is_ok()
        })
    });
    let issuing: Vec<_> = issuing.collect();
    let hash = SpkiHash::of(&spki);
    let blocked = node.block_key(hash, "user:bob").await.unwrap();
    let issued = join_all(issuing).await.into_iter().filter(|done| *done.as_ref().unwrap()).count() as u64;
    assert_eq!(blocked.count, issued, "whatever was issued is revoked");
    let page = authority::tables::Issued::of(&office.store)
        .page(&IssuedFilter::default(), None, 1_000)
        .await
        .unwrap();
    let good = page.rows.iter().filter(|row| row.spki_sha256 == *hash.as_bytes() && row.revocation.is_none());
    assert_eq!(good.count(), 0);
}

async fn invalid_revocation_dates_and_selections_are_rejected(office: Office) {
    let authority = &office.authority;
    let issued = office.issue("web", &["a.example"]).await;
    let now = UnixTime(office.clock.now_seconds());
    let id = Selection::Id(issued.id);
    let future = authority.revoke(id.clone(), Reason::Superseded, Some(now.plus(60)), "user:bob").await;
    assert!(matches!(future, Err(RevokeError::Date(..))));
    let old = authority.revoke(id.clone(), Reason::Superseded, Some(UnixTime(0)), "user:bob").await;
    assert!(matches!(old, Err(RevokeError::Date(..))));
    let everything = Selection::Filter(RevocationFilter::default());
    let everything = authority.revoke(everything, Reason::Superseded, None, "user:bob").await;
    assert!(matches!(everything, Err(RevokeError::NoCondition)));
    let many = authority
        .revoke(Selection::Ids(vec![Uuid::nil(); 10_001]), Reason::Superseded, None, "user:bob")
        .await;
    assert!(matches!(many, Err(RevokeError::TooMany(10_001))));
    for reason in [Reason::CaCompromise, Reason::AaCompromise] {
        let refused = authority.revoke(id.clone(), reason, None, "user:bob").await;
        assert!(matches!(refused, Err(RevokeError::Reason(..))), "{reason}");
    }
    let invalid_since = RevocationDates { invalid_since: Some(now), ..RevocationDates::default() };
    let refused = authority
        .revoke_with_invalidity_date(id.clone(), Reason::Superseded, invalid_since, "user:bob")
        .await;
    assert!(matches!(refused, Err(RevokeError::Reason(..))));
    // An intermediate is also a certificate that was issued here.
    let ca = Selection::Fingerprint(office.ca.certificate.fingerprint);
    assert_eq!(authority.revoke(ca, Reason::CaCompromise, None, "user:bob").await.unwrap().count, 1);
    authority.tick().await.unwrap();
    let root = authority.crl(office.root.id, CrlPart::Full).await.unwrap().unwrap();
    let entry = Crl::parse(&root.der).unwrap().find(&office.ca.certificate.serial).unwrap();
    assert_eq!(entry.reason, Some(Reason::CaCompromise));
    office.advance(50 * 86_400);
    let ended = authority.revoke(id, Reason::Superseded, None, "user:bob").await.unwrap();
    assert_eq!((ended.count, ended.expired), (0, 1));
}

async fn crls_are_numbered_and_shared_by_all_nodes(office: Office) {
    let nodes = [office.authority.clone(), office.another_node()];
    let read = |node: usize| {
        let (authority, ca) = (nodes[node].clone(), office.ca.id);
        async move { authority.crl(ca, CrlPart::Full).await.unwrap().unwrap() }
    };
    let first = read(0).await;
    assert_eq!((first.number, first.der.clone()), (1, read(1).await.der.clone()));
    let lifetime = options().crl_lifetime.as_secs();
    assert_eq!(first.next_update.since(first.this_update), lifetime as i64 + 60);

    for round in 2..5_u64 {
        let issued = office.issue("web", &["a.example"]).await;
        nodes[1].revoke(Selection::Id(issued.id), Reason::Superseded, None, "user:bob").await.unwrap();
        let made = join_all(nodes.iter().map(|node| node.tick())).await;
        let made: u64 = made.into_iter().map(|report| report.unwrap().crls).sum();
        assert!(made >= 1, "by whoever holds the lease");
        assert_eq!(
            authority::tables::Revocations::of(&office.store).crl_number(office.ca.id, 0).await.unwrap(),
            Some(round as i64)
        );
        // A node checks for newer CRLs after a second.
        let both = eventually("the new CRL at both nodes", async || {
            let both = (read(0).await, read(1).await);
            (both.0.number == round && both.1.number == round).then_some(both)
        });
        let (first_crl, second_crl) = both.await;
        assert_eq!((first_crl.number, first_crl.etag.clone()), (round, second_crl.etag.clone()));
        assert_eq!(first_crl.entries, round - 1);
        let parsed = Crl::parse(&first_crl.der).unwrap();
        assert!(parsed.entries().all(|entry| entry.at <= parsed.this_update), "a CRL tells no future");
    }
    for node in &nodes {
        assert_eq!(node.tick().await.unwrap().crls, 0, "nothing is due");
    }
    // At half its lifetime a new CRL is made, even without revocations.
    office.advance(lifetime / 2 + 1);
    authority::tables::Revocations::of(&office.store).crls_due(office.clock.now_us()).await.unwrap();
    let made = join_all(nodes.iter().map(|node| node.tick())).await;
    assert!(made.into_iter().any(|report| report.unwrap().crls > 0));
    assert_eq!(
        authority::tables::Revocations::of(&office.store).crl_number(office.ca.id, 0).await.unwrap(),
        Some(5)
    );
    assert!(nodes[0].crl(Uuid::new_v4(), CrlPart::Full).await.unwrap().is_none());
    assert!(nodes[0].crl(office.ca.id, CrlPart::Shard(1)).await.unwrap().is_none(), "there are no shards");
}

async fn delta_crl_applies_to_every_unexpired_full_crl(office: Office) {
    let authority = &office.authority;
    let issued = [office.issue("web", &["a.example"]).await, office.issue("web", &["b.example"]).await];
    let later = office.issue("web", &["c.example"]).await;
    authority.revoke(Selection::Id(issued[0].id), Reason::CertificateHold, None, "user:bob").await.unwrap();
    authority.tick().await.unwrap();
    let held = authority.crl(office.ca.id, CrlPart::Full).await.unwrap().unwrap();
    office.advance(3_600);
    authority.revoke(Selection::Id(issued[0].id), Reason::RemoveFromCrl, None, "user:bob").await.unwrap();
    authority.revoke(Selection::Id(issued[1].id), Reason::Superseded, None, "user:bob").await.unwrap();
    authority.tick().await.unwrap();
    let full = authority.crl(office.ca.id, CrlPart::Full).await.unwrap().unwrap();
    let delta = authority.crl(office.ca.id, CrlPart::Delta).await.unwrap().unwrap();
    assert_eq!((delta.number, delta.base), (full.number, Some(held.number)));
    let list = Crl::parse(&delta.der).unwrap();
    list.signed_by(&office.ca.certificate.public_key).unwrap();
    assert_eq!(list.find(&issued[0].serial).unwrap().reason, Some(Reason::RemoveFromCrl));
    assert_eq!(list.find(&issued[1].serial).unwrap().reason, Some(Reason::Superseded));
    assert!(list.find(&later.serial).is_none());
    let whole = Crl::parse(&full.der).unwrap();
    assert_eq!(whole.freshest, [format!("http://pki.example/crl/{}/delta.crl", office.ca.id)]);
    assert!(whole.find(&issued[0].serial).is_none() && whole.find(&issued[1].serial).is_some());

    // A client with the old full CRL learns of both revocations from the delta CRL.
    office.write_chain();
    office.write("held.crl", &held.der);
    office.write("delta.crl", &delta.der);
    for name in ["held", "delta"] {
        office.openssl(&format!("crl -inform DER -in {name}.crl -out {name}.pem"));
    }
    let now = office.clock.now_seconds();
    let check = format!(
        "verify -attime {now} -crl_check -extended_crl -use_deltas -partial_chain -CAfile ca.pem -CRLfile held.pem \
         -CRLfile delta.pem"
    );
    for (one, revoked) in [(&issued[0], false), (&issued[1], true), (&later, false)] {
        office.write("leaf.pem", one.chain_pem());
        let verdict = office.try_openssl(&format!("{check} leaf.pem"));
        assert_eq!(verdict.is_err(), revoked, "{verdict:?}");
        assert!(verdict.is_ok() || verdict.unwrap_err().contains("certificate revoked"));
    }
}

async fn expired_certificates_leave_the_crl_after_one_more_crl(office: Office) {
    let authority = &office.authority;
    let short = IssueRequest { lifetime_seconds: Some(6 * 3_600), ..request("web", &["a.example"]) };
    let short = authority.issue(short).await.unwrap();
    authority.revoke(Selection::Id(short.id), Reason::Superseded, None, "user:bob").await.unwrap();
    authority.tick().await.unwrap();
    assert_eq!(crl(&office).await.len(), 1);
    let lifetime = options().crl_lifetime.as_secs();
    // The certificate has expired, and is still on the first CRL made after its expiry.
    office.advance(lifetime / 2 + 1);
    authority.tick().await.unwrap();
    assert!(UnixTime(office.clock.now_seconds()) > short.not_after);
    assert_eq!(crl(&office).await.len(), 1);
    office.advance(lifetime);
    authority.tick().await.unwrap();
    assert_eq!(crl(&office).await.len(), 0);
}

async fn expired_ca_publishes_one_last_crl(office: Office) {
    let authority = &office.authority;
    authority.tick().await.unwrap();
    let left = office.ca.certificate.not_after.0 - office.clock.now_seconds();
    office.advance(u64::try_from(left).unwrap() + 1);
    authority.tick().await.unwrap();
    let last = crl(&office).await;
    assert!(last.next_update.unwrap().0 > office.clock.now_seconds() + 60, "good for its whole life");
    let number = async || {
        authority::tables::Revocations::of(&office.store).crl_number(office.ca.id, 0).await.unwrap().unwrap()
    };
    let last = number().await;
    for _ in 0..5 {
        office.advance(options().crl_lifetime.as_secs());
        authority.tick().await.unwrap();
        assert_eq!(number().await, last);
    }
}

mod sharded {
    use super::*;

    fn options() -> AuthorityOptions {
        AuthorityOptions { crl_shards: 3, ..crate::office::options() }
    }

    both! { certificates_name_the_crl_shard_that_lists_them }

    async fn certificates_name_the_crl_shard_that_lists_them(office: Office) {
        let authority = &office.authority;
        let names: Vec<String> = (0..60).map(|number| format!("n{number}.example")).collect();
        let issued = join_all(names.iter().map(|name| authority.issue(request("web", &[name])))).await;
        let issued: Vec<_> = issued.into_iter().map(Result::unwrap).collect();
        let url = |shard: u32| format!("http://pki.example/crl/{}/{shard}.crl", office.ca.id);
        let shard_of = |der: &[u8]| {
            let named = Certificate::parse(der).unwrap().crl_urls;
            (1..=3).find(|shard| named == [url(*shard)]).unwrap()
        };
        let used: HashSet<u32> = issued.iter().map(|issued| shard_of(&issued.der)).collect();
        assert_eq!(used.len(), 3, "all are used");
        authority.tick().await.unwrap();
        let numbers = || async {
            let mut numbers = Vec::new();
            for shard in 0..=3 {
                numbers.push(
                    authority::tables::Revocations::of(&office.store)
                        .crl_number(office.ca.id, shard)
                        .await
                        .unwrap()
                        .unwrap(),
                );
            }
            numbers
        };
        assert_eq!(numbers().await, [1, 1, 1, 1]);
        let bad = &issued[0];
        let shard = shard_of(&bad.der);
        authority.revoke(Selection::Id(bad.id), Reason::Superseded, None, "user:bob").await.unwrap();
        assert_eq!(authority.tick().await.unwrap().crls, 2, "its shard and the full one");
        for (shard_index, number) in numbers().await.into_iter().enumerate() {
            let moved = shard_index == 0 || shard_index == shard as usize;
            assert_eq!(number, if moved { 2 } else { 1 }, "{shard_index}");
        }
        for other in 1..=3 {
            let document = authority.crl(office.ca.id, CrlPart::Shard(other)).await.unwrap().unwrap();
            let list = Crl::parse(&document.der).unwrap();
            assert_eq!(list.distribution_points, [url(other)]);
            assert_eq!(list.find(&bad.serial).is_some(), other == shard);
        }
        assert_eq!(crl(&office).await.len(), 1);
        assert!(authority.crl(office.ca.id, CrlPart::Shard(4)).await.unwrap().is_none());

        // OpenSSL accepts the shard for the certificates that name it, and for no others.
        office.write_chain();
        let document = authority.crl(office.ca.id, CrlPart::Shard(shard)).await.unwrap().unwrap();
        office.write("shard.crl", &document.der);
        office.openssl("crl -inform DER -in shard.crl -out shard.pem");
        let check =
            "verify -crl_check -extended_crl -partial_chain -CAfile ca.pem -CRLfile shard.pem leaf.pem";
        for one in &issued[..6] {
            office.write("leaf.pem", one.chain_pem());
            let verdict = office.try_openssl(check).err().unwrap_or_default();
            let wanted = match (one.id == bad.id, shard_of(&one.der) == shard) {
                (true, _) => "certificate revoked",
                (false, true) => "",
                (false, false) => "different CRL scope",
            };
            assert!(
                verdict.contains(wanted) && (wanted.is_empty() == verdict.is_empty()),
                "{wanted}: {verdict}"
            );
        }
    }
}
