//! Text that both databases can store and search.

use std::borrow::Cow;

/// Maximum bytes of a name that can be searched by suffix. RFC 1035 section 2.3.4 limits names to 255 bytes on the wire.
const SUFFIX_BYTES_MAX: usize = 255;

/// Replaces NUL by U+FFFD. PostgreSQL's text type rejects NUL, which hostile certificates may contain.
#[must_use]
pub fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Returns a name reversed and in lower case, truncated to the searchable length. An index on it finds names by suffix.
#[must_use]
pub fn reversed(name: &str) -> String {
    let mut length = 0;
    storable(name)
        .chars()
        .rev()
        .map(|letter| letter.to_ascii_lowercase())
        .take_while(|letter| {
            length += letter.len_utf8();
            length <= SUFFIX_BYTES_MAX
        })
        .collect()
}

/// Returns a LIKE pattern for "contains", in lower case. Escapes the wildcards of `text`.
#[must_use]
pub fn contains(text: &str) -> String {
    let mut pattern = String::from("%");
    for letter in text.chars().filter(|letter| *letter != '\0') {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter.to_ascii_lowercase());
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn like_wildcards_are_escaped() {
        assert_eq!(contains("A_b%c\\"), "%a\\_b\\%c\\\\%");
    }

    proptest! {
        #[test]
        fn reversed_text_turns_suffixes_into_prefixes(head in "[a-z*.]{0,20}", tail in "[a-z.]{1,20}") {
            let whole = format!("{head}{tail}");
            prop_assert!(reversed(&whole).starts_with(&reversed(&tail)));
            prop_assert!(reversed(&whole).len() <= SUFFIX_BYTES_MAX);
        }
    }
}
