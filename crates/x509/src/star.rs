//! Wildcard patterns, in which a star matches any text. Used for names of keys, hosts of an inventory, and paths and values of
//! requests.

/// Returns whether `text` matches the pattern. Each `*` matches any text, including dots, slashes and no text. Time is
/// proportional to the sum of both lengths: a part between two stars is matched at its first occurrence, because a later one never
/// helps.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    let Some(mut left) = inner else { return false };
    middle.split('*').all(|part| match left.split_once(part) {
        Some((_, behind)) => {
            left = behind;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, text, wanted) in [
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/a*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/*/admin", "/x/y/admin", true),
            ("/*/admin", "/x/admin/y", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "acb", false),
            ("a**", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("ab*ba", "aba", false),
            ("*ana*", "bananas", true),
            ("*a*", "b", false),
            ("*.key", "a.keys", false),
            ("*b*c*", "acb", false),
            ("a*b*b", "ab", false),
            ("a*b*b", "abb", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*.münchen.example", "x.münchen.example", true),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    /// Literal implementation of the definition, byte by byte.
    fn by_letter(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                by_letter(rest, text)
                    || text.split_first().is_some_and(|(_, behind)| by_letter(pattern, behind))
            }
            (Some((one, rest)), Some((other, behind))) if one == other => by_letter(rest, behind),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn star_matching_equals_its_definition(pattern in "[ab*.]{0,8}", text in "[ab.]{0,12}") {
            prop_assert_eq!(matches(&pattern, &text), by_letter(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
