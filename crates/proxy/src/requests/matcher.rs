//! Which rules a request may meet: found by its host and its path, without a walk over all.

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
