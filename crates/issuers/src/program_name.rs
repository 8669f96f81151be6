//! Program names, as used in issuer configurations.

use std::fmt;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Hint for a configuration that contains a command instead of a program's name.
const PROGRAM_NAME_HINT: &str = "give the name of a program instead of its command: add [programs.NAME] with argv to the server's \
 configuration file and put NAME here";

/// The name of a program of the server's configuration, `[programs.NAME]`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ProgramName(String);

impl ProgramName {
    /// Creates the name of `[programs.NAME]`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProgramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ProgramName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = ProgramName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a program, [programs.NAME] in the server's configuration file")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ProgramName, E> {
        Ok(ProgramName::new(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ProgramName, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Err(A::Error::custom(PROGRAM_NAME_HINT))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ProgramName, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Err(A::Error::custom(PROGRAM_NAME_HINT))
    }
}

/// Obsolete configuration field `argv`. Any value is rejected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FormerArgv;

impl<'de> Deserialize<'de> for FormerArgv {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(format_args!("argv: {PROGRAM_NAME_HINT}, as `program`")))
    }
}
