//! Traits of the enums that the macros declare.

/// Spellings of a name that `FromStr` accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spelling {
    /// Only the exact name.
    Exact,
    /// The name in any ASCII case.
    AnyCase,
    /// The name in any ASCII case, with or without hyphens and underscores.
    AnySpelling,
}

/// An enum whose values have names.
pub trait Named: Copy + 'static {
    /// Noun for one value, used in error messages: `job state`.
    const NOUN: &'static str;
    /// Every value, in declaration order.
    const ALL: &'static [Self];
    /// The names, in declaration order.
    const NAMES: &'static [&'static str];
    /// Accepted spellings of a name.
    const SPELLING: Spelling;

    /// Returns the name of this value.
    fn name(self) -> &'static str;
}

/// An enum whose values have integer codes in the database.
pub trait Coded: Named {
    /// Returns the code that the database stores for this value.
    fn code(self) -> i64;

    /// Returns the value with this code; `None` if no value has it.
    fn from_code(code: i64) -> Option<Self>;
}

/// Returns the value with this name, in any spelling that `T` accepts.
#[doc(hidden)]
#[must_use]
pub fn find<T: Named>(text: &str) -> Option<T> {
    let letters = |text: &str| -> String { text.chars().filter(|c| !matches!(c, '-' | '_')).collect() };
    T::ALL.iter().copied().find(|value| match T::SPELLING {
        Spelling::Exact => value.name() == text,
        Spelling::AnyCase => value.name().eq_ignore_ascii_case(text),
        Spelling::AnySpelling => letters(value.name()).eq_ignore_ascii_case(&letters(text)),
    })
}

/// Returns whether all names are different.
#[doc(hidden)]
#[must_use]
pub const fn distinct(names: &[&str]) -> bool {
    let mut at = 0;
    while at < names.len() {
        let mut other = at + 1;
        while other < names.len() {
            if equal(names[at].as_bytes(), names[other].as_bytes()) {
                return false;
            }
            other += 1;
        }
        at += 1;
    }
    true
}

const fn equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}
