//! The macros `named!` and `coded!`, which declare enums whose values have names, or names and codes.

/// Declares an enum whose values have names: `pub enum Kind: "noun for errors" { Variant => "name", … }`.
///
/// After the noun, `in any case` makes `FromStr` and `Deserialize` ignore ASCII case; `in any spelling` makes them ignore
/// hyphens and underscores too.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $enum:ident: $noun:literal $(in any $spelling:ident)? {
            $($(#[$doc:meta])* $variant:ident => $name:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        $visibility enum $enum {
            $($(#[$doc])* $variant),+
        }

        $crate::__named!($visibility $enum, $noun, ($($spelling)?), $($variant $name),+);
    };
}

/// Declares an enum whose values have names and codes: `pub enum State: "noun for errors" { Variant = 0 => "name", … }`.
///
/// The noun takes the same additions as in [`named!`](crate::named!). The database stores the codes, so a code must never be reused
/// for another value.
#[macro_export]
macro_rules! coded {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $enum:ident: $noun:literal $(in any $spelling:ident)? {
            $($(#[$doc:meta])* $variant:ident = $code:literal => $name:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        $visibility enum $enum {
            $($(#[$doc])* $variant = $code),+
        }

        $crate::__named!($visibility $enum, $noun, ($($spelling)?), $($variant $name),+);

        impl $enum {
            /// Returns the code that the database stores.
            #[must_use]
            $visibility const fn code(self) -> i64 {
                self as i64
            }

            /// Returns the value with this code.
            #[must_use]
            $visibility const fn from_code(code: i64) -> ::std::option::Option<Self> {
                match code {
                    $($code => ::std::option::Option::Some(Self::$variant),)+
                    _ => ::std::option::Option::None,
                }
            }
        }

        impl $crate::Coded for $enum {
            fn code(self) -> i64 {
                self.code()
            }

            fn from_code(code: i64) -> ::std::option::Option<Self> {
                Self::from_code(code)
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __spelling {
    () => {
        $crate::Spelling::Exact
    };
    (case) => {
        $crate::Spelling::AnyCase
    };
    (spelling) => {
        $crate::Spelling::AnySpelling
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __named {
    ($visibility:vis $enum:ident, $noun:literal, ($($spelling:ident)?), $($variant:ident $name:literal),+) => {
        #[allow(dead_code, reason = "an enum of one module need not use all that its declaration gives")]
        impl $enum {
            /// Every value, in declaration order.
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name in JSON, on the command line and in messages.
            #[must_use]
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        const _: () = assert!($crate::private::distinct(&[$($name),+]), "two values have the same name");

        impl $crate::Named for $enum {
            const NOUN: &'static str = $noun;
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            const NAMES: &'static [&'static str] = &[$($name),+];
            const SPELLING: $crate::Spelling = $crate::__spelling!($($spelling)?);

            fn name(self) -> &'static str {
                self.name()
            }
        }

        impl ::std::fmt::Display for $enum {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $enum {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::UnknownName> {
                $crate::private::find(text).ok_or_else(|| $crate::UnknownName::of::<Self>(text))
            }
        }

        impl $crate::private::serde::Serialize for $enum {
            fn serialize<S: $crate::private::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> $crate::private::serde::Deserialize<'de> for $enum {
            fn deserialize<D: $crate::private::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                $crate::private::deserialize(deserializer)
            }
        }
    };
}
