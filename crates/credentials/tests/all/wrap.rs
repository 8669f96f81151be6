//! Tests of one-time tokens for values.

use credentials::{CredentialError, Kind, SetRequest, Value};
use keys::Secret;
use serde_json::json;

use crate::place::{Fixture, admin, client, name};

pub(crate) async fn concurrent_unwraps_of_one_token_succeed_once(place: Fixture) {
    place.set("/team/x", Kind::Password, json!("once")).await;
    for round in 0..10 {
        let wrapped = place.credentials.wrap(&admin(), &name("/team/x"), 60).await.unwrap();
        let token = wrapped.token.expose().to_owned();
        let readers = (0..4).map(|number| {
            let (credentials, token) = (place.credentials.clone(), token.clone());
            tokio::spawn(async move { credentials.unwrap(&format!("reader {number}"), &token).await })
        });
        let readers: Vec<_> = readers.collect();
        let (mut read, mut told) = (0, 0);
        for reader in readers {
            match reader.await.unwrap() {
                Ok(value) => {
                    assert_eq!(value.value, Value::Password(Secret::new("once")));
                    assert_eq!((value.name.as_str(), value.by.as_str()), ("/team/x", "uaa-client:admin"));
                    read += 1;
                }
                Err(CredentialError::AlreadyRead { name, at, by }) => {
                    assert!(name == "/team/x" && at.starts_with("2026-") && by.starts_with("reader "));
                    told += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((read, told), (1, 3), "round {round}");
    }
}

pub(crate) async fn wrapping_token_expires_and_is_used_once(place: Fixture) {
    place.set("/team/x", Kind::Password, json!("once")).await;
    let nobody = place.credentials.wrap(&client("a"), &name("/team/x"), 60).await.unwrap_err();
    assert!(matches!(nobody, CredentialError::NotFound));
    for seconds in [0, 86_401] {
        let refused = place.credentials.wrap(&admin(), &name("/team/x"), seconds).await.unwrap_err();
        assert!(matches!(refused, CredentialError::Bad(_)), "{seconds}");
    }
    let ended = place.credentials.wrap(&admin(), &name("/team/x"), 60).await.unwrap();
    place.advance(60);
    let late = place.credentials.unwrap("somebody", ended.token.expose()).await.unwrap_err();
    assert!(matches!(late, CredentialError::NoToken));
    // The token returns the value that was wrapped, also after later changes.
    let wrapped = place.credentials.wrap(&admin(), &name("/team/x"), 86_400).await.unwrap();
    place.set("/team/x", Kind::Password, json!("later")).await;
    place.credentials.delete(&admin(), &name("/team/x")).await.unwrap();
    let token = wrapped.token.expose();
    assert_eq!(
        place.credentials.unwrap("somebody", token).await.unwrap().value,
        Value::Password(Secret::new("once"))
    );
    for _ in 0..3 {
        assert!(place.credentials.unwrap("thief", token).await.is_err());
    }
    for wrong in ["", "bullawrap_", "bullawrap_AAAA", &token[10..], &"x".repeat(100_000)] {
        let error = place.credentials.unwrap("somebody", wrong).await.unwrap_err();
        assert!(matches!(error, CredentialError::NoToken), "{wrong}");
    }
    let log = place.log().await;
    let lines = |action: &str| log.iter().filter(|line| line.contains(action)).count();
    assert_eq!(lines(" credential.wrap "), 2);
    assert_eq!(lines(" credential.unwrap "), 1);
    assert_eq!(lines("thief credential.unwrap_again "), 1, "the first of them");
    assert!(log.iter().all(|line| !line.contains("bullawrap_") && !line.contains("once")));
}

pub(crate) async fn failed_decryption_does_not_consume_the_wrapping_token(place: Fixture) {
    place.set("/team/x", Kind::Password, json!("once")).await;
    let wrapped = place.credentials.wrap(&admin(), &name("/team/x"), 60).await.unwrap();
    let (_, other_masters) = place.with_masters(&["other"]);
    let sealed = other_masters.unwrap("somebody", wrapped.token.expose()).await.unwrap_err();
    assert!(matches!(&sealed, CredentialError::Sealed { name, .. } if name == "/team/x"), "{sealed}");
    let read = place.credentials.unwrap("somebody", wrapped.token.expose()).await.unwrap();
    assert_eq!(read.value, Value::Password(Secret::new("once")));
    assert_eq!(place.log().await.iter().filter(|line| line.contains(" credential.unwrap ")).count(), 1);
}

pub(crate) async fn wrapping_token_expires_with_its_credential(place: Fixture) {
    let short = SetRequest { ttl_s: Some(30), ..SetRequest::new(name("/x"), Kind::Value, json!("short")) };
    let ends_at_us = place.credentials.set(&admin(), short).await.unwrap().ends_at_us;
    let wrapped = place.credentials.wrap(&admin(), &name("/x"), 60).await.unwrap();
    assert_eq!(Some(wrapped.expires_at_us), ends_at_us);
    place.advance(30);
    let late = place.credentials.unwrap("somebody", wrapped.token.expose()).await.unwrap_err();
    assert!(matches!(late, CredentialError::NoToken), "{late}");
}
