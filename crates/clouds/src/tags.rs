//! Tags and labels of cloud resources. Pure: no I/O.

use std::collections::BTreeMap;

/// Tags of one certificate, by key.
pub type Tags = BTreeMap<String, String>;

/// Maximum stored tags of one certificate, the first by key. AWS allows 50, Azure 15, Google Cloud 64 labels; Kubernetes has no
/// limit.
pub const TAGS_KEPT_MAX: usize = 64;
/// Longest stored key in bytes: Azure allows 512; AWS (128 characters) and Kubernetes (317) allow less.
pub const TAG_KEY_BYTES_MAX: usize = 512;
/// Longest stored value in bytes: AWS and Azure allow 256 characters of up to four bytes.
pub const TAG_VALUE_BYTES_MAX: usize = 1_024;

/// Returns the tags to store. A tag that is too long or has control characters is dropped, because a truncated tag would be a
/// different tag.
pub fn bounded<K, V>(all: impl IntoIterator<Item = (K, V)>) -> Tags
where
    K: Into<String>,
    V: Into<String>,
{
    let mut tags: Tags = all
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()))
        .filter(|(key, value)| fits(key, value))
        .collect();
    if let Some(beyond) = tags.keys().nth(TAGS_KEPT_MAX).cloned() {
        tags.split_off(&beyond);
    }
    tags
}

fn fits(key: &str, value: &str) -> bool {
    let plain = |text: &str| !text.chars().any(char::is_control);
    !key.is_empty()
        && key.len() <= TAG_KEY_BYTES_MAX
        && value.len() <= TAG_VALUE_BYTES_MAX
        && plain(key)
        && plain(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_or_invalid_tags_are_dropped_not_truncated() {
        let long = |length: usize| "x".repeat(length);
        for (key, value, is_kept) in [
            ("team".to_owned(), "pay".to_owned(), true),
            ("team".to_owned(), String::new(), true),
            (String::new(), "pay".to_owned(), false),
            (long(TAG_KEY_BYTES_MAX), long(TAG_VALUE_BYTES_MAX), true),
            (long(TAG_KEY_BYTES_MAX + 1), "pay".to_owned(), false),
            ("team".to_owned(), long(TAG_VALUE_BYTES_MAX + 1), false),
            ("team".to_owned(), "p\u{0}y".to_owned(), false),
            ("te\nam".to_owned(), "pay".to_owned(), false),
        ] {
            let found = bounded([(key.clone(), value.clone())]);
            assert_eq!(found.get(&key) == Some(&value), is_kept, "{key:?} {value:?}");
        }
        let many = bounded((0..TAGS_KEPT_MAX + 9).map(|n| (format!("t{n:03}"), "v")));
        assert_eq!(many.len(), TAGS_KEPT_MAX);
        assert!(many.contains_key("t063") && !many.contains_key("t064"), "the first by key");
    }
}
