//! Tests of one-time tokens for values.

use credentials::{CredentialError, Kind, SetRequest, Value};
use keys::Secret;
use serde_json::json;

use crate::fixture::{Fixture, admin, client, name};

pub(crate) async fn concurrent_unwraps_of_one_token_succeed_once(fixture: Fixture) {
    fixture.set("/team/x", Kind::Password, json!("once")).await;
    for round in 0..10 {
        let wrapped = fixture.credentials.wrap(&admin(), &name("/team/x"), 60).await.unwrap();
        let token = wrapped.token.expose().to_owned();
        let readers = (0..4).map(|number| {
            let (credentials, token) = (fixture.credentials.clone(), token.clone());
            tokio::spawn(async move { credentials.unwrap(&format!("reader {number}"), &token).await })
        });
        let readers: Vec<_> = readers.collect();
        let (mut read, mut already_read) = (0, 0);
        for reader in readers {
            match reader.await.unwrap() {
                Ok(value) => {
                    assert_eq!(value.value, Value::Password(Secret::new("once")));
                    assert_eq!((value.name.as_str(), value.by.as_str()), ("/team/x", "uaa-client:admin"));
                    read += 1;
                }
                Err(CredentialError::AlreadyRead { name, at, by }) => {
                    assert!(name == "/team/x" && at.starts_with("2026-") && by.starts_with("reader "));
                    already_read += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((read, already_read), (1, 3), "round {round}");
    }
}

pub(crate) async fn wrapping_token_expires_and_is_used_once(fixture: Fixture) {
    fixture.set("/team/x", Kind::Password, json!("once")).await;
    let nobody = fixture.credentials.wrap(&client("a"), &name("/team/x"), 60).await.unwrap_err();
    assert!(matches!(nobody, CredentialError::NotFound));
    for seconds in [0, 86_401] {
        let refused = fixture.credentials.wrap(&admin(), &name("/team/x"), seconds).await.unwrap_err();
        assert!(matches!(refused, CredentialError::Bad(_)), "{seconds}");
    }
    let ended = fixture.credentials.wrap(&admin(), &name("/team/x"), 60).await.unwrap();
    fixture.advance(60);
    let late = fixture.credentials.unwrap("somebody", ended.token.expose()).await.unwrap_err();
    assert!(matches!(late, CredentialError::NoToken));
    // The token returns the value that was wrapped, also after later changes.
    let wrapped = fixture.credentials.wrap(&admin(), &name("/team/x"), 86_400).await.unwrap();
    fixture.set("/team/x", Kind::Password, json!("later")).await;
    fixture.credentials.delete(&admin(), &name("/team/x")).await.unwrap();
    let token = wrapped.token.expose();
    assert_eq!(
        fixture.credentials.unwrap("somebody", token).await.unwrap().value,
        Value::Password(Secret::new("once"))
    );
    for _ in 0..3 {
        assert!(fixture.credentials.unwrap("thief", token).await.is_err());
    }
    for wrong in ["", "bullawrap_", "bullawrap_AAAA", &token[10..], &"x".repeat(100_000)] {
        let error = fixture.credentials.unwrap("somebody", wrong).await.unwrap_err();
        assert!(matches!(error, CredentialError::NoToken), "{wrong}");
    }
    let log = fixture.log().await;
    let lines = |action: &str| log.iter().filter(|line| line.contains(action)).count();
    assert_eq!(lines(" credential.wrap "), 2);
    assert_eq!(lines(" credential.unwrap "), 1);
    assert_eq!(lines("thief credential.unwrap_again "), 1, "the first of them");
    assert!(log.iter().all(|line| !line.contains("bullawrap_") && !line.contains("once")));
}

pub(crate) async fn failed_decryption_does_not_consume_the_wrapping_token(fixture: Fixture) {
    fixture.set("/team/x", Kind::Password, json!("once")).await;
    let wrapped = fixture.credentials.wrap(&admin(), &name("/team/x"), 60).await.unwrap();
    let (_, other_masters) = fixture.with_masters(&["other"]);
    let sealed = other_masters.unwrap("somebody", wrapped.token.expose()).await.unwrap_err();
    assert!(matches!(&sealed, CredentialError::Sealed { name, .. } if name == "/team/x"), "{sealed}");
    let read = fixture.credentials.unwrap("somebody", wrapped.token.expose()).await.unwrap();
    assert_eq!(read.value, Value::Password(Secret::new("once")));
    assert_eq!(fixture.log().await.iter().filter(|line| line.contains(" credential.unwrap ")).count(), 1);
}

pub(crate) async fn wrapping_token_expires_with_its_credential(fixture: Fixture) {
    let short = SetRequest { ttl_s: Some(30), ..SetRequest::new(name("/x"), Kind::Value, json!("short")) };
    let ends_at_us = fixture.credentials.set(&admin(), short).await.unwrap().ends_at_us;
    let wrapped = fixture.credentials.wrap(&admin(), &name("/x"), 60).await.unwrap();
    assert_eq!(Some(wrapped.expires_at_us), ends_at_us);
    fixture.advance(30);
    let late = fixture.credentials.unwrap("somebody", wrapped.token.expose()).await.unwrap_err();
    assert!(matches!(late, CredentialError::NoToken), "{late}");
}
