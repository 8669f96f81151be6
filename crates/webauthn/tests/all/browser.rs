//! `chromium.json` has responses of Chromium with a virtual authenticator, one key for each algorithm.

use serde::Deserialize;
use webauthn::assertion::RegisteredKey;
use webauthn::{Assertion, Base64Url, Expected, Registration};

#[derive(Deserialize)]
struct Responses {
    algorithm: i64,
    create: Step<Registration>,
    get: Step<Assertion>,
}

#[derive(Deserialize)]
struct Step<T> {
    challenge: Base64Url,
    #[serde(flatten)]
    response: T,
}

#[test]
fn responses_of_a_browser_are_accepted() {
    let all: Vec<Responses> = serde_json::from_str(include_str!("chromium.json")).unwrap();
    assert_eq!(all.len(), 3);
    for Responses { algorithm, create, get } in all {
        let expected = |challenge| Expected {
            challenge,
            rp_id: "localhost",
            origin: "https://localhost:39443",
            user_verification: true,
        };
        let credential = create.response.verify(&expected(&create.challenge.0)).unwrap();
        assert_eq!(credential.algorithm.cose(), algorithm);
        let handle = get.response.user_handle.clone().unwrap();
        let known = RegisteredKey {
            id: &credential.id,
            public_key: &credential.public_key,
            sign_count: credential.sign_count,
            backup_eligible: credential.backup_eligible,
            user_handle: &handle.0,
        };
        let verified = get.response.verify(&expected(&get.challenge.0), &known).unwrap();
        assert!(verified.user_verified && verified.sign_count > credential.sign_count);
    }
}
