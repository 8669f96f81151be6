//! Scopes of grants, and the objects to which they are applied.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::host::{address, host_of};

/// Maximum length in bytes of a name in a scope; the same as for names of objects.
const NAME_BYTES_MAX: usize = 253;

/// Maximum length in bytes of a credential path in a scope; the same as for credential paths.
const PATH_BYTES_MAX: usize = 1_024;

/// Maximum number of bounds in a scope.
const BOUNDS_MAX: usize = 8;

/// Prefixes of the bounds.
const KINDS: [&str; 6] = ["profile:", "issuer:", "team:", "name:", "target:", "path:"];

/// The scope of a grant. It is written as `any`, or as bounds separated by commas, all of which must match: `profile:NAME`,
/// `issuer:NAME`, `team:NAME`, `name:a.example` (that name), `name:*.a.example` (every name below), `target:NAME`, `target:web-*`,
/// `path:/a/b`, `path:/a/*`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// All objects.
    Any,
    /// Objects of this profile.
    Profile(String),
    /// Objects of this issuer.
    Issuer(String),
    /// Objects of this team.
    Team(String),
    /// Objects whose names all match: a name, or `*.` and a suffix. Lower case.
    Name(String),
    /// Objects whose targets all match: the name of a target, or a prefix and `*`.
    Target(String),
    /// The credential at this path, or all credentials below it if the path ends with `/*`. Lower case.
    Path(String),
    /// Objects within all of these scopes. The list is sorted and has at least two entries, none of them [`Scope::Any`] or
    /// [`Scope::Every`].
    Every(Vec<Self>),
}

/// An object for which a permission is needed, with the properties that a scope can restrict.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Object {
    /// Name of the profile, if the object has one.
    pub profile: Option<String>,
    /// Name of the issuer, if the object has one.
    pub issuer: Option<String>,
    /// Team that owns the object.
    pub team: Option<String>,
    /// Names that the object certifies; `None` for kinds of objects without names.
    pub names: Option<Vec<String>>,
    /// Names of the deployment targets; `None` for kinds of objects without targets.
    pub targets: Option<Vec<String>>,
    /// Path in the credential store.
    pub path: Option<String>,
}

impl Object {
    /// Returns an object that has only a profile.
    #[must_use]
    pub fn profile(name: impl Into<String>) -> Self {
        Self { profile: Some(name.into()), ..Self::default() }
    }

    /// Returns an object that has only a credential path.
    #[must_use]
    pub fn path(path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// Returns the object with these names.
    #[must_use]
    pub fn with_names<T: ToString>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.names = Some(names.into_iter().map(|name| name.to_string()).collect());
        self
    }
}

/// Builds an object from a list of its profile, issuer and team.
impl<const N: usize> From<&[Scope; N]> for Object {
    fn from(scopes: &[Scope; N]) -> Self {
        Self::from(&scopes[..])
    }
}

impl From<&Vec<Scope>> for Object {
    fn from(scopes: &Vec<Scope>) -> Self {
        Self::from(&scopes[..])
    }
}

impl From<&Self> for Object {
    fn from(object: &Self) -> Self {
        object.clone()
    }
}

impl From<&[Scope]> for Object {
    fn from(scopes: &[Scope]) -> Self {
        let mut object = Self::default();
        for scope in scopes {
            match scope {
                Scope::Profile(name) => object.profile = Some(name.clone()),
                Scope::Issuer(name) => object.issuer = Some(name.clone()),
                Scope::Team(name) => object.team = Some(name.clone()),
                Scope::Name(name) => object.names.get_or_insert_default().push(name.clone()),
                Scope::Target(name) => object.targets.get_or_insert_default().push(name.clone()),
                Scope::Path(path) => object.path = Some(path.clone()),
                Scope::Any | Scope::Every(_) => {}
            }
        }
        object
    }
}

impl Scope {
    /// Returns the scope of all objects of this profile.
    #[must_use]
    pub fn profile(name: impl Into<String>) -> Self {
        Self::Profile(name.into())
    }

    /// Returns the scope of all objects of this issuer.
    #[must_use]
    pub fn issuer(name: impl Into<String>) -> Self {
        Self::Issuer(name.into())
    }

    /// Returns the scope of all objects of this team.
    #[must_use]
    pub fn team(name: impl Into<String>) -> Self {
        Self::Team(name.into())
    }

    /// Returns the bounds of the scope. An object must match all of them. Empty for [`Scope::Any`].
    #[must_use]
    pub fn bounds(&self) -> &[Self] {
        match self {
            Self::Any => &[],
            Self::Every(bounds) => bounds,
            bound => std::slice::from_ref(bound),
        }
    }

    /// Returns whether this scope contains every object within `other`: a bound of `other` implies each bound of this scope.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.bounds().iter().all(|bound| other.bounds().iter().any(|narrower| bound.covers_bound(narrower)))
    }

    fn covers_bound(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(pattern), Self::Name(narrower)) => {
                pattern == narrower || name_matches(pattern, narrower)
            }
            (Self::Target(pattern), Self::Target(narrower)) => {
                pattern == narrower || matches_prefix_pattern(pattern, narrower)
            }
            (Self::Path(pattern), Self::Path(narrower)) => {
                pattern == narrower || matches_prefix_pattern(pattern, narrower)
            }
            _ => self == other,
        }
    }

    /// Returns whether the object matches every bound. An object without the property that a bound restricts does not match.
    #[must_use]
    pub fn reaches(&self, object: &Object) -> bool {
        self.bounds().iter().all(|bound| bound.holds(object))
    }

    fn holds(&self, object: &Object) -> bool {
        match self {
            Self::Any => true,
            Self::Profile(name) => object.profile.as_ref() == Some(name),
            Self::Issuer(name) => object.issuer.as_ref() == Some(name),
            Self::Team(name) => object.team.as_ref() == Some(name),
            Self::Name(pattern) => object.names.as_ref().is_some_and(|names| {
                !names.is_empty() && names.iter().all(|name| name_matches(pattern, name))
            }),
            Self::Target(pattern) => object.targets.as_ref().is_some_and(|targets| {
                !targets.is_empty()
                    && targets.iter().all(|name| name == pattern || matches_prefix_pattern(pattern, name))
            }),
            Self::Path(pattern) => object.path.as_ref().is_some_and(|path| {
                let path = path.to_lowercase();
                path == *pattern || matches_prefix_pattern(pattern, &path)
            }),
            Self::Every(bounds) => bounds.iter().all(|bound| bound.holds(object)),
        }
    }
}

/// Returns whether `name` is the pattern or a subdomain of its suffix. A wildcard name matches a suffix if its parent is the suffix
/// or a subdomain of it. An address matches only the same address.
fn name_matches(pattern: &str, name: &str) -> bool {
    let (name, pattern) = (host_of(name), host_of(pattern));
    if address(&name).is_some() {
        return pattern == name;
    }
    // The dot after `*` is part of the suffix.
    pattern
        .strip_prefix('*')
        .map_or(pattern == name, |suffix| name.strip_suffix(suffix).is_some_and(|label| !label.is_empty()))
}

/// Returns whether `pattern` ends with `*` and the rest is a proper prefix of `text`.
fn matches_prefix_pattern(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|start| text.starts_with(start) && text.len() > start.len())
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Profile(name) => write!(f, "profile:{name}"),
            Self::Issuer(name) => write!(f, "issuer:{name}"),
            Self::Team(name) => write!(f, "team:{name}"),
            Self::Name(pattern) => write!(f, "name:{pattern}"),
            Self::Target(pattern) => write!(f, "target:{pattern}"),
            Self::Path(pattern) => write!(f, "path:{pattern}"),
            Self::Every(bounds) => {
                let texts: Vec<String> = bounds.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

/// Splits a scope at each comma that a new bound follows. Any other comma is part of a name.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(',') {
        let rest = &text[at + 1..];
        if KINDS.iter().any(|kind| rest.starts_with(kind)) {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The text is not a valid scope.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a scope: give `any`, or one of `profile:NAME`, `issuer:NAME`, `team:NAME`, `name:a.example`, \
     `name:*.a.example`, `target:NAME`, `target:web-*`, `path:/a/b`, `path:/a/*`, or several of these separated by commas"
)]
pub struct BadScope(pub String);

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        let bad = || BadScope(text.chars().take(NAME_BYTES_MAX).collect());
        if text == "any" {
            return Ok(Self::Any);
        }
        if let parts @ [_, _, ..] = &split(text)[..] {
            let mut bounds = parts.iter().map(|part| part.parse()).collect::<Result<Vec<Self>, _>>()?;
            if bounds.contains(&Self::Any) || bounds.len() > BOUNDS_MAX {
                return Err(bad());
            }
            bounds.sort();
            bounds.dedup();
            // Duplicate bounds were removed, so one bound may remain.
            return Ok(if bounds.len() == 1 { bounds.remove(0) } else { Self::Every(bounds) });
        }
        let (kind, name) = text.split_once(':').ok_or_else(bad)?;
        let longest = if kind == "path" { PATH_BYTES_MAX } else { NAME_BYTES_MAX };
        if name.is_empty() || name.len() > longest || name.chars().any(char::is_control) {
            return Err(bad());
        }
        match kind {
            "profile" => Ok(Self::profile(name)),
            "issuer" => Ok(Self::issuer(name)),
            "team" => Ok(Self::team(name)),
            "name" if is_name_pattern(name) => {
                let address = address(name).map(|address| address.to_string());
                Ok(Self::Name(address.unwrap_or_else(|| name.to_ascii_lowercase())))
            }
            "target" if !name[..name.len() - 1].contains('*') && name != "*" => {
                Ok(Self::Target(name.to_owned()))
            }
            "path" if is_path_pattern(name) => Ok(Self::Path(name.to_lowercase())),
            _ => Err(bad()),
        }
    }
}

/// Returns whether the text is a DNS name or IP address, or `*.` and a DNS name.
fn is_name_pattern(text: &str) -> bool {
    let host = text.strip_prefix("*.").unwrap_or(text);
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.');
    host.chars().all(letters) && host.split('.').all(|label| !label.is_empty())
}

/// Returns whether the text is a path: it begins with a slash, has no empty segments, and may end with `/*`.
fn is_path_pattern(text: &str) -> bool {
    let path = text.strip_suffix("/*").unwrap_or(text);
    let segments = |path: &str| path.split('/').all(|segment| !segment.is_empty() && !segment.contains('*'));
    (path.is_empty() && text == "/*") || path.strip_prefix('/').is_some_and(segments)
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn scopes_display_as_parsed() {
        for text in [
            "any",
            "profile:web",
            "issuer:letsencrypt",
            "team:a:b",
            "team:a,b",
            "profile:w,team:a,x",
            "name:a.example",
            "team:a,name:*.a.example,target:web-*,path:/a/*",
            "name:10.0.0.1",
            "path:/*",
            "path:/a/b",
        ] {
            assert_eq!(scope(text).to_string(), text);
        }
        assert_eq!(scope("team:a,profile:w").to_string(), "profile:w,team:a");
        assert_eq!(scope("name:*.A.Example,path:/Team/*").to_string(), "name:*.a.example,path:/team/*");
        assert_eq!(scope("team:a,team:a"), Scope::team("a"));
        for text in [
            "",
            "all",
            "profile",
            "profile:",
            "x:a",
            "team:a\nb",
            "any,team:a",
            "team:,profile:w",
            "name:*",
            "name:*.",
            "name:a*.example",
            "name:*.*.example",
            "name:.a.example",
            "name:a b",
            "target:*",
            "target:a*b",
            "target:**",
            "path:a",
            "path:/",
            "path:/a/",
            "path:/a*",
            "path:/a//b",
            "path:/a/*/b",
            "path:*",
        ] {
            assert!(text.parse::<Scope>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn long_names_and_many_bounds_are_rejected() {
        let is_scope = |text: String| text.parse::<Scope>().is_ok();
        for kind in ["team", "profile", "issuer", "target"] {
            assert!(is_scope(format!("{kind}:{}", "a".repeat(NAME_BYTES_MAX))), "{kind}");
            assert!(!is_scope(format!("{kind}:{}", "a".repeat(NAME_BYTES_MAX + 1))), "{kind}");
        }
        assert!(is_scope(format!("path:/{}", "a".repeat(PATH_BYTES_MAX - 1))));
        assert!(!is_scope(format!("path:/{}", "a".repeat(PATH_BYTES_MAX))));
        let bounds =
            |count: usize| (0..count).map(|number| format!("team:t{number}")).collect::<Vec<_>>().join(",");
        assert!(is_scope(bounds(BOUNDS_MAX)));
        assert!(!is_scope(bounds(BOUNDS_MAX + 1)));
    }

    #[test]
    fn name_target_and_path_scopes_match_their_objects() {
        let named = |names: &[&str]| Object::profile("web").with_names(names);
        let table: &[(&str, Object, bool)] = &[
            ("name:*.a.example", named(&["x.a.example", "*.a.example", "*.y.A.example"]), true),
            ("name:*.a.example", named(&["a.example"]), false),
            ("name:a.example", named(&["a.example"]), true),
            ("name:*.a.example", named(&["x.a.example", "x.b.example"]), false),
            ("name:*.a.example", named(&["xa.example"]), false),
            ("name:*.a.example", named(&["*.example"]), false),
            ("name:x.a.example", named(&["*.a.example"]), false),
            ("name:*.a.example", named(&[]), false),
            ("name:*.a.example", Object::profile("web"), false),
            ("name:*.a.example", named(&["ops@x.a.example", "spiffe://x.a.example/ns"]), true),
            ("name:*.a.example", named(&["spiffe://evil/x.a.example"]), false),
            ("name:*.a.example", named(&["https://x.a.example@evil/"]), false),
            ("profile:web,name:*.a.example", named(&["x.a.example"]), true),
            ("profile:other,name:*.a.example", named(&["x.a.example"]), false),
            ("path:/team-a/*", Object::path("/Team-A/x/y"), true),
            ("path:/team-a/*", Object::path("/team-a"), false),
            ("path:/team-a/*", Object::path("/team-ab/x"), false),
            ("path:/team-a/x", Object::path("/team-a/x"), true),
            ("path:/team-a/*", named(&["x.a.example"]), false),
        ];
        for (text, object, reached) in table {
            assert_eq!(scope(text).reaches(object), *reached, "{text} {object:?}");
        }
        let deployed = |targets: &[&str]| Object {
            targets: Some(targets.iter().map(|name| (*name).to_owned()).collect()),
            ..Object::profile("web")
        };
        for (text, targets, reached) in [
            ("target:web-*", &["web-1", "web-2"][..], true),
            ("target:web-*", &["web-1", "db-1"], false),
            ("target:web-*", &["web-"], false),
            ("target:web-1", &["web-1"], true),
            ("target:web-1", &["web-11"], false),
            ("target:web-1", &[], false),
        ] {
            assert_eq!(scope(text).reaches(&deployed(targets)), reached, "{text} {targets:?}");
        }
        assert!(!scope("target:web-*").reaches(&Object::profile("web")));
    }

    #[test]
    fn scope_with_several_bounds_requires_all_of_them() {
        let both = scope("team:a,profile:web");
        let (team, profile) = (Scope::team("a"), Scope::profile("web"));
        let reached = |scope: &Scope, facts: &[Scope]| scope.reaches(&Object::from(facts));
        assert!(reached(&both, &[profile.clone(), Scope::issuer("x"), team.clone()]));
        assert!(!reached(&both, &[profile.clone(), Scope::team("b")]));
        assert!(!reached(&both, std::slice::from_ref(&team)) && !reached(&both, &[]));
        assert!(reached(&Scope::Any, &[]) && !reached(&team, &[]));
        assert!(team.covers(&both) && profile.covers(&both) && both.covers(&both));
        assert!(!both.covers(&team) && !both.covers(&Scope::Any) && Scope::Any.covers(&both));
    }

    #[test]
    fn any_scope_covers_all_and_each_scope_covers_itself() {
        let web = Scope::profile("web");
        assert!(Scope::Any.covers(&web) && web.covers(&web));
        assert!(!web.covers(&Scope::Any) && !web.covers(&Scope::team("web")));
        assert!(scope("name:*.example").covers(&scope("name:*.a.example,team:a")));
        assert!(!scope("name:*.a.example").covers(&scope("name:*.example")));
        assert!(!scope("name:*.a.example").covers(&scope("name:a.example")));
        assert!(scope("path:/a/*").covers(&scope("path:/a/b/*")));
        assert!(!scope("path:/a/b/*").covers(&scope("path:/a/*")));
        assert!(scope("target:web-*").covers(&scope("target:web-a*")));
    }

    fn bound() -> impl Strategy<Value = String> {
        let label = "[a-c]{1,2}";
        let word = "[a-c:, -]{0,3}[a-c]";
        prop_oneof![
            word.prop_map(|name| format!("profile:{name}")),
            word.prop_map(|name| format!("team:{name}")),
            word.prop_map(|name| format!("issuer:{name}")),
            (any::<bool>(), proptest::collection::vec(label, 1..4)).prop_map(|(star, labels)| {
                format!("name:{}{}", if star { "*." } else { "" }, labels.join("."))
            }),
            (label, any::<bool>())
                .prop_map(|(name, star)| format!("target:{name}{}", if star { "*" } else { "" })),
            (proptest::collection::vec(label, 1..3), any::<bool>()).prop_map(|(segments, star)| {
                format!("path:/{}{}", segments.join("/"), if star { "/*" } else { "" })
            }),
        ]
    }

    fn any_scope() -> impl Strategy<Value = Scope> {
        let every = proptest::collection::vec(bound(), 1..4).prop_map(|bounds| bounds.join(","));
        every.prop_filter_map("bounds with odd commas", |text| text.parse().ok())
    }

    fn any_object() -> impl Strategy<Value = Object> {
        let label = || "[a-c]{1,2}";
        let name = (any::<bool>(), proptest::collection::vec(label(), 1..5))
            .prop_map(|(star, labels)| format!("{}{}", if star { "*." } else { "" }, labels.join(".")));
        let list = |of: BoxedStrategy<String>| proptest::option::of(proptest::collection::vec(of, 0..3));
        (
            proptest::option::of(label()),
            proptest::option::of(label()),
            proptest::option::of(label()),
            list(name.boxed()),
            list(label().boxed()),
            proptest::option::of(
                proptest::collection::vec(label(), 1..4).prop_map(|path| format!("/{}", path.join("/"))),
            ),
        )
            .prop_map(|(profile, issuer, team, names, targets, path)| Object {
                profile,
                issuer,
                team,
                names,
                targets,
                path,
            })
    }

    proptest! {
        #[test]
        fn scopes_roundtrip_through_display(scope in any_scope()) {
            prop_assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
        }

        /// Checks that an intersection grants no more than either scope, and that a covered scope contains no further objects.
        #[test]
        fn covering_scopes_reach_everything_the_covered_scope_reaches(wide in any_scope(), narrow in any_scope(), object in any_object()) {
            if wide.covers(&narrow) && narrow.reaches(&object) {
                prop_assert!(wide.reaches(&object), "{wide} covers {narrow}");
            }
            if let Ok(both) = format!("{wide},{narrow}").parse::<Scope>() {
                prop_assert!(wide.covers(&both) && narrow.covers(&both), "{wide} {narrow}: {both}");
                prop_assert_eq!(both.reaches(&object), wide.reaches(&object) && narrow.reaches(&object));
            }
        }

        #[test]
        fn parsing_arbitrary_scope_text_does_not_panic(text in "(any|[a-z]{1,8}:|,|\\*|/|\\.|[a-c]){0,12}") {
            let _ = text.parse::<Scope>();
        }
    }
}
