//! Tests of CRLs, OCSP and issuer certificates over HTTP, with OpenSSL and HTTP clients.

use std::time::Duration;

use authority::issue::Issued;
use authority::publish::Publications;
use authority::revoke::Selection;
use authority::{Authority, Peer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use x509::crl::{Crl, Reason};
use x509::ocsp::{self, CertificateId, OcspHash, Outcome, Status};
use x509::{Certificate, SerialNumber};

use crate::fixture::openssl;
use crate::office::{Office, both, options};

both! {
    openssl_verifies_ocsp_responses
    ocsp_responses_are_cached_until_half_their_lifetime_or_revocation
    revocation_on_another_node_reaches_ocsp_responses
    ocsp_echoes_nonces_and_rejects_foreign_or_oversized_requests
    ocsp_responder_key_is_shared_and_renewed_at_half_its_lifetime
    crls_certificates_and_ocsp_are_served_with_cache_headers
}

/// Starts a server for the part of HTTP/1.1 that openssl's client uses.
async fn listen(authority: &Authority) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let publications = Publications::new(authority.clone());
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let publications = publications.clone();
            tokio::spawn(async move { answer(stream, &publications, Peer::at(peer.ip())).await });
        }
    });
    format!("http://{address}")
}

async fn answer(mut stream: TcpStream, publications: &Publications, peer: Peer) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let mut request = Request::builder().method(first.next().unwrap()).uri(first.next().unwrap());
    let mut length = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap();
        }
        request = request.header(name, value);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let response = publications.handle(request.body(body.into()).unwrap(), &peer).await;
    let mut out = format!("HTTP/1.1 {}\r\nContent-Length: {}\r\n", response.status(), response.body().len());
    for (name, value) in response.headers() {
        out += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    stream.write_all((out + "Connection: close\r\n\r\n").as_bytes()).await.unwrap();
    stream.write_all(response.body()).await.unwrap();
}

/// Queries the responder with openssl; returns its output or its error.
async fn query(office: &Office, url: &str, arguments: &str) -> Result<String, String> {
    let folder = office.folder().to_owned();
    let command = format!(
        "ocsp -issuer ca.pem {arguments} -url {url} -CAfile root.pem -verify_other ca.pem -resp_text"
    );
    tokio::task::spawn_blocking(move || openssl(&folder, &command)).await.unwrap()
}

fn write_leaf(office: &Office, name: &str, issued: &Issued) {
    office.write(name, issued.chain_pem());
}

async fn openssl_verifies_ocsp_responses(office: Office) {
    let authority = &office.authority;
    office.write_chain();
    let url = format!("{}/ocsp/{}", listen(authority).await, office.ca.id);
    let issued = [office.issue("web", &["a.example"]).await, office.issue("web", &["b.example"]).await];
    write_leaf(&office, "good.pem", &issued[0]);
    write_leaf(&office, "bad.pem", &issued[1]);
    authority.revoke(Selection::Id(issued[1].id), Reason::KeyCompromise, None, "user:bob").await.unwrap();

    for nonce in ["-nonce", "-no_nonce"] {
        for hash in ["-sha1", "-sha256"] {
            let output = query(&office, &url, &format!("{hash} -cert good.pem {nonce}")).await.unwrap();
            assert!(output.contains("good.pem: good"), "{output}");
            assert!(output.contains("OCSP Nonce") == (nonce == "-nonce"), "{output}");
            let output = query(&office, &url, &format!("{hash} -cert bad.pem {nonce}")).await.unwrap();
            assert!(
                output.contains("bad.pem: revoked") && output.contains("Reason: keyCompromise"),
                "{output}"
            );
        }
    }
    let output = query(&office, &url, "-serial 0x1234567890 -no_nonce").await.unwrap();
    assert!(output.contains("0x1234567890: unknown"), "{output}");
    let several = query(&office, &url, "-cert good.pem -cert bad.pem -nonce").await.unwrap();
    assert!(several.contains("good.pem: good") && several.contains("bad.pem: revoked"), "{several}");
    let text = query(&office, &url, "-cert good.pem").await.unwrap();
    assert!(text.contains("OCSP Signing") && text.contains("OCSP No Check"), "{text}");
    let elsewhere = format!("{}/ocsp", listen(authority).await);
    let output = query(&office, &elsewhere, "-cert good.pem").await.unwrap();
    assert!(output.contains("good.pem: good"), "without the CA in the path: {output}");
    // The root's responder answers for the intermediate.
    let command = format!("-issuer root.pem -cert ca.pem -url {elsewhere} -CAfile root.pem");
    let folder = office.folder().to_owned();
    let output =
        tokio::task::spawn_blocking(move || openssl(&folder, &format!("ocsp {command}"))).await.unwrap();
    assert!(output.unwrap().contains("ca.pem: good"));
}

fn question(office: &Office, serials: &[&SerialNumber], nonce: Option<Vec<u8>>) -> Vec<u8> {
    let ids = serials
        .iter()
        .map(|serial| CertificateId::of(&office.ca.certificate, (*serial).clone(), OcspHash::Sha1));
    ocsp::Request { certificates: ids.collect(), nonce }.encode()
}

fn post(path: &str, body: Vec<u8>) -> Request<Bytes> {
    let request =
        Request::builder().method(Method::POST).uri(path).header("content-type", "application/ocsp-request");
    request.body(body.into()).unwrap()
}

fn get(path: &str) -> Request<Bytes> {
    Request::builder().uri(path).body(Bytes::new()).unwrap()
}

async fn fetch(authority: &Authority, request: Request<Bytes>) -> Response<Bytes> {
    Publications::new(authority.clone()).handle(request, &Peer::local()).await
}

fn status_in(der: &[u8]) -> Status {
    match ocsp::parse_response(der).unwrap().status {
        Outcome::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

async fn ocsp_responses_are_cached_until_half_their_lifetime_or_revocation(office: Office) {
    let authority = &office.authority;
    let issued = office.issue("web", &["a.example"]).await;
    let ocsp_request = question(&office, &[&issued.serial], None);
    let first = authority.ocsp(&ocsp_request).await;
    let freshness = first.freshness.unwrap();
    let lifetime = options().ocsp_lifetime.as_secs() as i64;
    assert_eq!(freshness.next_update.0 - office.clock.now_seconds(), lifetime);
    assert_eq!(freshness.refresh_at.0 - office.clock.now_seconds(), lifetime / 2);
    let before = office.store.statements_sent();
    assert_eq!(authority.ocsp(&ocsp_request).await, first, "the same octets");
    // The only statement checks whether CAs have changed. It runs once in the lifetime of their cache.
    assert!(office.store.statements_sent() <= before + 1, "without asking the database");
    office.advance(lifetime as u64 / 2 + 1);
    let second = authority.ocsp(&ocsp_request).await;
    assert_ne!(second.der, first.der);
    assert_eq!(status_in(&second.der), Status::Good);

    authority.revoke(Selection::Id(issued.id), Reason::Superseded, None, "user:bob").await.unwrap();
    let third = authority.ocsp(&ocsp_request).await;
    let Status::Revoked { at, reason: Some(Reason::Superseded) } = status_in(&third.der) else {
        panic!("not revoked");
    };
    assert!(at <= third.freshness.unwrap().this_update, "no answer tells its future");
    // When a hold is lifted, the cached response is invalidated.
    let held = office.issue("web", &["b.example"]).await;
    let ocsp_request = question(&office, &[&held.serial], None);
    for (reason, revoked) in [(Reason::CertificateHold, true), (Reason::RemoveFromCrl, false)] {
        authority.revoke(Selection::Id(held.id), reason, None, "user:bob").await.unwrap();
        let status = status_in(&authority.ocsp(&ocsp_request).await.der);
        assert_eq!(matches!(status, Status::Revoked { .. }), revoked, "{reason}");
    }
}

async fn revocation_on_another_node_reaches_ocsp_responses(office: Office) {
    let node = office.another_node();
    let issued = office.issue("web", &["a.example"]).await;
    let ocsp_request = question(&office, &[&issued.serial], None);
    node.tick().await.unwrap();
    assert_eq!(status_in(&node.ocsp(&ocsp_request).await.der), Status::Good);
    office.advance(60);
    node.tick().await.unwrap();
    office.authority.revoke(Selection::Id(issued.id), Reason::Superseded, None, "user:bob").await.unwrap();
    assert_eq!(status_in(&node.ocsp(&ocsp_request).await.der), Status::Good, "it cannot know yet");
    assert_eq!(node.tick().await.unwrap().received, 1);
    assert!(matches!(status_in(&node.ocsp(&ocsp_request).await.der), Status::Revoked { .. }));
    assert_eq!(node.tick().await.unwrap().received, 0);
    // The loop does the same by itself, and makes the CRL.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run(async { drop(stopped.await) }).await }
    });
    let other = office.issue("web", &["b.example"]).await;
    let ocsp_request = question(&office, &[&other.serial], None);
    assert_eq!(status_in(&node.ocsp(&ocsp_request).await.der), Status::Good);
    office.authority.revoke(Selection::Id(other.id), Reason::Superseded, None, "user:bob").await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let received = matches!(status_in(&node.ocsp(&ocsp_request).await.der), Status::Revoked { .. });
        let crl =
            authority::tables::Revocations::of(&office.store).crl(office.ca.id, 0).await.unwrap().unwrap();
        if received && Crl::parse(&crl.der).unwrap().find(&other.serial).is_some() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "neither heard nor on the CRL");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.send(()).unwrap();
    running.await.unwrap();
}

async fn ocsp_echoes_nonces_and_rejects_foreign_or_oversized_requests(office: Office) {
    let authority = &office.authority;
    let issued = office.issue("web", &["a.example"]).await;
    let nonce = vec![7; 32];
    let with_nonce = question(&office, &[&issued.serial], Some(nonce.clone()));
    let (one, two) = (authority.ocsp(&with_nonce).await, authority.ocsp(&with_nonce).await);
    assert!(one.freshness.is_none() && one.der != two.der, "signed for whoever asks");
    assert!(one.der.windows(32).any(|window| window == nonce));
    let unknown = SerialNumber::from_random([9; 16]);
    let answer = authority.ocsp(&question(&office, &[&unknown], None)).await;
    assert_eq!((status_in(&answer.der), answer.freshness), (Status::Unknown, None));

    // RFC 6960 section 2.3: this responder does not know the issuer of these certificates.
    let stranger = office.issue("web", &["b.example"]).await;
    let stranger = Certificate::parse(&stranger.der).unwrap();
    let id = CertificateId::of(&stranger, unknown, OcspHash::Sha256);
    let foreign = ocsp::Request { certificates: vec![id], nonce: None }.encode();
    let outcome = |der: &[u8]| ocsp::parse_response(der).unwrap().status;
    let refused = outcome(&authority.ocsp(&foreign).await.der);
    assert!(matches!(refused, Outcome::NoAnswer(6)), "{refused:?}");
    let refused = outcome(&authority.ocsp(b"nonsense").await.der);
    assert!(matches!(refused, Outcome::NoAnswer(1)), "{refused:?}");
    let long = question(&office, &[&issued.serial], Some(vec![1; 129]));
    assert!(
        matches!(outcome(&authority.ocsp(&long).await.der), Outcome::NoAnswer(1)),
        "RFC 9654 section 2.1"
    );
    let many = question(&office, &vec![&issued.serial; 33], None);
    assert!(matches!(outcome(&authority.ocsp(&many).await.der), Outcome::NoAnswer(1)));
}

async fn ocsp_responder_key_is_shared_and_renewed_at_half_its_lifetime(office: Office) {
    let nodes = [office.authority.clone(), office.another_node()];
    let issued = office.issue("web", &["a.example"]).await;
    let ocsp_request = question(&office, &[&issued.serial], Some(vec![1; 16]));
    let query = |node: usize| {
        let (node, ocsp_request) = (nodes[node].clone(), ocsp_request.clone());
        tokio::spawn(async move { status_in(&node.ocsp(&ocsp_request).await.der) })
    };
    let all: Vec<_> = (0..20).map(|number| query(number % 2)).collect();
    for one in all {
        assert_eq!(one.await.unwrap(), Status::Good);
    }
    let row = || async {
        authority::tables::Revocations::of(&office.store).ocsp_responder(office.ca.id).await.unwrap().unwrap()
    };
    let first = row().await;
    assert_eq!(office.audited().await["ocsp.responder"], 1, "by one node, once");
    let certificate = Certificate::parse(&first.certificate).unwrap();
    certificate.signed_by(&office.ca.certificate.public_key).unwrap();
    assert!(
        authority::tables::Issued::of(&office.store)
            .by_sha256(certificate.fingerprint.as_bytes())
            .await
            .unwrap()
            .is_some()
    );
    let life = options().ocsp_responder_lifetime.as_secs();
    office.advance(life / 2 - 3_600);
    assert_eq!(query(0).await.unwrap(), Status::Good);
    assert_eq!(row().await.key_id, first.key_id, "young enough");
    office.advance(7_200);
    // If the database grants no lease, the old responder certificate stays in use.
    office.store.execute("-- away\nALTER TABLE leases RENAME TO leases_away", Vec::new()).await.unwrap();
    assert_eq!(query(0).await.unwrap(), Status::Good);
    assert_eq!(row().await.key_id, first.key_id);
    office.store.execute("-- back\nALTER TABLE leases_away RENAME TO leases", Vec::new()).await.unwrap();
    let nodes = [office.another_node(), office.another_node()];
    let query = |node: usize| {
        let (node, ocsp_request) = (nodes[node].clone(), ocsp_request.clone());
        tokio::spawn(async move { status_in(&node.ocsp(&ocsp_request).await.der) })
    };
    for node in [0, 1, 0] {
        assert_eq!(query(node).await.unwrap(), Status::Good);
    }
    let second = row().await;
    assert_ne!(second.key_id, first.key_id);
    assert_eq!(office.audited().await["ocsp.responder"], 2);
}

async fn crls_certificates_and_ocsp_are_served_with_cache_headers(office: Office) {
    let authority = &office.authority;
    let issued = office.issue("web", &["a.example"]).await;
    let ca = office.ca.id;
    let crl = fetch(authority, get(&format!("/crl/{ca}.crl"))).await;
    assert_eq!(crl.status(), StatusCode::OK);
    assert_eq!(crl.headers()["content-type"], "application/pkix-crl");
    let lifetime = options().crl_lifetime.as_secs();
    let control = format!("public, max-age={lifetime}, no-transform, must-revalidate");
    assert_eq!(crl.headers()["cache-control"], control.as_str());
    Crl::parse(crl.body()).unwrap();
    let mut conditional = get(&format!("/crl/{ca}.crl"));
    conditional.headers_mut().insert("if-none-match", crl.headers()["etag"].clone());
    let unchanged = fetch(authority, conditional).await;
    assert_eq!((unchanged.status(), unchanged.body().len()), (StatusCode::NOT_MODIFIED, 0));
    let mut conditional = get("/crl/web.crl");
    conditional.headers_mut().insert("if-modified-since", crl.headers()["last-modified"].clone());
    assert_eq!(fetch(authority, conditional).await.status(), StatusCode::NOT_MODIFIED, "by name, too");
    let delta = fetch(authority, get(&format!("/crl/{ca}/delta.crl"))).await;
    assert!(Crl::parse(delta.body()).unwrap().base.is_some());

    let certificate = fetch(authority, get(&format!("/ca/{ca}.cer"))).await;
    assert_eq!(certificate.body()[..], office.ca.certificate.der[..]);
    assert_eq!(certificate.headers()["content-type"], "application/pkix-cert");
    let bundle = fetch(authority, get(&format!("/ca/{ca}.p7c"))).await;
    office.write("bundle.p7c", bundle.body());
    let shown = office.openssl("pkcs7 -inform DER -in bundle.p7c -print_certs -noout");
    assert!(shown.contains("Test Web CA"), "{shown}");

    let ocsp_request = question(&office, &[&issued.serial], None);
    let posted = fetch(authority, post(&format!("/ocsp/{ca}"), ocsp_request.clone())).await;
    assert_eq!(
        (posted.status(), &posted.headers()["cache-control"]),
        (StatusCode::OK, &"no-store".parse().unwrap())
    );
    assert_eq!(posted.headers()["content-type"], "application/ocsp-response");
    let encoded = STANDARD.encode(&ocsp_request);
    let escaped = encoded.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    for path in [&encoded, &escaped, encoded.trim_end_matches('=')] {
        for base in [format!("/ocsp/{ca}"), "/ocsp".to_owned()] {
            let got = fetch(authority, get(&format!("{base}/{path}"))).await;
            assert_eq!((got.status(), got.body()), (StatusCode::OK, posted.body()), "{base}/{path}");
            let life = options().ocsp_lifetime.as_secs() / 2;
            let control = format!("public, max-age={life}, no-transform, must-revalidate");
            assert_eq!(got.headers()["cache-control"], control.as_str());
        }
    }
    let mut head = get(&format!("/ocsp/{ca}/{escaped}"));
    *head.method_mut() = Method::HEAD;
    let head = fetch(authority, head).await;
    assert_eq!((head.status(), head.body().len()), (StatusCode::OK, 0));
    assert_eq!(head.headers()["content-length"], posted.body().len().to_string().as_str());

    let table = [
        (get("/crl/other.crl"), 404),
        (get(&format!("/crl/{ca}")), 404),
        (get(&format!("/crl/{ca}/7.crl")), 404),
        (get(&format!("/crl/{ca}/x.crl")), 404),
        (get(&format!("/ca/{ca}.pem")), 404),
        (get("/ca/"), 404),
        (get(&format!("/ocsp/{ca}")), 400),
        (post("/ocsp/other", ocsp_request.clone()), 404),
        (post(&format!("/crl/{ca}.crl"), Vec::new()), 405),
        (post(&format!("/ocsp/{ca}"), vec![0; 17_000]), 413),
        (
            Request::builder()
                .method(Method::POST)
                .uri(format!("/ocsp/{ca}"))
                .header("content-type", "text/plain")
                .body(ocsp_request.into())
                .unwrap(),
            415,
        ),
        (Request::builder().method(Method::PUT).uri(format!("/ocsp/{ca}")).body(Bytes::new()).unwrap(), 405),
    ];
    for (request, status) in table {
        let what = format!("{} {}", request.method(), request.uri());
        assert_eq!(fetch(authority, request).await.status().as_u16(), status, "{what}");
    }
    let mut head = get(&format!("/crl/{ca}.crl"));
    *head.method_mut() = Method::HEAD;
    let head = fetch(authority, head).await;
    assert_eq!((head.status(), head.body().len()), (StatusCode::OK, 0));
    assert_eq!(head.headers()["content-length"], crl.body().len().to_string().as_str());
}
