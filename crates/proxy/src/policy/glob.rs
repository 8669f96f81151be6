//! Globs of paths: `*` for any characters of one segment, `**` for any characters.

/// Maximum bytes of a pattern.
pub(super) const GLOB_BYTES_MAX: usize = 1_024;

/// The compiled globs of one rule, in one allocation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Globs(Box<[Part]>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Byte(u8),
    /// `*`: any bytes except slashes.
    Segment,
    /// `**`: any bytes.
    Any,
    /// Separator between two globs.
    Or,
}

impl Globs {
    /// Compiles patterns; none may be empty.
    pub(super) fn new(patterns: &[String]) -> Self {
        let mut parts = Vec::with_capacity(patterns.iter().map(|pattern| pattern.len() + 1).sum());
        for pattern in patterns {
            if !parts.is_empty() {
                parts.push(Part::Or);
            }
            let mut rest = pattern.as_bytes();
            while let Some((first, after)) = rest.split_first() {
                let stars = rest.iter().take_while(|byte| **byte == b'*').count();
                parts.push(match stars {
                    0 => Part::Byte(*first),
                    1 => Part::Segment,
                    _ => Part::Any,
                });
                rest = if stars > 0 { &rest[stars..] } else { after };
            }
        }
        Self(parts.into())
    }

    /// Returns whether there are no globs.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether one of the globs matches all of `text`. The time is at most the product of both lengths.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.split(|part| *part == Part::Or).any(|glob| Part::match_all(glob, text.as_bytes()))
    }
}

impl Part {
    fn match_all(glob: &[Self], text: &[u8]) -> bool {
        let (mut part, mut byte) = (0, 0);
        // State for backtracking after a mismatch: the part after the star, and the number of bytes that the star matches.
        let (mut segment, mut any): (Option<(usize, usize)>, Option<(usize, usize)>) = (None, None);
        loop {
            match (glob.get(part), text.get(byte)) {
                (None, None) => return true,
                (Some(Part::Any), _) => {
                    part += 1;
                    any = Some((part, byte));
                    segment = None;
                    continue;
                }
                (Some(Part::Segment), _) => {
                    part += 1;
                    segment = Some((part, byte));
                    continue;
                }
                (Some(Part::Byte(wanted)), Some(found)) if wanted == found => {
                    part += 1;
                    byte += 1;
                    continue;
                }
                _ => {}
            }
            // Extend the match of the last `*` by one byte. If the byte is a slash, or there is no `*`, extend the match of the
            // last `**` instead.
            if let Some((after, taken)) =
                segment.filter(|(_, taken)| text.get(*taken).is_some_and(|at| *at != b'/'))
            {
                segment = Some((after, taken + 1));
                (part, byte) = (after, taken + 1);
            } else if let Some((after, taken)) = any.filter(|(_, taken)| *taken < text.len()) {
                any = Some((after, taken + 1));
                segment = None;
                (part, byte) = (after, taken + 1);
            } else {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn star_matches_one_segment_and_double_star_many() {
        for (pattern, text, matches) in [
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/", true),
            ("/a/*", "/a/b/c", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/a", false),
            ("/repos/*/*/issues", "/repos/o/r/issues", true),
            ("/repos/*/*/issues", "/repos/o/r/s/issues", false),
            ("/**/admin", "/x/y/admin", true),
            ("/**/admin/*", "/admin/x/admin/y", true),
            ("**.js", "/x/y.js", true),
            ("/*.js", "/x/y.js", false),
            ("/a*b*c", "/aXbXbXc", true),
            ("/*a/b", "/xaa/b", true),
        ] {
            assert_eq!(Globs::new(&[pattern.to_owned()]).matches(text), matches, "{pattern} {text}");
        }
        let two = Globs::new(&["/a/*".to_owned(), "/b".to_owned()]);
        assert!(two.matches("/a/x") && two.matches("/b") && !two.matches("/a/x/b") && !two.matches("/a"));
    }

    /// Matches by the definition of the pattern. This slow implementation is the reference for tests of the fast one.
    fn by_definition(parts: &[Part], text: &[u8]) -> bool {
        match parts.split_first() {
            None | Some((Part::Or, _)) => text.is_empty(),
            Some((Part::Byte(byte), rest)) => text.first() == Some(byte) && by_definition(rest, &text[1..]),
            Some((Part::Any, rest)) => (0..=text.len()).any(|taken| by_definition(rest, &text[taken..])),
            Some((Part::Segment, rest)) => {
                let most = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
                (0..=most).any(|taken| by_definition(rest, &text[taken..]))
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn glob_matches_like_the_reference_implementation(pattern in "[ab/*]{1,8}", text in "[ab/]{0,10}") {
            let glob = Globs::new(std::slice::from_ref(&pattern));
            prop_assert_eq!(glob.matches(&text), by_definition(&glob.0, text.as_bytes()), "{} {}", pattern, text);
        }
    }
}
