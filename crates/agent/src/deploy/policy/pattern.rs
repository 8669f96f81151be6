//! Path patterns of a policy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum bytes of a pattern: Linux's PATH_MAX.
const PATTERN_MAX: usize = 4_096;
/// Wildcard for any number of directories.
const ANY_DEPTH: &str = "**";

/// A file, a directory (`/etc/ssl/app/`, with everything below it), or a glob: `*` and `?` within one name, `**` for any number of
/// directories. As in a shell, wildcards do not match a leading dot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PathPattern {
    text: String,
    /// Leading directories without a wildcard.
    literal: PathBuf,
    /// Path segments after `literal`.
    rest: Vec<String>,
}

impl PathPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let invalid = |why: &str| Err(format!("path {text:?} {why}"));
        let path = Path::new(text);
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !path.is_absolute() || !plain || text.contains("/./") || text.len() > PATTERN_MAX {
            return invalid("is not an absolute path without \".\" and \"..\"");
        }
        let mut parts: Vec<String> =
            text.split('/').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect();
        if parts.iter().any(|part| part.contains(ANY_DEPTH) && part != ANY_DEPTH) {
            return invalid("has \"**\" next to other characters");
        }
        if text.ends_with('/') {
            parts.push(ANY_DEPTH.to_owned());
        }
        // The last part is the file name; at least one directory remains for resolving links.
        let plain =
            parts.iter().take(parts.len().saturating_sub(1)).take_while(|part| !has_wildcard(part)).count();
        if plain == 0 {
            return invalid("matches files in every folder of the host: start with a folder");
        }
        let rest = parts.split_off(plain);
        let literal = Path::new("/").join(parts.join("/"));
        Ok(Self { text: text.to_owned(), literal, rest })
    }

    /// Returns the folder that contains every path that the pattern matches.
    pub(crate) fn folder(&self) -> &Path {
        &self.literal
    }

    /// Returns whether the pattern matches `path`. Both the pattern as written and the pattern with resolved links count.
    pub(crate) fn names(&self, path: &Path) -> bool {
        let below = |folder: &Path| {
            let rest = path.strip_prefix(folder).ok()?;
            let parts: Vec<&OsStr> = rest.iter().collect();
            Some(matches_parts(&self.rest, &parts))
        };
        let resolved = || self.literal.canonicalize().ok().and_then(|folder| below(&folder));
        below(&self.literal).or_else(resolved).unwrap_or(false)
    }
}

fn has_wildcard(part: &str) -> bool {
    part.contains(['*', '?'])
}

fn matches_parts(pattern: &[String], parts: &[&OsStr]) -> bool {
    match (pattern.split_first(), parts.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == ANY_DEPTH => {
            let Some((part, others)) = parts.split_first() else { return false };
            // At least one name is required: `**` at the end matches files below the directory, not the directory.
            let wildcard_ends = if rest.is_empty() { others.is_empty() } else { matches_parts(rest, parts) };
            let hidden = part.as_bytes().starts_with(b".");
            (wildcard_ends && !(rest.is_empty() && hidden)) || (!hidden && matches_parts(pattern, others))
        }
        (Some((first, rest)), Some((part, others))) => {
            let dotted = part.as_bytes().starts_with(b".") && !first.starts_with('.');
            !dotted && matches_name(first.as_bytes(), part.as_bytes()) && matches_parts(rest, others)
        }
        _ => false,
    }
}

/// Matches `*` and `?` within one name. Backtracks only to the last `*`.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((back, taken)) = star else { return false };
                star = Some((back, taken + 1));
                (at, from) = (back + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|&letter| letter == b'*')
}

impl Serialize for PathPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PathPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_patterns_match_files_directories_and_globs() {
        let table = [
            ("/etc/tls/a.pem", "/etc/tls/a.pem", true),
            ("/etc/tls/a.pem", "/etc/tls/b.pem", false),
            ("/etc/tls/a.pem", "/etc/tls/a.pem/b", false),
            ("/etc/tls/*.pem", "/etc/tls/a.pem", true),
            ("/etc/tls/*.pem", "/etc/tls/a.key", false),
            ("/etc/tls/*.pem", "/etc/tls/sub/a.pem", false),
            ("/etc/tls/*", "/etc/tls/.hidden", false),
            ("/etc/tls/.*", "/etc/tls/.hidden", true),
            ("/etc/tls/?.pem", "/etc/tls/ab.pem", false),
            ("/etc/tls/", "/etc/tls/a", true),
            ("/etc/tls/", "/etc/tls/sub/deeper/a", true),
            ("/etc/tls/", "/etc/tls", false),
            ("/etc/tls/", "/etc/tls-other/a", false),
            ("/home/app/", "/home/app/.ssh/authorized_keys", false),
            ("/home/app/", "/home/app/.profile", false),
            ("/etc/**/tls/*.pem", "/etc/a/b/tls/x.pem", true),
            ("/etc/**/tls/*.pem", "/etc/tls/x.pem", true),
            ("/etc/**/tls/*.pem", "/etc/a/x.pem", false),
            ("/etc/*/a*b*c", "/etc/x/a--b-b-c", true),
            ("/etc/*/a*b*c", "/etc/x/a--b-b-d", false),
        ];
        for (pattern, path, expected) in table {
            let read = PathPattern::parse(pattern).unwrap();
            assert_eq!(read.names(Path::new(path)), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn relative_and_too_broad_path_patterns_are_rejected() {
        for text in
            ["etc/tls/a", "/etc/../root/a", "/etc/./a", "/**", "/*", "/*/x", "/", "/a", "", "/etc/a**"]
        {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn symlinks_in_a_path_pattern_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink("data", root.join("link")).unwrap();
        let pattern = PathPattern::parse(&format!("{}/link/*.pem", root.display())).unwrap();
        assert!(pattern.names(&root.join("data/a.pem")));
        assert!(pattern.names(&root.join("link/a.pem")));
        assert!(!pattern.names(&root.join("a.pem")));
    }
}
