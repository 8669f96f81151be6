//! Paths of secrets: names without their leading slash.

use axum::extract::{FromRequestParts, Path};
use credentials::{NAME_CHARS_MAX, Name};
use http::request::Parts;

use super::super::credhub::context::Context;
use super::answer::Refused;

/// The name of a secret, from the path of the request.
pub(super) struct SecretName(pub(super) Name);

/// The name of a folder; `None` is the root. A trailing slash is ignored.
pub(super) struct Folder(pub(super) Option<Name>);

impl FromRequestParts<Context> for SecretName {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        name_of(&text_of(parts, context).await?).map(Self)
    }
}

impl FromRequestParts<Context> for Folder {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        let text = text_of(parts, context).await?;
        folder_of(&text).map(Self)
    }
}

async fn text_of(parts: &mut Parts, context: &Context) -> Result<String, Refused> {
    let path = Path::<String>::from_request_parts(parts, context).await;
    path.map(|Path(text)| text).map_err(|_| Refused::bad("the path is not valid UTF-8"))
}

/// Returns the credential name of a path.
pub(super) fn name_of(path: &str) -> Result<Name, Refused> {
    Name::parse(&format!("/{path}"))
        .map_err(|_| Refused::bad(format!("the path is not a valid name: {}", fault(path))))
}

pub(super) fn folder_of(path: &str) -> Result<Option<Name>, Refused> {
    match path.strip_suffix('/').unwrap_or(path) {
        "" => Ok(None),
        path => name_of(path).map(Some),
    }
}

/// Returns the error text for an invalid path.
fn fault(path: &str) -> String {
    let characters = path.chars().count() + 1;
    if characters > NAME_CHARS_MAX {
        return format!("the name has {characters} characters; at most {NAME_CHARS_MAX} are allowed");
    }
    if path.split('/').any(str::is_empty) {
        return "a part of the path is empty. hint: remove // and a trailing /".to_owned();
    }
    if let Some(part) = path.split('/').find(|part| *part == "." || *part == "..") {
        return format!("{part} is not allowed as a part of a name");
    }
    let allowed = "letters, digits and -_/.:,()[]+ are allowed";
    match path.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_/.:,()[]+".contains(*c)) {
        Some(other) => format!("the character {other:?} is not allowed. hint: {allowed}"),
        None => format!("hint: {allowed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vault_paths_map_to_credential_names_or_return_a_reason() {
        assert_eq!(name_of("Team/db").unwrap().as_str(), "/Team/db");
        assert!(folder_of("").unwrap().is_none() && folder_of("/").unwrap().is_none());
        assert_eq!(folder_of("team/").unwrap().unwrap().as_str(), "/team");
        for (path, why) in [
            ("a//b", "empty"),
            ("/a", "empty"),
            ("a/", "empty"),
            ("a/../b", ".. is not allowed"),
            (".", ". is not allowed"),
            ("a b", "' '"),
            ("ä", "'ä'"),
            (&"x".repeat(1_024), "1025 characters"),
        ] {
            let refused = format!("{:?}", name_of(path).unwrap_err());
            assert!(refused.contains(why), "{path}: {refused}");
        }
    }
}
