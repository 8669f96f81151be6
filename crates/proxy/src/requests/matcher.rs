//! Which rules a request may meet: found by its host and its path, without a walk over all.

use std::borrow::Cow;
use std::collections::HashMap;

/// Rules by the place their path begins at.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    /// Paths without a star.
    whole: HashMap<String, Vec<u32>>,
    /// What stands before a star, up to its last slash: `/v1/` of `/v1/a*`.
    below: HashMap<String, Vec<u32>>,
    /// Bytes of the longest of these: nothing longer needs to be looked up.
    longest: usize,
    any: Vec<u32>,
}

impl Paths {
    fn add(&mut self, patterns: &[String], rule: u32) {
        if patterns.is_empty() {
            return self.any.push(rule);
        }
        for pattern in patterns {
            match pattern.split_once('*') {
                None => self.whole.entry(pattern.clone()).or_default().push(rule),
                Some((before, _)) => match before.rfind('/') {
                    Some(slash) => {
                        self.longest = self.longest.max(slash + 1);
                        self.below.entry(before[..=slash].to_owned()).or_default().push(rule);
                    }
                    None => self.any.push(rule),
                },
            }
        }
    }

    fn find(&self, path: &str, found: &mut Vec<u32>) {
        found.extend_from_slice(&self.any);
        if !self.whole.is_empty() {
            found.extend(self.whole.get(path).into_iter().flatten());
        }
        if self.below.is_empty() {
            return;
        }
        for (slash, _) in path.match_indices('/').take_while(|(slash, _)| *slash < self.longest) {
            found.extend(self.below.get(&path[..=slash]).into_iter().flatten());
        }
    }
}

/// Rules by the names they are for, and by paths below these.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    exact: HashMap<String, Paths>,
    below: HashMap<String, Paths>,
    any: Paths,
}

impl Index {
    /// `hosts` in lower case; `*.NAME` stands for all below NAME.
    pub(super) fn add(&mut self, hosts: &[String], paths: &[String], rule: u32) {
        if hosts.is_empty() {
            return self.any.add(paths, rule);
        }
        for host in hosts {
            let map = match host.strip_prefix("*.") {
                Some(rest) => self.below.entry(rest.to_owned()),
                None => self.exact.entry(host.clone()),
            };
            map.or_default().add(paths, rule);
        }
    }

    /// Those that a request may meet, in their order, each once.
    pub(super) fn find(&self, host: &str, path: &str) -> Vec<u32> {
        let mut found = Vec::new();
        self.any.find(path, &mut found);
        if let Some(paths) = self.exact.get(host) {
            paths.find(path, &mut found);
        }
        if !self.below.is_empty() {
            for (dot, _) in host.match_indices('.') {
                if let Some(paths) = self.below.get(&host[dot + 1..]) {
                    paths.find(path, &mut found);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Whether `name` is `pattern`, or below it where that is `*.NAME`.
pub(super) fn is_named(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(rest) => name.len() > rest.len() && name.ends_with(rest),
        None => pattern == name,
    }
}

/// Whether a pattern's bytes are all of `text`, a star being any of them. Takes as long as both lengths multiplied, at most; what
/// stands before the first star and after the last one is looked at first, which most texts do not pass.
pub(super) fn is_like(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == text };
    let after = rest.rsplit_once('*').map_or(rest, |(_, after)| after);
    if text.len() < before.len() + after.len() || !text.starts_with(before) || !text.ends_with(after) {
        return false;
    }
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') if at + 1 == pattern.len() => return true,
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(octet) if *octet == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((starred, from)) = star else { return false };
                star = Some((starred, from + 1));
                at = starred + 1;
                read = from + 1;
            }
        }
    }
    pattern[at..].iter().all(|octet| *octet == b'*')
}

/// A path as rules see it: of all spellings of one path the same (RFC 3986 section 6.2.2), so that none goes around a rule. Escapes of
/// what a path may have as it is are undone, everything else is escaped, slashes in a row are one, dot segments are gone. `%2F` stays.
pub(super) fn plain_path(path: &str) -> Cow<'_, str> {
    settled(path, is_of_paths)
}

/// The path that rules have seen as it can be sent: escapes of delimiters stay, which mean another thing to some servers (RFC 3986
/// section 2.2).
pub(super) fn sent_path(path: &str) -> Cow<'_, str> {
    settled(path, is_unreserved)
}

/// Whether a path has dot segments, however they are spelled.
pub(super) fn has_dots(path: &str) -> bool {
    path.contains(['.', '%']) && spelled(path, is_unreserved).split('/').any(is_dots)
}

/// Whether some server would find dot segments in a [`plain_path`]: behind `%2F`, behind a backslash, before a `;`.
pub(super) fn hides_dots(path: &str) -> bool {
    let seen =
        |path: &str| path.split('/').any(|segment| is_dots(segment.split(';').next().unwrap_or_default()));
    match path.contains('%') {
        true => seen(&path.replace("%2F", "/").replace("%5C", "/")),
        false => path.contains(';') && seen(path),
    }
}

/// Whether servers differ in what a [`plain_path`] is: some undo these escapes before they look, some undo escapes twice.
pub(super) fn is_doubtful(path: &str) -> bool {
    const SOME_UNDO: [&str; 7] = ["%2F", "%5C", "%00", "%252E", "%252F", "%255C", "%2500"];
    let is_escaped = path.contains('%') && {
        let path = path.to_ascii_uppercase();
        SOME_UNDO.iter().any(|escape| path.contains(escape))
    };
    is_escaped || hides_dots(path)
}

fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

/// `pchar` of RFC 3986 section 3.3, escapes aside.
fn is_of_paths(octet: u8) -> bool {
    is_unreserved(octet) || b"!$&'()*+,;=:@".contains(&octet)
}

fn settled(path: &str, is_undone: fn(u8) -> bool) -> Cow<'_, str> {
    let is_plain = |octet: u8| octet == b'/' || is_of_paths(octet);
    if path.bytes().all(is_plain) && !path.contains("//") && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let spelled = spelled(path, is_undone);
    let mut segments: Vec<&str> = Vec::new();
    let mut all = spelled.split('/').skip(1).peekable();
    while let Some(segment) = all.next() {
        let last = all.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            "" if !last => {}
            other => segments.push(other),
        }
    }
    Cow::Owned(format!("/{}", segments.join("/")))
}

/// With escapes of some bytes undone, the others in upper case, and escaped what a path may not have. A `%` that escapes nothing
/// stands for itself: it must not become part of another escape.
fn spelled(path: &str, is_undone: fn(u8) -> bool) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let hex = |octet: Option<&u8>| octet.and_then(|octet| char::from(*octet).to_digit(16));
    let mut spelled = String::with_capacity(path.len());
    let mut octets = path.as_bytes();
    while let Some((octet, mut rest)) = octets.split_first() {
        let escaped = match (octet, hex(rest.first()), hex(rest.get(1))) {
            (b'%', Some(high), Some(low)) => {
                rest = &rest[2..];
                Some((high * 16 + low) as u8)
            }
            _ => None,
        };
        let is_plain = escaped.map_or(*octet == b'/' || is_of_paths(*octet), is_undone);
        let octet = escaped.unwrap_or(*octet);
        if is_plain {
            spelled.push(char::from(octet));
        } else {
            spelled.push('%');
            spelled.extend([octet >> 4, octet & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        }
        octets = rest;
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, like) in [
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/a*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/*/admin", "/x/y/admin", true),
            ("/*/admin", "/x/admin/y", false),
            ("*.js", "/x/y.js", true),
            ("/a*b*c", "/aXbXbXc", true),
            ("/a**", "/a", true),
            ("/ab*ba", "/aba", false),
            ("/ab*ba", "/abba", true),
            ("*a*", "/b", false),
        ] {
            assert_eq!(is_like(pattern, text), like, "{pattern} {text}");
        }
    }

    #[test]
    fn one_path_has_one_spelling() {
        for (sent, plain) in [
            ("/a/b", "/a/b"),
            ("/", "/"),
            ("//", "/"),
            ("*", "*"),
            ("/%61dmin", "/admin"),
            ("/a/../admin", "/admin"),
            ("/a/%2e%2E/admin/.", "/admin/"),
            ("/../../x", "/x"),
            ("/a%2fb%zz%", "/a%2Fb%25zz%25"),
            // Undone once: what is left is no escape.
            ("/%%32e%%32e/x", "/%252e%252e/x"),
            ("/%+f", "/%25+f"),
            ("//admin", "/admin"),
            ("/a//b//", "/a/b/"),
            ("/v1//../admin", "/admin"),
            ("/v1/%2F../admin", "/v1/%2F../admin"),
            ("/v1/x%2F..%2f..%2Fadmin", "/v1/x%2F..%2F..%2Fadmin"),
            ("/%40evil%21%24%26%27%28%29%2a%2B%2c%3b%3D%3a", "/@evil!$&'()*+,;=:"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a|b\\c", "/a%7Cb%5Cc"),
            ("/..", "/"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(plain_path(sent), plain, "{sent}");
            assert_eq!(plain_path(plain), plain, "{sent}");
            assert_eq!(plain_path(&sent_path(sent)), plain, "{sent}");
        }
        assert_eq!(sent_path("//%61/%2e./b%3bc;d%2fe"), "/b%3Bc;d%2Fe");
    }

    #[test]
    fn what_servers_read_differently_is_known() {
        for path in
            ["/v1/x%2F..%2F..%2Fadmin", "/v1/..;/admin", "/v1/.%3Bx/a", "/v1/..\\admin", "/v1/%5c../a"]
        {
            let path = plain_path(path);
            assert!(hides_dots(&path) && is_doubtful(&path), "{path}");
        }
        for path in ["/a%2fb", "/a\\b", "/a%00", "/v1/%252e%252E/admin", "/v1/%%32e%%32e/admin", "/a%255Cb"] {
            let path = plain_path(path);
            assert!(!hides_dots(&path) && is_doubtful(&path), "{path}");
        }
        for path in ["/", "/a;b/c", "/...", "/.well-known/a..b", "/100%25", "/a%20b"] {
            assert!(!is_doubtful(&plain_path(path)) && !has_dots(path), "{path}");
        }
        for path in ["/.", "/a/%2E./b", "/a/../b", "/a/./b"] {
            assert!(has_dots(path), "{path}");
        }
    }

    #[test]
    fn rules_are_found_by_host_and_path() {
        let list = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut index = Index::default();
        index.add(&list(&["a.example"]), &list(&["/v1/*"]), 0);
        index.add(&list(&["*.example"]), &[], 1);
        index.add(&[], &list(&["/v1/x", "*.js"]), 2);
        index.add(&list(&["a.example", "*.example"]), &list(&["/v1/x*"]), 3);
        assert_eq!(index.find("a.example", "/v1/x"), [0, 1, 2, 3]);
        assert_eq!(index.find("b.a.example", "/"), [1, 2]);
        assert_eq!(index.find("example", "/v1/x"), [2]);
        assert_eq!(index.find("a.example", "/v2/x"), [1, 2]);
        assert!(is_named("*.a.b", "x.a.b") && !is_named("*.a.b", "a.b") && !is_named("*.a.b", "xa.b"));
    }
}
