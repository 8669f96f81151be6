//! The embedded issuer's tokens.

use credentials::{Grant, TokenError};

use crate::place::Fixture;

pub(crate) async fn a_token_ends_with_its_time_or_before(place: Fixture) {
    let grant = Grant {
        actor: "uaa-client:ci".to_owned(),
        name: "ci".to_owned(),
        grant_type: "client_credentials".to_owned(),
        key: [7; 32],
    };
    let tokens = place.credentials.issue_tokens(&grant, "https://a.example");
    let access = tokens.access.expose();
    assert_eq!(place.credentials.access_token(access).await.unwrap(), (grant.clone(), tokens.id));
    assert_eq!(place.credentials.refresh_token(access).await, Err(TokenError::Invalid), "of another kind");
    let refresh = tokens.refresh.expose();
    assert_eq!(place.credentials.access_token(refresh).await, Err(TokenError::Invalid));
    assert_eq!(place.credentials.refresh_token(refresh).await.unwrap(), grant);
    // Every node reads it, under an older master key too; another house's does not.
    let (_, other_node) = place.with_masters(&["new", "master"]);
    assert!(other_node.access_token(access).await.is_ok());
    let (_, other_house) = place.with_masters(&["new"]);
    assert_eq!(other_house.access_token(access).await, Err(TokenError::Invalid));
    place.credentials.end_token(tokens.id).await.unwrap();
    assert_eq!(place.credentials.access_token(access).await, Err(TokenError::Ended), "at once here");
    let (_, fresh_node) = place.with_masters(&["master"]);
    assert_eq!(fresh_node.access_token(access).await, Err(TokenError::Ended));
    let later = place.credentials.issue_tokens(&grant, "");
    place.advance(3_599);
    assert!(place.credentials.access_token(later.access.expose()).await.is_ok());
    place.advance(1);
    assert_eq!(place.credentials.access_token(later.access.expose()).await, Err(TokenError::Expired));
    assert!(place.credentials.refresh_token(later.refresh.expose()).await.is_ok());
}

pub(crate) async fn a_refresh_token_ends_at_logout_and_not_by_its_use(place: Fixture) {
    let grant = Grant {
        actor: "uaa-user:ada".to_owned(),
        name: "ada".to_owned(),
        grant_type: "password".to_owned(),
        key: [7; 32],
    };
    let store = &place.credentials;
    let tokens = store.issue_tokens(&grant, "");
    // As CredHub's CLI does with each command once its access token has ended.
    for _ in 0..3 {
        place.advance(3_601);
        assert_eq!(store.refresh_token(tokens.refresh.expose()).await.unwrap(), grant);
    }
    let other = store.issue_tokens(&grant, "");
    // Anyone who logs out does so by an access token that has ended long ago.
    let access = tokens.access.expose();
    assert_eq!(store.access_token(access).await, Err(TokenError::Expired));
    assert_eq!(store.access_token_id(access), Some(tokens.id));
    assert_eq!(store.access_token_id(tokens.refresh.expose()), None);
    store.end_token(tokens.id).await.unwrap();
    assert_eq!(store.refresh_token(tokens.refresh.expose()).await, Err(TokenError::Ended), "logged out");
    assert_eq!(store.refresh_token(other.refresh.expose()).await.unwrap(), grant, "another login goes on");
}
