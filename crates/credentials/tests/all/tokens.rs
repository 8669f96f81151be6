//! Tests of the tokens of the embedded issuer.

use credentials::{Grant, TokenError};

use crate::fixture::Fixture;

pub(crate) async fn access_token_is_rejected_after_expiry_or_revocation(fixture: Fixture) {
    let grant = Grant {
        actor: "uaa-client:ci".to_owned(),
        name: "ci".to_owned(),
        grant_type: "client_credentials".to_owned(),
        key: [7; 32],
    };
    let tokens = fixture.credentials.issue_tokens(&grant, "https://a.example");
    let access = tokens.access.expose();
    assert_eq!(fixture.credentials.access_token(access).await.unwrap(), (grant.clone(), tokens.id));
    assert_eq!(fixture.credentials.refresh_token(access).await, Err(TokenError::Invalid), "of another kind");
    let refresh = tokens.refresh.expose();
    assert_eq!(fixture.credentials.access_token(refresh).await, Err(TokenError::Invalid));
    assert_eq!(fixture.credentials.refresh_token(refresh).await.unwrap(), grant);
    // Each node accepts the token, also one with an older master key. Another installation rejects it.
    let (_, other_node) = fixture.with_masters(&["new", "master"]);
    assert!(other_node.access_token(access).await.is_ok());
    let (_, other_house) = fixture.with_masters(&["new"]);
    assert_eq!(other_house.access_token(access).await, Err(TokenError::Invalid));
    fixture.credentials.end_token(tokens.id).await.unwrap();
    assert_eq!(fixture.credentials.access_token(access).await, Err(TokenError::Ended), "at once here");
    let (_, fresh_node) = fixture.with_masters(&["master"]);
    assert_eq!(fresh_node.access_token(access).await, Err(TokenError::Ended));
    let later = fixture.credentials.issue_tokens(&grant, "");
    fixture.advance(3_599);
    assert!(fixture.credentials.access_token(later.access.expose()).await.is_ok());
    fixture.advance(1);
    assert_eq!(fixture.credentials.access_token(later.access.expose()).await, Err(TokenError::Expired));
    assert!(fixture.credentials.refresh_token(later.refresh.expose()).await.is_ok());
}

pub(crate) async fn refresh_token_is_reusable_until_logout(fixture: Fixture) {
    let grant = Grant {
        actor: "uaa-user:ada".to_owned(),
        name: "ada".to_owned(),
        grant_type: "password".to_owned(),
        key: [7; 32],
    };
    let store = &fixture.credentials;
    let tokens = store.issue_tokens(&grant, "");
    // CredHub's CLI does this with each command after its access token has expired.
    for _ in 0..3 {
        fixture.advance(3_601);
        assert_eq!(store.refresh_token(tokens.refresh.expose()).await.unwrap(), grant);
    }
    let other = store.issue_tokens(&grant, "");
    // Logout is possible with an expired access token.
    let access = tokens.access.expose();
    assert_eq!(store.access_token(access).await, Err(TokenError::Expired));
    assert_eq!(store.access_token_id(access), Some(tokens.id));
    assert_eq!(store.access_token_id(tokens.refresh.expose()), None);
    store.end_token(tokens.id).await.unwrap();
    assert_eq!(store.refresh_token(tokens.refresh.expose()).await, Err(TokenError::Ended), "logged out");
    assert_eq!(store.refresh_token(other.refresh.expose()).await.unwrap(), grant, "another login goes on");
}
