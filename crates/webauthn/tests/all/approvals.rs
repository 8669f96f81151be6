//! Signatures of approvers, made by a key of the test.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use webauthn::approval::{ApprovalSignature, Statement};
use webauthn::{Assertion, Base64Url, Error};

const STATEMENT: Statement =
    Statement { subject: [1; 16], plan_sha256: [2; 32], actor: "user:ann", nonce: [3; 32] };

fn signature(flags: u8) -> ApprovalSignature {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    // A COSE_Key of five members: key type 1, algorithm -8, curve 6, and the key.
    let public_key = [&[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32], pair.public_key().as_ref()].concat();
    let challenge = Base64Url(STATEMENT.challenge().to_vec());
    let client_data = format!(
        r#"{{"type":"webauthn.get","challenge":"{challenge}","origin":"https://bulla.example","crossOrigin":false}}"#
    );
    let mut data = digest(&SHA256, b"bulla.example").as_ref().to_vec();
    data.extend([flags, 0, 0, 0, 9]);
    let message = [data.as_slice(), digest(&SHA256, client_data.as_bytes()).as_ref()].concat();
    ApprovalSignature {
        public_key: Base64Url(public_key),
        rp_id: "bulla.example".to_owned(),
        origin: "https://bulla.example".to_owned(),
        nonce: Base64Url(STATEMENT.nonce.to_vec()),
        assertion: Assertion {
            credential_id: Base64Url(vec![8; 16]),
            client_data_json: Base64Url(client_data.into_bytes()),
            authenticator_data: Base64Url(data),
            signature: Base64Url(pair.sign(&message).as_ref().to_vec()),
            user_handle: None,
        },
    }
}

#[test]
fn a_signature_is_for_one_plan_of_one_approval() {
    let signature = signature(0b101);
    assert_eq!(signature.verify([1; 16], [2; 32], "user:ann"), Ok(true));
    assert_eq!(self::signature(0b1).verify([1; 16], [2; 32], "user:ann"), Ok(false));
    assert_eq!(self::signature(0).verify([1; 16], [2; 32], "user:ann"), Err(Error::UserPresence));
    assert_eq!(signature.verify([1; 16], [9; 32], "user:ann"), Err(Error::Challenge));
    assert_eq!(signature.verify([9; 16], [2; 32], "user:ann"), Err(Error::Challenge));
    assert_eq!(signature.verify([1; 16], [2; 32], "user:bob"), Err(Error::Challenge));
    let other = ApprovalSignature { nonce: Base64Url(vec![9; 32]), ..signature.clone() };
    assert_eq!(other.verify([1; 16], [2; 32], "user:ann"), Err(Error::Challenge));
    let other = ApprovalSignature { rp_id: "evil.example".to_owned(), ..signature.clone() };
    assert_eq!(other.verify([1; 16], [2; 32], "user:ann"), Err(Error::RelyingParty));
}

#[test]
fn a_signature_is_verified_after_its_way_through_json() {
    let signature = signature(0b101);
    let text = serde_json::to_string(&signature).unwrap();
    let read: ApprovalSignature = serde_json::from_str(&text).unwrap();
    assert_eq!(read, signature);
    assert!(read.verify([1; 16], [2; 32], "user:ann").is_ok());
}
